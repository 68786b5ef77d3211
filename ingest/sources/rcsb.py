"""A mirror of the Protein Data Bank: ``ab/1abc.cif.gz`` in divided folders or flat; each ligand a complex.

The ligand sites are those of the first biological assembly. Of an entry in several formats mmCIF is taken,
else BinaryCIF, else PDB.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from ..item import Item, Rejection
from .pairs import split
from .source import Request
from .tree import folders_of, join, plain

FORMATS: Final = ("cif", "bcif", "pdb", "ent")
ENTRY = re.compile(
    r"(?:pdb_0000|pdb)?(?P<code>[0-9][a-z0-9]{3})(?P<variant>_xyz-enrich|_xyz|_updated|_full)?"
    rf"\.(?P<format>{'|'.join(FORMATS)})",
    re.IGNORECASE,
)


class Rcsb:
    """The layout ``rcsb``."""

    name = "rcsb"

    def recognise(self, request: Request) -> str:
        """Files named for their entries, in a folder without ligand files."""
        for folder, files in folders_of(request.tree.peek).items():
            found = [name for name in files if _match(name)]
            if found and not split(files)[1]:
                return f"{join(folder, found[0])} is named as an entry of the Protein Data Bank"
        return ""

    def items(self, request: Request) -> Iterator[Item | Rejection]:
        """One an entry, which becomes one a ligand when it is read."""
        tree = request.tree
        entries: dict[str, list[str]] = {}
        for name in tree.names:
            match = _match(name)
            if match:
                entries.setdefault(match["code"].lower(), []).append(name)
        for code, names in sorted(entries.items()):
            best = min(names, key=_preference)
            columns = {"entry": code}
            yield Item(code, tree.locator(best), columns=columns, source="rcsb", assembly="1", sites=True)


def _match(name: str) -> re.Match[str] | None:
    return ENTRY.fullmatch(plain(name).rpartition("/")[2])


def _preference(name: str) -> tuple[int, bool, str]:
    match = _match(name)
    assert match is not None
    return FORMATS.index(match["format"].lower()), not match["variant"], name
