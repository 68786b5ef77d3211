"""Pearson and Spearman correlation in weighted samples, many sets of weights at once.

A weight is how often a row occurs, so a whole number of weights is a sample with repeats, ranks included.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from .bootstrap import Floats

ROUNDING: Final = 1e-13  # a spread this small beside the values is rounding, not a spread


def pearson(x: Floats, y: Floats, w: Floats) -> Floats:
    """Pearson correlation of each row of weights: (n,), (n,), (b, n) -> (b,); NaN if constant."""
    return ratio(*moments(x, y, w))


def spearman(x: Floats, y: Floats, w: Floats) -> Floats:
    """Spearman correlation, ties at their mean rank: (n,), (n,), (b, n) -> (b,); NaN if constant."""
    middle = (w.sum(axis=1, keepdims=True) + 1) / 2  # the mean of the mid-ranks, whatever the ties
    a, b = mid_ranks(x, w) - middle, mid_ranks(y, w) - middle
    return ratio((w * a * a).sum(axis=1), (w * b * b).sum(axis=1), (w * a * b).sum(axis=1))


def moments(x: Floats, y: Floats, w: Floats) -> tuple[Floats, Floats, Floats]:
    """Sums of squares and products about the means, S_xx, S_yy and S_xy: (n,), (n,), (b, n) -> (b,) each.

    A spread that is only rounding is given as 0.
    """
    floor_x, floor_y = (len(v) * (ROUNDING * np.abs(v).max()) ** 2 for v in (x, y))
    x, y = x - x.mean(), y - y.mean()  # near zero, so that the differences below lose no digits
    sums = w @ np.stack([np.ones_like(x), x, y, x * x, y * y, x * y], axis=1)
    n, sx, sy, sxx, syy, sxy = sums.T
    n = np.maximum(n, 1)
    var_x, var_y = sxx - sx * sx / n, syy - sy * sy / n
    var_x = np.where(var_x > np.maximum(floor_x, ROUNDING * sxx), var_x, 0)
    var_y = np.where(var_y > np.maximum(floor_y, ROUNDING * syy), var_y, 0)
    return var_x, var_y, sxy - sx * sy / n


def ratio(sxx: Floats, syy: Floats, sxy: Floats) -> Floats:
    """The correlation of moments, NaN where one of them does not vary."""
    spread = np.sqrt(sxx) * np.sqrt(syy)
    r: Floats = np.divide(sxy, spread, out=np.full_like(spread, np.nan), where=spread > 0)
    return np.clip(r, -1.0, 1.0)


def mid_ranks(x: Floats, w: Floats) -> Floats:
    """Rank of each row, from 1, in the sample that has it w times: (n,), (b, n) -> (b, n)."""
    order = np.argsort(x, kind="stable")
    is_first = np.diff(x[order], prepend=-np.inf) != 0
    count = np.add.reduceat(w[:, order], np.flatnonzero(is_first), axis=1)  # of each distinct value
    rank = np.cumsum(count, axis=1) - (count - 1) / 2
    distinct = np.empty(len(x), dtype=np.int64)
    distinct[order] = np.cumsum(is_first) - 1
    return rank[:, distinct]
