"""A model made parallel in place: tensor parallelism, activation checkpointing, FSDP2, then its weights.

The model comes on the meta device, without memory; each process allocates only what it keeps.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from math import ceil
from typing import Any, Final, TypeVar

import torch
from torch import Tensor, nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.fsdp import CPUOffloadPolicy, FSDPModule, OffloadPolicy, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts, noop_context_fn

from ..config import ParallelConfig, TrainConfig
from ..model.transformer import AffinityTransformer, first_weights
from .mesh import World
from .pipeline import Pipeline, Stage, owners
from .precision import parameter_dtype, policy
from .tensor import split_layers

Part = TypeVar("Part", bound=AffinityTransformer)
aten = torch.ops.aten
PRODUCTS: Final = (aten.mm.default, aten.addmm.default)


def build_model(
    config: TrainConfig, world: World, mean: float, sd: float, filled: bool = True
) -> AffinityTransformer | Pipeline:
    """The model of this configuration in this world, or this process's stages.

    Parameters
    ----------
    mean, sd : of the training labels, pK units
    filled : with first weights; else made on the device as it is, for a mode in which that costs nothing
    """

    def build(make: Callable[[], Part]) -> Part:
        with torch.device("meta" if filled else world.device), _default(parameter_dtype(config.precision)):
            model = make()
        if world.mesh is not None and config.parallel.tensor > 1:
            split_layers(model, world.mesh["tensor"])
        recompute(model, config.parallel)
        if world.mesh is not None:
            shard(model, config, world)
        if filled:
            model.to_empty(device="cpu" if config.parallel.offload else world.device)
            fill(model, config.seed, mean, sd)
        return model

    if world.sizes["pipeline"] == 1:
        return build(lambda: AffinityTransformer(config.model))
    assert world.mesh is not None
    me, holders = world.mesh.get_local_rank("pipeline"), owners(config.parallel)
    own = [number for number, holder in enumerate(holders) if holder == me]
    stages = {n: build(partial(Stage, config.model, n, len(holders))) for n in own}
    return Pipeline(stages, config, world)


@contextmanager
def _default(dtype: torch.dtype) -> Iterator[None]:
    """Make floating-point tensors of this format."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def recompute(model: AffinityTransformer, parallel: ParallelConfig) -> None:
    """Make layers compute their activations again in backward instead of keeping them."""
    share = parallel.recomputed_layers
    for i, (name, layer) in enumerate(model.layers.items()):
        if ceil((i + 1) * share) > ceil(i * share):  # spread evenly; the first is one of them
            model.layers[name] = checkpoint_wrapper(
                layer, context_fn=_keep_products if parallel.checkpointing == "selective" else noop_context_fn
            )


def _keep_products() -> Any:
    """Keep what linear maps gave but the widening ones, and compute everything else again.

    Linear maps cost most; scores of attention cost little and, with what the feed-forward part widens, take
    most memory (Korthikanti et al., doi:10.48550/arXiv.2205.05198).
    """
    return create_selective_checkpoint_contexts(_kept)  # type: ignore[no-untyped-call]


def _kept(context: Any, op: Any, *arguments: Any, **more: Any) -> CheckpointPolicy:
    if op in PRODUCTS:
        rows, columns = arguments[-2:]  # (n, inputs) and (inputs, outputs)
        if columns.shape[1] <= rows.shape[1]:
            return CheckpointPolicy.MUST_SAVE
    return CheckpointPolicy.PREFER_RECOMPUTE


def shard(model: AffinityTransformer, config: TrainConfig, world: World) -> None:
    """Wrap embedding, every layer and head as FSDP units, and the rest as the root."""
    parallel = config.parallel
    assert world.mesh is not None
    # Where replicas meet in the optimizer, FSDP knows of one replica only.
    hybrid = parallel.replicate > 1 and not config.apart
    mesh = world.mesh["replicate", "shard"] if hybrid else world.mesh["shard"]
    pinned = world.device.type == "cuda"
    offload = CPUOffloadPolicy(pin_memory=pinned) if parallel.offload else OffloadPolicy()
    ends = dict(model.named_children())  # a stage may have neither
    units = [u for u in (ends.get("embedding"), *model.layers.values(), ends.get("head")) if u is not None]
    # A linear map that layers share is a unit of its own; nobody changes what it returns in place.
    warnings.filterwarnings("ignore", "FSDP2-wrapped module .* returned a view tensor", UserWarning)
    last = (*list(model.layers.values())[-1:], ends.get("head"))
    for unit in (*shared_modules(model), *units, model):  # what layers share no layer may own
        # Backward begins with the last: freed after forward, they would be gathered again at once.
        keep = parallel.reshard == "full" and any(unit is end for end in last)
        fully_shard(
            unit, mesh=mesh, mp_policy=policy(config.precision), offload_policy=offload,
            reshard_after_forward=False if keep else reshard(parallel),
        )  # fmt: skip
    for module in model.modules():
        if isinstance(module, FSDPModule):
            # Losses are sums over the global batch already divided by its weight: gradients are summed.
            # Without the second call FSDP asks for a scaled sum, which gloo does not have.
            module.set_gradient_divide_factor(1.0)
            module.set_force_sum_reduction_for_comms(True)
    for i, unit in enumerate(units):
        _fsdp(unit).set_modules_to_forward_prefetch(
            [_fsdp(u) for u in units[i + 1 : i + 1 + parallel.prefetch]]
        )
        before = units[max(0, i - parallel.prefetch) : i][::-1]
        _fsdp(unit).set_modules_to_backward_prefetch([_fsdp(u) for u in before])


def shared_modules(model: AffinityTransformer) -> list[nn.Module]:
    """The linear maps that more than one layer uses, each once."""
    users = Counter(layer.get_submodule("feed_forward.down") for layer in layers_of(model))
    return [module for module, count in users.items() if count > 1]


def layers_of(model: AffinityTransformer) -> list[nn.Module]:
    """The layers, without what activation checkpointing wraps around them."""
    return [getattr(layer, "_checkpoint_wrapped_module", layer) for layer in model.layers.values()]


def reshard(parallel: ParallelConfig) -> bool | int:
    """What fully_shard calls reshard_after_forward."""
    return parallel.reshard_size if parallel.reshard == "part" else parallel.reshard == "full"


def fill(model: AffinityTransformer, seed: int, mean: float, sd: float) -> None:
    """Give parameters and buffers their first values, each process its own part."""
    with torch.no_grad():
        for parameter, value in first_weights(model, seed):
            place(parameter, value)
        for name, number in (("target_mean", mean), ("target_sd", sd)):
            buffer = dict(model.named_buffers()).get(name)
            if buffer is not None:  # only the last stage of a pipeline has them
                setattr(model, name, torch.full_like(buffer, number, dtype=torch.float32))


def place(target: Tensor, value: Tensor) -> None:
    """Copy a whole tensor into a parameter of which this process may hold a part."""
    if isinstance(target, DTensor):
        value = value.to(target.to_local().device, target.dtype)
        target.copy_(distribute_tensor(value, target.device_mesh, target.placements, src_data_rank=None))
    else:
        target.copy_(value)


def release(model: nn.Module) -> None:
    """Free gathered weights, which FSDP keeps after a forward without backward."""
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.reshard()


def synchronise(model: nn.Module, last: bool, keep: bool) -> None:
    """Let gradients be exchanged in the coming backward, or only kept (pieces but the last).

    Parameters
    ----------
    keep : keep those of whole matrices until the last piece, which costs their memory; else each piece
        sums its gradients within the shard axis, and only replicas wait for the last
    """
    if isinstance(model, FSDPModule):
        model.set_requires_gradient_sync(last or not keep)
        model.set_requires_all_reduce(last)
        model.set_is_last_backward(last)


def _fsdp(module: nn.Module) -> FSDPModule:
    assert isinstance(module, FSDPModule)
    return module
