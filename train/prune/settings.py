"""[sparsity] of a configuration, and what goes together with it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SparsityConfig:
    """Attention heads that fall silent during training, by running importance."""

    keep: float = 1.0
    """Share of the heads that stay; 1 for all."""
    start: float = 0.2
    """Share of the steps after which heads begin to fall silent."""
    end: float = 0.6
    """Share of the steps after which the choice is final."""
    every: int = 50
    """Steps from one choice to the next, in which a gate opens or closes."""


def check_sparsity(sparsity: SparsityConfig, pipeline: int, refuse: Callable[[str, str], None]) -> None:
    """Refuse what cannot be, by `refuse(key, what is expected)`."""
    if not 0 < sparsity.keep <= 1:
        refuse("sparsity.keep", "a share of the heads above 0 and up to 1")
    if not 0 <= sparsity.start < sparsity.end <= 1:
        refuse("sparsity.end", f"a share of the run after sparsity.start = {sparsity.start}, up to 1")
    if sparsity.keep < 1 and pipeline > 1:
        refuse("sparsity.keep", "1 with a pipeline, whose stages do not know each other's heads")
