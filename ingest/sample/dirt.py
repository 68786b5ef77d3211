"""Known ways to be bad: what downloads, archives and tables suffer from, each with the code it must get.

A kind expects a code of ``REASONS``, or "kept" for dirt that a reader must bear: then the complex is the
same as if it were clean. A complex without an absolute label is kept, without a pK, unless the run refuses
what is unlabelled: so there are two expectations, and they differ for these alone.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from .draft import Draft, Need, is_pair

DIRT_COLUMNS: Final = ("dirt", "file", "expected", "strict")


@dataclass(frozen=True, slots=True)
class Dirt:
    """One kind of dirt.

    Attributes
    ----------
    name : as in dirt.csv
    file : what it spoils: "protein", "ligand" or "label"
    strict : a code of REASONS, or "kept", in a run that refuses the unlabelled
    need : the formats it is made for
    spoil : changes a draft in place
    """

    name: str
    file: str
    strict: str
    need: Need
    spoil: Callable[[Draft], None]

    @property
    def expected(self) -> str:
        """What a run with default options makes of it."""
        return "kept" if self.strict in ("label_missing", "label_relative") else self.strict

    @property
    def cells(self) -> dict[str, str]:
        """Of a row of dirt.csv, but the id."""
        return dict(zip(DIRT_COLUMNS, (self.name, self.file, self.expected, self.strict), strict=True))


def plan(n: int, share: float) -> dict[int, Dirt]:
    """Which of n complexes get which dirt: evenly spread, every kind in turn, the same for every seed.

    A complex that shares its files with another gets dirt of the label only.
    """
    kinds = {True: [d for d in DIRT if d.file == "label"], False: list(DIRT)}
    taken = {True: 0, False: 0}
    chosen: dict[int, Dirt] = {}
    for index in range(n if share else 0):
        # Multiples of the golden ratio are spread evenly over [0, 1), without the period of the targets.
        if (0.5 + index * 0.6180339887498949) % 1.0 >= share:
            continue
        pair = is_pair(index)
        chosen[index] = kinds[pair][taken[pair] % len(kinds[pair])]
        taken[pair] += 1
    return chosen


def _on(file: str, change: Callable[[bytes], bytes | None]) -> Callable[[Draft], None]:
    """Spoil the bytes of the protein's or ligand's file; None removes the file."""

    def spoil(draft: Draft) -> None:
        path = draft.row[f"{file}_path"]
        data = change(draft.files.pop(path))
        if data is not None:
            draft.files[path] = data

    return spoil


def _label(**cells: str) -> Callable[[Draft], None]:
    return lambda draft: draft.row.update(cells)


def _text(change: Callable[[list[str]], Iterator[str]]) -> Callable[[bytes], bytes]:
    """A change of lines as a change of bytes."""
    return lambda data: "\n".join([*change(data.decode("ascii").splitlines()), ""]).encode("latin-1")


def _only(*records: str) -> Callable[[bytes], bytes]:
    return _text(lambda lines: (line for line in lines if line.startswith(records)))


def _pdb_at(place: Callable[[float], float]) -> Callable[[bytes], bytes]:
    """Move every atom of a PDB file, coordinate by coordinate."""

    def moved(lines: list[str]) -> Iterator[str]:
        for line in lines:
            if line.startswith(("ATOM", "HETATM")):
                numbers = [place(float(line[k : k + 8])) for k in (30, 38, 46)]
                line = line[:30] + "".join(f"{x:8.3f}" for x in numbers) + line[54:]
            yield line

    return _text(moved)


def _sdf(atom: Callable[[str], str], bond: Callable[[str], str] = str) -> Callable[[bytes], bytes]:
    """Change the atom and bond lines of a one-record V2000 file."""

    def changed(lines: list[str]) -> Iterator[str]:
        n_atoms, n_bonds = int(lines[3][:3]), int(lines[3][3:6])
        for k, line in enumerate(lines):
            if 4 <= k < 4 + n_atoms:
                line = atom(line)
            elif 4 + n_atoms <= k < 4 + n_atoms + n_bonds:
                line = bond(line)
            yield line

    return _text(changed)


def _never_embedded(data: bytes) -> bytes:
    """As converters from SMILES write: every atom at the origin, no word of dimensions in the header."""
    lines = _sdf(lambda line: f"{0.0:10.4f}" * 3 + line[30:])(data).split(b"\n")
    lines[1] = lines[1].replace(b"3D", b"").rstrip()
    return b"\n".join(lines)


def _hydrogens_only(data: bytes) -> bytes:
    head = data.decode("ascii").splitlines()[:3]
    atoms = [f"{k:10.4f}{0.0:10.4f}{1.5:10.4f} H   0  0  0  0  0  0  0  0  0  0  0  0" for k in range(2)]
    lines = [*head, "  2  1  0  0  0  0  0  0  0  0999 V2000", *atoms, "  1  2  1  0", "M  END", "$$$$", ""]
    return "\n".join(lines).encode("ascii")


def _overbonded(data: bytes) -> bytes:
    """Every bond drawn as a double bond: carbons of valence six and more."""
    return _sdf(lambda line: line, lambda line: line[:6] + "  2" + line[9:])(data)


def _with_hcount(line: str) -> str:
    """The hhh field of an atom line as X-TOOL fills it: in the standard, a query."""
    return line[:42] + "  1" + line[45:]


def _accented(data: bytes) -> bytes:
    """An author's name in Latin-1, in a record that nobody parses."""
    first, _, rest = data.partition(b"\n")
    return b"\n".join([first, b"REMARK 999 M\xfcller, \xc5ngstr\xf6m", rest])


def _accented_title(data: bytes) -> bytes:
    return b"sel de p\xe9n\xe9lope " + data


_PDB, _SDF = Need(protein=".pdb"), Need(ligand=".sdf")
_PAGE: Final = b"<!DOCTYPE html>\n<html><head><title>404 Not Found</title></head><body></body></html>\n"
_PROSE: Final = b"The ligand of this complex is available from the authors on reasonable request.\n"

DIRT: Final = (
    Dirt("protein_missing", "protein", "file_missing", Need(), _on("protein", lambda _: None)),
    Dirt("ligand_missing", "ligand", "file_missing", Need(), _on("ligand", lambda _: None)),
    Dirt("protein_empty", "protein", "empty_file", Need(), _on("protein", lambda _: b"")),
    Dirt("ligand_empty", "ligand", "empty_file", Need(), _on("ligand", lambda _: b"")),
    Dirt("protein_gz_cut", "protein", "file_unreadable", Need(protein=".pdb.gz"),
         _on("protein", lambda data: data[: len(data) // 2])),
    Dirt("ligand_gz_cut", "ligand", "file_unreadable", Need(ligand=".sdf.gz"),
         _on("ligand", lambda data: data[: len(data) // 2])),
    Dirt("protein_is_a_web_page", "protein", "format_unknown", Need(), _on("protein", lambda _: _PAGE)),
    Dirt("ligand_is_prose", "ligand", "format_unknown", Need(ligand=".sdf"), _on("ligand", lambda _: _PROSE)),
    Dirt("protein_without_atoms", "protein", "structure_empty", _PDB,
         _on("protein", _only("HEADER", "TITLE", "EXPDTA", "REMARK", "END"))),
    Dirt("protein_all_zero", "protein", "structure_bad_coordinates", _PDB,
         _on("protein", _pdb_at(lambda x: 0.0))),
    Dirt("protein_far_away", "protein", "pocket_empty", _PDB, _on("protein", _pdb_at(lambda x: x + 300.0))),
    Dirt("ligand_all_zero", "ligand", "ligand_no_3d", _SDF,
         _on("ligand", _never_embedded)),
    Dirt("ligand_hydrogens_only", "ligand", "ligand_empty", _SDF, _on("ligand", _hydrogens_only)),
    Dirt("ligand_overbonded", "ligand", "ligand_unreadable", _SDF, _on("ligand", _overbonded)),
    Dirt("ligand_cut", "ligand", "parse_failed", _SDF, _on("ligand", lambda data: data[: len(data) // 4])),
    Dirt("record_missing", "ligand", "record_missing", Need(), _label(ligand_record="7")),
    Dirt("label_absent", "label", "label_missing", Need(),
         _label(affinity_type="", relation="", value="", unit="")),
    Dirt("label_unreadable", "label", "label_unreadable", Need(),
         _label(affinity_type="Kd", relation="=", value="see text", unit="nM")),
    Dirt("label_negative", "label", "label_nonpositive", Need(),
         _label(affinity_type="IC50", relation="=", value="-3.2", unit="nM")),
    Dirt("label_implausible", "label", "label_implausible", Need(),
         _label(affinity_type="Ki", relation="=", value="1e-20", unit="M")),
    Dirt("label_relative", "label", "label_relative", Need(),
         _label(affinity_type="dG_relative", relation="=", value="-1.3", unit="kcal/mol")),
    Dirt("protein_crlf", "protein", "kept", _PDB, _on("protein", lambda data: data.replace(b"\n", b"\r\n"))),
    Dirt("ligand_crlf", "ligand", "kept", _SDF, _on("ligand", lambda data: data.replace(b"\n", b"\r\n"))),
    Dirt("protein_latin_1", "protein", "kept", _PDB, _on("protein", _accented)),
    Dirt("ligand_latin_1", "ligand", "kept", _SDF, _on("ligand", _accented_title)),
    Dirt("protein_gz_unnamed", "protein", "kept", _PDB,
         _on("protein", lambda data: gzip.compress(data, 6, mtime=0))),
    Dirt("ligand_xtool", "ligand", "kept", _SDF,
         _on("ligand", _sdf(_with_hcount, lambda line: line[:9] + "  0  0  2"))),
)  # fmt: skip
