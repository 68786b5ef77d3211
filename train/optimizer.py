"""AdamW with warm-up and cosine decay; the learning rate is a function of the step alone."""

from __future__ import annotations

import math

import torch
from torch import nn

from .config import OptimizerConfig


def make_optimizer(model: nn.Module, config: OptimizerConfig) -> torch.optim.AdamW:
    """AdamW (doi:10.48550/arXiv.1711.05101) that decays matrices, but no bias, norm or embedding."""
    matrices = {id(m.weight) for m in model.modules() if isinstance(m, nn.Linear)}
    decayed = [p for p in model.parameters() if id(p) in matrices]
    others = [p for p in model.parameters() if id(p) not in matrices]
    groups = [
        {"params": decayed, "weight_decay": config.weight_decay},
        {"params": others, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=config.lr, betas=(config.beta1, config.beta2), fused=True)


def learning_rate(config: OptimizerConfig, step: int, last_step: int) -> float:
    """Linear from 0 over the warm-up, then half a cosine down to min_lr * lr at the last step."""
    warmup = config.warmup * last_step
    if step < warmup:
        return config.lr * (step + 1) / (warmup + 1)
    share = min((step - warmup) / max(last_step - 1 - warmup, 1), 1.0)
    return config.lr * (config.min_lr + (1 - config.min_lr) * 0.5 * (1 + math.cos(math.pi * share)))
