"""The range of every number of a configuration, each for itself: beyond it a run can only fail."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from .config import TrainConfig

Refuse = Callable[[str, str], None]

_AT_LEAST_ONE: Final = (
    "data.batch_size", "cache.readers", "model.width", "model.layers", "model.heads", "model.rbf",
    "parallel.replicate", "parallel.tensor", "parallel.pipeline", "parallel.accumulate",
    "parallel.checkpoint_every", "precision.growth_interval", "checkpoint.keep", "run.log_every",
    "run.max_skipped",
)  # fmt: skip
_NOT_NEGATIVE: Final = (
    "data.max_atoms", "model.hidden", "parallel.shard", "parallel.stages", "parallel.micro_batches",
    "parallel.reshard_size", "parallel.prefetch", "checkpoint.every", "run.epochs", "run.steps",
    "run.eval_every", "run.patience", "run.threads",
)  # fmt: skip
# Above 0, and at most so much. AdamW moves every weight by about lr: with 1 nothing learned is left.
_POSITIVE: Final = {
    "model.cutoff": 1000.0, "loss.delta": 1000.0, "optimizer.lr": 1.0, "precision.init_scale": 2.0**127,
}  # fmt: skip
_FROM_ZERO: Final = {
    "data.noise": 100.0, "optimizer.weight_decay": 1000.0, "optimizer.clip": 1e30, "run.hang_seconds": 1e9,
    "model.dropout": 0.99, "optimizer.min_lr": 1.0, "optimizer.warmup": 1.0,
    "optimizer.beta1": 0.999999, "optimizer.beta2": 0.999999999,
}  # fmt: skip


def check_limits(config: TrainConfig, value_of: Callable[[TrainConfig, str], object], refuse: Refuse) -> None:
    """Refuse the first number out of its range; infinity and NaN are in none."""
    ranges = [
        *((key, 1.0, math.inf, "at least 1") for key in _AT_LEAST_ONE),
        *((key, 0.0, math.inf, "0 or more") for key in _NOT_NEGATIVE),
        *((key, 1e-30, most, f"more than 0, at most {most:g}") for key, most in _POSITIVE.items()),
        *((key, 0.0, most, f"a number from 0 to {most:g}") for key, most in _FROM_ZERO.items()),
    ]
    for key, low, high, expected in ranges:
        value = value_of(config, key)
        if not isinstance(value, int | float) or not math.isfinite(value) or not low <= value <= high:
            refuse(key, expected)
