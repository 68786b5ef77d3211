"""Complexes from a structure predictor: mmCIF with the ligand as a chain of its own, one file a model."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final

from ...shards.errors import StructureError
from ..item import Item, Rejection
from ..read import archive
from .source import Request
from .tree import Tree, plain

# Categories of ModelCIF, the extension of mmCIF for computed models.
SIGNS: Final = (b"_ma_data.", b"_ma_qa_metric", b"_ma_model_list", b"_ma_software_group")
LOOKED_AT: Final = 8  # files, when a layout is to be recognised


class Predicted:
    """The layout ``predicted``."""

    name = "predicted"

    def recognise(self, request: Request) -> str:
        """An mmCIF file with the categories of a computed model."""
        files = (name for name in request.tree.peek if plain(name).endswith((".cif", ".mmcif")))
        for name in islice(files, LOOKED_AT):
            if _is_model(request.tree, name):
                return f"{name} has the categories of a computed model"
        return ""

    def items(self, request: Request) -> Iterator[Item | Rejection]:
        """One a model, which becomes one a ligand when it is read."""
        for name in request.tree.names:
            if plain(name).endswith((".cif", ".mmcif")):
                stem = plain(name).rpartition(".")[0]
                locator = request.tree.locator(name)
                yield Item(stem, locator, source="predicted", predicted=True, sites=True)


def _is_model(tree: Tree, name: str) -> bool:
    try:
        data = archive.load(tree.locator(name))
    except StructureError:
        return False
    return any(sign in data for sign in SIGNS)
