"""PDBQT poses. The format has no bond orders; those that carry their SMILES (Meeko, Vina) are read, others
refused.

``REMARK SMILES`` is followed by ``REMARK SMILES IDX`` pairs (atom of the SMILES, serial of the pose) and by
``REMARK H PARENT`` pairs (atom of the SMILES, serial of its hydrogen), all counted from 1.
"""

from __future__ import annotations

import re
from typing import Any, Final

from rdkit import Chem, rdBase
from rdkit.Geometry import Point3D

from ...shards.errors import StructureError
from ..chemistry.molecule import Ligand, to_ligand
from ..chemistry.perceive import posed
from .molblock import decode

_MODEL: Final = re.compile(rb"^MODEL\b[^\n]*\n", re.MULTILINE)
_SMILES: Final = "REMARK SMILES "
_INDEX: Final = "REMARK SMILES IDX "
_PARENT: Final = "REMARK H PARENT "


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
        ``ligand_no_bond_orders`` without a SMILES, ``parse_failed``, and what :func:`perceive` raises.
    """
    text, repairs = decode(record)
    smiles, title = "", ""
    pairs: list[int] = []
    parents: list[int] = []
    atoms: dict[int, tuple[str, float, float, float]] = {}
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
        raise StructureError(
            "ligand_no_bond_orders",
            f"{len(atoms)} atoms of a PDBQT pose without the REMARK SMILES that gives their bonds",
        )
    mol, names = _place(smiles, _pairs(pairs), _pairs(parents), atoms)
    return to_ligand(
        posed(mol, hydrogens=hydrogens, claims_3d=True, names=names, title=title, repairs=repairs)
    )


def _place(smiles: str, pairs: list[tuple[int, int]], parents: list[tuple[int, int]],
           atoms: dict[int, tuple[str, float, float, float]]) -> tuple[Any, tuple[str, ...]]:  # fmt: skip
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
        conformer.SetAtomPosition(i, Point3D(*atoms[serial][1:]))
    mol.AddConformer(conformer)
    return mol.GetMol(), tuple(atoms[serial][0] for serial in order)


def _atom(line: str) -> tuple[int, tuple[str, float, float, float]]:
    try:
        return int(line[6:11]), (
            line[12:16].strip(),
            float(line[30:38]),
            float(line[38:46]),
            float(line[46:54]),
        )
    except ValueError:
        raise StructureError("parse_failed", f"atom line {line[:60]!r} of a PDBQT pose") from None


def _numbers(text: str) -> list[int]:
    try:
        return [int(word) for word in text.split()]
    except ValueError:
        raise StructureError("parse_failed", f"numbers {text.strip()[:40]!r} of a PDBQT pose") from None


def _pairs(numbers: list[int]) -> list[tuple[int, int]]:
    return list(zip(numbers[::2], numbers[1::2], strict=False))
