"""A table that names, for each complex, its files and its label: CSV, TSV or Parquet.

Columns, by any of their names: an id, a structure file, a ligand file (or a residue of the structure
file), a record number, and the affinity as ``labels.py`` knows it. All other columns ride along as text.
A file may be a member of an archive: ``systems.zip!1abc/ligand.sdf``.

Rows that repeat the id and the files of an earlier row are further measurements of the same complex: their
labels join those of the first. A row with the id of an earlier one and other files is refused as such.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Final

import polars as pl

from ...shards.errors import UsageError
from ..chemistry.numerals import blank
from ..item import Item, Locator, Rejection
from ..read import archive
from .labels import ID, SMILES, LabelColumns, header_of, pick, read_table, rows
from .source import Request
from .tree import SUFFIXES, plain

log = logging.getLogger("holoshard")

STRUCTURE: Final = ("protein_path", "protein_file", "protein", "receptor_path", "receptor_file",
                    "receptor", "structure_path", "structure_file", "structure", "complex_path",
                    "complex_file", "pdb_path", "cif_path", "pdb_file", "cif_file")  # fmt: skip
LIGAND: Final = ("ligand_path", "ligand_file", "ligand", "ligand_description", "pose_path", "pose",
                 "sdf_path", "sdf_file", "sdf", "mol2_path", "mol2")  # fmt: skip
RECORD: Final = ("ligand_record", "record", "ligand_index", "pose_index")
NAME: Final = ("ligand_name", "ligand_residue", "residue", "ligand_id", "het_code")
ALTERNATE: Final = ("ligand_alternate", "alternate_path", "ligand_mol2", "ligand_path_2")
LIGAND_SUFFIXES: Final = (".sdf", ".sd", ".mol", ".mol2", ".pdb", ".ent", ".cif", ".bcif", ".pdbqt")
TRUE: Final = ("true", "1", "yes")


@dataclass(frozen=True, slots=True)
class Columns:
    """Which column of a table of complexes holds what; "" for none."""

    id: str
    structure: str
    ligand: str
    record: str
    name: str
    alternate: str
    smiles: str
    affinity: LabelColumns

    @classmethod
    def of(cls, header: Sequence[str]) -> Columns:
        """Find them in a header."""
        id_, structure, ligand, record, name, alternate, smiles = (
            pick(header, names) for names in (ID, STRUCTURE, LIGAND, RECORD, NAME, ALTERNATE, SMILES)
        )
        return cls(id_, structure, ligand, record, name, alternate, smiles, LabelColumns.of(header))

    @property
    def missing(self) -> list[str]:
        """What a table must have and this one lacks."""
        lacks = [] if self.id else [f"an id column ({', '.join(ID[:6])}, ...)"]
        lacks += [] if self.structure else [f"a structure column ({', '.join(STRUCTURE[:6])}, ...)"]
        if not self.ligand and not self.name:
            lacks.append(f"a ligand column ({', '.join(LIGAND[:6])}, ..., or ligand_name)")
        return lacks


class Table:
    """The layout ``table``."""

    name = "table"

    def recognise(self, request: Request) -> str:
        """A table with columns for an id, a structure file and a ligand."""
        try:
            locator = find_table(request)
            if request.labels is None and not has_files(request, locator):
                return ""
        except UsageError:
            return ""
        return f"{locator} has columns for an id, a structure file and a ligand"

    def items(self, request: Request) -> Iterator[Item | Rejection]:
        """One a row, in the table's order; one for all rows of the same id and files."""
        locator = find_table(request)
        frame = read_table(locator)
        columns = Columns.of(frame.columns)
        if columns.missing:
            lacks = " and ".join(columns.missing)
            raise UsageError(f"the table {locator} lacks {lacks}; it has: {', '.join(frame.columns)}")
        base = _Base.of(request, locator, frame, columns.structure)
        repeats = _repeats(frame, columns)
        joined = {number for numbers in repeats.values() for number in numbers}
        if joined:
            log.info(
                "%s: %d rows are further measurements of complexes of earlier rows", locator, len(joined)
            )
        for number, row in enumerate(rows(frame), 1):
            if number in joined:
                continue
            item = _item(number, row, columns, base)
            if isinstance(item, Item) and number in repeats:
                more = (frame.row(later - 1, named=True) for later in repeats[number])
                labels = [label for other in more for label in columns.affinity.labels(other)]
                item = replace(item, labels=(*item.labels, *labels))
            yield item


def _repeats(frame: pl.DataFrame, columns: Columns) -> dict[int, list[int]]:
    """Row (from 1) of a complex that comes again -> its later rows."""
    named = (columns.id, columns.structure, columns.ligand, columns.record, columns.name, columns.alternate)
    keys = [column for column in dict.fromkeys(named) if column]
    numbered = frame.select(keys).with_row_index("row number", offset=1).filter(pl.col(columns.id) != "")
    groups = (
        numbered.group_by(keys).agg(pl.col("row number").sort()).filter(pl.col("row number").list.len() > 1)
    )
    return {numbers[0]: numbers[1:] for numbers in groups["row number"].to_list()}


def has_files(request: Request, locator: Locator) -> bool:
    """True if a row names a file that is there; in a folder, one of the first: strays make no layout."""
    named = not request.tree.is_folder and not request.tree.kind
    return any(_is_there(one) for one in _structures(request, locator, None if named else 64))


def refuse_absent(request: Request) -> None:
    """Raise UsageError if the source is a table of complexes by itself, and not one of its files is there."""
    if request.tree.is_folder or request.tree.kind:
        return
    try:
        located = list(dict.fromkeys(_structures(request, find_table(request))))
    except UsageError:
        return  # no such table: what it lacks is said elsewhere
    if located and not any(map(_is_there, located)):
        first = located[0]
        said = f"looked first for {first}" if isinstance(first, Locator) else f"of the first: {first}"
        raise UsageError(
            f"{request.tree.path}: none of its {len(located)} structure files is there; {said}; paths are "
            "relative to the table: mend them or move the table"
        )


def _structures(request: Request, locator: Locator, most: int | None = None) -> Iterator[Locator | str]:
    """Where the structure files of the first rows lie, or why they are refused."""
    frame = read_table(locator)[:most]
    columns = Columns.of(frame.columns)
    base = _Base.of(request, locator, frame, columns.structure)
    return (base.locator(row[columns.structure]) for row in rows(frame) if not blank(row[columns.structure]))


def _is_there(located: Locator | str) -> bool:
    return isinstance(located, Locator) and located.path.is_file()


def find_table(request: Request) -> Locator:
    """The table that the request names or holds. Raises UsageError if there is none, or several."""
    tree = request.tree
    if request.labels is not None:
        return _qualified(Locator(request.labels))
    if not tree.is_folder and not tree.kind:
        return _qualified(tree.locator(tree.path.name))
    near = [name for name in tree.peek if name.count("/") <= 1 and plain(name).lower().endswith(SUFFIXES)]
    for depth in (0, 1):
        found = [name for name in near if name.count("/") == depth and _fits(tree.locator(name))]
        if len(found) == 1:
            return tree.locator(found[0])
        if found:
            raise UsageError(
                f"{tree.path} holds several tables ({', '.join(found)}): say which with --labels"
            )
    raise UsageError(f"{tree.path} holds no table with columns for an id, a structure file and a ligand")


def _fits(locator: Locator) -> bool:
    return not Columns.of(header_of(locator)).missing


def _qualified(locator: Locator) -> Locator:
    lacks = Columns.of(header_of(locator)).missing
    if lacks:
        raise UsageError(f"the table {locator} lacks {' and '.join(lacks)}")
    return locator


@dataclass(frozen=True, slots=True)
class _Base:
    """Where the paths of a table start from, and the folder or archive that they may not leave."""

    request: Request
    folder: Path
    inside: tuple[Path, ...]

    @classmethod
    def of(cls, request: Request, table: Locator, frame: pl.DataFrame, column: str) -> _Base:
        """Of the source's folder and the table's, the one that holds more of the first rows' files."""
        folders = [request.tree.root, table.path.parent]
        first = [row[column].partition("!")[0] for row in islice(rows(frame), 64)]
        best = max(folders, key=lambda folder: sum((folder / name).exists() for name in first if name))
        return cls(request, best.resolve(), tuple({folder.resolve() for folder in folders}))

    def locator(self, text: str) -> Locator | str:
        """The file that a cell names, or why it is refused."""
        name, _, member = text.strip().partition("!")
        fault = archive.fault_of_name(member) if member else ""
        if self.request.tree.kind and not member:
            fault = archive.fault_of_name(name)
            if not fault and self.request.tree.has(name):
                return self.request.tree.locator(name)
            return fault or Locator(self.request.tree.path, name)
        # Without resolve(): a lexical check needs no file system, and a link is the user's own doing.
        path = Path(*(self.folder / name).parts)
        parts: list[str] = []
        for part in path.parts:
            if part == "..":
                parts = parts[:-1]
            else:
                parts.append(part)
        clean = Path(*parts)
        if not any(clean.is_relative_to(folder) for folder in self.inside):
            fault = f"it lies outside {self.folder}"
        return fault or Locator(clean, member)


def _item(number: int, row: Mapping[str, str], columns: Columns, base: _Base) -> Item | Rejection:
    name = row[columns.id].strip()
    if not name:
        return Rejection(f"row {number}", "id_missing", f"row {number} of the table has no {columns.id}")
    cells = {key: row.get(column, "").strip() for key, column in _file_columns(columns)}
    if blank(cells["structure"]):
        return Rejection(name, "file_missing", f"row {number} of the table names no structure file")
    found: dict[str, Locator] = {}
    for key, cell in cells.items():
        if blank(cell):
            continue
        if key == "ligand" and not _is_file(cell, base):
            said = f"row {number}: {cell!r} is not the name of a file with coordinates"
            return Rejection(name, "ligand_no_3d", said)
        located = base.locator(cell)
        if isinstance(located, str):
            return Rejection(name, "unsafe_member", f"row {number}: {cell} is refused: {located}")
        found[key] = located
    record = row.get(columns.record, "").strip()
    if record and not record.isdecimal():
        said = f"row {number}: the record {record!r} is no whole number from 0 up"
        return Rejection(name, "record_missing", said)
    ligand, residue = found.get("ligand"), row.get(columns.name, "").strip()
    if ligand is None and not residue:
        return Rejection(name, "ligand_missing", f"row {number} names neither a ligand file nor a residue")
    inside = ligand is None or ligand == found["structure"]
    return Item(
        id=name,
        structure=found["structure"],
        ligand=None if inside else ligand,
        record=int(record or 0),
        residue=residue if inside else "",
        alternates=(found["alternate"],) if "alternate" in found else (),
        smiles="" if blank(row.get(columns.smiles, "")) else row[columns.smiles].strip(),
        labels=columns.affinity.labels(row),
        columns=row,
        source=row.get("source", "") or "table",
        synthetic=row.get("synthetic", "").strip().lower() in TRUE,
        predicted=row.get("predicted", "").strip().lower() in TRUE,
    )


def _file_columns(columns: Columns) -> tuple[tuple[str, str], ...]:
    return (("structure", columns.structure), ("ligand", columns.ligand), ("alternate", columns.alternate))


def _is_file(cell: str, base: _Base) -> bool:
    """A SMILES or a name in a column for ligand files is not a path."""
    name = cell.lower()
    for packed in (".gz", ".zst"):
        name = name.removesuffix(packed)
    return name.endswith(LIGAND_SUFFIXES) or "!" in cell or (base.folder / cell).is_file()
