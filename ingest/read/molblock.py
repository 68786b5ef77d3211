"""Molfile text: the records of an SD file, and V2000 blocks without the fields that spoil them.

Columns are those of the CTfile formats document (BIOVIA, 2020): an atom line is
``xxxxx.xxxxyyyyy.yyyyzzzzz.zzzz aaaddcccssshhhbbbvvv...``, a bond line ``111222tttsssxxxrrrccc``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ...shards.errors import StructureError

_COUNTS_V2000 = re.compile(r"^[ \d]{6}")
_HCOUNT = slice(42, 45)  # hhh: a query on the hydrogen count
_TOPOLOGY = slice(15, 18)  # rrr: a query on ring or chain


@dataclass(frozen=True, slots=True)
class Molblock:
    """The connection table of one record, ready for a reader.

    Attributes
    ----------
    text : header, counts, atoms, bonds and properties up to ``M  END``
    title : first line
    dimension : "2D", "3D" or "" as the second line claims
    symbols : the atom column of a V2000 block; empty for V3000
    repairs : codes of ``REPAIRS``
    """

    text: str
    title: str
    dimension: str
    symbols: tuple[str, ...]
    repairs: tuple[str, ...] = ()


def split_records(data: bytes) -> tuple[tuple[int, int], ...]:
    """Start and end of each record of an SD file, without its ``$$$$`` line.

    The records are counted by their delimiters alone, so that one that cannot be read never shifts
    the numbers of those after it. Blank text after the last delimiter is no record.
    """
    spans: list[tuple[int, int]] = []
    start = search = 0
    while (found := data.find(b"$$$$", search)) >= 0:
        search = found + 4
        if found and data[found - 1] not in b"\r\n":
            continue
        spans.append((start, found))
        newline = data.find(b"\n", search)
        carriage = data.find(b"\r", search, newline if newline >= 0 else len(data))
        if newline >= 0 and carriage in (-1, newline - 1):
            start = newline + 1
        else:  # old Macintosh line ends, or the end of the file
            start = carriage + 1 if carriage >= 0 else len(data)
        search = start
    if data[start:].strip():
        spans.append((start, len(data)))
    return tuple(spans)


def decode(data: bytes) -> tuple[str, tuple[str, ...]]:
    """Text with ``\\n`` line ends, and the repair code if the bytes are not UTF-8 (then Latin-1 is taken)."""
    repairs: tuple[str, ...] = ()
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = data.decode("latin-1")
        repairs = ("text_decoded",)
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    return text, repairs


def read_molblock(record: bytes) -> Molblock:
    """Connection table of one record.

    Raises
    ------
    StructureError
        ``parse_failed`` without a counts line, or with fewer atom and bond lines than it promises.
    """
    text, repairs = decode(record)
    end = text.find("M  END")
    lines = (text[: end + 6] if end >= 0 else _before_tags(text)).split("\n")
    if len(lines) < 4:
        raise StructureError("parse_failed", f"{len(lines)} lines where a molfile has four before its atoms")
    dimension = lines[1][20:22].upper()
    symbols: tuple[str, ...] = ()
    if "V3000" not in lines[3]:
        lines, symbols, mended = _sanitise_v2000(lines)
        repairs += mended
    if lines[-1] != "M  END":
        lines = [*lines, "M  END"]
    return Molblock(
        "\n".join(lines) + "\n",
        lines[0].strip(),
        dimension if dimension in ("2D", "3D") else "",
        symbols,
        repairs,
    )


def _before_tags(text: str) -> str:
    """The part of a record that lacks ``M  END`` which can be connection table: old writers leave it out."""
    return re.split(r"^>", text, maxsplit=1, flags=re.MULTILINE)[0].rstrip("\n")


def _sanitise_v2000(lines: list[str]) -> tuple[list[str], tuple[str, ...], tuple[str, ...]]:
    """The lines, the atoms' symbols and the repairs: zero the query fields that X-TOOL fills for every atom
    and bond of PDBbind's ligands.

    RDKit takes a non-zero ``hhh`` for a query on hydrogens and a non-zero ``rrr`` for one on rings, and then
    perceives neither hydrogens nor aromaticity.
    """
    counts = lines[3]
    if not _COUNTS_V2000.match(counts) or not counts[:3].strip():
        raise StructureError(
            "parse_failed", f"counts line {counts[:40]!r} where two numbers of three columns are due"
        )
    n_atoms, n_bonds = _count(counts[:3]), _count(counts[3:6])
    atoms, bonds = lines[4 : 4 + n_atoms], lines[4 + n_atoms : 4 + n_atoms + n_bonds]
    if len(atoms) + len(bonds) < n_atoms + n_bonds or any(line[:3] == "M  " for line in (atoms + bonds)[-1:]):
        raise StructureError(
            "parse_failed",
            f"{len(lines) - 4} lines after a counts line that promises {n_atoms} atoms and {n_bonds} bonds",
        )
    repairs = []
    if "".join([line[_HCOUNT] for line in atoms]).strip(" 0"):
        atoms = [line[:42] + "  0" + line[45:] if len(line) > 42 else line for line in atoms]
        repairs.append("sdf_hcount_field")
    if "".join([line[_TOPOLOGY] for line in bonds]).strip(" 0"):
        bonds = [line[:15] + "  0" + line[18:] if len(line) > 15 else line for line in bonds]
        repairs.append("sdf_bond_topology")
    symbols = tuple([line[31:34].strip() for line in atoms])
    if not repairs:
        return lines, symbols, ()
    return [*lines[:4], *atoms, *bonds, *lines[4 + n_atoms + n_bonds :]], symbols, tuple(repairs)


def _count(text: str) -> int:
    try:
        return int(text.replace(" ", "") or "0")
    except ValueError as error:
        raise StructureError("parse_failed", f"counts line holds {text!r} where a number is due") from error
