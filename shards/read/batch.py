"""Complexes of many lengths as the arrays a model eats, without a step of Python per complex.

A :class:`Pool` holds the columns of some blocks end to end. For a padded batch of width N, each column is
seen as overlapping runs of N rows, one beginning at every row; the batch is the runs that begin where its
complexes do, copied in one call that moves whole runs. What a run holds beyond its complex is then set to
zero, which touches only the places between the shortest and the longest complex of the batch.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from ..complex import Axis
from ..format.block import Block
from ..format.codec import from_fixed
from ..permutation import uniforms

if TYPE_CHECKING:
    import torch

Array = NDArray[Any]
Rows = NDArray[np.int64]

ATOM_RESIDUE_TYPE: Final = "atom_residue_type"  # the residue's type for each atom; not stored
DEFAULT_FIELDS: Final = (
    "position", "element", "charge", "hybridisation", "aromatic", "degree", ATOM_RESIDUE_TYPE,
    "bond_atoms", "bond_order", "pk", "pk_relation", "pk_kind", "flags", "n_ligand_atoms",
)  # fmt: skip

_ROTATE: Final = 6  # what random numbers are for, part of their seed


@dataclass(frozen=True, slots=True)
class Batch:
    """Some complexes of a global batch: the ones of this rank.

    Padded, B complexes, N atoms of the longest, M bonds of the one with most; padding is zero:
    ``position`` (B, N, 3) float32, angstrom; other atom fields (B, N); ``atom_mask`` and ``ligand_mask``
    (B, N) bool; ``bond_atoms`` (B, M, 2), rows on the atom axis of the complex; ``bond_mask`` (B, M);
    complex fields (B,).

    Packed, T atoms in all: ``position`` (T, 3); ``ligand_mask`` (T,); ``atom_batch`` (T,) int32, the row
    in the batch; ``atom_cu_seqlens`` (B + 1,) int32, where each complex begins; ``bond_atoms`` (S, 2)
    int32, rows in the packed arrays.

    Attributes
    ----------
    columns : arrays by key
    index : shape (B,), int64, data set row of each complex
    global_size : complexes in the global batch, over all ranks
    step, epoch : which global batch it is
    """

    columns: Mapping[str, Array]
    index: Rows
    global_size: int
    step: int = 0
    epoch: int = 0

    def __repr__(self) -> str:
        form = "packed" if self.is_packed else "padded"
        keys = ", ".join(self.columns)
        return f"<Batch {self.step} of epoch {self.epoch}: {self.size} complexes, {form}: {keys}>"

    def __getitem__(self, key: str) -> Array:
        try:
            return self.columns[key]
        except KeyError:
            raise KeyError(
                f"this batch has no {key!r}; it has {', '.join(self.columns)}. Name it in stream(fields=...)"
            ) from None

    def __contains__(self, key: object) -> bool:
        return key in self.columns

    def __iter__(self) -> Iterator[str]:
        return iter(self.columns)

    @property
    def size(self) -> int:
        """Complexes here."""
        return len(self.index)

    @property
    def is_packed(self) -> bool:
        """True if complexes lie end to end instead of being padded."""
        return "atom_cu_seqlens" in self.columns

    def distances(self) -> NDArray[np.float32]:
        """Distances between the atoms of each complex, shape (B, N, N), angstrom; 0 at padding."""
        position = self["position"]
        if self.is_packed:
            raise ValueError("distances need a padded batch; found a packed one: stream(layout='padded')")
        square = np.zeros((*position.shape[:2], position.shape[1]), np.float32)
        for axis in range(3):
            x = position[..., axis]
            difference = x[:, :, None] - x[:, None, :]
            square += difference * difference
        np.sqrt(square, out=square)
        mask = self["atom_mask"]
        return square * (mask[:, :, None] & mask[:, None, :])

    def torch(self, device: Any = None, *, pin: bool = False) -> dict[str, torch.Tensor]:
        """Return the arrays as torch tensors, copied to ``device`` if one is given.

        uint16 and uint32 become int32 and int64, since torch computes little with them. On the CPU the
        other tensors share memory with the batch. ``pin`` puts them in page-locked memory first, so that
        the copy to a CUDA device runs beside the computation.
        """
        import torch as th

        tensors = {}
        for key, array in {**self.columns, "index": self.index}.items():
            wider = {"uint16": np.int32, "uint32": np.int64}.get(array.dtype.name)
            tensor = th.from_numpy(array.astype(wider) if wider else array)
            if pin and th.cuda.is_available():
                tensor = tensor.pin_memory()
            tensors[key] = tensor if device is None else tensor.to(device, non_blocking=pin)
        return tensors


class Pool:
    """Columns of several blocks, raw or not, end to end; a complex is a *slot*, counted through them all."""

    def __init__(self, blocks: Sequence[Block], multiple: int = 1) -> None:
        self.axes = {key: field.axis for key, field in blocks[0].fields.items() if key in blocks[0].columns}
        self.multiple = multiple  # widths are rounded up to it
        self.first = np.cumsum([0, *(b.n_complexes for b in blocks)])[:-1]  # slot of each block's first
        self.starts: dict[Axis, Rows] = {}
        self.counts: dict[Axis, Rows] = {}
        for axis in dict.fromkeys(a for a in self.axes.values() if a != "complex"):
            counts = np.concatenate([b.counts[axis] for b in blocks])
            self.counts[axis], self.starts[axis] = counts, np.cumsum(counts) - counts
        self.columns = {
            key: _end_to_end(
                [b.columns[key] for b in blocks],
                0 if axis == "complex" else self._width(axis),
                blocks[0].fields[key].per_unit,
            )
            for key, axis in self.axes.items()
        }

    def _width(self, axis: Axis, slots: Rows | None = None) -> int:
        """Rows of the longest complex, at least 1, rounded up."""
        counts = self.counts[axis] if slots is None else self.counts[axis][slots]
        return -(-int(counts.max(initial=1)) // self.multiple) * self.multiple

    def padded(self, slots: Rows, keys: Sequence[str]) -> dict[str, Array]:
        """Gather slots to padded arrays; see :class:`Batch`."""
        out, masks = self._runs(slots, keys)
        for axis, mask in masks.items():
            shortest = int(self.counts[axis][slots].min(initial=mask.shape[1]))
            beyond = ~mask[:, shortest:]
            for key in keys:
                if self.axes[key] == axis:
                    tail = out[key][:, shortest:]
                    np.copyto(tail, 0, where=beyond.reshape(*beyond.shape, *[1] * (tail.ndim - 2)))
            out[f"{axis}_mask"] = mask
        if "atom" in masks:
            ligand = self.columns["n_ligand_atoms"][slots]
            out["ligand_mask"] = np.arange(masks["atom"].shape[1]) < ligand[:, None]
        return out

    def packed(self, slots: Rows, keys: Sequence[str]) -> dict[str, Array]:
        """Gather slots end to end; see :class:`Batch`."""
        out, masks = self._runs(slots, keys)
        bounds: dict[Axis, Rows] = {}
        for axis, mask in masks.items():
            bounds[axis] = np.concatenate([[0], np.cumsum(self.counts[axis][slots])])
            out.update({key: _where(out[key], mask) for key in keys if self.axes[key] == axis})
            out[f"{axis}_cu_seqlens"] = bounds[axis].astype(np.int32)
        if "atom" in masks:
            counts = np.diff(bounds["atom"])
            out["atom_batch"] = np.repeat(np.arange(len(slots), dtype=np.int32), counts)
            ligand = self.columns["n_ligand_atoms"][slots]
            out["ligand_mask"] = (np.arange(masks["atom"].shape[1]) < ligand[:, None])[masks["atom"]]
            if "bond_atoms" in out:
                offset = np.repeat(bounds["atom"][:-1], np.diff(bounds["bond"]))[:, None]
                out["bond_atoms"] = (out["bond_atoms"] + offset).astype(np.int32)
        return out

    def _runs(self, slots: Rows, keys: Sequence[str]) -> tuple[dict[str, Array], dict[Axis, Array]]:
        """Return columns of the slots, ragged ones with whatever comes after each complex, and masks."""
        masks: dict[Axis, Array] = {}
        out = dict[str, Array]()
        for key in keys:
            axis, column = self.axes[key], self.columns[key]
            if axis == "complex":
                out[key] = column[slots]
                continue
            if axis not in masks:
                masks[axis] = np.arange(self._width(axis, slots)) < self.counts[axis][slots][:, None]
            width = masks[axis].shape[1]
            runs = np.ndarray(
                len(column) - width + 1, f"V{width * column.strides[0]}", column, strides=column.strides[:1]
            )
            run = runs[self.starts[axis][slots]].view(column.dtype)
            out[key] = run.reshape(len(slots), width, *column.shape[1:])
        return out, masks


def _where(array: Array, mask: Array) -> Array:
    """Rows of a padded array where the mask is true, moved as whole rows."""
    row = array.dtype.itemsize * math.prod(array.shape[2:])
    rows = array.reshape(*mask.shape, row // array.dtype.itemsize).view(f"V{row}")[..., 0][mask]
    return rows.view(array.dtype).reshape(len(rows), *array.shape[2:])


def rotations(rows: Rows, seed: int, epoch: int) -> NDArray[np.float32]:
    """One rotation matrix a data set row, uniform over SO(3), shape (n, 3, 3).

    A pure function of its arguments: the complex of a row turns the same way whatever batch it is in.
    From three uniform numbers by Shoemake, *Uniform random rotations*, Graphics Gems III (1992).
    """
    distinct, where = np.unique(rows, return_inverse=True)
    draws = [uniforms(3, _ROTATE, seed, epoch, int(row)) for row in distinct]
    u = np.array(draws, np.float64).reshape(-1, 3)[where]
    a, b = np.sqrt(1 - u[:, 0]), np.sqrt(u[:, 0])
    s, t = 2 * np.pi * u[:, 1], 2 * np.pi * u[:, 2]
    x, y, z, w = a * np.sin(s), a * np.cos(s), b * np.sin(t), b * np.cos(t)
    matrix = [
        [1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)],
        [2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)],
        [2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)],
    ]
    return np.array(matrix).transpose(2, 0, 1).astype(np.float32)


def _end_to_end(parts: Sequence[Array], after: int, per_unit: int) -> Array:
    """Concatenate, with so many rows of zeros at the end: the last run may reach into them.

    Stored integers of a fixed-point field become values on the way, which saves a copy.
    """
    n = sum(map(len, parts))
    stored = per_unit > 0 and parts[0].dtype.kind == "i"
    dtype = np.dtype(np.float32) if stored else np.result_type(*{p.dtype for p in parts})
    out = np.empty((n + after, *parts[0].shape[1:]), dtype)
    if stored:
        begin = 0
        for part in parts:
            from_fixed(part, per_unit, out[begin : begin + len(part)])
            begin += len(part)
    else:
        np.concatenate(parts, out=out[:n])
    out[n:] = 0
    return out
