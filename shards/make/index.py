"""The index of a data set: what is known of each complex without reading a shard."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..complex import FIELDS, Axis
from ..errors import FormatError
from ..format.block import Block
from ..format.codec import from_fixed
from ..format.manifest import ShardInfo
from ..format.records import texts_of
from .moments import Moments

_POSITION: Final = next(field for field in FIELDS if field.key == "position")
PLACES: Final = ("split", "shard", "block", "row")
SIZES: Final[dict[str, Axis]] = {"n_atoms": "atom", "n_bonds": "bond", "n_residues": "residue"}


@dataclass(frozen=True, slots=True)
class SingleValues:
    """What an index keeps of a block: ids, columns of one value a complex, sums over positions."""

    ids: list[bytes]
    columns: dict[str, NDArray[Any]]
    moments: Moments


def single_values(block: Block) -> SingleValues:
    """Of a raw block."""
    found: dict[str, NDArray[Any]] = {k: block.counts[a].astype(np.uint32) for k, a in SIZES.items()}
    for key, field in block.fields.items():
        if field.axis == "complex" and not field.shape and key in block.columns:
            column = block.columns[key]
            found[key] = from_fixed(column, field.per_unit) if field.per_unit else np.array(column)
    ids = [t["id"].encode() for t in texts_of(block)]
    return SingleValues(ids, found, Moments.of(block.columns["position"]))


class IndexColumns:
    """Collects the columns of the complex axis while blocks are written, in the order of the rows."""

    def __init__(self) -> None:
        self._ids: list[bytes] = []
        self._columns: dict[str, list[NDArray[Any]]] = {}
        self._sizes: list[int] = []
        self._earlier: dict[str, Moments | None] = {}  # by split, of a data set that is extended
        self._moments: list[tuple[int, Moments]] = []  # first complex, positions

    def load(self, arrays: Mapping[str, NDArray[Any]], statistics: Mapping[str, Any]) -> None:
        """Begin with the index of a data set, as :meth:`arrays` and :meth:`statistics` gave it."""
        self._earlier = {
            split: Moments.from_plain(found["position"], _POSITION.per_unit) if "position" in found else None
            for split, found in statistics.items()
        }
        self._ids = arrays["id"].tolist()
        self._columns = {k: [a] for k, a in arrays.items() if k not in ("id", *PLACES)}
        self._sizes = [len(self._ids)]

    def append(self, block: Block) -> None:
        """Take the single values a complex of a raw block, and sums over its positions."""
        self.add(single_values(block))

    def add(self, told: SingleValues) -> None:
        """Take what :func:`single_values` found in the next block."""
        self._moments.append((len(self._ids), told.moments))
        self._ids += told.ids
        found, n = told.columns, len(told.ids)
        for key, column in found.items():
            if key not in self._columns:
                self._columns[key] = [_blank(n, column) for n in self._sizes]
            self._columns[key].append(column)
        for key, columns in self._columns.items():
            if key not in found:
                columns.append(_blank(n, columns[-1]))
        self._sizes.append(n)

    def check_unique(self) -> None:
        """FormatError if an id comes twice."""
        if len(set(self._ids)) < len(self._ids):
            seen: set[bytes] = set()
            twice = next(i for i in self._ids if i in seen or seen.add(i))  # type: ignore[func-returns-value]
            raise FormatError(f"complex {twice.decode()!r} comes twice; ids are unique in a data set")

    def column(self, key: str) -> NDArray[Any]:
        """One column over all complexes."""
        return np.concatenate(self._columns[key])

    def arrays(self, shards: Sequence[ShardInfo], block_size: int) -> dict[str, NDArray[Any]]:
        """Every column, with the place of each complex."""
        n = np.array([s.n_complexes for s in shards], np.int64)
        row = np.concatenate([np.arange(k) for k in n]) if len(n) else np.zeros(0, np.int64)
        splits = list(dict.fromkeys(s.split for s in shards))
        first_block = np.cumsum(-(-n // block_size)) - -(-n // block_size)
        return {
            "id": np.array(self._ids, dtype=f"S{max(map(len, self._ids), default=1)}"),
            "split": np.repeat(np.array([splits.index(s.split) for s in shards], np.uint8), n),
            "shard": np.repeat(np.arange(len(n), dtype=np.uint32), n),
            "block": (np.repeat(first_block, n) + row // block_size).astype(np.uint32),
            "row": (row % block_size).astype(np.uint32),
            **{key: np.concatenate(columns) for key, columns in self._columns.items()},
        }

    def statistics(self, shards: Sequence[ShardInfo]) -> dict[str, Any]:
        """Per split: sizes, labels and coordinates (relative to the centres), as plain data."""
        n = np.array([s.n_complexes for s in shards], np.int64)
        of_shard = np.repeat(np.arange(len(n)), n)
        positions = self._positions([s.split for s in shards], n)
        atoms, pk = self.column("n_atoms"), self.column("pk")
        found: dict[str, dict[str, Any]] = {}
        for split in dict.fromkeys(s.split for s in shards):
            inside = np.isin(of_shard, [i for i, s in enumerate(shards) if s.split == split])
            labels = pk[inside].astype(np.float64)
            labels = labels[np.isfinite(labels)]
            found[split] = {
                "n_complexes": int(inside.sum()),
                "n_labelled": len(labels),
                "atoms_mean": round(float(atoms[inside].mean()), 3),
                "atoms_max": int(atoms[inside].max()),
                "pk_mean": _round(labels.mean() if len(labels) else math.nan),
                "pk_std": _round(labels.std() if len(labels) else math.nan),
            }
            if split in positions:
                found[split]["position"] = positions[split].plain(_POSITION.per_unit)
        return found

    def _positions(self, splits: Sequence[str], n: NDArray[np.int64]) -> dict[str, Moments]:
        """Sums over positions by split; without a split whose earlier part has none."""
        found = {split: Moments() for split in dict.fromkeys(splits)}
        for split, earlier in self._earlier.items():
            if earlier is None:
                found.pop(split, None)
            else:
                found[split].add(earlier)
        ends = np.cumsum(n)
        for first, moments in self._moments:
            split = splits[int(np.searchsorted(ends, first, side="right"))]
            if split in found:
                found[split].add(moments)
        return found


def _round(value: float) -> float | None:
    return round(float(value), 6) if math.isfinite(value) else None


def _blank(n: int, like: NDArray[Any]) -> NDArray[Any]:
    return np.full((n, *like.shape[1:]), np.nan if like.dtype.kind == "f" else 0, like.dtype)
