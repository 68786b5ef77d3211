"""PDB files.

Files that keep strictly to the columns of the format are read by ``columns``, all lines at once; gemmi
reads their header, and every other file whole. gemmi slices columns as the format says and never
complains, so a line whose fields were shifted or written free of columns would give wrong numbers
without a word: every coordinate line is checked before.
"""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import Any, Final

import gemmi
import numpy as np
from numpy.typing import NDArray

from ...shards.errors import StructureError
from .columns import find_lines, read_columns
from .components import component
from .pdbqt import element_columns
from .structure import Header, Structure, assemble, expand, flatten, links_of, to_utf8

_ATOM: Final = int.from_bytes(b"ATOM", "little")
_HETATM: Final = int.from_bytes(b"HETA", "little")
_MODEL: Final = int.from_bytes(b"MODE", "little")
_ENDMDL: Final = int.from_bytes(b"ENDM", "little")
_END: Final = int.from_bytes(b"END", "little")
_LINK: Final = int.from_bytes(b"LINK", "little")
_SSBOND: Final = int.from_bytes(b"SSBO", "little")
_LETTERS: Final = {"C": 6, "N": 7, "O": 8, "P": 15, "S": 16, "H": 1, "D": 1}  # of a residue in a chain
_NUMBER: Final = re.compile(rb" *[-+]?\d*(\.?\d*)")  # to the right end of its columns
_FIELD: Final = re.compile(rb" *[-+]?(?:\d+\.?\d*|\.\d+)? *|\*+")
_OVERRUN: Final = re.compile(rb" *[-+]?\d*\.\d{7,}")  # "  0.00000000": one number across both
_FREE_WORDS: Final = 10  # no line that ends before the columns of its z has so many
_MONTHS: Final = {name: i + 1 for i, name in enumerate((
    "JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC",
))}  # fmt: skip


class _Lines:
    """Where the lines of a file begin and end, which record each is, and which are the atoms of it; whether
    all is ASCII without carriage returns.
    """

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.start, self.length, self.record, self.plain = find_lines(np.frombuffer(data, np.uint8))
        self.is_atom = (self.record == _ATOM) | (self.record == _HETATM)
        over = ((self.record & np.uint32(0xFFFFFF)) == _END).nonzero()[0]
        for line in over.tolist():  # END closes the file, ENDMDL a model
            at = int(self.start[line])
            if data[at : at + int(self.length[line])].strip() == b"END":
                self.is_atom[line:] = False
                break

    def rows(self) -> NDArray[np.uint8]:
        """The atom lines as an array of characters, shape (n, 80), blank past their ends."""
        start, length = self.start[self.is_atom], self.length[self.is_atom]
        size, span = int(length[0]), int(start[-1] - start[0])
        if size >= 80 and span == (len(start) - 1) * (size + 1) and (length == size).all():
            text = np.frombuffer(self.data, np.uint8)  # one line after the other: no need to copy them
            return np.ndarray((len(start), 80), np.uint8, text, int(start[0]), (size + 1, 1))
        if int(start[-1]) + 80 <= len(self.data):
            text = np.frombuffer(self.data, np.uint8)
        else:
            text = np.frombuffer(self.data + b" " * 80, np.uint8)
        windows = np.ndarray((len(text) - 79,), "V80", text, strides=(1,))
        rows: NDArray[np.uint8] = windows[start].view(np.uint8).reshape(-1, 80)
        shortest = int(length.min())
        if shortest < 80:
            rows[:, shortest:][np.arange(shortest, 80) >= length[:, None]] = 32
        return rows


def read_pdb(data: bytes, name: str, assembly: str) -> Structure:
    """Read the first model of a PDB file.

    Raises
    ------
    StructureError
        ``parse_failed``, ``format_mismatch`` (free columns, as PQR has them), ``structure_bad_coordinates``.
    """
    lines, decoded = _Lines(data), False
    if not lines.plain:
        data, decoded = to_utf8(data)
        data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        lines = _Lines(data)
    receptor = element_columns(data, lines.start[lines.is_atom], lines.length[lines.is_atom])
    if receptor is not None:
        data, lines = receptor, _Lines(receptor)
    found = _read(data, lines, name, assembly)
    return replace(found, repairs=(*found.repairs, "text_decoded")) if decoded else found


def _read(data: bytes, lines: _Lines, name: str, assembly: str) -> Structure:
    n_models, repairs = 1, []
    if ((lines.record == _MODEL) | (lines.record == _ENDMDL)).any():
        data, n_models, late = _first_model(data, lines)
        lines = _Lines(data)
        if late:
            repairs.append("ligand_after_endmdl")
    if not lines.is_atom.any():
        raise StructureError("structure_empty", f"{name} has no ATOM or HETATM record")
    if not assembly:
        found = _read_strict(lines, n_models, tuple(repairs))
        if found is not None:
            return found
    return _read_lenient(data, lines, name, assembly, n_models, repairs)


def _read_strict(lines: _Lines, n_models: int, repairs: tuple[str, ...]) -> Structure | None:
    """The file by its columns, all lines at once; None if one of them is not as the format says."""
    atoms = lines.is_atom.nonzero()[0]
    start, length = lines.start.take(atoms), lines.length.take(atoms)
    if length.min() < 66:
        return None
    columns = read_columns(lines.data, start, length, lines.record.take(atoms) == _HETATM)
    if columns is None:
        return None
    parsed = _parse(_header_text(lines), "the header")
    return assemble(columns, links_of(parsed), _header(parsed, n_models), repairs, "pdb")


def _header_text(lines: _Lines) -> bytes:
    """What stands before the first atom, and links wherever they stand."""
    first = int(np.argmax(lines.is_atom))
    head = lines.data[: int(lines.start[first])]
    late = np.flatnonzero((lines.record[first:] == _LINK) | (lines.record[first:] == _SSBOND)) + first
    spans = zip(lines.start[late].tolist(), lines.length[late].tolist(), strict=True)
    return head + b"".join(lines.data[at : at + n] + b"\n" for at, n in spans)


def _read_lenient(
    data: bytes, lines: _Lines, name: str, assembly: str, n_models: int, repairs: list[str]
) -> Structure:
    """The file by gemmi, where its lines can be trusted, with what is missing from them filled in."""
    blank_elements = _check_columns(lines, name)
    if lines.data.isascii() and _signs_first(lines):
        repairs.append("charge_swapped")
    parsed = _parse(data, name)
    header = _header(parsed, n_models)
    if assembly:
        expand(parsed, assembly, name)
    found = flatten(parsed, "pdb", header, tuple(repairs))
    if not assembly:
        found = _with_blank_b_factors(found, lines.rows())
    return with_elements(found, blank_elements)


def _with_blank_b_factors(found: Structure, rows: NDArray[np.uint8]) -> Structure:
    """Zero where the file has no B-factor, for which gemmi puts 20."""
    blank = (rows[:, 60:66] == 32).all(axis=1)
    if not blank.any() or len(blank) != found.n_atoms:
        return found
    return replace(found, b_factor=np.where(blank, np.float32(0), found.b_factor))


def _parse(data: bytes, name: str) -> gemmi.Structure:
    try:
        return gemmi.read_pdb_string(data)
    except (RuntimeError, ValueError, IndexError) as error:
        raise StructureError("parse_failed", f"{name}: {error}") from error


def _signs_first(lines: _Lines) -> bool:
    """True if a charge is written "+2" and not "2+"."""
    rows = lines.rows()
    return bool(
        (((rows[:, 78] == 43) | (rows[:, 78] == 45)) & (rows[:, 79] >= 48) & (rows[:, 79] <= 57)).any()
    )


def _first_model(data: bytes, lines: _Lines) -> tuple[bytes, int, bool]:
    """The file with its first model only, how many there were, and whether atoms followed the last.

    Records before the first MODEL and after the last ENDMDL belong to no model; both are kept, so that
    a ligand written after ENDMDL is seen. A second MODEL ends the first where ENDMDL is missing.
    """
    starts = lines.start.tolist()
    begins = [i for i in np.flatnonzero(lines.record == _MODEL).tolist()]
    ends = [i for i in np.flatnonzero(lines.record == _ENDMDL).tolist()]
    n_models = max(len(begins), len(ends), 1)
    begin = begins[0] if begins else -1
    stops = [i for i in (*ends, *begins) if i > begin]
    stop = min(stops, default=len(starts))
    tail = max(ends, default=len(starts) - 1) + 1
    if begins and tail <= begins[-1]:  # the last model was never closed: nothing is known to follow it
        tail = len(starts)

    def between(a: int, b: int) -> bytes:
        here = starts[a] if a < len(starts) else len(data)
        return data[here : starts[b] if b < len(starts) else len(data)]

    head = between(0, begin) if begin > 0 else b""
    late = bool(lines.is_atom[tail:].any())
    return head + between(begin + 1, stop) + between(tail, len(starts)), n_models, late


def _check_columns(lines: _Lines, name: str) -> bool:
    """Refuse lines whose coordinates are not where the format has them; True if element columns are blank."""
    start, length = lines.start[lines.is_atom], lines.length[lines.is_atom]
    if length.min() < 54:
        short = int(np.argmax(length < 54))
        at = int(start[short])
        said = f"{name}: line {_line(lines.data, at)} ends before its coordinates do"
        if len(lines.data[at : at + int(length[short])].split()) >= _FREE_WORDS:
            said += ": not the fixed columns of a PDB file (PQR and other free formats are not read)"
            raise StructureError("format_mismatch", said)
        raise StructureError("parse_failed", said)
    rows = lines.rows()
    dots = (rows[:, 34] == 46) & (rows[:, 42] == 46) & (rows[:, 50] == 46)
    for at in start[~dots].tolist():  # not "%8.3f": legal only if the columns still hold one number each
        _check_line(lines.data, at, name)
    if int(length.max()) > 60 and _runs_on(rows):
        raise StructureError(
            "format_mismatch",
            f"{name} does not have occupancy and B-factor in the fixed columns of a PDB file (PQR, with "
            f"charge and radius, is not read): {rows[0, 54:80].tobytes().decode('latin-1').strip()!r}",
        )
    return bool(((rows[:, 76] == 32) & (rows[:, 77] == 32)).any())


def _runs_on(rows: NDArray[np.uint8]) -> bool:
    """True if in most lines the columns of occupancy and B-factor do not hold a number each."""
    texts, counts = np.unique(np.ascontiguousarray(rows[:, 54:66]).view("S12").ravel(), return_counts=True)
    fields = [text.ljust(12) for text in texts.tolist()]
    broken = [not (_FIELD.fullmatch(f[:6]) and _FIELD.fullmatch(f[6:])) or _OVERRUN.match(f) for f in fields]
    return 2 * int(counts[np.array([bool(b) for b in broken])].sum()) > len(rows)


def _check_line(data: bytes, at: int, name: str) -> None:
    line = data[at : data.find(b"\n", at) if data.find(b"\n", at) >= 0 else len(data)]
    fields = [line[30:38], line[38:46], line[46:54]]
    if any(b"*" in f or b"nan" in f.lower() or not f.strip() for f in fields):
        raise StructureError(
            "structure_bad_coordinates", f"{name}: line {_line(data, at)} has no coordinates: {line[30:54]!r}"
        )
    written = [_NUMBER.fullmatch(f) for f in fields]
    decimals = {len(m[1]) for m in written if m is not None}
    if line[27:30].strip() or None in written or len(decimals) > 1:
        raise StructureError(
            "format_mismatch" if len(line.split()) >= 8 else "parse_failed",
            f"{name}: line {_line(data, at)} does not have its coordinates in the fixed columns of a PDB "
            "file (PQR and other free formats are not read)",
        )


def _line(data: bytes, at: int) -> int:
    return data.count(b"\n", 0, at) + 1


def with_elements(found: Structure, blank: bool) -> Structure:
    """Elements that the file left out or that are none, by residue and atom name from the dictionary.

    Where it left out any (``blank``), all are looked up: gemmi guesses from the alignment of the name, which
    takes a C-alpha written one column to the left for calcium. Else those that are no element.
    """
    wanted = np.full(found.n_atoms, blank) | (found.element == 0)
    if not wanted.any():
        return found
    pairs = np.stack([found.residue_name[found.residue].view(np.uint64), found.name.view(np.uint64)], axis=1)
    unique, inverse = np.unique(pairs, axis=0, return_inverse=True)
    sizes = np.diff(found.residue_start)
    alone = set(found.residue_name[sizes == 1].tolist())
    guessed = np.full(len(unique), 255, np.uint8)
    for row, (residue, atom) in enumerate(unique.view("S8").tolist()):
        guessed[row] = _element(residue.decode("latin-1"), atom.decode("latin-1"), residue in alone)
    element = guessed[inverse.ravel()]
    element = np.where((element == 255) | ~wanted, found.element, element)
    if not blank and (element == found.element).all():
        return found
    return replace(found, element=element, repairs=(*found.repairs, "element_guessed"))


def _element(residue: str, atom: str, alone: bool) -> int:
    """Atomic number by the dictionary; 255 to keep the reader's guess."""
    entry = component(residue)
    if entry is not None and atom in entry.atom_names:
        return int(entry.element[entry.atom_names.index(atom)])
    standard = entry is not None and (entry.is_amino_acid or entry.is_nucleotide) and not alone
    if standard or residue in ("HOH", "DOD"):
        return _LETTERS.get(atom.lstrip("0123456789")[:1], 255)
    if atom in ("CA", "CB", "CD", "CE", "HG", "HE", "ND", "NE", "NB") and not alone:
        return {"C": 6, "H": 1, "N": 7}[atom[0]]  # a metal stands alone in its residue
    return 255


def _header(parsed: gemmi.Structure, n_models: int) -> Header:
    info = dict(parsed.info)
    method = info.get("_exptl.method", "")
    return Header(
        code="" if parsed.name == "string" else parsed.name.strip(),  # gemmi's name for no name
        title=info.get("_struct.title", "").strip(),
        method=method,
        resolution=parsed.resolution if parsed.resolution > 0 else math.nan,
        deposited=as_date(info.get("_pdbx_database_status.recvd_initial_deposition_date", "")),
        predicted="THEORETICAL" in method.upper(),
        n_models=n_models,
    )


def as_date(text: str) -> int:
    """yyyymmdd of "1998-03-27" or "27-MAR-98", 0 for anything else."""
    parts: list[Any] = text.strip().upper().split("-")
    if len(parts) != 3:
        return 0
    if parts[1] in _MONTHS and parts[2].isdigit():
        year = int(parts[2]) + (1900 if int(parts[2]) > 60 else 2000)
        parts = [str(year), str(_MONTHS[parts[1]]), parts[0]]
    if not all(p.isdigit() for p in parts):
        return 0
    year, month, day = (int(p) for p in parts)
    return year * 10000 + month * 100 + day if 1 <= month <= 12 and 1 <= day <= 31 else 0
