"""A ligand file -> :class:`Ligand`. What a file is comes from its content, never from its name."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

import numpy as np
from rdkit import Chem, rdBase

from ...shards.errors import StructureError
from ..chemistry.molecule import Ligand, Posed, to_ligand
from ..chemistry.perceive import flag_stereo, is_posed, posed
from .mol2 import read_mol2, split_mol2
from .molblock import Molblock, read_molblock, split_records
from .pdbqt import read_pdbqt, split_poses
from .residue import ligand_from_residue

__all__ = ["Ligand", "ligand_format", "ligand_from_residue", "n_records", "read_ligand", "record_spans"]

_HEAD: Final = 65_536  # bytes that decide what a file is
_MOLFILE: Final = re.compile(rb"^.{0,33}V[23]000\s*$|^M  END|^\$\$\$\$", re.MULTILINE)
_PDBQT: Final = re.compile(rb"^(?:ROOT|ENDROOT|BRANCH|TORSDOF)\b", re.MULTILINE)
_STRUCTURE: Final = re.compile(rb"^(?:HEADER|ATOM  |HETATM|CRYST1|MODEL  |data_|_atom_site\.)", re.MULTILINE)
_OTHER_BINARY: Final = re.compile(rb"^(?:\x1f\x8b|\x28\xb5\x2f\xfd|PK\x03\x04|\x89HDF)")
_BINARY_STRUCTURE: Final = re.compile(rb"dataBlocks|mmtfVersion")  # BinaryCIF, MMTF
_ELEMENTS: Final = frozenset(Chem.GetPeriodicTable().GetElementSymbol(z) for z in range(1, 119))
_COUNTS: Final = re.compile(rb"^[^\n]*\n[^\n]*\n[^\n]*\n[ \d]{3}[ \d]{3}(?:[ \d]{3}){1,8}")


def ligand_format(data: bytes) -> str:
    """ "sdf", "mol2" or "pdbqt", by content.

    Raises
    ------
    StructureError
        ``empty_file``, ``format_mismatch`` for a structure file, ``format_unknown``.
    """
    head = data[:_HEAD]
    if not data.strip():
        raise StructureError("empty_file", "an empty file where a ligand is due")
    if b"@<TRIPOS>" in head:
        return "mol2"
    if b"\nM  END" in head or _MOLFILE.search(head.replace(b"\r", b"\n") if b"\r" in head else head):
        return "sdf"
    if _PDBQT.search(head):
        return "pdbqt"
    if _OTHER_BINARY.match(head) or _BINARY_STRUCTURE.search(data[:512] + data[-64:]):
        raise StructureError(
            "format_mismatch", "a compressed or binary file where the text of a ligand is due"
        )
    if _STRUCTURE.search(head):
        raise StructureError(
            "format_mismatch", "a structure file (PDB or mmCIF), which has no bond orders, as a ligand file"
        )
    if _COUNTS.match(head.replace(b"\r\n", b"\n")):
        return "sdf"
    raise StructureError("format_unknown", "neither SDF nor MOL2 nor PDBQT")


def n_records(data: bytes) -> int:
    """Records in a ligand file: molecules of an SDF or MOL2 file, models of a PDBQT file."""
    return len(record_spans(data))


def record_spans(data: bytes) -> tuple[tuple[int, int], ...]:
    """Start and end of each record of a ligand file.

    Raises
    ------
    StructureError
        as :func:`ligand_format`.
    """
    return _records(data)[1]


@lru_cache(maxsize=2)  # a source asks for one record after another of the same bytes object
def _records(data: bytes) -> tuple[str, tuple[tuple[int, int], ...]]:
    """Format and the start and end of each record."""
    kind = ligand_format(data)
    return kind, _SPLITTERS[kind](data)


def read_ligand(data: bytes, name: str, record: int = 0, hydrogens: bool = False) -> Ligand:
    """One ligand of a file.

    Parameters
    ----------
    data : the bytes of the whole file, not compressed. Its records are found once and remembered for as long
        as the same object is passed, so reading all of them costs one pass
    name : of the file, for messages only
    record : 0-based; of a PDBQT file, its MODEL
    hydrogens : keep the hydrogens that the file has; none are ever added

    Raises
    ------
    StructureError
        with a code of ``REASONS`` and the file and record in its message.
    """
    try:
        kind, spans = _records(data)
        if not 0 <= record < len(spans):
            raise StructureError(
                "record_missing", f"{len(spans)} records where number {record} (from 0) is due"
            )
        start, end = spans[record]
        return _READERS[kind](data[start:end], hydrogens)
    except StructureError as error:
        place = f"{name} record {record}" if record else name
        raise StructureError(error.reason, f"{place}: {error}") from error.__cause__


def _read_sdf(record: bytes, hydrogens: bool) -> Ligand:
    block = read_molblock(record)
    quick = _quick(block, hydrogens)
    return to_ligand(quick if quick is not None else _slow(block, hydrogens))


def _quick(block: Molblock, hydrogens: bool) -> Posed | None:
    """The way of most ligands: RDKit reads, sanitises and strips in one call. None if anything is out of the
    ordinary.
    """
    if not _ELEMENTS.issuperset(block.symbols):  # also if there are none, as of V3000
        return None
    rows = [i for i, symbol in enumerate(block.symbols) if hydrogens or symbol != "H"]
    with rdBase.BlockLogs():
        mol = Chem.MolFromMolBlock(block.text, sanitize=True, removeHs=not hydrogens)
        if (
            mol is None
            or not rows
            or len(rows) != mol.GetNumAtoms()
            or mol.HasQuery()
            or len(Chem.GetMolFrags(mol)) != 1
        ):
            return None
        if not mol.GetNumHeavyAtoms() or not is_posed(mol):
            return None
        flag_stereo(mol)
    return Posed(mol, np.array(rows, dtype=np.int64), None, block.title, block.repairs)


def _slow(block: Molblock, hydrogens: bool) -> Posed:
    with rdBase.BlockLogs():
        mol = _parse(block.text)
        if mol is None and block.dimension == "3D":
            # RDKit gives up where bonds of no length leave it without chirality: read as a drawing, whose
            # coordinates are then found to be no pose.
            lines = block.text.split("\n")
            lines[1] = f"{lines[1][:20]}2D{lines[1][22:]}"
            mol = _parse("\n".join(lines))
    if mol is None:
        raise StructureError("parse_failed", "a molfile that breaks the rules of its format")
    claims_3d = None if not block.dimension else block.dimension == "3D"
    return posed(mol, hydrogens=hydrogens, claims_3d=claims_3d, title=block.title, repairs=block.repairs)


def _parse(text: str) -> Any:
    return Chem.MolFromMolBlock(text, sanitize=False, removeHs=False, strictParsing=False)


_SPLITTERS: Final[dict[str, Callable[[bytes], tuple[tuple[int, int], ...]]]] = {
    "sdf": split_records,
    "mol2": split_mol2,
    "pdbqt": split_poses,
}
_READERS: Final[dict[str, Callable[[bytes, bool], Ligand]]] = {
    "sdf": _read_sdf,
    "mol2": read_mol2,
    "pdbqt": read_pdbqt,
}
