"""Bonds of a residue that no dictionary knows, from the SMILES that a table or the file gives for it.

Structure predictors name every ligand LIG or UNL and write no bonds. The SMILES that was predicted is known,
though: its graph of elements and bonds is laid on the one that the distances between atoms show, and the
bond orders and charges come along. Stereo does not: what the coordinates show is what is recorded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from rdkit import Chem, rdBase

from ...shards.complex import BOND_ORDERS
from ...shards.errors import StructureError
from ..read.residue import Entry, too_long

_RADII: Final = np.array([0.0, *map(Chem.GetPeriodicTable().GetRcovalent, range(1, 119))])
_REACH: Final = (
    1.5  # times the sum of covalent radii: atoms further apart share no bond, however poor the model
)
_MAX_MATCHES: Final = 4096  # of a symmetric molecule; they differ by which of two like atoms is which
_ORDERS: Final = {
    Chem.BondType.SINGLE: BOND_ORDERS.index("single"),
    Chem.BondType.DOUBLE: BOND_ORDERS.index("double"),
    Chem.BondType.TRIPLE: BOND_ORDERS.index("triple"),
    Chem.BondType.QUADRUPLE: BOND_ORDERS.index("quadruple"),
}
_Pairs = NDArray[np.int64]


def entry_from_smiles(
    smiles: str, element: NDArray[np.uint8], position: NDArray[np.float64], residue_name: str
) -> Entry:
    """An entry for one residue, its heavy atoms named "0", "1", ... in the order given.

    Where a symmetric molecule leaves a choice (which oxygen of a carboxylate is the double-bonded one), the
    order of the SMILES decides if the residue's atoms follow it, else the lengths: short bonds get the high
    orders. A residue whose distances fit no arrangement is taken in the order of the SMILES if its elements
    follow that order and its bonds are of possible lengths.

    Parameters
    ----------
    element, position : of the heavy atoms, shapes (n,) and (n, 3) in angstrom

    Raises
    ------
    StructureError
        ``ligand_no_bond_orders`` if the SMILES cannot be read or is of another molecule.
    """
    template = _template(smiles, element, residue_name)
    ends, order = _bonds_of(template)
    symbols = np.array([a.GetAtomicNum() for a in template.GetAtoms()], dtype=np.uint8)
    place = _place(symbols, ends, order, element, position)
    if place is None:
        raise StructureError(
            "ligand_no_bond_orders",
            f"the bonds of SMILES {smiles} do not fit the distances between the atoms of {residue_name!r}",
        )
    return entry_of(template, place, residue_name)


def _template(smiles: str, element: NDArray[np.uint8], residue_name: str) -> Any:
    """The molecule of the SMILES, Kekulé form, without hydrogens; of several, the one of these elements."""
    with rdBase.BlockLogs():
        mol = Chem.MolFromSmiles(smiles)
        if mol is None:
            raise StructureError("ligand_no_bond_orders", f"the SMILES {smiles!r} cannot be read")
        fragments = [Chem.RemoveAllHs(m) for m in Chem.GetMolFrags(mol, asMols=True)]
    wanted = Counter(element.tolist())
    for fragment in fragments:
        if Counter(a.GetAtomicNum() for a in fragment.GetAtoms()) == wanted:
            Chem.Kekulize(fragment, clearAromaticFlags=True)
            return fragment
    here = Counter(Chem.GetPeriodicTable().GetElementSymbol(z) if z else "X" for z in element.tolist())
    raise StructureError(
        "ligand_no_bond_orders",
        f"residue {residue_name!r} has the heavy atoms {_formula(here)}, the SMILES {smiles} has "
        + " and ".join(_formula(Counter(a.GetSymbol() for a in f.GetAtoms())) for f in fragments),
    )


def _formula(counts: Counter[str]) -> str:
    return "".join(f"{symbol}{counts[symbol] if counts[symbol] > 1 else ''}" for symbol in sorted(counts))


def _bonds_of(mol: Any) -> tuple[_Pairs, NDArray[np.int64]]:
    """Ends and orders, as indices into BOND_ORDERS, of a molecule in Kekulé form."""
    bonds = list(mol.GetBonds())
    pairs = [(b.GetBeginAtomIdx(), b.GetEndAtomIdx()) for b in bonds]
    orders = [_ORDERS.get(b.GetBondType(), _ORDERS[Chem.BondType.SINGLE]) for b in bonds]
    return np.array(pairs, dtype=np.int64).reshape(-1, 2), np.array(orders, dtype=np.int64)


def _place(
    symbols: NDArray[np.uint8], ends: _Pairs, order: NDArray[Any], element: NDArray[np.uint8],
    position: NDArray[np.float64],
) -> NDArray[np.int64] | None:  # fmt: skip
    """The residue's atom for each atom of the template, None if nothing fits."""
    gaps = np.linalg.norm(position[:, None] - position[None], axis=2)
    same_order = bool((symbols == element).all())
    wanted = {frozenset(pair) for pair in ends.tolist()}
    graph = _graph(gaps, element, len(ends))
    if same_order and {frozenset(pair) for pair in graph.tolist()} == wanted:
        return np.arange(len(element))
    query = _skeleton(symbols, ends)
    found = _skeleton(element, graph).GetSubstructMatches(query, uniquify=False, maxMatches=_MAX_MATCHES)
    if found:
        places = np.array(found, dtype=np.int64)
        lengths = gaps[places[:, ends[:, 0]], places[:, ends[:, 1]]]
        best: NDArray[np.int64] = places[int(np.argmin(np.round((lengths * order).sum(axis=1), 6)))]
        return best
    if same_order and not too_long(position, element, ends).any():
        return np.arange(len(element))
    return None


def _graph(gaps: NDArray[np.float64], element: NDArray[np.uint8], n_bonds: int) -> _Pairs:
    """The pairs of atoms that are nearest for their radii, as many as there are bonds."""
    radii = _RADII[element]
    first, second = np.triu_indices(len(element), 1)
    share = gaps[first, second] / (radii[first] + radii[second])
    nearest = np.argsort(share, kind="stable")[:n_bonds]
    nearest = nearest[share[nearest] < _REACH]
    return np.stack([first[nearest], second[nearest]], axis=1)


def _skeleton(element: NDArray[np.uint8], pairs: _Pairs) -> Any:
    """Elements and bonds alone, for matching."""
    mol = Chem.RWMol()
    for number in element.tolist():
        atom = Chem.Atom(number)
        atom.SetNoImplicit(True)
        mol.AddAtom(atom)
    for i, j in pairs.tolist():
        mol.AddBond(i, j, Chem.BondType.SINGLE)
    mol.UpdatePropertyCache(False)
    return mol.GetMol()


def entry_of(template: Any, place: NDArray[np.int64], residue_name: str) -> Entry:
    """A molecule in Kekulé form as an entry in the residue's order, its hydrogens after the heavy atoms.

    Parameters
    ----------
    place : the residue's atom for each atom of the molecule
    """
    n = len(place)
    ends, order = _bonds_of(template)
    atoms: Sequence[Any] = list(template.GetAtoms())
    charge = np.zeros(n, np.int8)
    charge[place] = [a.GetFormalCharge() for a in atoms]
    element = np.zeros(n, np.uint8)
    element[place] = [a.GetAtomicNum() for a in atoms]
    parents = np.repeat(place, [a.GetTotalNumHs() for a in atoms])
    light = np.arange(n, n + len(parents))
    return Entry(
        residue_name,
        tuple(map(str, range(n + len(parents)))),
        np.append(element, np.ones(len(parents), np.uint8)),
        np.append(charge, np.zeros(len(parents), np.int8)),
        np.zeros(n + len(parents), bool),
        np.concatenate([place[ends], np.stack([parents, light], axis=1)]),
        np.append(order, np.full(len(parents), BOND_ORDERS.index("single"))).astype(np.uint8),
    )
