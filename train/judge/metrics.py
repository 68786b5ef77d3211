"""How good predicted affinities are, with intervals.

e is predicted minus measured pK; all sums run over rows with an exact measurement ("=" or "~").

    RMSE      sqrt(mean e^2)
    MAE       mean |e|
    bias      mean e
    Pearson   r = S_xy / sqrt(S_xx S_yy)
    Spearman  Pearson of the mid-ranks (ties share the mean of their ranks)
    SD        sqrt(sum (y - a - b x)^2 / (N - 1)), a and b by least squares: with Pearson the "scoring
              power" of CASF-2013 and CASF-2016
    ranking   mean over targets of Spearman within the target: the "ranking power" of CASF-2016

CASF-2013: Li et al., J. Chem. Inf. Model. 54 (2014) 1717, doi:10.1021/ci500081m. CASF-2016: Su et al.,
J. Chem. Inf. Model. 59 (2019) 895, doi:10.1021/acs.jcim.8b00545.

A censored label says only that pK is below ("<") or above (">") a bound. A prediction on the right
side of it has no error; on the wrong side it violates the bound by the distance. Violations are
reported apart, and censored rows enter none of the figures above.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...shards.errors import DataError
from .bootstrap import FEWEST, Floats, Ints, interval, units, weights
from .correlation import ROUNDING, moments, ratio, spearman

Labels = Sequence[str] | NDArray[Any]

EXACT: Final = ("=", "~")
BELOW: Final = ("<", "<=")
ABOVE: Final = (">", ">=")
# Compounds a target needs before Spearman within it is looked at; every target of CASF-2016 has five.
TARGET_SIZES: Final = {"within_target": 8, "ranking": 5}
MIN_ROWS: Final = 8
STATISTICS: Final = ("rmse", "mae", "bias", "pearson", "spearman", "sd", *TARGET_SIZES)
LOWER_IS_BETTER: Final = frozenset({"rmse", "mae", "sd"})


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows with an exact measurement, ready to be judged: measured pK, unit of resampling, targets."""

    true: Floats
    unit: Ints
    targets: tuple[Ints, ...]  # row numbers of each target

    @property
    def n_units(self) -> int:
        """Units that can be drawn."""
        return int(self.unit.max()) + 1 if len(self.unit) else 0


def _by_target(rows: Rows, pred: Floats, w: Floats) -> dict[str, Floats]:
    """Mean Spearman within targets of at least as many compounds as TARGET_SIZES says, (b,) each.

    A target counts as often as its rows were drawn. Where predictions do not vary within a target they
    rank nothing: 0 there, and NaN overall if they vary in no target at all.
    """
    total = {name: np.zeros(len(w)) for name in TARGET_SIZES}
    count = {name: np.zeros(len(w)) for name in TARGET_SIZES}
    ranked = dict.fromkeys(TARGET_SIZES, False)
    for where in rows.targets:
        names = [name for name, size in TARGET_SIZES.items() if len(where) >= size]
        true, guess = rows.true[where], pred[where]
        if not names or np.ptp(true) == 0:
            continue
        varies = bool(np.ptp(guess) > ROUNDING * np.abs(guess).max())
        rho = spearman(guess, true, w[:, where]) if varies else np.zeros(len(w))
        share = np.where(np.isfinite(rho), w[:, where].mean(axis=1), 0)
        for name in names:
            ranked[name] |= varies
            total[name] += share * np.nan_to_num(rho)
            count[name] += share
    nothing = np.full(len(w), np.nan)
    return {
        name: np.divide(total[name], count[name], out=nothing.copy(), where=count[name] > 0)
        if ranked[name] else nothing
        for name in TARGET_SIZES
    }  # fmt: skip


def statistics(rows: Rows, pred: Floats, w: Floats) -> dict[str, Floats]:
    """All of STATISTICS for each row of weights: (n,), (b, n) -> (b,) each."""
    error = pred - rows.true
    n = w.sum(axis=1)
    total = np.maximum(n, 1)
    sxx, syy, sxy = moments(pred, rows.true, w)
    explained = np.divide(sxy * sxy, sxx, out=np.zeros_like(sxx), where=sxx > 0)
    residual = np.maximum(syy - explained, 0)
    return {
        "rmse": np.sqrt(w @ error**2 / total),
        "mae": w @ np.abs(error) / total,
        "bias": w @ error / total,
        "pearson": ratio(sxx, syy, sxy),
        "spearman": spearman(pred, rows.true, w),
        "sd": np.sqrt(np.divide(residual, n - 1, out=np.full_like(n, np.nan), where=n > 1)),
        **_by_target(rows, pred, w),
    }


def _figures(rows: Rows, judge: Callable[[Floats], dict[str, Floats]], n_boot: int, seed: int
             ) -> dict[str, Any]:  # fmt: skip
    """Point estimates by weights of one under each name, intervals by resampling under name_ci."""
    if not len(rows.true):
        return dict.fromkeys((*STATISTICS, *(f"{name}_ci" for name in STATISTICS)))
    point = judge(np.ones((1, len(rows.true))))
    pieces: list[dict[str, Floats]] = []
    if rows.n_units >= FEWEST:
        pieces = [judge(w) for w in weights(rows.unit, n_boot, seed)]
    result: dict[str, Any] = {}
    for name in STATISTICS:
        value = float(point[name][0])
        result[name] = value if np.isfinite(value) else None
        drawn = np.concatenate([p[name] for p in pieces]) if pieces else np.zeros(0)
        result[f"{name}_ci"] = interval(drawn) if np.isfinite(value) else None
    return result


def exact(y_true: Floats, relations: Labels | None) -> NDArray[np.bool_]:
    """Mask of rows with a measured value rather than a bound or nothing, shape (n,)."""
    if relations is None:
        return np.isfinite(y_true)
    return np.isfinite(y_true) & np.isin(np.asarray(relations, dtype=object), EXACT)


def _rows(true: Floats, mask: NDArray[np.bool_], groups: Labels | None, targets: Labels | None) -> Rows:
    where = [int(row) for row in np.flatnonzero(mask)]
    by_target: dict[Any, list[int]] = {}
    if targets is not None:
        for row, source in enumerate(where):
            if targets[source]:
                by_target.setdefault(targets[source], []).append(row)
    grouped = None if groups is None else [groups[i] for i in where]
    rows = tuple(np.array(r, dtype=np.int64) for r in by_target.values())
    return Rows(true[mask], units(grouped, len(where)), rows)


def _array(values: ArrayLike, what: str, n: int | None = None, finite: bool = False) -> Floats:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or (n is not None and len(array) != n):
        expected = "one dimension" if n is None else f"shape ({n},)"
        raise DataError(f"{what} has shape {array.shape}, expected {expected}; give one value a complex")
    bad = np.flatnonzero(~np.isfinite(array)) if finite else np.zeros(0, dtype=np.int64)
    if len(bad):
        raise DataError(
            f"{what} has {len(bad)} values that are not finite (the first in row {bad[0]}), expected none; "
            "look for a diverged run or choose an earlier checkpoint"
        )
    return array


def _censored(true: Floats, pred: Floats, relations: Labels | None) -> dict[str, Any]:
    """Bounds and how far predictions lie on the wrong side of them, in pK units."""
    relation = np.asarray([] if relations is None else relations, dtype=object)
    known = np.isfinite(true)
    violation = np.zeros(0)
    if len(relation):
        below, above = np.isin(relation, BELOW) & known, np.isin(relation, ABOVE) & known
        violation = np.maximum(np.concatenate([(pred - true)[below], (true - pred)[above]]), 0)
    return {
        "n": len(violation),
        "violated": int((violation > 0).sum()),
        "mean_violation": float(violation.mean()) if len(violation) else None,
        "largest_violation": float(violation.max()) if len(violation) else None,
    }


def summarise(y_true: ArrayLike, y_pred: ArrayLike, groups: Labels | None = None,
              relations: Labels | None = None, n_boot: int = 1000, seed: int = 0, *,
              targets: Labels | None = None) -> dict[str, Any]:  # fmt: skip
    """Judge predictions, ready for JSON: an undefined figure is None, never NaN.

    Parameters
    ----------
    y_true, y_pred : pK, shape (n,); a NaN in y_true is a row without a label
    groups : labels of groups that are resampled whole, shape (n,); without them rows are resampled
    relations : "=", "~", "<", "<=", ">", ">=" or "none" on the pK scale, shape (n,); "=" if not given
    n_boot : replicates; 0 for point estimates only
    targets : labels, shape (n,), for the figures within targets

    Returns
    -------
    ``n`` labelled rows = ``n_exact`` + ``n_censored``; each of STATISTICS by its name, with its 95 %
    percentile interval ``[low, high]`` as ``<name>_ci``, None from fewer than 5 units; ``n_targets`` that
    ``within_target`` and ``ranking`` looked at; ``censored``.

    Raises
    ------
    DataError : shapes differ, or a prediction is not finite
    """
    true = _array(y_true, "y_true")
    pred = _array(y_pred, "y_pred", len(true), finite=True)
    _check_labels(len(true), groups=groups, relations=relations, targets=targets)
    mask = exact(true, relations)
    rows = _rows(true, mask, groups, targets)
    guess = pred[mask]
    censored = _censored(true, pred, relations)
    sizes = [len(r) for r in rows.targets if np.ptp(rows.true[r]) > 0]
    return {
        "n": len(guess) + censored["n"],
        "n_exact": len(guess),
        "n_censored": censored["n"],
        "n_units": rows.n_units,
        "unit": "row" if groups is None else "group",
        "n_boot": n_boot,
        "seed": seed,
        **_figures(rows, lambda w: statistics(rows, guess, w), n_boot, seed),
        "n_targets": {name: sum(s >= size for s in sizes) for name, size in TARGET_SIZES.items()},
        "censored": censored,
    }


def _check_labels(n: int, **labels: Labels | None) -> None:
    for name, values in labels.items():
        if values is not None and len(values) != n:
            raise DataError(f"{name} has {len(values)} labels, expected {n}; give one a complex")


def paired(y_true: ArrayLike, y_pred: ArrayLike, y_other: ArrayLike, groups: Labels | None = None,
           relations: Labels | None = None, n_boot: int = 1000, seed: int = 0, *,
           targets: Labels | None = None) -> dict[str, Any]:  # fmt: skip
    """Difference of each of STATISTICS, y_pred minus y_other, with intervals from the same resamples.

    Two predictors err on the same complexes, so the difference is known better than the two intervals
    suggest. An interval without 0 says that they differ, if it is drawn from ten units or more; see
    :func:`summarise` for the parameters.
    """
    true = _array(y_true, "y_true")
    first = _array(y_pred, "y_pred", len(true), finite=True)
    second = _array(y_other, "y_other", len(true), finite=True)
    _check_labels(len(true), groups=groups, relations=relations, targets=targets)
    mask = exact(true, relations)
    rows = _rows(true, mask, groups, targets)

    def difference(w: Floats) -> dict[str, Floats]:
        a, b = statistics(rows, first[mask], w), statistics(rows, second[mask], w)
        return {name: a[name] - b[name] for name in STATISTICS}

    return _figures(rows, difference, n_boot, seed)


def by_label(labels: Labels, y_true: ArrayLike, y_pred: ArrayLike, groups: Labels | None = None,
             relations: Labels | None = None, n_boot: int = 1000, seed: int = 0, *,
             targets: Labels | None = None) -> dict[str, dict[str, Any]]:  # fmt: skip
    """:func:`summarise` apart for each label (of kind, target, ...), most frequent first; "" is left out.

    A label of fewer rows than MIN_ROWS gets no intervals: so few rows are hardly resampled.
    """
    true, pred = np.asarray(y_true, dtype=np.float64), np.asarray(y_pred, dtype=np.float64)
    where: dict[str, list[int]] = {}
    for row, label in enumerate(labels):
        if label:
            where.setdefault(str(label), []).append(row)

    def pick(values: Labels | None, rows: list[int]) -> list[Any] | None:
        return None if values is None else [values[i] for i in rows]

    return {
        label: summarise(true[rows], pred[rows], pick(groups, rows), pick(relations, rows),
                         n_boot if len(rows) >= MIN_ROWS else 0, seed, targets=pick(targets, rows))
        for label, rows in sorted(where.items(), key=lambda item: (-len(item[1]), item[0]))
    }  # fmt: skip


def casf(summary: Mapping[str, Any]) -> dict[str, Any]:
    """The figures of a summary that CASF-2016 reports, by its names."""
    return {
        "scoring_power": {name: summary[name] for name in ("pearson", "pearson_ci", "sd", "sd_ci")},
        "ranking_power": {
            "spearman": summary["ranking"],
            "spearman_ci": summary["ranking_ci"],
            "targets": summary["n_targets"]["ranking"],
        },
    }
