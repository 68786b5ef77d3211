"""A ligand that lies inside the structure file: one residue of it, or several bonded to each other."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, cast

import numpy as np
from numpy.typing import NDArray

from ...shards.complex import BOND_ORDERS
from ...shards.errors import StructureError
from ..read.components import Component, component
from ..read.residue import BondTable, ligand_from_residue
from .features import atom_of, ragged
from .molecule import Ligand
from .receptor import Receptor
from .select import residues_of

_SINGLE: Final = BOND_ORDERS.index("single")


@dataclass(frozen=True, slots=True, eq=False)
class MergedEntry:
    """Dictionary entries of several residues as one table of atoms and bonds; what ``BondTable`` asks for.

    Attributes
    ----------
    name : residue names with a hyphen between
    atom_names : "row:name", unique
    element, charge, leaving : shape (n,)
    bond_atoms, bond_order : shapes (m, 2) and (m,)
    """

    name: str
    atom_names: tuple[str, ...]
    element: NDArray[np.uint8]
    charge: NDArray[np.int8]
    leaving: NDArray[np.bool_]
    bond_atoms: NDArray[np.int64]
    bond_order: NDArray[np.uint8]


def embedded_ligand(receptor: Receptor, residues: NDArray[np.int64], hydrogens: bool = False) -> Ligand:
    """The ligand that some residues are, with the dictionary's bonds and charges.

    Parameters
    ----------
    residues : rows of the receptor's residue table, at least one

    Raises
    ------
    StructureError
        ``ligand_no_bond_orders`` and what reading a ligand raises.
    """
    s = receptor.structure
    first, count = s.residue_start[residues], np.diff(s.residue_start)[residues]
    rows = ragged(first, count)
    owner = np.repeat(np.arange(len(residues)), count)
    names = [n.decode("latin-1") for n in s.name[rows].tolist()]
    titles = tuple(n.decode("latin-1") for n in s.residue_name[residues].tolist())
    entry: Component | MergedEntry | None
    if len(residues) == 1:
        entry = component(titles[0])
        wanted = tuple(names)
    else:
        entry = _merge(receptor, residues, titles)
        wanted = tuple(f"{k}:{n}" for k, n in zip(owner.tolist(), names, strict=True))
    found = ligand_from_residue(
        residue_name="-".join(titles),
        names=wanted,
        element=s.element[rows],
        charge=s.charge[rows],
        position=s.position[rows],
        b_factor=s.b_factor[rows],
        occupancy=s.occupancy[rows],
        component=cast("BondTable | None", entry),
        hydrogens=hydrogens,
    )
    packed = np.zeros((len(found.row), 4), np.uint8)
    packed[:] = s.name[rows[found.row]].view(np.uint8).reshape(-1, 8)[:, :4]
    return replace(found, name=packed, row=rows[found.row])


def _merge(receptor: Receptor, residues: NDArray[np.int64], titles: tuple[str, ...]) -> MergedEntry:
    entries = [component(t) for t in titles]
    known = [e for e in entries if e is not None]
    if len(known) < len(entries):
        missing = [t for t, e in zip(titles, entries, strict=True) if e is None]
        raise StructureError(
            "ligand_no_bond_orders",
            f"residues {', '.join(missing)} have no entry in the Chemical Component Dictionary",
        )
    base = np.cumsum([0, *(len(e.atom_names) for e in known)])
    place = {int(r): k for k, r in enumerate(residues)}
    bonds = [e.bond_atoms + b for e, b in zip(known, base, strict=False)]
    orders = [e.bond_order for e in known]
    between = []
    for a, b in bonds_among(receptor, residues):
        ends = []
        for atom in (a, b):
            k = place[int(receptor.structure.residue[atom])]
            name = receptor.structure.name[atom].decode("latin-1")
            ends.append(int(base[k]) + known[k].atom_names.index(name) if name in known[k].atom_names else -1)
        if min(ends) >= 0:
            between.append(ends)
    bonds.append(np.array(between, np.int64).reshape(-1, 2))
    orders.append(np.full(len(between), _SINGLE, np.uint8))
    return MergedEntry(
        "-".join(titles),
        tuple(f"{k}:{n}" for k, e in enumerate(known) for n in e.atom_names),
        np.concatenate([e.element for e in known]),
        np.concatenate([e.charge for e in known]),
        np.concatenate([e.leaving for e in known]),
        np.concatenate(bonds),
        np.concatenate(orders),
    )


def bonds_among(receptor: Receptor, residues: NDArray[np.int64]) -> list[tuple[int, int]]:
    """Atoms that bonds between these residues join: along the chain, and by links of the file."""
    inside = set(residues.tolist())
    found = [
        (int(receptor.carbonyl[r]), int(receptor.amide[r + 1]))
        for r in residues.tolist()
        if r + 1 in inside and receptor.joined[r]
    ]
    return found + [pair for pair, rows in _stated(receptor) if rows[0] in inside and rows[1] in inside]


def bonds_out(receptor: Receptor, residues: NDArray[np.int64]) -> list[tuple[int, int]]:
    """(atom of the ligand, atom of another residue) of each covalent bond that leaves the ligand."""
    inside = set(residues.tolist())
    found = []
    for (a, b), (ra, rb) in _stated(receptor):
        if (ra in inside) != (rb in inside):
            found.append((a, b) if ra in inside else (b, a))
    return found


def _stated(receptor: Receptor) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Atoms and residues of the file's covalent links."""
    found = []
    for link in receptor.structure.links:
        if link.kind not in ("covalent", "unknown", "disulfide"):
            continue
        a, b = residues_of(receptor.structure, link)
        if a < 0 or b < 0 or a == b:
            continue
        atoms = (atom_of(receptor, a, link.first.atom), atom_of(receptor, b, link.second.atom))
        if min(atoms) >= 0:
            found.append((atoms, (a, b)))
    return found
