"""What files leave out or draw in a way of their own for a known cause, and how it is put right.

Each function works on an RDKit molecule that is not yet sanitised and says whether it changed anything; the
codes are those of ``REPAIRS``. Nothing is guessed: a drawing that none of these explains is refused.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations
from typing import Any, Final

from rdkit import Chem

_MAX_ADDED_HYDROGENS: Final = 2  # a ring system
# Elements that carry one bond more than their neutral valence as cations (or as an anion, boron): drawn so,
# a missing formal charge is no matter of taste. Element -> (neutral valence, charge with one more).
_ONIUM: Final = {5: (3, -1), 7: (3, 1), 8: (2, 1), 15: (3, 1)}
# Centres of delocalised groups: element -> (highest valence, double bonds kept).
_CENTRES: Final = {6: (4, 1), 15: (5, 1), 16: (6, 2)}


def mark_aromatic(mol: Any) -> None:
    """Set the flags of atoms and bonds from the types of the bonds; readers do not without sanitising."""
    aromatic = set()
    for bond in mol.GetBonds():
        flag = bond.GetBondType() == Chem.BondType.AROMATIC
        bond.SetIsAromatic(flag)
        if flag:
            aromatic |= {bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()}
    for atom in mol.GetAtoms():
        atom.SetIsAromatic(atom.GetIdx() in aromatic)


def localise_groups(mol: Any) -> bool:
    """Give one form to delocalised groups drawn with double bonds only.

    X-TOOL writes a carboxylate as C(-)(=O)=O, a guanidinium as C(+)(=N)(=N)=N, a phosphate as P(=O)(=O)(=O)O.
    """
    changed = False
    for centre in mol.GetAtoms():
        rule = _CENTRES.get(centre.GetAtomicNum())
        if rule is None or centre.GetDegree() < 3 or _bond_orders(centre) <= rule[0]:
            continue
        arms = [bond for bond in centre.GetBonds() if bond.GetBondType() == Chem.BondType.DOUBLE]
        partners = [bond.GetOtherAtom(centre) for bond in arms]
        if len(arms) <= rule[1] or any(atom.GetAtomicNum() not in (7, 8, 16) for atom in partners):
            continue
        arms.sort(key=lambda bond: _reluctance(bond.GetOtherAtom(centre), centre))
        for bond in arms[rule[1] :]:
            bond.SetBondType(Chem.BondType.SINGLE)
            partner = bond.GetOtherAtom(centre)
            if partner.GetDegree() == 1 and partner.GetAtomicNum() != 7:
                partner.SetFormalCharge(-1)
        for bond in arms[: rule[1]]:
            partner = bond.GetOtherAtom(centre)
            if partner.GetAtomicNum() == 7 and partner.GetDegree() == 3:
                partner.SetFormalCharge(1)
        centre.SetFormalCharge(0)
        changed = True
    return changed


def _reluctance(partner: Any, centre: Any) -> tuple[int, int, int]:
    """Which arm keeps its double bond: one that needs it to be neutral, then one with few neighbours."""
    full = partner.GetDegree() >= (3 if partner.GetAtomicNum() == 7 else 2)
    heavy = sum(atom.GetAtomicNum() != 1 for atom in partner.GetNeighbors())
    return (int(full), heavy, partner.GetIdx())


def _bond_orders(atom: Any) -> float:
    """Sum of the orders of an atom's bonds, drawn hydrogens among them."""
    return float(sum(bond.GetBondTypeAsDouble() for bond in atom.GetBonds()))


def charge_oniums(mol: Any) -> bool:
    """Give the charge to neutral N, O, B and P drawn with one bond too many."""
    changed = False
    for atom in mol.GetAtoms():
        rule = _ONIUM.get(atom.GetAtomicNum())
        if rule is None or atom.GetFormalCharge():
            continue
        bonds = {bond.GetBondType() for bond in atom.GetBonds()}
        if bonds & {Chem.BondType.DATIVE, Chem.BondType.AROMATIC}:
            continue  # aromatic nitrogens are for mend_ring
        if atom.GetAtomicNum() == 15 and Chem.BondType.DOUBLE in bonds:
            continue  # phosphorus of a phosphate
        if any(_is_metal(n.GetAtomicNum()) for n in atom.GetNeighbors()):
            continue  # RDKit makes such a bond dative itself
        if atom.GetNumExplicitHs() + _bond_orders(atom) == rule[0] + 1:
            atom.SetFormalCharge(rule[1])
            changed = True
    return changed


def _is_metal(number: int) -> bool:
    if number in (3, 4) or number > 86:
        return True
    return any(first <= number <= last for first, last in ((11, 13), (19, 31), (37, 50), (55, 84)))


def mend_ring(mol: Any) -> str:
    """Mend the first ring system that cannot be kekulised; the repair's code, or "" if there is none.

    One or two aromatic nitrogens are given a hydrogen each: the first choice that works in the order of the
    atoms, one before two. If none does, one nitrogen with three neighbours is given a positive charge (an
    imidazolium or a pyridinium drawn without).
    """
    problems = [p for p in Chem.DetectChemistryProblems(mol) if p.GetType() == "KekulizeException"]
    if not problems:
        return ""
    failing = _ring_system(mol, problems[0].GetAtomIndices())
    nitrogens = [
        atom
        for atom in map(mol.GetAtomWithIdx, failing)
        if atom.GetAtomicNum() == 7 and not (atom.GetFormalCharge() or atom.GetNumExplicitHs())
    ]
    bare = [atom.GetIdx() for atom in nitrogens if atom.GetDegree() == 2]
    full = [atom.GetIdx() for atom in nitrogens if atom.GetDegree() == 3]
    hydrogens = [c for count in range(1, _MAX_ADDED_HYDROGENS + 1) for c in combinations(bare, count)]
    charges = [(index,) for index in full]
    for code, choices, change in (
        ("aromatic_nh_added", hydrogens, _give_hydrogen),
        ("charge_adjusted", charges, _give_charge),
    ):
        for chosen in choices:
            trial = Chem.Mol(mol)
            for index in chosen:
                change(trial.GetAtomWithIdx(index))
            if not _still_fails(trial, set(failing)):
                for index in chosen:
                    change(mol.GetAtomWithIdx(index))
                return code
    return ""


def _ring_system(mol: Any, seeds: Iterable[int]) -> list[int]:
    """Everything that aromatic bonds connect to some atoms: the complaint does not name them all."""
    found = set(seeds)
    edge = list(found)
    while edge:
        for bond in mol.GetAtomWithIdx(edge.pop()).GetBonds():
            if bond.GetBondType() == Chem.BondType.AROMATIC:
                new = {bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()} - found
                found |= new
                edge += new
    return sorted(found)


def _give_charge(atom: Any) -> None:
    atom.SetFormalCharge(1)


def _give_hydrogen(atom: Any) -> None:
    atom.SetNumExplicitHs(1)
    atom.SetNoImplicit(True)


def _still_fails(mol: Any, failing: set[int]) -> bool:
    for problem in Chem.DetectChemistryProblems(mol):
        if problem.GetType() != "KekulizeException" or failing & set(problem.GetAtomIndices()):
            return True
    return False
