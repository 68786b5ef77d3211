"""The optimizer of a configuration: plain, or with what travels between replicas packed."""

from __future__ import annotations

import logging
from typing import Any

import torch
from torch import Tensor, nn

from ..config import TrainConfig
from ..optimizer import make_optimizer
from ..parallel.clip import cut_axes
from ..parallel.mesh import AXES, World
from ..topology import is_even
from .adamw import ReplicatedAdamW
from .compressor import make_compressor
from .onebit_adam import LATEST, OneBitAdam
from .replicas import GroupReplicas, Replicas
from .two_level import two_level

log = logging.getLogger("holoshard")


def optimizer_of(model: nn.Module, config: TrainConfig, world: World, steps: int) -> torch.optim.AdamW:
    """The optimizer that `config` asks for, in this process of `world`, for a run of so many `steps`."""
    if not config.apart:
        return make_optimizer(model, config.optimizer)
    assert world.mesh is not None
    layout = {
        **world.sizes, "optimizer": config.optimizer.kind, "packing": config.packing,
        "bits": config.compression.bits,
    }  # fmt: skip
    return replicated(model, config, replicas_of(world), layout, steps)


def replicas_of(world: World) -> GroupReplicas:
    """The replicas of this process; in two levels where the topology has racks of equal size."""
    assert world.mesh is not None
    group = world.mesh.get_group("replicate")
    if world.topology is None:
        return GroupReplicas(group)
    # A process group is made by all processes, members or not, in the same order.
    axis = AXES.index("replicate")
    found = None
    for ranks in world.mesh.mesh.movedim(axis, -1).reshape(-1, world.sizes["replicate"]).tolist():
        racks = world.topology.by_rack(ranks)
        if not is_even(racks):
            log.warning("replicas are spread unevenly over racks, %s: they sum in one level", racks)
            return GroupReplicas(group)
        found = two_level(group, racks, world.rank) or found
    assert found is not None
    return found


def replicated(
    model: nn.Module, config: TrainConfig, replicas: Replicas, layout: dict[str, Any], steps: int
) -> ReplicatedAdamW:
    """The optimizer of one of several replicas, whatever these are."""
    tensor = int(layout.get("tensor", 1)) > 1
    groups = make_optimizer(model, config.optimizer).param_groups
    matrices = [module.weight for module in model.modules() if isinstance(module, nn.Linear)]
    packed = [matrix for matrix in matrices if is_packed(matrix, tensor)]
    optimizer = config.optimizer
    lr, betas = optimizer.lr, (optimizer.beta1, optimizer.beta2)
    if config.packing == "none":
        packed, compressor = [], make_compressor("sign")
    else:
        compressor = make_compressor(config.packing, config.compression.bits)
    if optimizer.kind == "onebit-adam":
        return OneBitAdam(
            groups, replicas, packed, compressor, lr=lr, betas=betas, warmup=config.compression.warmup,
            latest=round(LATEST * steps), layout=layout,
        )  # fmt: skip
    # Signs alone are biased; EDEN is not, and does without buffers.
    feedback = config.packing == "sign"
    return ReplicatedAdamW(
        groups, replicas, packed, compressor, lr=lr, betas=betas, feedback=feedback, layout=layout
    )


def is_packed(parameter: Tensor, tensor: bool) -> bool:
    """True for matrices; of which tensor neighbours hold copies, none.

    Copies must stay equal, and their gradients may differ in the last bit, which a sign makes a whole step.
    """
    return (
        min(parameter.shape) > 1 and parameter.dim() == 2 and (not tensor or "tensor" in cut_axes(parameter))
    )
