"""PDBbind: a folder a complex with ``1abc_protein.pdb``, ``1abc_ligand.sdf`` or ``.mol2``, and INDEX files.

An index line reads ``code resolution year [-logK] label // reference (ligand) remark``, for instance
``2tpi  2.10  1982  4.31  Kd=49uM  // 2tpi.pdf (2-mer)``; a label may carry <, <=, >, >= or ~.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from ...shards.errors import UsageError
from ..item import Item, Label, Rejection
from .source import Request
from .tree import Tree, folders_of, join, plain

log = logging.getLogger("holoshard")

# In the order of preference. The pocket file holds whole residues within 10 angstrom of the ligand.
STRUCTURES: Final = ("_protein.pdb", "_protein.cif", "_protein_processed.pdb", "_pocket.pdb")
LIGANDS: Final = ("_ligand.sdf", "_ligand.mol2")
# Where an id stands in several index files, the first of these wins.
PRECEDENCE: Final = ("general", "refined", "core")

LINE = re.compile(
    r"(?P<code>\w+)\s+(?P<resolution>NMR|[\d.]+|N/?A)\s+(?P<release_year>\d{4})\s+"
    r"(?:(?P<pk>-?\d+\.\d+)\s+)?(?P<label>\S.*?)\s*//\s*(?P<reference>\S+)?\s*"
    r"(?:\((?P<ligand_name>[^)]*)\))?\s*(?P<remark>.*)"
)


class Pdbbind:
    """The layout ``pdbbind``."""

    name = "pdbbind"

    def recognise(self, request: Request) -> str:
        """Files named for what they hold: 1abc_ligand.sdf beside 1abc_protein.pdb."""
        for folder, files in folders_of(request.tree.peek).items():
            for stem in stems(files, LIGANDS):
                if stem in stems(files, STRUCTURES):
                    return f"{folder or request.tree.path} holds {stem}_ligand and {stem}_protein files"
        return ""

    def items(self, request: Request) -> Iterator[Item | Rejection]:
        """One a folder that holds a ligand or a protein of PDBbind's naming."""
        index = read_indexes(request)
        for folder, files in request.tree.folders.items():
            for stem in stems(files, LIGANDS + STRUCTURES):
                row = index.get(stem, {})
                item = pair(request.tree, folder, stem, files, STRUCTURES, LIGANDS)
                yield item if isinstance(item, Rejection) else _labelled(item, row)


def stems(files: Sequence[str], ends: Sequence[str]) -> list[str]:
    """What stands before one of these endings, in files packed or not."""
    return sorted(
        {plain(name).removesuffix(end) for name in files for end in ends if plain(name).endswith(end)}
    )


def pair(
    tree: Tree,
    folder: str,
    stem: str,
    files: Sequence[str],
    structures: Sequence[str],
    ligands: Sequence[str],
) -> Item | Rejection:
    """The item of a structure and a ligand with the same stem; further ligand files are alternates."""
    found = [
        [tree.locator(join(folder, name)) for end in ends for name in files if plain(name) == f"{stem}{end}"]
        for ends in (structures, ligands)
    ]
    for what, ends, locators in zip(("structure", "ligand"), (structures, ligands), found, strict=True):
        if not locators:
            names = ", ".join(f"{stem}{end}" for end in ends)
            said = f"{folder or tree.path} has no {what} of {stem}; expected one of {names}"
            return Rejection(stem, "file_missing", said)
    ligand, *alternates = found[1]
    return Item(stem, found[0][0], ligand, alternates=tuple(alternates))


def _labelled(item: Item, row: Mapping[str, str]) -> Item:
    labels = (Label(text=row["label"]),) if row.get("label") else ()
    columns = {key: value for key, value in row.items() if key != "code"}
    return Item(
        item.id,
        item.structure,
        item.ligand,
        alternates=item.alternates,
        labels=labels,
        columns=columns,
        source="pdbbind",
    )


def read_indexes(request: Request) -> dict[str, dict[str, str]]:
    """Index lines by code; ``sets`` tells which index files name it."""
    tree = request.tree
    if request.labels is not None:
        texts = {request.labels.name: Tree(request.labels).text(request.labels.name)}
    else:
        texts = {name: tree.text(name) for name in tree.names if name.rpartition("/")[2].startswith("INDEX")}
    found: dict[str, dict[str, str]] = {}
    for name in sorted(texts, key=_precedence):
        _say_what_is_lost(name, texts[name])
        for row in parse_index(texts[name]):
            kept = found.setdefault(row["code"], {**row, "sets": ""})
            kept["sets"] = f"{kept['sets']},{name.rpartition('/')[2]}".lstrip(",")
    return found


def _say_what_is_lost(name: str, text: str) -> None:
    """Warn of lines that have a reference, as those with a label do, and are no index lines all the same."""
    if "\0" in text:
        raise UsageError(
            f"the index {name} is binary; expected lines such as '2tpi 2.1 1982 Kd=49uM // 2tpi.pdf'"
        )
    lines = [line.strip() for line in text.splitlines() if "//" in line and not line.startswith("#")]
    lost = [line for line in lines if not LINE.fullmatch(line)]
    if lost:
        log.warning(
            "%s: %d of %d lines are no index lines, and their labels are lost: %r ...",
            name, len(lost), len(lines), lost[0][:80],
        )  # fmt: skip


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
