"""Resampling as weights: a replicate is a row of whole numbers that says how often each row was drawn.

A statistic that takes weights then serves for the point estimate (all ones) and for every replicate,
and two predictors judged on the same weights give a paired difference. Where rows come in groups
(the compounds of one protein family, say) whole groups are drawn, because rows of one group are not
independent: Efron & Tibshirani, An Introduction to the Bootstrap (1993), chapter 13 for the percentile
interval; Davison & Hinkley, Bootstrap Methods and their Application (1997), section 3.8 for groups.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

LEVEL: Final = 0.95
# Intervals from few groups are too narrow (Cameron, Gelbach, Miller, doi:10.1162/rest.90.3.414). Of n units
# there are C(2n - 1, n) different draws: 3 of two, 35 of four, fewer than a tail of 2.5 % can be read from.
FEWEST: Final = 5  # units that give an interval
TRUSTED: Final = 10  # units whose interval needs no warning
ELEMENTS: Final = 1 << 20  # weights held at once; bounds memory, not the result


def units(groups: Sequence[Any] | NDArray[Any] | None, n: int) -> Ints:
    """Which unit of resampling each of n rows belongs to, numbered from 0 in order of appearance.

    Without groups each row is a unit; so is a row whose label is "" or None (its group is unknown).
    """
    if groups is None:
        return np.arange(n, dtype=np.int64)
    numbers: dict[Any, int] = {}
    result = np.empty(n, dtype=np.int64)
    for row, label in enumerate(groups):
        unknown = label is None or label == ""
        result[row] = numbers.setdefault((row, None) if unknown else label, len(numbers))
    return result


def counted(n: int, unit: str) -> str:
    """So many units in words: "1 cluster", "7 complexes"."""
    return f"{n} {unit}" if n == 1 else f"{n} {unit}{'es' if unit == 'complex' else 's'}"


def doubt(n_units: int, unit: str) -> str | None:
    """What is wrong with an interval that is drawn from so many units; None if nothing."""
    if n_units >= TRUSTED:
        return None
    too_few = "too few for an interval" + (" to be trusted" if n_units >= FEWEST else "")
    return f"drawn from {counted(n_units, unit)}: {too_few}"


def weights(unit: Ints, n_boot: int, seed: int) -> Iterator[Floats]:
    """Replicates as counts, in pieces of shape (some, n_rows) that add up to n_boot rows.

    Each replicate draws as many units as there are, with replacement; the rows of a unit come together.
    """
    n_units = int(unit.max()) + 1 if len(unit) else 0
    rng = np.random.default_rng(seed)
    step = max(1, ELEMENTS // max(len(unit), 1))
    for start in range(0, n_boot, step):
        size = min(step, n_boot - start)
        drawn = rng.integers(0, n_units, size=(size, n_units)) + np.arange(size)[:, None] * n_units
        counts = np.bincount(drawn.ravel(), minlength=size * n_units).reshape(size, n_units)
        yield counts[:, unit].astype(np.float64)


def interval(replicates: Floats) -> list[float] | None:
    """The percentile interval of the replicates of a statistic, [low, high].

    Replicates in which it is not defined (a constant draw has no correlation) are left out; if half of
    them or more are, or there are none, there is no interval.
    """
    defined = replicates[np.isfinite(replicates)]
    if 2 * len(defined) <= len(replicates):
        return None
    tail = 100 * (1 - LEVEL) / 2
    low, high = np.percentile(defined, [tail, 100 - tail])
    return [float(low), float(high)]
