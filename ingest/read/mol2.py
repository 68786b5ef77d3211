"""SYBYL MOL2: atoms and bonds as drawn, with the formal charges that its types imply.

The format has no formal charges (Tripos Mol2 File Format, 2007). They follow from the drawing: carboxylates
and their like by the type O.co2, cations by one bond too many, anions by an oxygen or sulphur with one bond
and no hydrogen in a file that has its hydrogens.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

from rdkit import Chem
from rdkit.Geometry import Point3D

from ...shards.errors import StructureError
from ..chemistry.molecule import Ligand, to_ligand
from ..chemistry.perceive import posed
from .molblock import decode

_SECTION: Final = "@<TRIPOS>"
_MOLECULE: Final = re.compile(rb"^@<TRIPOS>MOLECULE", re.MULTILINE)
_ATOM: Final = re.compile(r"\s*(\d+)\s+(\S.*?)\s+(-?\d*\.\d+)\s+(-?\d*\.\d+)\s+(-?\d*\.\d+)\s+(\S+)")
_BONDS: Final = {
    "1": Chem.BondType.SINGLE, "2": Chem.BondType.DOUBLE, "3": Chem.BondType.TRIPLE,
    "am": Chem.BondType.SINGLE, "ar": Chem.BondType.AROMATIC,
}  # fmt: skip
_GAFF: Final = re.compile(r"^(cl|br|[hcnosfip])[a-z0-9*+]{0,2}$")  # lower-case types of antechamber
_SYMBOLS: Final = frozenset(Chem.GetPeriodicTable().GetElementSymbol(z) for z in range(1, 119))


@dataclass(frozen=True, slots=True)
class _Atom:
    name: str
    xyz: tuple[float, float, float]
    type: str


def split_mol2(data: bytes) -> tuple[tuple[int, int], ...]:
    """Start and end of each molecule of a MOL2 file, counted by ``@<TRIPOS>MOLECULE`` alone.

    Raises StructureError, ``parse_failed``, where there is none.
    """
    starts = [match.start() for match in _MOLECULE.finditer(data.replace(b"\r", b"\n"))]
    if not starts:
        raise StructureError("parse_failed", "no @<TRIPOS>MOLECULE section in a MOL2 file")
    return tuple(zip(starts, [*starts[1:], len(data)], strict=True))


def read_mol2(record: bytes, hydrogens: bool) -> Ligand:
    """One molecule of a MOL2 file.

    Raises
    ------
    StructureError
        ``parse_failed``, ``ligand_no_bond_orders``, and what :func:`perceive` raises.
    """
    text, repairs = decode(record)
    sections = _sections(text)
    head = sections.get("MOLECULE", [])
    title = head[0].strip() if head else ""
    atoms, index = _read_atoms(sections.get("ATOM", []))
    bonds = _read_bonds(sections.get("BOND", []), index)
    _check_counts(head, len(atoms), len(sections.get("BOND", [])))
    mol = _build(atoms, bonds, _charges(sections.get("UNITY_ATOM_ATTR", []), index))
    names = tuple(atom.name for atom in atoms)
    title = "" if not title.strip("*") else title
    return to_ligand(posed(mol, hydrogens=hydrogens, names=names, title=title, repairs=repairs))


def _sections(text: str) -> dict[str, list[str]]:
    """Lines of each section, comments and blank lines left out (but the title line may be blank)."""
    sections: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in text.split("\n"):
        if line.startswith(_SECTION):
            lines = sections.setdefault(line[len(_SECTION) :].strip(), [])
        elif not line.startswith("#") and (line.strip() or not lines):
            lines.append(line)
    return sections


def _read_atoms(lines: list[str]) -> tuple[list[_Atom], dict[str, int]]:
    atoms: list[_Atom] = []
    index: dict[str, int] = {}
    for line in lines:
        if not line.strip():
            continue
        fields = line.split()
        try:
            xyz = (float(fields[2]), float(fields[3]), float(fields[4]))
            atom, number = _Atom(fields[1], xyz, fields[5]), fields[0]
            if _is_number(fields[5]):
                raise ValueError
        except (ValueError, IndexError):  # a name with a space in it, or one that touches the coordinates
            match = _ATOM.match(line)
            if match is None:
                raise StructureError(
                    "parse_failed", f"atom line {line.strip()[:60]!r} of a MOL2 file"
                ) from None
            number, name, x, y, z, kind = match.groups()
            atom = _Atom(name.split()[0], (float(x), float(y), float(z)), kind)
        if number in index:
            raise StructureError("parse_failed", f"atom number {number} twice in a MOL2 molecule")
        index[number] = len(atoms)
        atoms.append(atom)
    return atoms, index


def _read_bonds(lines: list[str], index: dict[str, int]) -> list[tuple[int, int, str]]:
    bonds: list[tuple[int, int, str]] = []
    for line in lines:
        fields = line.split()
        if not fields:
            continue
        try:
            bonds.append((index[fields[1]], index[fields[2]], fields[3].lower()))
        except (IndexError, KeyError):
            raise StructureError("parse_failed", f"bond line {line.strip()[:60]!r} of a MOL2 file") from None
    return bonds


def _check_counts(head: list[str], n_atoms: int, n_bonds: int) -> None:
    try:
        promised = [int(word) for word in head[1].split()[:2]]
    except (IndexError, ValueError):
        return  # writers leave the counts line blank
    found = [n_atoms, n_bonds][: len(promised)]
    if promised != found and not (promised[0] == n_atoms and len(head[1].split()) == 3):
        raise StructureError(
            "parse_failed", f"{n_atoms} atoms and {n_bonds} bonds where a MOL2 molecule promises {promised}"
        )


def _charges(lines: list[str], index: dict[str, int]) -> dict[int, int]:
    """Formal charges of a UNITY_ATOM_ATTR section: "number count", then count lines "attribute value"."""
    charges: dict[int, int] = {}
    current = -1
    for fields in (line.split() for line in lines):
        if len(fields) == 2 and fields[0] in index:
            current = index[fields[0]]
        elif len(fields) == 2 and fields[0] == "charge" and current >= 0:
            if not re.fullmatch(r"[-+]?\d", fields[1]):
                raise StructureError("parse_failed", f"formal charge {fields[1]!r} of a MOL2 molecule")
            charges[current] = int(fields[1])
    return charges


def element_of(kind: str) -> str:
    """Element of a SYBYL or GAFF atom type; "" if it is neither, or no atom."""
    symbol, dot, _ = kind.partition(".")
    if dot or symbol in ("CL", "BR"):
        symbol = symbol.capitalize()
    if symbol in _SYMBOLS:
        return symbol
    match = _GAFF.match(kind)
    return match.group(1).capitalize() if match else {"D": "H", "T": "H"}.get(symbol, "")


def _build(atoms: list[_Atom], bonds: list[tuple[int, int, str]], charges: dict[int, int]) -> Any:
    mol = Chem.RWMol()
    conformer = Chem.Conformer(len(atoms))
    for i, atom in enumerate(atoms):
        element = element_of(atom.type)
        if not element:
            raise StructureError(
                "ligand_no_bond_orders" if _is_number(atom.type) else "ligand_unreadable",
                f"atom {i + 1} of type {atom.type!r} where a SYBYL type is due",
            )
        mol.AddAtom(Chem.Atom(element))
        conformer.SetAtomPosition(i, Point3D(*atom.xyz))
    for i, j, kind in bonds:
        if kind == "nc":
            continue
        if kind not in _BONDS:
            raise StructureError(
                "ligand_no_bond_orders", f"bond of type {kind!r} where 1, 2, 3, am or ar is due"
            )
        if i == j or mol.GetBondBetweenAtoms(i, j) is not None:
            raise StructureError("parse_failed", f"atoms {i + 1} and {j + 1} bonded twice, or one to itself")
        mol.AddBond(i, j, _BONDS[kind])
    mol.AddConformer(conformer)
    if atoms and not mol.GetNumBonds() and len(atoms) > 1:
        raise StructureError("ligand_no_bond_orders", f"{len(atoms)} atoms and no bond in a MOL2 molecule")
    for index, charge in charges.items():
        mol.GetAtomWithIdx(index).SetFormalCharge(charge)
    types = [atom.type for atom in atoms]
    _resolve_oxyanions(mol, types, bool(charges))
    _resolve_amidiniums(mol, types)
    if not charges:
        _charge_anions(mol)
    return mol.GetMol()


def _is_number(text: str) -> bool:
    """A type column that is missing leaves the substructure's number in its place."""
    return text.lstrip("-").replace(".", "", 1).isdigit()


def _resolve_oxyanions(mol: Any, types: list[str], charged: bool) -> None:
    """Carboxylates, phosphates, nitro groups with aromatic bonds to O.co2: one double bond, the rest O-."""
    for centre in mol.GetAtoms():
        arms = [
            bond
            for bond in _aromatic_bonds(centre)
            if types[bond.GetOtherAtomIdx(centre.GetIdx())] == "O.co2"
        ]
        has_double = any(b.GetBondType() == Chem.BondType.DOUBLE for b in centre.GetBonds())
        arms.sort(key=lambda b: b.GetOtherAtom(centre).GetFormalCharge(), reverse=True)
        for bond in arms:
            oxygen = bond.GetOtherAtom(centre)
            has_hydrogen = oxygen.GetDegree() > 1
            if not has_double and not has_hydrogen and oxygen.GetFormalCharge() >= 0:
                bond.SetBondType(Chem.BondType.DOUBLE)
                has_double = True
                continue
            bond.SetBondType(Chem.BondType.SINGLE)
            if not has_hydrogen and not charged:
                oxygen.SetFormalCharge(-1)


def _aromatic_bonds(atom: Any) -> list[Any]:
    return [bond for bond in atom.GetBonds() if bond.GetBondType() == Chem.BondType.AROMATIC]


def _resolve_amidiniums(mol: Any, types: list[str]) -> None:
    """Guanidiniums and amidiniums drawn with aromatic bonds: one double bond to a cationic nitrogen."""
    for centre in mol.GetAtoms():
        if types[centre.GetIdx()] != "C.cat":
            continue
        arms = [bond for bond in _aromatic_bonds(centre) if bond.GetOtherAtom(centre).GetAtomicNum() == 7]
        if len(arms) < centre.GetDegree() - 1 or len(arms) < 2:
            continue  # a ring's own aromatic bonds
        arms.sort(
            key=lambda b: (
                sum(n.GetAtomicNum() != 1 for n in b.GetOtherAtom(centre).GetNeighbors()),
                b.GetIdx(),
            )
        )
        for k, bond in enumerate(arms):
            bond.SetBondType(Chem.BondType.SINGLE if k else Chem.BondType.DOUBLE)
            if not k:
                bond.GetOtherAtom(centre).SetFormalCharge(1)


def _charge_anions(mol: Any) -> None:
    """O- and S-: one single bond and no hydrogen, in a file that has hydrogens."""
    if not any(atom.GetAtomicNum() == 1 for atom in mol.GetAtoms()):
        return
    for atom in mol.GetAtoms():
        if atom.GetAtomicNum() in (8, 16) and atom.GetDegree() == 1 and not atom.GetFormalCharge():
            bond = atom.GetBonds()[0]
            if bond.GetBondType() == Chem.BondType.SINGLE and bond.GetOtherAtom(atom).GetAtomicNum() != 1:
                atom.SetFormalCharge(-1)
