"""Complexes of many lengths as the arrays a model eats."""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, KeysView, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from ..errors import MissingExtraError
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

    def keys(self) -> KeysView[str]:
        """The keys of the arrays, so that ``dict(batch)`` is the columns."""
        return self.columns.keys()

    def items(self) -> ItemsView[str, Array]:
        """The arrays with their keys."""
        return self.columns.items()

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
        the copy to a CUDA device runs beside the computation. MissingExtraError without torch.
        """
        try:
            import torch as th
        except ModuleNotFoundError as error:
            raise MissingExtraError("torch", "train") from error

        tensors = {}
        for key, array in {**self.columns, "index": self.index}.items():
            wider = {"uint16": np.int32, "uint32": np.int64}.get(array.dtype.name)
            tensor = th.from_numpy(array.astype(wider) if wider else array)
            if pin and th.cuda.is_available():
                tensor = tensor.pin_memory()
            tensors[key] = tensor if device is None else tensor.to(device, non_blocking=pin)
        return tensors


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
