"""Features and bonds of pocket atoms, from templates and from where the neighbours are.

Everything is looked up or computed for all atoms at once. What the templates cannot know is taken from
the structure: bonds between residues (peptide, phosphodiester, disulfide, links of the file), drawn
hydrogens, and the handedness of stereocentres. A residue without a template gets its bonds from distances
and covalent radii, of unknown order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...shards.complex import BOND_ORDERS, CHIRALITIES, HYBRIDISATIONS
from .linkage import bonds_between, unknown_bonds
from .receptor import Receptor
from .slots import bonds_within, fill, heavy_and_drawn, parents, volumes
from .templates import ATOM_FEATURES, BOND_FEATURES, LIBRARY

_SINGLE: Final = BOND_ORDERS.index("single")
_R, _S = CHIRALITIES.index("R"), CHIRALITIES.index("S")
_UNASSIGNED: Final = CHIRALITIES.index("unassigned")
_FLAT: Final = 0.1  # angstrom^3: a smaller volume of three bonds tells no handedness (tetrahedral: about 2.5)
_LONGEST: Final = 2.6  # angstrom: no covalent bond of a small molecule is longer, but for I-I
_H_BOND: Final = 1.5  # angstrom: hydrogens are drawn 0.9 to 1.4 from their atom
_PROTIC: Final = np.array([z in (7, 8) for z in range(256)])


@dataclass(frozen=True, slots=True, eq=False)
class PocketAtoms:
    """Atoms and bonds of a pocket, in the value dtypes of ``FIELDS``.

    Attributes
    ----------
    rows : int64 (n,), atoms of the receptor's structure, residue by residue
    residues : int64 (r,), residues of the receptor, in order
    residue : int64 (n,), row of ``residues`` of each atom
    columns : key of ``FIELDS`` -> array (n,): element, charge, hybridisation, degree, hydrogens, aromatic,
        ring, chirality, backbone
    bond_atoms : int64 (m, 2), rows of this pocket, first < second, sorted
    bonds : key of ``FIELDS`` -> array (m,): order, conjugated, ring, stereo
    n_doubled : atoms left out because their residue has another of the same name
    """

    rows: NDArray[np.int64]
    residues: NDArray[np.int64]
    residue: NDArray[np.int64]
    columns: dict[str, NDArray[Any]]
    bond_atoms: NDArray[np.int64]
    bonds: dict[str, NDArray[np.uint8]]
    n_doubled: int = 0


def ragged(start: NDArray[np.int64], count: NDArray[np.int64]) -> NDArray[np.int64]:
    """start[0] .. start[0] + count[0], start[1] ..., one after the other."""
    stop = count.cumsum()
    if not len(stop):
        return stop
    found: NDArray[np.int64] = np.arange(stop[-1]) + (start - stop + count).repeat(count)
    return found


def pocket_atoms(receptor: Receptor, residues: NDArray[np.int64], hydrogens: bool = False) -> PocketAtoms:
    """Features of whole residues.

    Parameters
    ----------
    residues : rows of the receptor's residue table, ascending
    hydrogens : keep drawn hydrogens as atoms of their own
    """
    s = receptor.structure
    rows, residue, drawn, owners = heavy_and_drawn(residues, s.residue_start, s.element)
    template = receptor.template[residues]
    found = _found(receptor, residues, rows, residue)
    base, slot, twice = fill(template, residue, found, LIBRARY.atom_start)
    spare: NDArray[np.int64] = rows[:0]
    if twice:
        spare = _doubles(s.position[rows], residue, found)
        rows, residue, found = (np.delete(column, spare) for column in (rows, residue, found))
        base, slot, _ = fill(template, residue, found, LIBRARY.atom_start)
    known = found >= 0
    element = s.element[rows]
    known_of = LIBRARY.atoms.take(found, axis=0)  # several times as fast as by brackets
    columns: dict[str, NDArray[Any]] = dict(zip(ATOM_FEATURES, known_of.T.copy(), strict=True))
    columns["element"] = element
    # Charges that the file states come before those of the template.
    stated = s.charge[rows]
    columns["charge"] = np.where(stated != 0, stated, columns["charge"].view(np.int8))
    ends, which = bonds_within(template, base, slot, LIBRARY.bond_start, LIBRARY.bonds)
    features = LIBRARY.bond_features.take(which, axis=0)
    columns["chirality"] = _handedness(template, base, slot, rows, s.position)
    more = bonds_between(receptor, residues, rows)
    loose = unknown_bonds(receptor, rows, residue, known)
    n = len(more.inside)
    plain = np.zeros((n + len(loose), len(BOND_FEATURES)), np.uint8)
    plain[:n, 0] = _SINGLE
    plain[:n, 1] = more.conjugated
    atoms = np.concatenate([ends, more.inside, loose])
    features = np.concatenate([features, plain])
    degree = np.bincount(np.concatenate([atoms.ravel(), more.outside]), minlength=len(rows))
    columns["degree"] = degree.astype(np.uint8)
    usual = columns["hydrogens"]  # templates do not know of bonds beyond the chain: SG of a disulfide, say
    usual[more.beyond] -= usual[more.beyond] > 0
    atoms, features = _sorted_bonds(atoms, features)
    found_ = PocketAtoms(rows, residues, residue, columns, atoms, _named(features), len(spare))
    if not len(drawn):
        return found_
    bearers = parents(drawn, owners, rows, residue, s.position, _H_BOND)
    _count_drawn(columns, bearers, residue, len(residues), known)
    return _with_hydrogens(found_, drawn, owners, bearers) if hydrogens else found_


def _named(features: NDArray[np.uint8]) -> dict[str, NDArray[np.uint8]]:
    return {k: features[:, i] for i, k in enumerate(BOND_FEATURES)}


def _found(
    receptor: Receptor, residues: NDArray[np.int64], rows: NDArray[np.int64], residue: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Template row of each atom, -1 for none; none at all for residues that only share a name with theirs.

    A molecule outside the chains may bear the name of another that the dictionary knows. It is not that one
    if it has an atom that the other lacks, or if more than a few of the other's bonds would be far too long.
    """
    s = receptor.structure
    template = receptor.template[residues]
    found = LIBRARY.find(template[residue], s.name.view(np.uint64).take(rows))
    small = ~receptor.polymer[residues]
    if not small.any():
        return found
    foreign = (found < 0) | (LIBRARY.atoms[found, 0] != s.element[rows])
    wrong = small & (np.bincount(residue[foreign], minlength=len(residues)) > 0)
    base, slot, _ = fill(template, residue, found, LIBRARY.atom_start)
    ends, _ = bonds_within(template, base, slot, LIBRARY.bond_start, LIBRARY.bonds)
    gap = s.position[rows[ends[:, 0]]] - s.position[rows[ends[:, 1]]]
    owner = residue[ends[:, 0]]
    long = np.bincount(owner[np.einsum("ij,ij->i", gap, gap) > _LONGEST**2], minlength=len(residues))
    wrong |= small & (long > np.maximum(1, 0.1 * np.bincount(owner, minlength=len(residues))))
    return np.where(wrong[residue], -1, found)


def _doubles(
    position: NDArray[np.float64], residue: NDArray[np.int64], found: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Rows to leave out where a residue has two atoms of one name: all but the one nearest to the others."""
    key = (residue << 32) | np.where(found >= 0, found, -1 - np.arange(len(found)))
    order = np.argsort(key, kind="stable")
    twice = np.flatnonzero(key[order[1:]] == key[order[:-1]])
    spare: list[int] = []
    for at in np.unique(key[order[twice]]).tolist():
        same = np.flatnonzero(key == at)
        others = np.flatnonzero((residue == residue[same[0]]) & (key != at))
        gap = position[same][:, None] - position[others][None]
        distance = (gap**2).sum(axis=2).min(axis=1, initial=np.inf)
        spare += np.delete(same, int(distance.argmin())).tolist()
    return np.array(sorted(spare), np.int64)


def _handedness(
    template: NDArray[np.int64],
    base: NDArray[np.int64],
    slot: NDArray[np.int64],
    rows: NDArray[np.int64],
    position: NDArray[np.float64],
) -> NDArray[np.uint8]:
    """R and S of the templates' stereocentres, from the coordinates."""
    found = np.zeros(len(rows), np.uint8)
    centre, which, volume = volumes(
        template, base, slot, LIBRARY.centre_start, LIBRARY.centres, rows, position
    )
    label = np.where((volume > 0) == (LIBRARY.handedness[which] > 0), _R, _S)
    found[centre] = np.where(np.abs(volume) < _FLAT, _UNASSIGNED, label)
    return found


def _count_drawn(
    columns: dict[str, NDArray[Any]],
    parents: NDArray[np.int64],
    residue: NDArray[np.int64],
    n_residues: int,
    known: NDArray[np.bool_],
) -> None:
    """Hydrogens and charges as drawn, in residues that have any drawn at all.

    Where only polar hydrogens are drawn the carbons keep the template's. A nitrogen or oxygen with one
    hydrogen more or less than its template has one charge more or less; a histidine's two nitrogens
    are taken together, since its template is only one of two tautomers.
    """
    drawn = np.bincount(parents[parents >= 0], minlength=len(residue))
    element, charge, usual = columns["element"], columns["charge"], columns["hydrogens"]
    some, carbon = np.zeros((2, n_residues), bool)
    bearing = drawn.nonzero()[0]
    some[residue[bearing]] = True
    carbon[residue[bearing[element[bearing] == 6]]] = True
    protic = _PROTIC[element]
    counted = some[residue] & (protic | carbon[residue])
    columns["hydrogens"] = np.where(counted, drawn, usual).astype(np.uint8)
    settled = (counted & protic & known).nonzero()[0]
    change = np.zeros(len(residue), np.int64)
    change[settled] = drawn[settled] - usual[settled]
    ring = ((columns["aromatic"] == 1) & (element == 7)).nonzero()[0]
    if len(ring):
        nitrogens = change[ring]
        total = np.bincount(residue[ring], nitrogens, minlength=n_residues)[residue[ring]]
        nitrogens[(total == 0) | ((total > 0) & (nitrogens < 0))] = 0
        change[ring] = nitrogens
    columns["charge"] = (charge + change).clip(-3, 3).astype(np.int8)


def _with_hydrogens(
    found: PocketAtoms, drawn: NDArray[np.int64], owners: NDArray[np.int64], parents: NDArray[np.int64]
) -> PocketAtoms:
    """The pocket with its drawn hydrogens as atoms, in the order of the file."""
    both = np.concatenate([found.rows, drawn])
    order = np.argsort(both, kind="stable")
    back = np.empty(len(both), np.int64)
    back[order] = np.arange(len(both))
    blank = {k: np.zeros(len(drawn), v.dtype) for k, v in found.columns.items()}
    blank["element"][:] = 1
    blank["hybridisation"][:] = HYBRIDISATIONS.index("s")
    blank["degree"][:] = parents >= 0
    columns = {k: np.concatenate([v, blank[k]])[order] for k, v in found.columns.items()}
    bonded = np.flatnonzero(parents >= 0)
    new = np.stack([parents[bonded], len(found.rows) + bonded], axis=1)
    plain = np.zeros((len(bonded), len(BOND_FEATURES)), np.uint8)
    plain[:, 0] = _SINGLE
    features = np.stack([found.bonds[k] for k in BOND_FEATURES], axis=1)
    atoms, features = _sorted_bonds(
        back[np.concatenate([found.bond_atoms, new])], np.concatenate([features, plain])
    )
    owner = np.concatenate([found.residue, owners])[order]
    return PocketAtoms(both[order], found.residues, owner, columns, atoms, _named(features), found.n_doubled)


def _sorted_bonds(
    atoms: NDArray[np.int64], features: NDArray[np.uint8]
) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """First atom before second, bonds in order, each once."""
    first, second = atoms.T
    key = (np.minimum(first, second) << 32) | np.maximum(first, second)
    order = key.argsort(kind="stable")
    key = key[order]
    again = (key[1:] == key[:-1]).nonzero()[0] + 1
    if len(again):
        order, key = np.delete(order, again), np.delete(key, again)
    found = np.empty((len(key), 2), np.int64)
    found[:, 0], found[:, 1] = key >> 32, key & 0xFFFFFFFF
    return found, features.take(order, axis=0)
