"""The blocks of a window side by side in memory, and batches gathered from them without a step of Python
per complex.

Each block has a region in every column of a :class:`Pool`, as large as its chunks unpack to, so that a
codec unpacks into it and nothing is copied to lay blocks end to end. A complex is a *slot*, counted through
all blocks. For a batch of width N, a column is seen as overlapping runs of N rows, one beginning at every
row; the batch is the runs that begin where its complexes do, copied in one call that moves whole runs. What
a run holds beyond its complex is set to zero, or, in a packed batch, overwritten by the next complex.
Fixed-point columns stay integers until they are in the batch, which halves what is moved.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..complex import Axis, Field
from ..format.block import Block, dtype_name
from ..format.codec import from_fixed
from .memory import Memory

Array = NDArray[Any]
Rows = NDArray[np.int64]

ALIGNMENT: Final = 64  # bytes: a cache line


@dataclass(frozen=True, slots=True)
class Room:
    """What a block takes once it is unpacked.

    Attributes
    ----------
    n_complexes : without padding
    rows : axis -> rows, with the padding that its chunks unpack to
    fields : key -> field; ``dtype`` is that of the unpacked array
    """

    n_complexes: int
    rows: Mapping[Axis, int]
    fields: Mapping[str, Field]

    @classmethod
    def of(cls, block: Block) -> Room:
        """Room for a block that is there."""
        rows: dict[Axis, int] = {axis: int(c.sum()) for axis, c in block.counts.items()}
        fields = {k: replace(block.fields[k], dtype=dtype_name(c.dtype)) for k, c in block.columns.items()}
        return cls(block.n_complexes, {**rows, "complex": block.n_complexes}, fields)


class Pool:
    """Columns of several blocks. It is filled block by block, from any thread, with :meth:`land`.

    Parameters
    ----------
    rooms : of the blocks
    keys : columns to hold
    multiple : widths of padded batches are rounded up to it
    memory : to take the columns from
    """

    def __init__(
        self, rooms: Sequence[Room], keys: Sequence[str], multiple: int = 1, memory: Memory | None = None
    ) -> None:
        self.multiple = multiple
        self.fields = {key: rooms[0].fields[key] for key in keys}
        self.axes: dict[str, Axis] = {key: field.axis for key, field in self.fields.items()}
        self._slots = np.cumsum([0, *(room.n_complexes for room in rooms)])
        self.first = self._slots[:-1]  # slot of each block's first
        self._begin: dict[Axis, list[int]] = {}  # first row of each block's region, and the end
        self.starts: dict[Axis, Rows] = {}
        self.counts: dict[Axis, Rows] = {}
        tail: dict[Axis, int] = {"complex": 0}
        for axis in dict.fromkeys([*self.axes.values(), "complex"]):
            rows = [room.rows[axis] for room in rooms]
            self._begin[axis] = np.cumsum([0, *rows]).tolist()
            tail.setdefault(axis, max(rows) + multiple)  # the last run may reach so far
            self.starts[axis] = np.zeros(self._slots[-1], np.int64)
            self.counts[axis] = np.ones(self._slots[-1], np.int64)
        dtypes = {k: np.result_type(*{room.fields[k].dtype for room in rooms}) for k in keys}
        shapes = {k: (self._begin[a][-1] + tail[a], *self.fields[k].shape) for k, a in self.axes.items()}
        self._memory = memory or Memory()
        # One piece for all columns, cut at cache lines.
        sizes = {k: dtypes[k].itemsize * math.prod(shape) for k, shape in shapes.items()}
        ends = np.cumsum([-(-size // ALIGNMENT) * ALIGNMENT for size in sizes.values()]).tolist()
        self.buffer = self._memory.empty((ends[-1],), np.uint8)
        self.columns: dict[str, Array] = {
            key: self.buffer[begin : begin + sizes[key]].view(dtypes[key]).reshape(shape)
            for begin, (key, shape) in zip([0, *ends], shapes.items(), strict=False)
        }

    def regions(self, i: int) -> dict[str, Array]:
        """Where block i goes: arrays of its room, for a reader to unpack into."""
        begin = self._begin
        return {key: self.columns[key][begin[a][i] : begin[a][i + 1]] for key, a in self.axes.items()}

    def land(self, i: int, block: Block) -> None:
        """Take in block i: what was not unpacked into its region is copied there."""
        for key, region in self.regions(i).items():
            column = block.columns[key]
            if not np.may_share_memory(column, region):
                region[: len(column)] = column
        slots = slice(self._slots[i], self._slots[i + 1])
        for axis, starts in self.starts.items():
            if axis == "complex":
                starts[slots] = self._begin[axis][i] + np.arange(block.n_complexes)
            else:
                starts[slots] = self._begin[axis][i] + block.starts[axis]
                self.counts[axis][slots] = block.counts[axis]

    def block(self, i: int) -> Block:
        """Block i, as views."""
        slots = slice(self._slots[i], self._slots[i + 1])
        counts: dict[Axis, Rows] = {a: c[slots] for a, c in self.counts.items() if a != "complex"}
        n = int(self._slots[i + 1] - self._slots[i])
        rows: dict[Axis, int] = {"complex": n, **{a: int(c.sum()) for a, c in counts.items()}}
        columns = {key: region[: rows[self.axes[key]]] for key, region in self.regions(i).items()}
        starts: dict[Axis, Rows] = {axis: np.cumsum(c) - c for axis, c in counts.items()}
        return Block(self.fields, columns, counts, starts, n)

    def padded(self, slots: Rows, keys: Sequence[str]) -> dict[str, Array]:
        """Gather slots to padded arrays; see :class:`~holoshard.shards.read.batch.Batch`."""
        out, masks = dict[str, Array](), dict[Axis, NDArray[np.bool_]]()
        beyond = dict[Axis, Rows]()
        for key in keys:
            axis = self.axes[key]
            if axis == "complex":
                out[key] = self.columns[key][self.starts[axis][slots]]
                continue
            if axis not in masks:
                mask = masks[axis] = _below(self.counts[axis][slots], self._width(axis, slots))
                beyond[axis] = np.flatnonzero(~mask)
            runs = self._runs(key, slots, masks[axis].shape[1])
            _rows(runs)[beyond[axis]] = np.zeros((), f"V{_row_bytes(runs)}")
            out[key] = self._values(key, runs).reshape(*masks[axis].shape, *self.fields[key].shape)
        out |= {f"{axis}_mask": mask for axis, mask in masks.items()}
        if "atom" in masks:
            ligand = self.columns["n_ligand_atoms"][self.starts["complex"][slots]]
            out["ligand_mask"] = _below(ligand, masks["atom"].shape[1])
        return out

    def packed(self, slots: Rows, keys: Sequence[str]) -> dict[str, Array]:
        """Gather slots end to end; see :class:`~holoshard.shards.read.batch.Batch`."""
        out, bounds = dict[str, Array](), dict[Axis, Rows]()
        for key in keys:
            axis = self.axes[key]
            if axis == "complex":
                out[key] = self.columns[key][self.starts[axis][slots]]
                continue
            if axis not in bounds:
                bounds[axis] = np.concatenate([[0], np.cumsum(self.counts[axis][slots])])
                out[f"{axis}_cu_seqlens"] = bounds[axis].astype(np.int32)
            width = self._width(axis, slots)
            runs = self._runs(key, slots, width)
            total = int(bounds[axis][-1])
            joined = np.empty((total + width, *runs.shape[1:]), runs.dtype)
            # In order: where a run reaches beyond its complex, the next one is written over it.
            _windows(joined, width)[bounds[axis][:-1]] = _rows(runs, width)
            out[key] = self._values(key, joined[:total])
        if "atom" in bounds:
            n = len(slots)
            counts, first = self.counts["atom"][slots], bounds["atom"][:-1].astype(np.int32)
            out["atom_batch"] = np.repeat(np.arange(n, dtype=np.int32), counts)
            ligand = self.columns["n_ligand_atoms"][self.starts["complex"][slots]].astype(np.int64)
            ligand = np.minimum(ligand, counts)  # a damaged count must not reach further
            runs_of = np.stack([ligand, counts - ligand], axis=1).reshape(-1)  # ligand, pocket, ligand, ...
            out["ligand_mask"] = np.repeat(np.tile([True, False], n), runs_of)
            if "bond_atoms" in out:
                offset = np.repeat(first, self.counts["bond"][slots])[:, None]
                out["bond_atoms"] = np.add(out["bond_atoms"], offset, dtype=np.int32, casting="unsafe")
        return out

    def _width(self, axis: Axis, slots: Rows) -> int:
        """Rows of the longest of some complexes, at least 1, rounded up."""
        return -(-int(self.counts[axis][slots].max(initial=1)) // self.multiple) * self.multiple

    def _runs(self, key: str, slots: Rows, width: int) -> Array:
        """``width`` rows from where each slot begins, end to end: (slots * width, ...), as stored."""
        column = self.columns[key]
        runs = _windows(column, width)[self.starts[self.axes[key]][slots]]
        return runs.view(column.dtype).reshape(len(slots) * width, *column.shape[1:])

    def _values(self, key: str, stored: Array) -> Array:
        """Values of a column as stored: floating point where it is fixed-point."""
        per_unit = self.fields[key].per_unit
        if not per_unit or stored.dtype.kind != "i":
            return stored
        return from_fixed(stored, per_unit, self._memory.empty(stored.shape, np.float32))


def _row_bytes(array: Array) -> int:
    return array.dtype.itemsize * math.prod(array.shape[1:])


def _rows(array: Array, n: int = 1) -> Array:
    """A contiguous array as opaque pieces of n rows, which move as one."""
    return np.ndarray(len(array) // n, f"V{n * _row_bytes(array)}", array)


def _below(counts: NDArray[np.integer[Any]], width: int) -> NDArray[np.bool_]:
    """Mask of the first so many places of each row, (len(counts), width)."""
    mask: NDArray[np.bool_] = np.arange(width, dtype=np.int32) < counts.astype(np.int32)[:, None]
    return mask


def _windows(array: Array, width: int) -> Array:
    """Opaque runs of ``width`` rows of a contiguous array, one beginning at every row: they overlap."""
    row = _row_bytes(array)
    return np.ndarray(max(len(array) - width + 1, 0), f"V{width * row}", array, strides=(row,))
