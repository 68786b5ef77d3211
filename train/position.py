"""How far a run has come."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Position:
    """How far a run has come: with the tensors, all that a checkpoint holds.

    There is no state of a random generator: the order of the data, noise and dropout are functions of the
    seed and of these numbers.
    """

    step: int = 0  # global batches taken
    epoch: int = 0
    step_in_epoch: int = 0  # position in the stream
    updates: int = 0  # optimizer steps: fewer than steps where some were skipped
    skipped: int = 0
    skipped_in_a_row: int = 0
    best: float | None = None  # lowest validation RMSE
    best_step: int = 0
    stale: int = 0  # validations since the best
