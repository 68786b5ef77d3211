"""Features and bonds of pocket atoms, from templates and from where the neighbours are.

Everything is looked up or computed for all atoms at once. What the templates cannot know is taken from
the structure: bonds between residues (peptide, phosphodiester, disulfide, links of the file), drawn
hydrogens, and the handedness of stereocentres. A residue without a template gets its bonds from distances
and covalent radii, of unknown order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import gemmi
import numpy as np
from numpy.typing import NDArray

from ...shards.complex import BOND_ORDERS, CHIRALITIES, HYBRIDISATIONS
from .receptor import Receptor
from .select import residues_of
from .templates import ATOM_FEATURES, BOND_FEATURES, LIBRARY

_SINGLE: Final = BOND_ORDERS.index("single")
_R, _S = CHIRALITIES.index("R"), CHIRALITIES.index("S")
_UNASSIGNED: Final = CHIRALITIES.index("unassigned")
_FLAT: Final = 0.1  # angstrom^3: a smaller volume of three bonds tells no handedness (tetrahedral: about 2.5)
_DISULFIDE: Final = 2.5  # angstrom; the bond is 2.05
_TOLERANCE: Final = 0.45  # angstrom beyond the sum of covalent radii (as in OpenBabel and gemmi)
_RADII: Final = np.array([gemmi.Element(z).covalent_r for z in range(119)], np.float64)
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
    total = int(count.sum())
    offset = np.zeros(len(count), np.int64)
    np.cumsum(count[:-1], out=offset[1:])
    return np.arange(total) + np.repeat(start - offset, count)


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
    local = np.repeat(np.arange(len(residues)), stop - first)
    heavy = s.element[every] > 1
    rows, residue = every[heavy], local[heavy]
    template = receptor.template[residues]
    found = _found(receptor, residues, rows, residue)
    spare = _doubles(s.position[rows], residue, found)
    if len(spare):
        rows, residue, found = (np.delete(column, spare) for column in (rows, residue, found))
    known = found >= 0
    table = LIBRARY.atoms[found]
    columns: dict[str, NDArray[Any]] = {k: table[:, i].copy() for i, k in enumerate(ATOM_FEATURES)}
    columns["charge"] = columns["charge"].view(np.int8)
    columns["element"] = s.element[rows]
    # Charges that the file states come before those of the template.
    columns["charge"] = np.where(s.charge[rows] != 0, s.charge[rows], columns["charge"])

    slot = _slots(template, residue, found, known)
    ends, features = _template_bonds(template, slot)
    columns["chirality"] = _handedness(template, slot, s.position[rows])
    more = _bonds_between(receptor, residues, rows)
    loose = _unknown_bonds(receptor, rows, residue, known)
    extra = np.concatenate([more.inside, loose])
    order = np.concatenate([np.full(len(more.inside), _SINGLE), np.zeros(len(loose), np.int64)])
    plain = np.zeros((len(extra), len(BOND_FEATURES)), np.uint8)
    plain[:, 0] = order
    plain[: len(more.inside), 1] = more.conjugated
    atoms = np.concatenate([ends, extra])
    features = np.concatenate([features, plain])
    degree = np.bincount(np.concatenate([atoms.ravel(), more.outside]), minlength=len(rows))
    columns["degree"] = degree.astype(np.uint8)
    usual = columns["hydrogens"]  # templates do not know of bonds beyond the chain: SG of a disulfide, say
    usual[more.beyond] -= usual[more.beyond] > 0
    atoms, features = _sorted_bonds(atoms, features)
    found_ = PocketAtoms(rows, residues, residue, columns, atoms, _named(features), len(spare))
    if heavy.all():
        return found_
    drawn, owners = every[~heavy], local[~heavy]
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
    ends = (
        atom[LIBRARY.bonds[rows] + np.repeat(base, count)[:, None]]
        if len(rows)
        else np.zeros((0, 2), np.int64)
    )
    both = (ends >= 0).all(axis=1)
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
    four = atom[LIBRARY.centres[rows] + np.repeat(base, count)[:, None]]
    whole = (four >= 0).all(axis=1)
    four, sign = four[whole], LIBRARY.handedness[rows[whole]]
    legs = position[four[:, 1:]] - position[four[:, :1]]
    cross = np.stack([
        legs[:, 1, 1] * legs[:, 2, 2] - legs[:, 1, 2] * legs[:, 2, 1],
        legs[:, 1, 2] * legs[:, 2, 0] - legs[:, 1, 0] * legs[:, 2, 2],
        legs[:, 1, 0] * legs[:, 2, 1] - legs[:, 1, 1] * legs[:, 2, 0],
    ], axis=1)  # fmt: skip
    volume = np.einsum("ij,ij->i", legs[:, 0], cross)
    label = np.where((volume > 0) == (sign > 0), _R, _S)
    found[four[:, 0]] = np.where(np.abs(volume) < _FLAT, _UNASSIGNED, label)
    return found


@dataclass(frozen=True, slots=True, eq=False)
class _Between:
    """Bonds between residues, at least one end in the pocket.

    inside : (k, 2), pocket rows of both ends; conjugated : (k,), 1 for amides
    outside : (j,), the end that is in the pocket of a bond that leaves it
    beyond : pocket rows of the ends of bonds that are not along the chain
    """

    inside: NDArray[np.int64]
    conjugated: NDArray[np.uint8]
    outside: NDArray[np.int64]
    beyond: NDArray[np.int64]


def _bonds_between(receptor: Receptor, residues: NDArray[np.int64], rows: NDArray[np.int64]) -> _Between:
    s = receptor.structure
    place = np.full(s.n_atoms, -1, np.int64)
    place[rows] = np.arange(len(rows))
    touched = np.zeros(s.n_residues, bool)
    touched[residues] = True
    touched[np.maximum(residues - 1, 0)] = True
    near = np.flatnonzero(touched & receptor.joined)
    chain = np.stack([receptor.carbonyl[near], receptor.amide[near + 1]], axis=1) if len(near) else _NONE
    links = _links(receptor)
    other = np.array(links + _disulfides(receptor, rows, links), np.int64).reshape(-1, 2)
    pairs = np.concatenate([chain, other])
    ends = place[pairs]
    here = (ends >= 0).sum(axis=1)
    amide = (s.element[pairs] == 7).any(axis=1)
    amide[len(chain) :] = False
    beyond = ends[len(chain) :]
    return _Between(
        ends[here == 2],
        amide[here == 2].astype(np.uint8),
        ends[here == 1].max(axis=1, initial=-1),
        beyond[beyond >= 0],
    )


_NONE: Final = np.zeros((0, 2), np.int64)


def _links(receptor: Receptor) -> list[tuple[int, int]]:
    """Atoms that covalent links of the file bond, not those of the chain itself."""
    s = receptor.structure
    found = []
    for link in s.links:
        if link.kind in ("metal", "hydrogen"):
            continue
        a, b = residues_of(s, link)
        if a < 0 or b < 0 or a == b or (abs(a - b) == 1 and receptor.joined[min(a, b)]):
            continue
        pair = (atom_of(receptor, a, link.first.atom), atom_of(receptor, b, link.second.atom))
        if min(pair) >= 0 and not (link.kind == "unknown" and _has_metal(receptor, pair)):
            found.append((min(pair), max(pair)))
    return found


def _has_metal(receptor: Receptor, pair: tuple[int, int]) -> bool:
    return any(gemmi.Element(int(receptor.structure.element[i])).is_metal for i in pair)


def atom_of(receptor: Receptor, residue: int, name: str) -> int:
    """Atom of that name in a residue, -1 if there is none."""
    s = receptor.structure
    start, stop = int(s.residue_start[residue]), int(s.residue_start[residue + 1])
    at = np.flatnonzero(s.name[start:stop] == name.encode("latin-1", "replace")[:8])
    return start + int(at[0]) if len(at) else -1


def _disulfides(
    receptor: Receptor, rows: NDArray[np.int64], stated: list[tuple[int, int]]
) -> list[tuple[int, int]]:
    """Sulfur pairs near enough, at least one of them in the pocket, that no link states."""
    s = receptor.structure
    here = rows[s.name.view(np.uint64)[rows] == _SG]
    if not len(here):
        return []
    every = np.flatnonzero(s.name.view(np.uint64) == _SG)
    gap = s.position[here][:, None] - s.position[every][None]
    i, j = np.nonzero(np.einsum("ijk,ijk->ij", gap, gap) < _DISULFIDE**2)
    pairs = {
        (min(a, b), max(a, b)) for a, b in zip(here[i].tolist(), every[j].tolist(), strict=True) if a != b
    }
    return sorted(pairs - set(stated))


_SG: Final = np.frombuffer(b"SG".ljust(8, b"\0"), np.uint64)[0]


def _unknown_bonds(
    receptor: Receptor, rows: NDArray[np.int64], residue: NDArray[np.int64], known: NDArray[np.bool_]
) -> NDArray[np.int64]:
    """Bonds of atoms that no template knows, to atoms of their own residue, by distance."""
    if known.all():
        return _NONE
    s = receptor.structure
    found = []
    for here in np.unique(residue[~known]).tolist():
        atoms = np.flatnonzero(residue == here)
        position = s.position[rows[atoms]]
        radius = _RADII[s.element[rows[atoms]]]
        gap = position[:, None] - position[None]
        near = np.einsum("ijk,ijk->ij", gap, gap) < (radius[:, None] + radius[None] + _TOLERANCE) ** 2
        i, j = np.nonzero(np.triu(near, 1))
        fresh = ~(known[atoms[i]] & known[atoms[j]])
        found.append(np.stack([atoms[i[fresh]], atoms[j[fresh]]], axis=1))
    return np.concatenate(found)


def _parents(
    position: NDArray[np.float64],
    drawn: NDArray[np.int64],
    owner: NDArray[np.int64],
    rows: NDArray[np.int64],
    residue: NDArray[np.int64],
) -> NDArray[np.int64]:
    """Pocket row of the nearest heavy atom in the residue of each drawn hydrogen, -1 if none is near."""
    parents = np.full(len(drawn), -1, np.int64)
    count = np.bincount(residue, minlength=int(owner.max()) + 1)
    start = np.cumsum(count) - count
    some = np.flatnonzero(count[owner] > 0)
    width = count[owner[some]]
    if not len(some):
        return parents
    candidates = ragged(start[owner[some]], width)
    gap = np.repeat(position[drawn[some]], width, axis=0) - position[rows[candidates]]
    square = np.einsum("ij,ij->i", gap, gap)
    least = np.minimum.reduceat(square, np.cumsum(width) - width)
    which = np.flatnonzero(square == np.repeat(least, width))[::-1]  # of equals the first is written last
    parents[some[np.repeat(np.arange(len(some)), width)[which]]] = candidates[which]
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
    element, charge, usual = columns["element"], columns["charge"].copy(), columns["hydrogens"].copy()
    some = np.zeros(n_residues, bool)
    some[residue[drawn > 0]] = True
    carbon = np.zeros(n_residues, bool)
    carbon[residue[(drawn > 0) & (element == 6)]] = True
    counted = some[residue] & (_PROTIC[element] | carbon[residue])
    columns["hydrogens"] = np.where(counted, drawn, usual).astype(np.uint8)
    change = np.where(counted & _PROTIC[element] & known, drawn - usual.astype(np.int64), 0)
    aromatic = (columns["aromatic"] == 1) & (element == 7)
    total = np.bincount(residue[aromatic], change[aromatic], minlength=n_residues)
    settled = aromatic & (total[residue] == 0)
    change[settled] = 0
    gained = aromatic & (total[residue] > 0)
    change[gained & (change < 0)] = 0
    columns["charge"] = np.clip(charge + change, -3, 3).astype(np.int8)


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
    low, high = atoms.min(axis=1, initial=1 << 40), atoms.max(axis=1, initial=0)
    key = (low << 32) | high
    order = np.argsort(key, kind="stable")
    key = key[order]
    fresh = np.ones(len(key), bool)
    fresh[1:] = key[1:] != key[:-1]
    order = order[fresh]
    return np.stack([low[order], high[order]], axis=1), features[order]
