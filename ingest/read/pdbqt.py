"""PDBQT poses, and the element columns of PDBQT receptors.

The format has no bond orders: those of a pose come from the SMILES that Meeko writes into the file, else from
the geometry, which is recorded; a pose whose geometry leaves a doubt is refused.

``REMARK SMILES`` is followed by ``REMARK SMILES IDX`` pairs (atom of the SMILES, serial of the pose) and by
``REMARK H PARENT`` pairs (atom of the SMILES, serial of its hydrogen), all counted from 1.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from rdkit import Chem, rdBase
from rdkit.Geometry import Point3D

from ...shards.complex import encode_names
from ...shards.errors import StructureError
from ..chemistry.geometry import entry_from_geometry
from ..chemistry.molecule import Ligand, to_ligand
from ..chemistry.perceive import posed
from .molblock import decode
from .residue import ligand_from_residue

_MODEL: Final = re.compile(rb"^MODEL\b[^\n]*\n", re.MULTILINE)
_CHARGE: Final = re.compile(rb"[ +-]\d\.\d{3}")  # of an atom, columns 71 to 76
_SMILES: Final = "REMARK SMILES "
_INDEX: Final = "REMARK SMILES IDX "
_PARENT: Final = "REMARK H PARENT "
# AutoDock's atom types: A is an aromatic carbon; a second letter says acceptor (A), donor (D) or either (S).
_ELEMENTS: Final = {
    "C": 6, "A": 6, "N": 7, "NA": 7, "NS": 7, "O": 8, "OA": 8, "OS": 8, "S": 16, "SA": 16, "H": 1, "HD": 1,
    "HS": 1, "P": 15, "F": 9, "CL": 17, "BR": 35, "I": 53,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Atom:
    name: str
    type: str
    position: tuple[float, float, float]


def element_columns(data: bytes, start: NDArray[np.int64], length: NDArray[np.int64]) -> bytes | None:
    """A PDBQT receptor with the element columns of a PDB file; None if it is no PDBQT file.

    Charge (columns 71 to 76) and atom type (78 and 79) stand where a PDB file has its element and charge, so
    that an aromatic carbon (A) would be no element, iron fluorine, and chlorine and calcium carbon.

    Parameters
    ----------
    start, length : where the atom lines begin, shape (n,), and how long they are
    """
    at = int(start[0]) if len(start) else 0
    if not _CHARGE.fullmatch(data[at + 70 : at + 76]) or length.min() < 78:
        return None
    text = np.frombuffer(data + b" ", np.uint8).copy()
    charge = text[start[:, None] + np.arange(70, 76)]
    if not ((charge[:, 2] == 46) & (charge[:, [1, 3, 4, 5]] - np.uint8(48) < 10).all(axis=1)).all():
        return None
    second = np.where(length > 78, text[start + 78], np.uint8(32))
    types, inverse = np.unique(np.stack([text[start + 77], second], axis=1), axis=0, return_inverse=True)
    columns = np.array([_element_column(bytes(pair)) for pair in types])[inverse.ravel()]
    text[start[:, None] + np.arange(76, 78)] = columns
    text[start[length > 78] + 78] = 32
    return text[:-1].tobytes()


def _element_column(atom_type: bytes) -> tuple[int, int]:
    """Columns 77 and 78 of a PDB file for an AutoDock type: " C" for A, "ZN" for Zn."""
    kind = atom_type.decode("latin-1").strip().upper()
    number = _ELEMENTS.get(kind, 0)
    symbol = (Chem.GetPeriodicTable().GetElementSymbol(number).upper() if number else kind).rjust(2)
    return ord(symbol[0]), ord(symbol[1])


def split_poses(data: bytes) -> tuple[tuple[int, int], ...]:
    """Start and end of each MODEL; one span for a file without."""
    starts = [match.end() for match in _MODEL.finditer(data)]
    if not starts:
        return ((0, len(data)),)
    ends = [match.start() for match in _MODEL.finditer(data)][1:]
    return tuple(zip(starts, [*ends, len(data)], strict=True))


def read_pdbqt(record: bytes, hydrogens: bool) -> Ligand:
    """The first ligand of one MODEL (waters and flexible residues that were docked with it come after its
    TORSDOF).

    Raises
    ------
    StructureError
        ``ligand_no_bond_orders`` without a SMILES and a clear geometry, ``parse_failed``, and what
        :func:`perceive` raises.
    """
    text, repairs = decode(record)
    smiles, title = "", ""
    pairs: list[int] = []
    parents: list[int] = []
    atoms: dict[int, _Atom] = {}
    for line in text.split("\n"):
        if line.startswith(_INDEX):
            pairs += _numbers(line[len(_INDEX) :])
        elif line.startswith(_SMILES):
            smiles = line[len(_SMILES) :].strip()
        elif line.startswith(_PARENT):
            parents += _numbers(line[len(_PARENT) :])
        elif line.startswith("REMARK  Name = "):
            title = line[15:].strip()
        elif line.startswith(("ATOM  ", "HETATM")):
            atoms.update([_atom(line)])
        elif line.startswith("TORSDOF"):
            break
    if not atoms:
        raise StructureError("ligand_empty", "no atoms in a PDBQT pose")
    if not smiles:
        return _by_geometry(atoms, title, repairs, hydrogens)
    mol, names = _place(smiles, _pairs(pairs), _pairs(parents), atoms)
    return to_ligand(
        posed(mol, hydrogens=hydrogens, claims_3d=True, names=names, title=title, repairs=repairs)
    )


def _place(smiles: str, pairs: list[tuple[int, int]], parents: list[tuple[int, int]],
           atoms: dict[int, _Atom]) -> tuple[Any, tuple[str, ...]]:  # fmt: skip
    """The molecule of the SMILES with the pose's coordinates and atom names."""
    with rdBase.BlockLogs():
        template = Chem.MolFromSmiles(smiles)
    if template is None:
        raise StructureError("ligand_unreadable", f"REMARK SMILES {smiles!r} of a PDBQT pose")
    serials = dict(pairs)
    mol = Chem.RWMol(template)
    if set(serials) != set(range(1, mol.GetNumAtoms() + 1)):
        raise StructureError(
            "parse_failed", f"REMARK SMILES IDX names {len(serials)} of {mol.GetNumAtoms()} atoms"
        )
    order = [serials[i + 1] for i in range(mol.GetNumAtoms())]
    for parent, serial in parents:
        if not 1 <= parent <= template.GetNumAtoms():
            raise StructureError(
                "parse_failed", f"REMARK H PARENT names atom {parent} of {template.GetNumAtoms()}"
            )
        heavy = mol.GetAtomWithIdx(parent - 1)
        heavy.SetNumExplicitHs(max(0, heavy.GetNumExplicitHs() - 1))
        mol.AddBond(parent - 1, mol.AddAtom(Chem.Atom(1)), Chem.BondType.SINGLE)
        order.append(serial)
    missing = [serial for serial in order if serial not in atoms]
    if missing:
        raise StructureError(
            "parse_failed", f"atom {missing[0]} of REMARK SMILES IDX is not in the PDBQT pose"
        )
    conformer = Chem.Conformer(len(order))
    for i, serial in enumerate(order):
        conformer.SetAtomPosition(i, Point3D(*atoms[serial].position))
    mol.AddConformer(conformer)
    return mol.GetMol(), tuple(atoms[serial].name for serial in order)


def _by_geometry(atoms: dict[int, _Atom], title: str, repairs: tuple[str, ...], hydrogens: bool) -> Ligand:
    """The ligand whose bonds the distances between its atoms show."""
    found = list(atoms.values())
    element = np.array([_ELEMENTS.get(atom.type.upper(), 0) for atom in found], np.uint8)
    if not element.all():
        kinds = sorted({atom.type for atom, z in zip(found, element, strict=True) if not z})
        said = f"no REMARK SMILES gives the bonds of a PDBQT pose with the atom types {', '.join(kinds)}"
        raise StructureError("ligand_no_bond_orders", said)
    position = np.array([atom.position for atom in found])
    heavy = element != 1
    names = [str(k) if is_heavy else "H" for k, is_heavy in zip(np.cumsum(heavy) - 1, heavy, strict=True)]
    entry = entry_from_geometry(element[heavy], position[heavy], title or "of a pose without SMILES")
    n = len(found)
    ligand = ligand_from_residue(
        residue_name=title,
        names=names,
        element=element, charge=np.zeros(n, np.int8), position=position, b_factor=np.zeros(n, np.float32),
        occupancy=np.ones(n, np.float32), component=entry, hydrogens=hydrogens,
    )  # fmt: skip
    name = encode_names([found[row].name for row in ligand.row.tolist()], 4)
    return replace(ligand, name=name, repairs=(*repairs, *ligand.repairs, "bonds_perceived"))


def _atom(line: str) -> tuple[int, _Atom]:
    try:
        position = (float(line[30:38]), float(line[38:46]), float(line[46:54]))
        return int(line[6:11]), _Atom(line[12:16].strip(), line[77:79].strip(), position)
    except ValueError:
        raise StructureError("parse_failed", f"atom line {line[:60]!r} of a PDBQT pose") from None


def _numbers(text: str) -> list[int]:
    try:
        return [int(word) for word in text.split()]
    except ValueError:
        raise StructureError("parse_failed", f"numbers {text.strip()[:40]!r} of a PDBQT pose") from None


def _pairs(numbers: list[int]) -> list[tuple[int, int]]:
    return list(zip(numbers[::2], numbers[1::2], strict=False))
