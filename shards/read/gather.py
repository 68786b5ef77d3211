"""A window's batches, gathered from a pool without a step of Python per complex.

For a batch of width N, a column is seen as overlapping runs of N rows, one beginning at every row; the batch
is the runs that begin where its complexes do. Columns whose rows are of one size lie side by side, so that
one call moves the runs of all of them. What a run holds beyond its complex is set to zero, or, in a packed
batch, overwritten by the next complex. Fixed-point columns stay integers until they are in the batch, which
halves what is moved.

A batch is so small that starting an operation on it costs as much as its work: whatever can be known of all
batches of a window is found at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..complex import Axis
from ..format.codec import from_fixed
from .pool import Array, Columns, Pool, Rows, round_up


class Gather:
    """The batches of some steps.

    Parameters
    ----------
    pool : that holds their complexes
    steps : slots of each batch
    keys : columns of a batch
    multiple : widths of padded batches are rounded up to it
    """

    def __init__(self, pool: Pool, steps: Sequence[Rows], keys: Sequence[str], multiple: int = 1) -> None:
        self._pool, self._keys = pool, tuple(keys)
        slots = np.concatenate(steps)
        self._ends: list[int] = np.cumsum([0, *map(len, steps)]).tolist()
        self._whole = {key: pool.columns[key][slots] for key in keys if pool.axes[key] == "complex"}
        parts = [part for columns in pool.parts if (part := columns.of(keys)) is not None]
        self._axes: dict[Axis, _Axis] = {}
        for axis in dict.fromkeys(part.axis for part in parts):
            below = [pool.counts[axis][slots]]
            if axis == "atom":  # a damaged count of ligand atoms must not reach further
                ligand = pool.columns["n_ligand_atoms"][slots].astype(np.int64)
                below.append(np.minimum(ligand, below[0]))
            self._axes[axis] = _Axis(pool.starts[axis][slots], np.stack(below), self._ends, multiple)
        self._parts = [(part, self._axes[part.axis]) for part in parts]
        self._fields = {key: pool.fields[key] for key in keys}
        self._dtypes = {key: np.dtype(field.dtype) for key, field in self._fields.items()}

    def padded(self, i: int) -> dict[str, Array]:
        """Batch i, padded; see :class:`~holoshard.shards.read.batch.Batch`."""
        found = self._complexes(i)
        masks = {name: axis.masks(i) for name, axis in self._axes.items()}
        for part, axis in self._parts:
            rows = self._runs(part, axis, i).view(part.row).reshape(len(part.keys), -1)
            rows[:, axis.beyond(i)] = np.zeros((), part.row)
            for key, stored in zip(part.keys, rows, strict=True):
                found[key] = self._values(key, stored, masks[part.axis].shape[1:])
        found = {key: found[key] for key in self._keys}
        found |= {f"{name}_mask": mask[0] for name, mask in masks.items()}
        if "atom" in masks:
            found["ligand_mask"] = masks["atom"][1]
        return found

    def packed(self, i: int) -> dict[str, Array]:
        """Batch i end to end; see :class:`~holoshard.shards.read.batch.Batch`."""
        found = self._complexes(i)
        part_of = slice(self._ends[i], self._ends[i + 1])
        bounds = {
            name: np.concatenate([[0], np.cumsum(axis.below[0, part_of])])
            for name, axis in self._axes.items()
        }
        for part, axis in self._parts:
            ends, width = bounds[part.axis], axis.widths[i]
            total = int(ends[-1])
            joined = np.empty((len(part.keys), total + width), part.row)
            places = np.arange(len(part.keys))[:, None] * (total + width) + ends[:-1]
            # In order: where a run reaches beyond its complex, the next one is written over it.
            windows(joined, width)[places] = self._runs(part, axis, i)
            for key, stored in zip(part.keys, joined, strict=True):
                found[key] = self._values(key, stored[:total], (total,))
        found = {key: found[key] for key in self._keys}
        found |= {f"{name}_cu_seqlens": ends.astype(np.int32) for name, ends in bounds.items()}
        if "atom" not in bounds:
            return found
        counts, ligand = self._axes["atom"].below[:, part_of]
        runs = np.stack([ligand, counts - ligand], axis=1).reshape(-1)  # ligand, pocket, ligand, ...
        found["atom_batch"] = np.repeat(np.arange(len(counts), dtype=np.int32), counts)
        found["ligand_mask"] = np.repeat(np.tile([True, False], len(counts)), runs)
        if "bond_atoms" in found:
            first = bounds["atom"][:-1].astype(np.int32)
            offset = np.repeat(first, np.diff(bounds["bond"]))[:, None]
            found["bond_atoms"] = np.add(found["bond_atoms"], offset, dtype=np.int32, casting="unsafe")
        return found

    def _complexes(self, i: int) -> dict[str, Array]:
        part = slice(self._ends[i], self._ends[i + 1])
        return {key: values[part] for key, values in self._whole.items()}

    def _runs(self, part: Columns, axis: _Axis, i: int) -> Array:
        """Runs of rows from where each slot begins, one opaque piece each: (columns, slots)."""
        begin = part.first[:, None] + axis.starts[self._ends[i] : self._ends[i + 1]]
        found: Array = windows(part.rows, axis.widths[i])[begin]
        return found

    def _values(self, key: str, stored: Array, shape: tuple[int, ...]) -> Array:
        """Values of opaque rows, in that shape: floating point where they are fixed-point."""
        field, dtype = self._fields[key], self._dtypes[key]
        found = stored.view(dtype).reshape(*shape, *field.shape)
        if not field.per_unit or dtype.kind != "i":
            return found
        return from_fixed(found, field.per_unit, self._pool.memory.empty(found.shape, np.float32))


class _Axis:
    """Rows of a ragged axis, of each slot of all steps.

    Attributes
    ----------
    starts : (slots,), first row in the pool
    below : (1 or 2, slots), rows; of atoms also those of the ligand
    widths : of each step: rows of the longest, at least 1, rounded up
    """

    __slots__ = ("_beyond", "_bounds", "_edges", "_pattern", "below", "ends", "starts", "widths")

    def __init__(self, starts: Rows, below: Rows, ends: Sequence[int], multiple: int) -> None:
        self.starts, self.below, self.ends = starts, below, ends
        parts = [below[0, a:b] for a, b in pairwise(ends)]
        self.widths = [round_up(int(part.max(initial=1)), multiple) for part in parts]
        most = max(self.widths, default=1)
        # So many places of ones, then zeros: a mask is rows that begin somewhere in it.
        self._pattern = np.repeat(np.array([1, 0], np.uint8), most).view("V1")
        self._edges = most - below
        # Places of the flattened masks where they are False, step after step.
        sizes = np.diff(ends)
        width = np.repeat(self.widths, sizes)
        left = width - below[0]
        last = np.cumsum(left)
        row = np.arange(1, len(left) + 1) - np.repeat(ends[:-1], sizes)  # from 1 in each step
        places = np.repeat((row * width - last).astype(np.int32), left)
        self._beyond = np.arange(len(places), dtype=np.int32) + places
        self._bounds: list[int] = np.concatenate([[0], last])[ends].tolist()

    def beyond(self, i: int) -> NDArray[np.int32]:
        """Places in the flattened mask of step i where it is False."""
        found: NDArray[np.int32] = self._beyond[self._bounds[i] : self._bounds[i + 1]]
        return found

    def masks(self, i: int) -> NDArray[np.bool_]:
        """Masks of step i, one for each row of ``below``: (1 or 2, slots, width)."""
        edges = self._edges[:, self.ends[i] : self.ends[i + 1]]
        found = windows(self._pattern, self.widths[i])[edges]
        return found.view(np.bool_).reshape(*edges.shape, self.widths[i])


def windows(rows: Array, width: int) -> Array:
    """Runs of ``width`` opaque rows of a contiguous array, one beginning at every row: they overlap."""
    size = rows.dtype.itemsize
    dtype: Any = (np.void, width * size)
    return np.ndarray(max(rows.size - width + 1, 0), dtype, rows, strides=(size,))
