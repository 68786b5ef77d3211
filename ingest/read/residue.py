"""A ligand that is a residue of a structure file: bonds from the Chemical Component Dictionary, by atom name.

Names are the only key. Matching the dictionary's molecule as a substructure fails wherever atoms are missing,
and guessing orders from distances fails everywhere else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray
from rdkit import Chem

from ...shards.complex import BOND_ORDERS
from ...shards.errors import StructureError
from ..chemistry.molecule import Ligand, to_ligand
from ..chemistry.perceive import posed

_ORDERS: Final = {
    BOND_ORDERS.index("single"): Chem.BondType.SINGLE,
    BOND_ORDERS.index("double"): Chem.BondType.DOUBLE,
    BOND_ORDERS.index("triple"): Chem.BondType.TRIPLE,
    BOND_ORDERS.index("quadruple"): Chem.BondType.QUADRUPLE,
    BOND_ORDERS.index("aromatic"): Chem.BondType.AROMATIC,
}
_HYDROGEN_REACH: Final = 1.35  # angstrom, of the longest bond to hydrogen (S-H)
_RADII: Final = np.array([0.0, *map(Chem.GetPeriodicTable().GetRcovalent, range(1, 119))])
_STRETCH: Final = (1.3, 0.2)  # factor and angstrom by which a bond may exceed the sum of covalent radii
_MAX_STRETCHED: Final = 0.1  # share of bonds beyond it, at which the dictionary speaks of another molecule


class BondTable(Protocol):
    """What is needed of a dictionary entry: atoms by name, and Kekulé bonds between their rows."""

    @property
    def name(self) -> str:
        """For messages."""

    @property
    def atom_names(self) -> tuple[str, ...]:
        """Unique names of n atoms."""

    @property
    def element(self) -> NDArray[np.uint8]:
        """Atomic numbers, shape (n,)."""

    @property
    def charge(self) -> NDArray[np.int8]:
        """Formal charges, shape (n,)."""

    @property
    def leaving(self) -> NDArray[np.bool_]:
        """Atoms that go when a polymer bond is made, shape (n,)."""

    @property
    def bond_atoms(self) -> NDArray[np.int64]:
        """Rows of atoms, shape (m, 2)."""

    @property
    def bond_order(self) -> NDArray[np.uint8]:
        """Index into BOND_ORDERS, shape (m,)."""


@dataclass(frozen=True, slots=True, eq=False)
class Entry:
    """A :class:`BondTable` put together here, for want of an entry in the dictionary.

    Attributes
    ----------
    name : for messages
    atom_names : n unique names
    element, charge, leaving : shape (n,)
    bond_atoms, bond_order : shapes (m, 2) and (m,)
    has_hydrogens : False if hydrogens may be missing from it
    """

    name: str
    atom_names: tuple[str, ...]
    element: NDArray[np.uint8]
    charge: NDArray[np.int8]
    leaving: NDArray[np.bool_]
    bond_atoms: NDArray[np.int64]
    bond_order: NDArray[np.uint8]
    has_hydrogens: bool = True


def ligand_from_residue(
    *,
    residue_name: str,
    names: Sequence[str],
    element: NDArray[np.uint8],
    charge: NDArray[np.int8],
    position: NDArray[np.float64],
    b_factor: NDArray[np.float32],
    occupancy: NDArray[np.float32],
    component: BondTable | None,
    hydrogens: bool = False,
) -> Ligand:
    """The atoms of one residue, with the bonds and formal charges of its dictionary entry.

    Parameters
    ----------
    residue_name : for messages, and the ligand's title
    names, element, charge, position, b_factor, occupancy : the residue's n atoms as in the file; position in
        angstrom. The file's charges count only for atoms of a metal ion's kind, without bonds: PDB files
        seldom have any
    component : the entry; atoms of it that the file lacks (leaving atoms of a covalent or polymer bond,
        disordered ones) are left out, and implied hydrogens take their place in the valences
    hydrogens : keep the file's hydrogens; they are bonded to the nearest heavy atom, whatever their names

    Raises
    ------
    StructureError
        ``ligand_no_bond_orders`` without an entry, or with one that does not fit; and what :func:`perceive`
        raises.
    """
    if component is None:
        raise StructureError(
            "ligand_no_bond_orders",
            f"residue {residue_name!r} has no entry in the Chemical Component Dictionary",
        )
    heavy = np.flatnonzero(element != 1)
    rows = _match([names[i] for i in heavy.tolist()], element[heavy], component)
    mol = Chem.RWMol()
    for i, row in zip(heavy.tolist(), rows, strict=True):
        atom = Chem.Atom(int(element[i]))
        atom.SetFormalCharge(int(component.charge[row]))
        mol.AddAtom(atom)
    _bond(mol, rows, component)
    _check_lengths(mol, position[heavy], element[heavy], residue_name)
    light = np.flatnonzero(element == 1) if hydrogens else heavy[:0]
    order = np.concatenate([heavy, _bond_hydrogens(mol, heavy, light, position)])
    conformer = Chem.Conformer(len(order))
    conformer.SetPositions(np.ascontiguousarray(position[order], dtype=np.float64))
    mol.AddConformer(conformer)
    repairs = () if _is_whole(rows, component) else ("atoms_missing",)
    found = posed(
        mol.GetMol(),
        hydrogens=hydrogens,
        claims_3d=True,
        names=tuple(names[i] for i in order.tolist()),
        title=residue_name,
        repairs=repairs,
    )
    ligand = to_ligand(found)
    kept = order[ligand.row]
    counts = ligand.hydrogens
    if not hydrogens and (not isinstance(component, Entry) or component.has_hydrogens):
        # No atom gains one by what it lost to a covalent bond, or by a metal RDKit cannot count.
        counts = np.minimum(counts, _hydrogen_counts(component)[np.asarray(rows)[ligand.row]])
    return replace(ligand, row=kept, hydrogens=counts, b_factor=b_factor[kept], occupancy=occupancy[kept])


def _hydrogen_counts(component: BondTable) -> NDArray[np.uint8]:
    """Hydrogens on each atom of the entry."""
    ends = component.bond_atoms
    light = component.element[ends] == 1
    n = len(component.element)
    counts = np.bincount(ends[light[:, 1], 0], minlength=n) + np.bincount(ends[light[:, 0], 1], minlength=n)
    return counts.astype(np.uint8)


def _match(names: list[str], element: NDArray[np.uint8], component: BondTable) -> list[int]:
    """Row in the entry of each atom."""
    place = {name: row for row, name in enumerate(component.atom_names)}
    rows = [place.get(name, place.get(name.replace("*", "'"), -1)) for name in names]
    for name, row, number in zip(names, rows, element.tolist(), strict=True):
        if row < 0 or component.element[row] != number:
            what = (
                "has no such atom"
                if row < 0
                else f"has element {component.element[row]} there, the file {number}"
            )
            raise StructureError(
                "ligand_no_bond_orders",
                f"atom {name!r} of residue {component.name!r}: its dictionary entry {what}",
            )
    if len(set(rows)) < len(rows):
        raise StructureError("ligand_unreadable", f"residue {component.name!r} has two atoms of one name")
    return rows


def _bond(mol: Any, rows: list[int], component: BondTable) -> None:
    atom_of = np.full(len(component.atom_names), -1, dtype=np.int64)
    atom_of[rows] = np.arange(len(rows))
    ends = atom_of[component.bond_atoms]
    for (i, j), order in zip(ends.tolist(), component.bond_order.tolist(), strict=True):
        if i >= 0 and j >= 0:
            mol.AddBond(i, j, _ORDERS.get(order, Chem.BondType.SINGLE))


def _check_lengths(mol: Any, position: NDArray[np.float64], element: NDArray[np.uint8], name: str) -> None:
    """A residue may bear the name of another molecule, atom names and all: then its bonds are impossibly
    long.
    """
    ends = np.array(
        [(b.GetBeginAtomIdx(), b.GetEndAtomIdx()) for b in mol.GetBonds()], dtype=np.int64
    ).reshape(-1, 2)
    if not len(ends):
        return
    stretched = int(np.count_nonzero(too_long(position, element, ends)))
    if stretched > max(1, _MAX_STRETCHED * len(ends)):
        raise StructureError(
            "ligand_no_bond_orders",
            f"{stretched} of {len(ends)} bonds of residue {name!r} would be too long: the dictionary's entry "
            "of that name is another molecule",
        )


def too_long(
    position: NDArray[np.float64], element: NDArray[np.uint8], ends: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Which of some bonds, shape (m, 2), are longer than any bond between these elements."""
    length = np.linalg.norm(position[ends[:, 0]] - position[ends[:, 1]], axis=1)
    found: NDArray[np.bool_] = length > _STRETCH[0] * _RADII[element[ends]].sum(axis=1) + _STRETCH[1]
    return found


def _bond_hydrogens(
    mol: Any, heavy: NDArray[np.int64], light: NDArray[np.int64], position: NDArray[np.float64]
) -> NDArray[np.int64]:
    """Add each hydrogen to its nearest heavy atom; those that are near none are left out."""
    kept = []
    for i in light.tolist():
        gaps = np.linalg.norm(position[heavy] - position[i], axis=1)
        nearest = int(gaps.argmin())
        if gaps[nearest] <= _HYDROGEN_REACH:
            mol.AddBond(nearest, mol.AddAtom(Chem.Atom(1)), Chem.BondType.SINGLE)
            kept.append(i)
    return np.array(kept, dtype=np.int64)


def _is_whole(rows: list[int], component: BondTable) -> bool:
    """True if every heavy atom of the entry is there, or could have left by rights."""
    here = np.zeros(len(component.atom_names), dtype=bool)
    here[rows] = True
    return bool((here | component.leaving | (component.element == 1)).all())
