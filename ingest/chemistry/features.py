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
from .linkage import NO_BONDS, bonds_between, unknown_bonds
from .receptor import Receptor
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
    first, stop = s.residue_start[residues], s.residue_start[residues + 1]
    every = ragged(first, stop - first)
    local = np.arange(len(residues)).repeat(stop - first)
    element = s.element[every]
    heavy = element > 1
    kept = heavy.nonzero()[0]
    drawn = every[~heavy] if len(kept) < len(every) else every[:0]
    rows, residue, element = every[kept], local[kept], element[kept]
    template = receptor.template[residues]
    found = _found(receptor, residues, rows, residue)
    known = found >= 0
    slot = _slots(template, residue, found, known)
    spare: NDArray[np.int64] = rows[:0]
    if (slot[1] >= 0).sum() < known.sum():  # two atoms in one slot
        spare = _doubles(s.position[rows], residue, found)
        rows, residue, found = (np.delete(column, spare) for column in (rows, residue, found))
        element = s.element[rows]
        known = found >= 0
        slot = _slots(template, residue, found, known)
    columns: dict[str, NDArray[Any]] = dict(zip(ATOM_FEATURES, LIBRARY.atoms[found].T.copy(), strict=True))
    columns["element"] = element
    # Charges that the file states come before those of the template.
    stated = s.charge[rows]
    columns["charge"] = np.where(stated != 0, stated, columns["charge"].view(np.int8))
    ends, features = _template_bonds(template, slot)
    columns["chirality"] = _handedness(template, slot, s.position[rows])
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
    owners = local[~heavy]
    parents = _parents(s.position, drawn, owners, rows, residue)
    _count_drawn(columns, parents, residue, len(residues), known)
    return _with_hydrogens(found_, drawn, owners, parents) if hydrogens else found_


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
    found = LIBRARY.find(template[residue], s.name[rows].view(np.uint64))
    small = ~receptor.polymer[residues]
    if not small.any():
        return found
    foreign = (found < 0) | (LIBRARY.atoms[found, 0] != s.element[rows])
    wrong = small & (np.bincount(residue[foreign], minlength=len(residues)) > 0)
    ends, _ = _template_bonds(template, _slots(template, residue, found, found >= 0))
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


def _slots(
    template: NDArray[np.int64],
    residue: NDArray[np.int64],
    found: NDArray[np.int64],
    known: NDArray[np.bool_],
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """First slot of each residue, and the pocket atom in each slot or -1; a slot an atom of the template."""
    size = LIBRARY.atom_start[template + 1] - LIBRARY.atom_start[template]
    base = np.zeros(len(template), np.int64)
    np.cumsum(size[:-1], out=base[1:])
    atom = np.full(int(size.sum()), -1, np.int64)
    where = residue[known]
    atom[base[where] + found[known] - LIBRARY.atom_start[template[where]]] = np.flatnonzero(known)
    return base, atom


def _template_bonds(
    template: NDArray[np.int64], slot: tuple[NDArray[np.int64], NDArray[np.int64]]
) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """Bonds within residues whose atoms are both there."""
    base, atom = slot
    start = LIBRARY.bond_start[template]
    count = LIBRARY.bond_start[template + 1] - start
    rows = ragged(start, count)
    if not len(rows):
        return NO_BONDS, LIBRARY.bond_features[rows]
    ends = atom[LIBRARY.bonds[rows] + base.repeat(count)[:, None]]
    both = ((ends[:, 0] >= 0) & (ends[:, 1] >= 0)).nonzero()[0]
    return ends[both], LIBRARY.bond_features[rows[both]]


def _handedness(
    template: NDArray[np.int64],
    slot: tuple[NDArray[np.int64], NDArray[np.int64]],
    position: NDArray[np.float64],
) -> NDArray[np.uint8]:
    """R and S of the templates' stereocentres, from the coordinates."""
    base, atom = slot
    found = np.zeros(len(position), np.uint8)
    start = LIBRARY.centre_start[template]
    count = LIBRARY.centre_start[template + 1] - start
    rows = ragged(start, count)
    if not len(rows):
        return found
    four = atom[LIBRARY.centres[rows] + base.repeat(count)[:, None]]
    whole = (four.min(axis=1) >= 0).nonzero()[0]
    four, sign = four[whole], LIBRARY.handedness[rows[whole]]
    legs = position[four[:, 1:]] - position[four[:, :1]]
    (ax, ay, az), (bx, by, bz), (cx, cy, cz) = legs.transpose(1, 2, 0)
    volume = ax * (by * cz - bz * cy) + ay * (bz * cx - bx * cz) + az * (bx * cy - by * cx)
    label = np.where((volume > 0) == (sign > 0), _R, _S)
    found[four[:, 0]] = np.where(np.abs(volume) < _FLAT, _UNASSIGNED, label)
    return found


def _parents(
    position: NDArray[np.float64],
    drawn: NDArray[np.int64],
    owner: NDArray[np.int64],
    rows: NDArray[np.int64],
    residue: NDArray[np.int64],
) -> NDArray[np.int64]:
    """Pocket row of the nearest heavy atom in the residue of each drawn hydrogen, -1 if none is near."""
    parents = np.full(len(drawn), -1, np.int64)
    count = np.bincount(residue, minlength=int(owner[-1]) + 1)
    width = count[owner]
    some = width.nonzero()[0]
    if not len(some):
        return parents
    width = width[some]
    candidates = ragged((count.cumsum() - count)[owner[some]], width)
    pair = np.arange(len(some)).repeat(width)
    gap = position[drawn[some]][pair] - position[rows][candidates]
    square = np.einsum("ij,ij->i", gap, gap)
    least = np.minimum.reduceat(square, width.cumsum() - width)
    which = (square == least[pair]).nonzero()[0][::-1]  # of equals the first is written last
    parents[some[pair[which]]] = candidates[which]
    parents[some[least >= _H_BOND**2]] = -1
    return parents


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
    return found, features[order]
