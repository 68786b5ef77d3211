"""The range of every number of a configuration, each for itself: beyond it a run can only fail."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from .config import TrainConfig

Refuse = Callable[[str, str], None]

PROCESSES: Final = 65536  # along an axis: more than any job has had
_BATCH: Final = 2**24
_STEPS: Final = 10**12

# Whole numbers with the most that each may be: beyond it nothing is meant, and a machine could only give up.
_AT_LEAST_ONE: Final = {
    "data.batch_size": _BATCH, "cache.readers": 1024, "model.width": 2**20, "model.layers": 1024,
    "model.heads": 2**20, "model.rbf": 4096, "parallel.replicate": PROCESSES, "parallel.tensor": PROCESSES,
    "parallel.pipeline": PROCESSES, "parallel.accumulate": _BATCH,
    "sparsity.every": _STEPS, "precision.growth_interval": _STEPS, "checkpoint.keep": 10**6,
    "run.log_every": _STEPS, "run.max_skipped": _STEPS,
}  # fmt: skip
_NOT_NEGATIVE: Final = {
    "seed": 2**63 - 1, "data.max_atoms": 2**24, "model.hidden": 2**20, "parallel.shard": PROCESSES,
    "parallel.stages": 1024, "parallel.micro_batches": _BATCH, "parallel.reshard_size": PROCESSES,
    "parallel.prefetch": 1024, "compression.warmup": _STEPS, "checkpoint.every": _STEPS,
    "run.epochs": 10**9, "run.steps": _STEPS, "run.eval_every": _STEPS, "run.patience": _STEPS,
    "run.threads": 1024,
}  # fmt: skip
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
    ranges: list[tuple[str, float, float, str]] = [
        *((key, 1, most, f"at least 1, at most {most}") for key, most in _AT_LEAST_ONE.items()),
        *((key, 0, most, f"0 or more, at most {most}") for key, most in _NOT_NEGATIVE.items()),
        *((key, 1e-30, most, f"more than 0, at most {most:g}") for key, most in _POSITIVE.items()),
        *((key, 0.0, most, f"a number from 0 to {most:g}") for key, most in _FROM_ZERO.items()),
        ("parallel.checkpoint_every", 1.0, 1024.0, "a number from 1 (every layer) to 1024"),
    ]
    for key, low, high, expected in ranges:
        value = value_of(config, key)
        if not isinstance(value, int | float) or not low <= value <= high:
            refuse(key, expected)
