"""Some complexes as flat columns: what a block holds once it is unpacked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..complex import RAGGED_AXES, Axis, Field
from ..errors import FormatError


@dataclass(frozen=True, slots=True)
class Block:
    """Complexes as columns; the rows of one complex are together, in order, complex after complex.

    Attributes
    ----------
    fields : key -> the field as it is stored
    columns : key -> array; ``(rows, ...)`` flat over a ragged axis, ``(n_complexes, ...)`` otherwise.
        In a raw block fixed-point fields are the stored integers, else float32.
    counts : ragged axis -> rows of each complex, int64 (n_complexes,)
    starts : ragged axis -> first row of each complex in this block's own arrays, int64 (n_complexes,)
    """

    fields: Mapping[str, Field]
    columns: Mapping[str, NDArray[Any]]
    counts: Mapping[Axis, NDArray[np.int64]]
    starts: Mapping[Axis, NDArray[np.int64]]
    n_complexes: int

    @classmethod
    def of(
        cls,
        fields: Mapping[str, Field],
        columns: Mapping[str, NDArray[Any]],
        counts: Mapping[Axis, NDArray[np.int64]],
    ) -> Block:
        """A block from its counts; starts follow."""
        starts: dict[Axis, NDArray[np.int64]] = {a: np.cumsum(c) - c for a, c in counts.items()}
        return cls(fields, columns, counts, starts, len(counts["atom"]))

    def take(self, rows: NDArray[np.integer[Any]]) -> Block:
        """The complexes ``rows`` in that order, copied."""
        index: dict[Axis, NDArray[Any]] = {"complex": rows}
        for axis in RAGGED_AXES:
            if axis != "text":
                index[axis] = ragged_rows(self.starts[axis][rows], self.counts[axis][rows])
        columns = {
            k: a[index[axis]] if (axis := self.fields[k].axis) in index else self._joined(a, axis, rows)
            for k, a in self.columns.items()
        }
        return Block.of(self.fields, columns, {a: c[rows] for a, c in self.counts.items()})

    def _joined(self, column: NDArray[Any], axis: Axis, rows: NDArray[np.integer[Any]]) -> NDArray[Any]:
        """Rows of some complexes piece by piece: for long pieces, such as text, quicker than row by row."""
        starts = self.starts[axis][rows]
        stops = starts + self.counts[axis][rows]
        pieces = [column[a:b] for a, b in zip(starts.tolist(), stops.tolist(), strict=True)]
        return np.concatenate(pieces) if pieces else column[:0].copy()

    def slice(self, start: int, stop: int) -> Block:
        """Complexes start to stop, as views."""
        bounds: dict[Axis, slice] = {"complex": slice(start, stop)}
        for axis in RAGGED_AXES:
            first = self.starts[axis][start] if start < stop else 0
            bounds[axis] = slice(int(first), int(first + self.counts[axis][start:stop].sum()))
        columns = {k: a[bounds[self.fields[k].axis]] for k, a in self.columns.items()}
        return Block.of(self.fields, columns, {a: c[start:stop] for a, c in self.counts.items()})


def ragged_rows(starts: NDArray[np.int64], counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Indices starts[0] .. starts[0] + counts[0], then starts[1] .., concatenated."""
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    rows: NDArray[np.int64] = np.arange(total) + np.repeat(starts - (ends - counts), counts)
    return rows


def concatenate(blocks: Sequence[Block]) -> Block:
    """Blocks one after the other; a column that a block lacks is blank there, mixed widths widen."""
    if len(blocks) == 1:
        return blocks[0]
    fields: dict[str, Field] = {}
    for block in blocks:
        fields = {**fields, **{k: widest(fields.get(k, f), f) for k, f in block.fields.items()}}
    counts: dict[Axis, NDArray[np.int64]] = {
        a: np.concatenate([b.counts[a] for b in blocks]) for a in RAGGED_AXES
    }
    columns = {k: np.concatenate([_column(b, f) for b in blocks]) for k, f in fields.items()}
    return Block.of(fields, columns, counts)


def widest(a: Field, b: Field) -> Field:
    """A field that holds the values of both; FormatError if they are not the same kind of thing."""
    if (a.path, a.shape, a.per_unit) != (b.path, b.shape, b.per_unit):
        raise FormatError(
            f"{a.path}: rows of {a.shape} per_unit {a.per_unit} cannot be joined with rows of "
            f"{b.shape} per_unit {b.per_unit}; give the column one shape"
        )
    dtype = np.promote_types(a.dtype, b.dtype)
    return a if dtype == np.dtype(a.dtype) else replace(a, dtype=dtype_name(dtype))


def dtype_name(dtype: np.dtype[Any]) -> str:
    """Little-endian name as in FIELDS: ``u1``, ``<i2``."""
    return dtype.newbyteorder("<").str.replace("|", "")


def blank(field: Field, rows: int) -> NDArray[Any]:
    """A column of nothing known, as stored: NaN for floating point, else zeros."""
    value = np.nan if np.dtype(field.dtype).kind == "f" else 0
    return np.full((rows, *field.shape), value, field.dtype)


def _column(block: Block, field: Field) -> NDArray[Any]:
    if field.key in block.columns:
        return block.columns[field.key]
    rows = block.n_complexes if field.axis == "complex" else int(block.counts[field.axis].sum())
    return blank(field, rows)
