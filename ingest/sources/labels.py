"""Tables as people write them: which column holds what, and the labels of a row. Every cell stays text.

Column names are compared without case, and with spaces, dots and hyphens taken for underscores.
"""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import polars as pl

from ...shards.errors import StructureError, UsageError
from ..chemistry.numerals import blank, kelvin
from ..item import Label, Locator
from ..read import archive

ID: Final = ("id", "identifier", "name", "pdb", "pdb_id", "pdbid", "pdb_code", "pdbcode", "code", "entry_id",
             "complex_id", "complex_name", "complex", "system_id", "system", "#code")  # fmt: skip
KIND: Final = ("affinity_type", "measurement_type", "label_type", "standard_type", "kind", "measure", "type")
RELATION: Final = ("relation", "standard_relation", "operator", "sign")
VALUE: Final = ("value", "affinity", "affinity_value", "binding_affinity", "standard_value", "measurement",
                "label")  # fmt: skip
UNIT: Final = ("unit", "units", "standard_units", "affinity_unit")
TEMPERATURE: Final = ("temperature", "temperature_k", "t_k", "t")
SMILES: Final = ("smiles", "ligand_smiles", "canonical_smiles", "isomeric_smiles", "smiles_string")
TEXT: Final = ("affinity_text", "label_text", "kd/ki", "binding_data", "affinity_data")

_UNITS = r"(?:[fpnuµμm]?(?:M|mol[/_]L)|kcal(?:[/_]mol)?|kJ(?:[/_]mol)?)"
_CONSTANT = r"p?(?:K_?d|K_?i|IC_?50|EC_?50)"
_MEASURED = r"(?:r_)?(?:exp(?:t|erimental)?|measured)"  # before or after the name of a constant
_NAMED = re.compile(
    rf"(?:{_MEASURED}[\s_.]+)?(?P<kind>{_CONSTANT}|pK|pKa?ff|pAff(?:inity)?|pChEMBL(?:_value)?|-logK[di/Ki]*|neg_?log_?k\w*"
    rf"|(?:d|delta_?|Δ)G)(?:[\s_]*[(\[]?\s*(?P<unit>{_UNITS})\s*[)\]]?)?"
    rf"(?:_value|[\s_.]+{_MEASURED})?",
    re.IGNORECASE,
)
_RELATION = r"<=|>=|≤|≥|<|>|~|≈|=|≲|≳"
_CELL = re.compile(
    rf"\s*(?P<relation>{_RELATION})?\s*(?P<value>[+\-\u2212]?[\d.,]+(?:[eE][+-]?\d+)?)\s*(?P<unit>{_UNITS})?\s*"
)
_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1f]")  # of what is no text
_NEXT = re.compile(rf"\s*[;,]\s*(?=(?:{_CONSTANT}|pK)\b)", re.IGNORECASE)  # "Ki=20 nM; IC50=1 uM"


def canonical(column: str) -> str:
    """A column's name as the synonym lists have it."""
    return re.sub(r"[\s.\-]+", "_", column.strip().lower()) if not column.startswith("-") else column.lower()


def pick(header: Sequence[str], synonyms: Sequence[str]) -> str:
    """The first column that is one of the synonyms, in the synonyms' order; "" if there is none."""
    known = {canonical(column): column for column in reversed(header)}
    return next((known[name] for name in synonyms if name in known), "")


@dataclass(frozen=True, slots=True)
class LabelColumns:
    """Which columns of a table speak of the affinity.

    ``named`` maps a column such as "Ki (nM)" or "pIC50" to its kind and unit.
    """

    value: str
    kind: str
    relation: str
    unit: str
    temperature: str
    text: str
    named: Mapping[str, tuple[str, str]]

    @classmethod
    def of(cls, header: Sequence[str]) -> LabelColumns:
        """Find them in a header."""
        named = {}
        for column in header:
            match = _NAMED.fullmatch(column.strip())
            if match:
                named[column] = (match["kind"], (match["unit"] or "").replace("_", "/"))
        synonyms = (VALUE, KIND, RELATION, UNIT, TEMPERATURE, TEXT)
        value, kind, relation, unit, temperature, text = (pick(header, names) for names in synonyms)
        return cls(value, kind, relation, unit, temperature, text, named)

    def labels(self, row: Mapping[str, str]) -> tuple[Label, ...]:
        """The measurements of a row: the columns value, type, relation and unit if filled, else the named
        columns, else free text."""
        temperature = kelvin(row.get(self.temperature, ""))
        cell = row.get(self.value, "")
        if not blank(cell):
            kind, unit = row.get(self.kind, ""), row.get(self.unit, "")
            found = [_label(piece, kind, unit, temperature) for piece in _NEXT.split(cell)]
        else:
            found = [
                _label(row[column], kind, unit, temperature)
                for column, (kind, unit) in self.named.items()
                if not blank(row.get(column, ""))
            ]
        if not found and not blank(row.get(self.text, "")):
            found = [Label(text=piece.strip()) for piece in _NEXT.split(row[self.text])]
        relation = row.get(self.relation, "").strip()
        if relation:
            found = [replace(label, relation=relation) if label.relation == "=" else label for label in found]
        return tuple(found)


def _label(cell: str, kind: str, unit: str, temperature: float) -> Label:
    """A cell's own relation and unit win over those of its columns."""
    match = _CELL.fullmatch(cell)
    if match is None:
        return Label(kind.strip(), "=", "", unit.strip(), cell.strip(), temperature)
    unit = match["unit"] or unit.strip()
    return Label(kind.strip(), match["relation"] or "=", match["value"], unit, temperature=temperature)


def read_table(locator: Locator) -> pl.DataFrame:
    """A CSV, TSV or Parquet file, packed or not, with every column as text and no cell missing.

    Raises UsageError, with the mend, if it is none of these.
    """
    try:
        data = archive.load(locator)
        if data[:4] == b"PAR1":
            frame = pl.read_parquet(io.BytesIO(data))
        else:
            text = _decode(data)
            if _CONTROL.search(text[:4096]):
                raise StructureError("format_unknown", "it is binary; expected CSV, TSV or Parquet")
            frame = pl.read_csv(
                io.BytesIO(text.encode()), separator=delimiter(text), infer_schema=False, encoding="utf8"
            )
    except StructureError as error:
        raise UsageError(f"the table {locator} cannot be read: {error}") from error
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        reason = str(error).splitlines()[0]
        raise UsageError(f"the table {locator} cannot be read: {reason}; save it anew as CSV") from error
    scalar = [name for name, kind in frame.schema.items() if not kind.is_nested()]
    return frame.select(pl.col(name).cast(pl.String).fill_null("") for name in scalar)


def _decode(data: bytes) -> str:
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):  # "Unicode text" of spreadsheets
        return data.decode("utf-16", "replace")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("latin-1")


def delimiter(text: str) -> str:
    """Comma, tab, semicolon or bar: the one that occurs most in the first line."""
    first = text.split("\n", 1)[0]
    return max(",\t;|", key=first.count)


def header_of(locator: Locator) -> list[str]:
    """The column names of a table, without reading the rest; [] if it is none."""
    try:
        if locator.member or not locator.path.is_file():
            head = archive.load(locator)
        else:
            with locator.path.open("rb") as file:
                head = file.read(1 << 16)
            if head[:4] == b"PAR1":
                return list(parquet_schema(locator))
            if head[:2] == archive.GZIP or head[:4] == archive.ZSTD:
                head = archive.load(locator)
    except (StructureError, OSError, UsageError):
        return []
    text = _decode(head) if b"\n" in head else ""
    line = text.split("\n", 1)[0].strip("\r")
    if not line or _CONTROL.search(line):
        return []
    return [cell.strip().strip('"') for cell in line.split(delimiter(line))]


def parquet_schema(locator: Locator) -> pl.Schema:
    """Columns and types of a Parquet file. Raises UsageError, with the mend, if it cannot be read."""
    try:
        if not locator.path.is_file():
            raise OSError("it is no regular file")
        return pl.Schema(pl.read_parquet_schema(locator.path))
    except (OSError, pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        said = str(error).splitlines()[0]
        raise UsageError(f"the table {locator} cannot be read: {said}; fetch or write it anew") from error


def rows(frame: pl.DataFrame) -> Iterator[dict[str, str]]:
    """The rows of a table, a few thousand at a time."""
    for piece in frame.iter_slices(4096):
        yield from piece.iter_rows(named=True)


class LabelTable:
    """Labels by id, from a table that has no structure files: joined to another layout's items.

    An id that differs in case alone is the same, as it is among PDB codes, unless two rows differ in no more.
    """

    def __init__(self, path: Path) -> None:
        frame = read_table(Locator(path))
        key = pick(frame.columns, ID)
        if not key:
            found, expected = ", ".join(frame.columns), ", ".join(ID)
            raise UsageError(f"{path} has no id column: found {found}; expected one of {expected}")
        columns = LabelColumns.of(frame.columns)
        self.labels: dict[str, tuple[Label, ...]] = {}
        self.columns: dict[str, dict[str, str]] = {}
        self.smiles = pick(frame.columns, SMILES)
        for row in rows(frame):
            name = row[key].strip()
            self.labels[name] = self.labels.get(name, ()) + columns.labels(row)
            self.columns.setdefault(name, row)
        folded = Counter(name.lower() for name in self.labels)
        self._folded = {name.lower(): name for name in self.labels if folded[name.lower()] == 1}
        self._met: set[str] = set()

    def find(self, id_: str) -> tuple[tuple[Label, ...], dict[str, str]]:
        """Labels and columns of a complex, nothing if the table has none."""
        name = id_ if id_ in self.labels else self._folded.get(id_.lower(), "")
        self._met.add(name)
        return self.labels.get(name, ()), self.columns.get(name, {})

    @property
    def unmet(self) -> set[str]:
        """Ids that no complex was asked for yet."""
        return set(self.labels) - self._met
