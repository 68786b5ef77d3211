"""Bonds that no template has: between residues, and of atoms that no template knows.

Along the chain by the atoms that a receptor has found joined, elsewhere by the links of the file and by
sulfurs near each other; within an unknown residue by distances and covalent radii.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import gemmi
import numpy as np
from numpy.typing import NDArray

from .receptor import Receptor
from .select import residues_of

_DISULFIDE: Final = 2.5  # angstrom; the bond is 2.05
_TOLERANCE: Final = 0.45  # angstrom beyond the sum of covalent radii (as in OpenBabel and gemmi)
_RADII: Final = np.array([gemmi.Element(z).covalent_r for z in range(119)], np.float64)
NO_BONDS: Final = np.zeros((0, 2), np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class Between:
    """Bonds between residues, at least one end in the pocket.

    inside : (k, 2), pocket rows of both ends; conjugated : (k,), 1 for amides
    outside : (j,), the end that is in the pocket of a bond that leaves it
    beyond : pocket rows of the ends of bonds that are not along the chain
    """

    inside: NDArray[np.int64]
    conjugated: NDArray[np.uint8]
    outside: NDArray[np.int64]
    beyond: NDArray[np.int64]


def bonds_between(receptor: Receptor, residues: NDArray[np.int64], rows: NDArray[np.int64]) -> Between:
    """Bonds of a pocket's residues with others, in the pocket or beside it.

    Parameters
    ----------
    residues, rows : the pocket's residues, ascending, and its heavy atoms
    """
    s = receptor.structure
    place = np.full(s.n_atoms, -1, np.int64)
    place[rows] = np.arange(len(rows))
    touched = np.zeros(s.n_residues, bool)
    touched[residues] = True
    touched[np.maximum(residues - 1, 0)] = True
    near = (touched & receptor.joined).nonzero()[0]
    chain = np.empty((len(near), 2), np.int64)
    chain[:, 0], chain[:, 1] = receptor.carbonyl[near], receptor.amide[near + 1]
    links = _links(receptor)
    other = links + _disulfides(receptor, rows, links)
    pairs = np.concatenate([chain, np.array(other, np.int64)]) if other else chain
    ends = place[pairs]
    low, high = np.minimum(ends[:, 0], ends[:, 1]), np.maximum(ends[:, 0], ends[:, 1])
    inside = (low >= 0).nonzero()[0]
    amide = (s.element[pairs[inside]] == 7).any(axis=1).view(np.uint8)
    amide[inside >= len(chain)] = 0
    beyond = ends[len(chain) :]
    return Between(ends[inside], amide, high[(low < 0) & (high >= 0)], beyond[beyond >= 0])


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
    names = s.name.view(np.uint64)
    here = rows[names[rows] == _SG]
    if not len(here):
        return []
    every = (names == _SG).nonzero()[0]
    gap = s.position[here][:, None] - s.position[every][None]
    i, j = np.nonzero(np.einsum("ijk,ijk->ij", gap, gap) < _DISULFIDE**2)
    pairs = {
        (min(a, b), max(a, b)) for a, b in zip(here[i].tolist(), every[j].tolist(), strict=True) if a != b
    }
    return sorted(pairs - set(stated))


_SG: Final = np.frombuffer(b"SG".ljust(8, b"\0"), np.uint64)[0]


def unknown_bonds(
    receptor: Receptor, rows: NDArray[np.int64], residue: NDArray[np.int64], known: NDArray[np.bool_]
) -> NDArray[np.int64]:
    """Bonds of atoms that no template knows, to atoms of their own residue, by distance."""
    if known.all():
        return NO_BONDS
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
