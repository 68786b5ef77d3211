"""Any folder with structures and ligands named alike: ``5ndu.pdb`` and ``5ndu_C_8V2.sdf``; docking runs.

A ligand file belongs to the structure in its folder that shares the longest run of words with its name; where
a folder has one structure, all its ligands belong to that. Each record of a ligand file is a complex.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from ..item import Item, Rejection
from .records import titles
from .source import Request
from .tree import folders_of, join, plain

STRUCTURES: Final = (".pdb", ".ent", ".cif", ".mmcif", ".bcif")
LIGANDS: Final = (".sdf", ".sd", ".mol", ".mol2", ".pdbqt")
RECEPTOR = re.compile(r"(?:^|[_.-])(?:rec|receptor|protein|prot)(?:[_.-]|[A-Z]|$)", re.IGNORECASE)
POSES = re.compile(r"(?:^|[_.-])(?:out|poses?|docked)(?:[_.-]|$)", re.IGNORECASE)


class Pairs:
    """The layout ``pairs``."""

    name = "pairs"

    def recognise(self, request: Request) -> str:
        """A folder with a structure file and a ligand file."""
        for folder, files in folders_of(request.tree.peek).items():
            structures, ligands = split(files)
            if structures and ligands:
                return f"{folder or request.tree.path} holds {structures[0]} and {ligands[0]}"
        return ""

    def items(self, request: Request) -> Iterator[Item | Rejection]:
        """One a record of each ligand file."""
        tree = request.tree
        for folder, files in tree.folders.items():
            structures, ligands = split(files)
            for name in ligands:
                stem = join(folder, plain(name))
                structure = match(name, structures)
                if not structure:
                    yield Rejection(
                        stem, "file_missing", f"{folder or tree.path} has no structure named like {name}"
                    )
                    continue
                locator = tree.locator(join(folder, name))
                records = titles(locator)
                for record, title in enumerate(records):
                    yield Item(
                        id=f"{stem}:{record}" if len(records) > 1 else stem,
                        structure=tree.locator(join(folder, structure)),
                        ligand=locator,
                        record=record,
                        columns={"ligand_name": title},
                        source="pairs",
                        predicted=bool(POSES.search(plain(name).rpartition(".")[0])),
                    )


def split(files: list[str]) -> tuple[list[str], list[str]]:
    """Structure files and ligand files; a PDBQT file is either, as its name says."""
    structures, ligands = [], []
    for name in files:
        bare = plain(name).lower()
        stem = plain(name).rpartition(".")[0]
        if bare.endswith(STRUCTURES) or (bare.endswith(".pdbqt") and RECEPTOR.search(stem)):
            structures.append(name)
        elif bare.endswith(LIGANDS):
            ligands.append(name)
    return structures, ligands


def match(ligand: str, structures: list[str]) -> str:
    """The structure that shares most words with a ligand's name, "" if none shares its first."""
    if len(structures) == 1:
        return structures[0]
    shared = {name: _shared(ligand, name) for name in structures}
    best = max(structures, key=lambda name: (shared[name], -len(name)), default="")
    return best if best and shared[best] else ""


def _shared(first: str, second: str) -> int:
    words = [re.split(r"[_.\-]", plain(name).rpartition(".")[0]) for name in (first, second)]
    count = 0
    for a, b in zip(*words, strict=False):
        if a != b:
            break
        count += 1
    return count
