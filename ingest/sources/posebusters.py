"""PoseBusters: a folder a complex with ``X_protein.pdb``, ``X_ligand.sdf`` and, beside it, ``X_ligands.sdf``.

``X_ligands.sdf`` holds every copy of the ligand in the crystal; the complex is the one of ``X_ligand.sdf``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from ..item import Item, Rejection
from .pdbbind import pair, stems
from .source import Request
from .tree import folders_of

STRUCTURES: Final = ("_protein.pdb", "_protein.cif", "_protein_one_lig_removed.pdb")
LIGANDS: Final = ("_ligand.sdf",)
COPIES: Final = ("_ligands.sdf",)


class PoseBusters:
    """The layout ``posebusters``."""

    name = "posebusters"

    def recognise(self, request: Request) -> str:
        """The file of all copies is what sets it apart from PDBbind."""
        for folder, files in folders_of(request.tree.peek).items():
            for stem in stems(files, COPIES):
                if stem in stems(files, LIGANDS) and stem in stems(files, STRUCTURES):
                    return f"{folder} holds {stem}_ligand.sdf, {stem}_ligands.sdf and a protein"
        return ""

    def items(self, request: Request) -> Iterator[Item | Rejection]:
        """One a folder."""
        for folder, files in request.tree.folders.items():
            for stem in stems(files, LIGANDS + STRUCTURES):
                item = pair(request.tree, folder, stem, files, STRUCTURES, LIGANDS)
                yield item if isinstance(item, Rejection) else replace(item, source="posebusters")
