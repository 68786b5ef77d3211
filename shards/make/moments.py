"""Mean, spread and reach of coordinates, from sums of whole thousandths: exact, in any order."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray


def _zeros() -> list[int]:
    return [0, 0, 0]


@dataclass(slots=True)
class Moments:
    """Sums over stored positions, an entry an axis.

    Attributes
    ----------
    n : atoms
    total, squares, largest : sum, sum of squares and largest magnitude of the stored integers
    """

    n: int = 0
    total: list[int] = field(default_factory=_zeros)
    squares: list[int] = field(default_factory=_zeros)
    largest: list[int] = field(default_factory=_zeros)

    @classmethod
    def of(cls, stored: NDArray[Any]) -> Moments:
        """Of integer positions, shape (n, 3)."""
        if not len(stored):
            return cls()
        axes = np.ascontiguousarray(stored.T, np.int64)  # an axis after the other: several times faster
        return cls(
            len(stored), axes.sum(axis=1).tolist(), [int(x @ x) for x in axes],
            np.maximum(axes.max(axis=1), -axes.min(axis=1)).tolist(),
        )  # fmt: skip

    @classmethod
    def from_plain(cls, found: Mapping[str, Any], per_unit: int) -> Moments:
        """Of what :meth:`plain` gave, as good as its rounding."""
        n = int(found["n"])
        mean, std = ([float(v) * per_unit for v in found[k]] for k in ("mean", "std"))
        squares = [round(n * (s * s + m * m)) for m, s in zip(mean, std, strict=True)]
        return cls(n, [round(n * m) for m in mean], squares, [round(v * per_unit) for v in found["max"]])

    def add(self, other: Moments) -> None:
        """Take in another set of atoms."""
        self.n += other.n
        for axis in range(3):
            self.total[axis] += int(other.total[axis])
            self.squares[axis] += int(other.squares[axis])
            self.largest[axis] = max(self.largest[axis], other.largest[axis])

    def plain(self, per_unit: int) -> dict[str, Any]:
        """n, and mean, std and max along x, y and z, in the unit of the positions."""
        n = max(self.n, 1)
        mean = [t / n for t in self.total]
        std = [math.sqrt(max(q / n - m * m, 0.0)) for q, m in zip(self.squares, mean, strict=True)]
        scaled: dict[str, Sequence[float]] = {"mean": mean, "std": std, "max": self.largest}
        return {"n": self.n} | {k: [round(v / per_unit, 6) for v in values] for k, values in scaled.items()}
