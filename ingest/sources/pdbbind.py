"""PDBbind: a folder a complex with ``1abc_protein.pdb``, ``1abc_ligand.sdf`` or ``.mol2``, and INDEX files.

An index line reads ``code resolution year [-logK] label // reference (ligand) remark``, for instance
``2tpi  2.10  1982  4.31  Kd=49uM  // 2tpi.pdf (2-mer)``; a label may carry <, <=, >, >= or ~.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from ..item import Item, Label, Rejection
from .source import Request
from .tree import Tree

# In the order of preference. The pocket file holds whole residues within 10 angstrom of the ligand.
STRUCTURES: Final = ("_protein.pdb", "_protein.cif", "_protein_processed.pdb", "_pocket.pdb")
LIGANDS: Final = ("_ligand.sdf", "_ligand.mol2")
PACKED: Final = ("", ".gz", ".zst")
# Where an id stands in several index files, the first of these wins.
PRECEDENCE: Final = ("general", "refined", "core")

LINE = re.compile(
    r"(?P<code>\w+)\s+(?P<resolution>NMR|[\d.]+|N/?A)\s+(?P<release_year>\d{4})\s+"
    r"(?:(?P<pk>-?\d+\.\d+)\s+)?(?P<label>\S+)\s*//\s*(?P<reference>\S+)?\s*(?:\((?P<ligand_name>[^)]*)\))?\s*(?P<remark>.*)"
)


class Pdbbind:
    """The layout ``pdbbind``."""

    name = "pdbbind"

    def recognise(self, request: Request) -> str:
        """Folders named for what they hold: 1abc/1abc_ligand.sdf beside 1abc/1abc_protein.pdb."""
        for name in request.tree.peek:
            stem = _stem(name, LIGANDS)
            folder = name.rpartition("/")[0]
            if stem and folder.rpartition("/")[2] == stem:
                files = {base for path in request.tree.peek for base in [path.removeprefix(f"{folder}/")]}
                if any(f"{stem}{end}{pack}" in files for end in STRUCTURES for pack in PACKED):
                    return f"{folder} holds {stem}_ligand and {stem}_protein files"
        return ""

    def items(self, request: Request) -> Iterator[Item | Rejection]:
        """One a folder that holds a ligand or a protein of PDBbind's naming."""
        tree = request.tree
        index = read_indexes(tree, request)
        for folder, files in tree.folders.items():
            stems = {_stem(name, LIGANDS) or _stem(name, STRUCTURES) for name in files} - {""}
            for stem in sorted(stems):
                yield _item(tree, folder, stem, set(files), index)


def _stem(name: str, ends: tuple[str, ...]) -> str:
    base = name.rpartition("/")[2]
    for pack in PACKED:
        plain = base.removesuffix(pack) if pack else base
        for end in ends:
            if plain.endswith(end):
                return plain.removesuffix(end)
    return ""


def _item(
    tree: Tree, folder: str, stem: str, files: set[str], index: Mapping[str, dict[str, str]]
) -> Item | Rejection:
    structures, ligands = (
        [f"{stem}{end}{pack}" for end in ends for pack in PACKED if f"{stem}{end}{pack}" in files]
        for ends in (STRUCTURES, LIGANDS)
    )
    where = folder or str(tree.path)
    if not structures:
        lacks = f"neither {stem}_protein.pdb nor {stem}_pocket.pdb"
        return Rejection(stem, "file_missing", f"{where} has a ligand but {lacks}")
    if not ligands:
        lacks = f"neither {stem}_ligand.sdf nor {stem}_ligand.mol2"
        return Rejection(stem, "file_missing", f"{where} has a protein but {lacks}")
    prefix = f"{folder}/" if folder else ""
    ligand, *alternates = (tree.locator(prefix + name) for name in ligands)
    row = index.get(stem, {})
    return Item(
        id=stem,
        structure=tree.locator(prefix + structures[0]),
        ligand=ligand,
        alternates=tuple(alternates),
        labels=(Label(text=row["label"]),) if row.get("label") else (),
        columns={key: value for key, value in row.items() if key != "code"},
        source="pdbbind",
    )


def read_indexes(tree: Tree, request: Request) -> dict[str, dict[str, str]]:
    """Index lines by code; ``sets`` tells which index files name it."""
    if request.labels is not None:
        texts = {request.labels.name: request.labels.read_text("latin-1")}
        if not any(parse_index(text) for text in texts.values()):
            return {}  # a table by id, which is joined to the items of every layout alike
    else:
        texts = {name: tree.text(name) for name in tree.names if name.rpartition("/")[2].startswith("INDEX")}
    found: dict[str, dict[str, str]] = {}
    for name in sorted(texts, key=_precedence):
        for row in parse_index(texts[name]):
            kept = found.setdefault(row["code"], {**row, "sets": ""})
            kept["sets"] = f"{kept['sets']},{name.rpartition('/')[2]}".lstrip(",")
    return found


def _precedence(name: str) -> tuple[int, str]:
    return next((i for i, word in enumerate(PRECEDENCE) if word in name), len(PRECEDENCE)), name


def parse_index(text: str) -> list[dict[str, str]]:
    """The lines of an index file that hold a label; comments and other tables are passed over."""
    rows = []
    for line in text.splitlines():
        match = LINE.fullmatch(line.strip())
        if match and not line.startswith("#"):
            rows.append({key: value or "" for key, value in match.groupdict().items()})
    return rows
