"""Amino acids with ideal coordinates, and short peptides built from them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ..read.components import component
from .ligand import CONTACT_RADII

Floats = NDArray[np.float64]

# Standard geometry of the peptide bond: Engh and Huber, Acta Cryst. 1991, A47, 392; angstrom and degrees.
C_N, N_CA, CA_C, C_O = 1.329, 1.458, 1.525, 1.231
CA_C_N, C_N_CA, N_CA_C, CA_C_O = 116.6, 121.7, 111.0, 120.1
_NOT_IN_A_CHAIN: Final = frozenset({"OXT", "HXT", "H2"})
# The dictionary draws acids neutral and histidine doubly protonated; at pH 7 these hydrogens are gone.
_NOT_AT_PH_7: Final = frozenset({("ASP", "HD2"), ("GLU", "HE2"), ("HIS", "HE2")})
_SYMBOLS: Final = {1: "H", 6: "C", 7: "N", 8: "O", 16: "S"}
_SIDE_CHAIN_FROM: Final = 4  # N, CA, C, O come first in every template


@dataclass(frozen=True, slots=True, eq=False)
class Template:
    """One amino acid in a chain at pH 7: N, CA, C, O, the side chain's heavy atoms, then hydrogens."""

    name: str
    names: tuple[str, ...]
    elements: tuple[str, ...]
    position: Floats  # (n, 3), angstrom
    n_heavy: int


@dataclass(frozen=True, slots=True, eq=False)
class Peptide:
    """A few residues in a row, extended.

    Attributes
    ----------
    residues : their templates
    position : float64 (n, 3), angstrom
    residue : int (n,), which residue an atom belongs to
    heavy : bool (n,)
    radius : float64 (n,), contact radii, angstrom
    """

    residues: tuple[Template, ...]
    position: Floats
    residue: NDArray[np.int64]
    heavy: NDArray[np.bool_]
    radius: Floats


@lru_cache(maxsize=32)
def template(name: str) -> Template:
    """Ideal coordinates of the Chemical Component Dictionary."""
    entry = component(name)
    if entry is None:
        raise AssertionError(f"{name} is not in the Chemical Component Dictionary")
    first = {"N": 0, "CA": 1, "C": 2, "O": 3}
    rows = [
        k for k, atom in enumerate(entry.atom_names)
        if atom not in _NOT_IN_A_CHAIN and (name, atom) not in _NOT_AT_PH_7
        and not (name == "PRO" and atom == "H")
    ]  # fmt: skip
    rows.sort(key=lambda k: (bool(entry.element[k] == 1), first.get(entry.atom_names[k], len(first))))
    return Template(
        name=name,
        names=tuple(entry.atom_names[k] for k in rows),
        elements=tuple(_SYMBOLS[int(entry.element[k])] for k in rows),
        position=np.asarray(np.round(entry.ideal[rows].astype(np.float64), 3), dtype=np.float64),
        n_heavy=int((entry.element[rows] > 1).sum()),
    )


def peptide(names: tuple[str, ...], phi_psi: Floats) -> Peptide:
    """Join residues by ideal peptide bonds, trans.

    Parameters
    ----------
    names : three-letter names
    phi_psi : shape (len(names), 2), degrees; the first phi and the last psi are not used
    """
    residues = tuple(template(n) for n in names)
    placed = [residues[0].position.copy()]
    for k, residue in enumerate(residues[1:], start=1):
        before = placed[-1]
        psi, phi = phi_psi[k - 1, 1], phi_psi[k, 0]
        n, ca, c = before[0], before[1], before[2]
        before[3] = _extend(n, ca, c, C_O, CA_C_O, psi + 180.0)
        n1 = _extend(n, ca, c, C_N, CA_C_N, psi)
        ca1 = _extend(ca, c, n1, N_CA, C_N_CA, 180.0)
        c1 = _extend(c, n1, ca1, CA_C, N_CA_C, phi)
        moved = _superpose(residue.position, np.stack([n1, ca1, c1]))
        if "H" in residue.names:  # the amide hydrogen lies in the peptide plane, away from both carbons
            away = _unit(n1 - c) + _unit(n1 - ca1)
            moved[residue.names.index("H")] = n1 + 1.01 * _unit(away)
        placed.append(moved)
    elements = [e for r in residues for e in r.elements]
    return Peptide(
        residues=residues,
        position=np.concatenate(placed),
        residue=np.repeat(np.arange(len(residues)), [len(r.names) for r in residues]),
        heavy=np.array([e != "H" for e in elements]),
        radius=np.array([CONTACT_RADII.get(e, 1.0) for e in elements]),
    )


def facing(built: Peptide, k: int, *, backbone: bool) -> tuple[Floats, Floats]:
    """Tip and direction in which residue k reaches out: its side chain, or its carbonyl oxygen."""
    atoms = built.position[(built.residue == k) & built.heavy]
    ca = atoms[1]
    if backbone or len(atoms) == _SIDE_CHAIN_FROM:
        return atoms[3], _unit(atoms[3] - atoms[2])
    side = atoms[_SIDE_CHAIN_FROM:]
    tip = side[np.argmax(((side - ca) ** 2).sum(axis=1))]
    return tip, _unit(side.mean(axis=0) - ca)


def strained(built: Peptide, closest: float = 2.9) -> bool:
    """True if atoms of neighbouring residues that are no near neighbours by bonds come too close."""
    rows = np.flatnonzero(built.heavy)
    names = [name for r in built.residues for name in r.names]
    residue, position = built.residue[rows], built.position[rows]
    link = np.array([names[r] in ("N", "CA", "C", "O") for r in rows])
    distance = np.linalg.norm(position[:, None] - position[None], axis=-1)
    apart = (residue[:, None] != residue[None]) & ~(link[:, None] & link[None])
    # CB is two bonds from the neighbour's carbonyl or amide, so it may come nearer than contact
    near = np.array([names[r] == "CB" or (names[r] == "CD") for r in rows])
    apart &= ~((near[:, None] & link[None]) | (link[:, None] & near[None]))
    return bool((distance[apart] < closest).any())


def rotation_to(source: Floats, goal: Floats, roll: float) -> Floats:
    """A rotation matrix that takes unit vector source to goal, then turns by roll (radian) about goal."""
    v, c = np.cross(source, goal), float(source @ goal)
    if c < -0.999999:  # opposite: half a turn about any axis across
        axis = _unit(np.cross(source, np.eye(3)[np.argmin(np.abs(source))]))
        turn = 2.0 * np.outer(axis, axis) - np.eye(3)
    else:
        k = _cross_matrix(v)
        turn = np.eye(3) + k + k @ k / (1.0 + c)
    return np.asarray(rotation_about(goal, roll) @ turn)


def rotation_about(axis: Floats, angle: float) -> Floats:
    """Rodrigues' rotation by an angle in radian about a unit vector."""
    k = _cross_matrix(axis)
    return np.asarray(np.eye(3) + np.sin(angle) * k + (1.0 - np.cos(angle)) * (k @ k))


def random_rotation(rng: np.random.Generator) -> Floats:
    """Uniform over rotations: a random unit quaternion (Shoemake, Graphics Gems III, 1992)."""
    w, x, y, z = _unit(rng.normal(size=4))
    return np.array([
        [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
        [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
        [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
    ])  # fmt: skip


def _extend(a: Floats, b: Floats, c: Floats, length: float, angle: float, dihedral: float) -> Floats:
    """The point at this distance from c, angle at c, dihedral about b-c (Parsons et al. 2005, NeRF)."""
    theta, chi = np.radians(angle), np.radians(dihedral)
    bc = _unit(c - b)
    normal = _unit(np.cross(b - a, bc))
    across = np.cross(normal, bc)
    local = (-np.cos(theta), np.sin(theta) * np.cos(chi), np.sin(theta) * np.sin(chi))
    return np.asarray(c + length * (local[0] * bc + local[1] * across + local[2] * normal))


def _superpose(position: Floats, backbone: Floats) -> Floats:
    """Move a template so that its N, CA, C plane falls on the given one, CA on CA."""
    source, goal = _frame(position[:3]), _frame(backbone)
    moved: Floats = (position - position[1]) @ (goal.T @ source).T + backbone[1]
    moved[0], moved[2] = backbone[0], backbone[2]
    return moved


def _frame(backbone: Floats) -> Floats:
    x = _unit(backbone[2] - backbone[1])
    z = _unit(np.cross(x, backbone[0] - backbone[1]))
    return np.stack([x, np.cross(z, x), z])


def _unit(v: Floats) -> Floats:
    return np.asarray(v / np.linalg.norm(v))


def _cross_matrix(v: Floats) -> Floats:
    return np.array([[0.0, -v[2], v[1]], [v[2], 0.0, -v[0]], [-v[1], v[0], 0.0]])
