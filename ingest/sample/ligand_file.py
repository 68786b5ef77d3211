"""A ligand as a record of an SD file (V2000) or a MOL2 file.

Written here rather than by RDKit: it has no MOL2 writer, and only the coordinates change from one complex
to the next, so all else is kept as text.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rdkit import Chem

from .ligand import Ligand

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class _Mould:
    """Text of a record with ``%`` fields: title, then coordinates."""

    text: str
    n_atoms: int


def write_sdf(mol: Ligand, title: str, position: Floats, *, hydrogens: bool) -> str:
    """One record, ending with ``$$$$``.

    Parameters
    ----------
    position : float64 (n_atoms, 3), angstrom
    hydrogens : write them, or heavy atoms only
    """
    mould = _sdf_mould(mol, hydrogens)
    return mould.text % (title, *position[: mould.n_atoms].ravel().tolist())


def write_mol2(mol: Ligand, title: str, position: Floats) -> str:
    """One MOLECULE with hydrogens and SYBYL atom types."""
    mould = _mol2_mould(mol)
    return mould.text % (title, *position[: mould.n_atoms].ravel().tolist())


@lru_cache(maxsize=4096)
def _sdf_mould(mol: Ligand, hydrogens: bool) -> _Mould:
    drawn = Chem.Mol(mol.mol)
    Chem.Kekulize(drawn)
    n = drawn.GetNumAtoms() if hydrogens else mol.n_heavy
    atoms = [drawn.GetAtomWithIdx(k) for k in range(n)]
    bonds = [b for b in drawn.GetBonds() if b.GetBeginAtomIdx() < n and b.GetEndAtomIdx() < n]
    charged = [(a.GetIdx() + 1, a.GetFormalCharge()) for a in atoms if a.GetFormalCharge()]
    counts = f"{n:3d}{len(bonds):3d}  0  0  0  0  0  0  0  0999 V2000"
    lines = ["%s", "  HOLOSHRD          3D", "synthetic", counts]
    lines += [f"%10.4f%10.4f%10.4f {a.GetSymbol():<3} 0  0  0  0  0  0  0  0  0  0  0  0" for a in atoms]
    lines += [
        f"{b.GetBeginAtomIdx() + 1:3d}{b.GetEndAtomIdx() + 1:3d}{int(b.GetBondTypeAsDouble()):3d}  0"
        for b in bonds
    ]
    if charged:
        lines.append(f"M  CHG{len(charged):3d}" + "".join(f"{k:4d}{c:4d}" for k, c in charged))
    lines += ["M  END", "> <synthetic>", "true", "", "$$$$", ""]
    return _Mould("\n".join(lines), n)


@lru_cache(maxsize=4096)
def _mol2_mould(mol: Ligand) -> _Mould:
    drawn = Chem.Mol(mol.mol)
    Chem.Kekulize(drawn)  # keeps the aromatic flags
    atoms, bonds = list(drawn.GetAtoms()), list(drawn.GetBonds())
    lines = [
        "@<TRIPOS>MOLECULE", "%s", f"{len(atoms)} {len(bonds)} 1 0 0", "SMALL", "NO_CHARGES", "",
        "@<TRIPOS>ATOM",
    ]  # fmt: skip
    counts: dict[str, int] = {}
    for k, atom in enumerate(atoms, start=1):
        symbol = atom.GetSymbol()
        counts[symbol] = counts.get(symbol, 0) + 1
        name = f"{symbol}{counts[symbol]}"
        lines.append(f"{k:7d} {name:<6}%10.4f%10.4f%10.4f {_sybyl(atom):<6} 1 LIG 0.0000")
    lines.append("@<TRIPOS>BOND")
    for k, bond in enumerate(bonds, start=1):
        lines.append(
            f"{k:6d}{bond.GetBeginAtomIdx() + 1:5d}{bond.GetEndAtomIdx() + 1:5d} {_sybyl_bond(bond)}"
        )
    return _Mould("\n".join([*lines, "@<TRIPOS>SUBSTRUCTURE", "1 LIG 1", ""]), len(atoms))


def _sybyl(atom: Any) -> str:
    """SYBYL atom type (Tripos Mol2 File Format, 2005)."""
    symbol = atom.GetSymbol()
    kind = {"C": _sybyl_carbon, "N": _sybyl_nitrogen, "O": _sybyl_oxygen, "S": _sybyl_sulphur}.get(symbol)
    return f"{symbol}.{kind(atom)}" if kind else symbol


def _sybyl_carbon(atom: Any) -> str:
    if _in_benzenoid(atom):
        return "ar"
    orders = {b.GetBondTypeAsDouble() for b in atom.GetBonds()}
    if 3.0 in orders:
        return "1"
    return "2" if 2.0 in orders else "3"


def _sybyl_nitrogen(atom: Any) -> str:
    orders = {b.GetBondTypeAsDouble() for b in atom.GetBonds()}
    if 3.0 in orders:
        return "1"
    if atom.GetIsAromatic() and _in_benzenoid(atom):
        return "ar"
    if 2.0 in orders:
        return "pl3" if atom.GetFormalCharge() else "2"
    if atom.GetFormalCharge():
        return "4"
    carbonyls = [n for n in atom.GetNeighbors() if n.GetSymbol() == "C" and _has_oxo(n)]
    if carbonyls and not atom.GetIsAromatic():
        return "am"
    return "pl3" if any(b.GetIsConjugated() for b in atom.GetBonds()) else "3"


def _sybyl_oxygen(atom: Any) -> str:
    if _of_carboxylate(atom):
        return "co2"
    return "2" if any(b.GetBondTypeAsDouble() == 2.0 for b in atom.GetBonds()) else "3"


def _sybyl_sulphur(atom: Any) -> str:
    oxo = sum(b.GetBondTypeAsDouble() == 2.0 for b in atom.GetBonds())
    return {0: "3", 1: "O", 2: "O2"}[oxo]


def _sybyl_bond(bond: Any) -> str:
    ends = (bond.GetBeginAtom(), bond.GetEndAtom())
    if bond.GetIsAromatic() and all(_in_benzenoid(a) for a in ends) and bond.IsInRingSize(6):
        return "ar"
    if any(_of_carboxylate(a) for a in ends):
        return "ar"
    order = int(bond.GetBondTypeAsDouble())
    if order == 1:
        symbols = {a.GetSymbol() for a in ends}
        if symbols == {"C", "N"}:
            carbon, nitrogen = sorted(ends, key=lambda a: str(a.GetSymbol()))
            if _has_oxo(carbon) and _sybyl_nitrogen(nitrogen) == "am":
                return "am"
    return str(order)


def _in_benzenoid(atom: Any) -> bool:
    """True in an aromatic ring of six, the only rings that SYBYL types as aromatic."""
    rings = atom.GetOwningMol().GetRingInfo()
    return any(
        len(ring) == 6 and all(atom.GetOwningMol().GetAtomWithIdx(k).GetIsAromatic() for k in ring)
        for ring in rings.AtomRings()
        if atom.GetIdx() in ring
    )


def _has_oxo(carbon: Any) -> bool:
    return any(
        b.GetBondTypeAsDouble() == 2.0 and b.GetOtherAtom(carbon).GetSymbol() in ("O", "S")
        for b in carbon.GetBonds()
    )


def _of_carboxylate(atom: Any) -> bool:
    if atom.GetSymbol() != "O" or atom.GetDegree() != 1:
        return False
    oxygens = [
        a for a in atom.GetNeighbors()[0].GetNeighbors() if a.GetSymbol() == "O" and a.GetDegree() == 1
    ]
    return len(oxygens) == 2 and any(a.GetFormalCharge() < 0 for a in oxygens)
