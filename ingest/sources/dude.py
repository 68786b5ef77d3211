"""DUD-E and its kin: a folder a target with ``receptor.pdb``, ``actives_final.mol2.gz`` and decoys.

Each record is a complex whose label says active or inactive in place of a pK. The files of the original set
hold conformers, not poses: those lie outside the pocket and are refused as such. Files of docked poses under
the same names are read alike.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from ..item import Item, Label, Rejection
from .records import titles
from .source import Request
from .tree import folders_of, join, plain

RECEPTORS: Final = ("receptor.pdb", "receptor.cif", "protein.pdb")
LIGANDS = re.compile(
    r"(?P<set>actives|decoys|inactives)\w*\.(?:mol2|sdf)|(?P<crystal>crystal_ligand)\.(?:mol2|sdf)"
)
KINDS: Final = {"actives": "active", "decoys": "inactive", "inactives": "inactive"}


class Dude:
    """The layout ``dude``."""

    name = "dude"

    def recognise(self, request: Request) -> str:
        """A receptor beside actives or decoys."""
        for folder, files in folders_of(request.tree.peek).items():
            names = {plain(name) for name in files}
            sets = [name for name in sorted(names) if (m := LIGANDS.fullmatch(name)) and m["set"]]
            if sets and names.intersection(RECEPTORS):
                return f"{folder or request.tree.path} holds a receptor and {sets[0]}"
        return ""

    def items(self, request: Request) -> Iterator[Item | Rejection]:
        """One a record of actives, decoys and the crystal's ligand."""
        tree = request.tree
        for folder, files in tree.folders.items():
            target = folder.rpartition("/")[2] or tree.path.stem
            receptors = [name for end in RECEPTORS for name in files if plain(name) == end]
            for name in _one_format(files):
                match = LIGANDS.fullmatch(plain(name))
                assert match is not None
                if not receptors:
                    yield Rejection(f"{target}/{name}", "file_missing", f"{folder} has no {RECEPTORS[0]}")
                    continue
                locator = tree.locator(join(folder, name))
                records = titles(locator)
                for record, title in enumerate(records):
                    stem = plain(name).rpartition(".")[0]
                    yield Item(
                        id=f"{target}/{stem}" + (f"/{record}" if len(records) > 1 else ""),
                        structure=tree.locator(join(folder, receptors[0])),
                        ligand=locator,
                        record=record,
                        labels=(Label(kind=KINDS[match["set"]]),) if match["set"] else (),
                        columns={"target": target, "ligand_name": title, "set": match["set"] or "crystal"},
                        source="dude",
                        predicted=bool(match["set"]),
                    )


def _one_format(files: list[str]) -> list[str]:
    """Of a set that lies there as MOL2 and as SDF, the MOL2."""
    found: dict[str, str] = {}
    for name in sorted(files, key=lambda name: (not plain(name).endswith(".mol2"), name)):
        if LIGANDS.fullmatch(plain(name)):
            found.setdefault(plain(name).rpartition(".")[0], name)
    return sorted(found.values())
