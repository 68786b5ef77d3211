"""SAIR: a Parquet table of predicted complexes, and their models as mmCIF in .tar.gz archives or folders.

Row (entry_id, index) of the table is the model ``sample_<entry_id>_model_<index>.cif``, with the ligand as a
chain of its own. The order is that of the archives, which are read forward; rows without a model come last.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from ..item import Item, Locator, Rejection
from ..read import archive
from .labels import SMILES, LabelColumns, header_of, pick, read_table
from .source import Request
from .tree import Tree, plain

MODEL = re.compile(r"sample_(?P<entry>.+)_model_(?P<index>\d+)\.cif")
ENTRY: Final = "entry_id"
INDEX: Final = ("index", "model_index", "model", "sample_index")
ARCHIVES: Final = (".tar.gz", ".tgz", ".tar", ".zip")


class Sair:
    """The layout ``sair``."""

    name = "sair"
    tables = (".parquet",)

    def recognise(self, request: Request) -> str:
        """A Parquet table with a column entry_id, and models named for its rows."""
        table = _table(request.tree)
        return f"{table} is a table of predicted complexes with a column {ENTRY}" if table else ""

    def items(self, request: Request) -> Iterator[Item | Rejection]:
        """One a model in the order of the archives, then the rows that have none."""
        tree = request.tree
        frame = read_table(tree.locator(_table(tree)))
        column = next((name for name in INDEX if name in frame.columns), "")
        labels, smiles = LabelColumns.of(frame.columns), pick(frame.columns, SMILES)
        entries = frame[ENTRY].to_list()
        indices = frame[column].to_list() if column else ["0"] * len(entries)
        rows = {
            f"{entry}_{index}": place
            for place, (entry, index) in enumerate(zip(entries, indices, strict=True))
        }
        for key, locator in _models(tree):
            place = rows.pop(key, None)
            if isinstance(locator, Rejection):
                yield locator
                continue
            row = frame.row(place, named=True) if place is not None else {}
            yield Item(
                key, locator, smiles=row.get(smiles, "").strip(), labels=labels.labels(row), columns=row,
                source="sair", predicted=True,
            )  # fmt: skip
        for key in rows:
            said = f"no folder or archive of {tree.path} holds the model of row {key}"
            yield Rejection(key, "file_missing", said)


def _table(tree: Tree) -> str:
    for name in tree.peek if tree.is_folder else ():
        if name.endswith(".parquet"):
            columns = header_of(tree.locator(name))
            if ENTRY in columns and any(index in columns for index in INDEX):
                return name
    return ""


def _models(tree: Tree) -> Iterator[tuple[str, Locator | Rejection]]:
    """Every model, in folders and then in archives, each in order."""
    for name in tree.names:
        match = MODEL.fullmatch(plain(name).rpartition("/")[2])
        if match:
            yield f"{match['entry']}_{match['index']}", tree.locator(name)
    for name in tree.names:
        path = tree.locator(name).path
        if not name.endswith(ARCHIVES) or not archive.archive_kind(path):
            continue
        for member in archive.members(path):
            match = MODEL.fullmatch(plain(member.name).rpartition("/")[2])
            if member.fault:
                said = f"{path}!{member.name} is refused: {member.fault}"
                yield member.name, Rejection(member.name, "unsafe_member", said)
            elif match:
                locator = Locator(path, member.name, member.offset, member.size)
                yield f"{match['entry']}_{match['index']}", locator
