"""AdamW with warm-up and cosine decay; the learning rate is a function of the step alone."""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.distributed.tensor import DTensor

from .config import OptimizerConfig


def make_optimizer(model: nn.Module, config: OptimizerConfig) -> torch.optim.AdamW:
    """AdamW (doi:10.48550/arXiv.1711.05101) that decays matrices, but no bias, norm or embedding."""
    matrices = {id(m.weight) for m in model.modules() if isinstance(m, nn.Linear)}
    groups: dict[tuple[bool, tuple[str, ...]], list[nn.Parameter]] = {(True, ()): [], (False, ()): []}
    for parameter in model.parameters():
        # A fused step cannot take parameters that lie on different meshes together.
        mesh = parameter.device_mesh.mesh_dim_names or () if isinstance(parameter, DTensor) else ()
        groups.setdefault((id(parameter) in matrices, mesh), []).append(parameter)
    return torch.optim.AdamW(
        [
            {"params": parameters, "weight_decay": config.weight_decay if decays else 0.0}
            for (decays, _), parameters in groups.items() if parameters
        ],
        lr=config.lr, betas=(config.beta1, config.beta2), fused=True,
    )  # fmt: skip


def learning_rate(config: OptimizerConfig, step: int, last_step: int) -> float:
    """Linear from 0 over the warm-up, then half a cosine down to min_lr * lr at the last step."""
    warmup = config.warmup * last_step
    if step < warmup:
        return config.lr * (step + 1) / (warmup + 1)
    share = min((step - warmup) / max(last_step - 1 - warmup, 1), 1.0)
    return config.lr * (config.min_lr + (1 - config.min_lr) * 0.5 * (1 + math.cos(math.pi * share)))
