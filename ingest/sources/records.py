"""How many records a ligand file has and what they are called, without reading their chemistry."""

from __future__ import annotations

import re

from ...shards.errors import StructureError
from ..item import Locator
from ..read import archive

_MOL2 = re.compile(rb"^@<TRIPOS>MOLECULE[ \t]*\r?\n([^\r\n]*)", re.MULTILINE)
_SDF_END = re.compile(rb"^\$\$\$\$[^\n]*\n?", re.MULTILINE)
_MODEL = re.compile(rb"^MODEL\b[^\n]*", re.MULTILINE)


def titles(locator: Locator) -> list[str]:
    """The title of each record; one record with the title "" for a file that cannot be told or read."""
    try:
        data = archive.load(locator)
    except StructureError:
        return [""]  # whoever reads the item says what is wrong with it
    if b"@<TRIPOS>MOLECULE" in data:
        found = _MOL2.findall(data)
    elif _MODEL.search(data):
        found = [b""] * len(_MODEL.findall(data))
    else:
        found = [record.split(b"\n", 1)[0] for record in _SDF_END.split(data) if record.strip()]
    return [title.decode("utf-8", "replace").strip() for title in found] or [""]
