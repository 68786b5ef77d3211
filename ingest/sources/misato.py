"""MISATO's quantum-mechanical file, an HDF5 of ligand properties: recognised, to say that it cannot serve.

It holds neither a protein nor bonds to one: each of its entries is refused with that reason, so that nobody
takes silence for success.
"""

from __future__ import annotations

from collections.abc import Iterator

import h5py

from ..item import Item, Rejection
from .source import Request

GROUPS = {"atom_properties", "mol_properties"}


class Misato:
    """The layout ``misato``."""

    name = "misato"

    def recognise(self, request: Request) -> str:
        """An HDF5 file whose groups are entries with properties of atoms."""
        for name in request.tree.peek:
            if name.endswith((".hdf5", ".h5")) and _entries(request, name):
                return f"{name} holds properties of ligands by entry"
        return ""

    def items(self, request: Request) -> Iterator[Item | Rejection]:
        """One refusal an entry."""
        for name in request.tree.names:
            if name.endswith((".hdf5", ".h5")):
                for entry in _entries(request, name):
                    said = f"{name} has the ligand's properties and no protein; bring the entry's structure"
                    yield Rejection(entry, "no_protein", said)


def _entries(request: Request, name: str) -> list[str]:
    locator = request.tree.locator(name)
    if locator.member or not locator.path.is_file():
        return []
    try:
        with h5py.File(locator.path) as file:
            return [
                key for key, group in file.items() if isinstance(group, h5py.Group) and set(group) >= GROUPS
            ]
    except OSError:
        return []
