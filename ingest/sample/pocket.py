"""Targets, and how a target's pocket closes around a ligand.

A target is a fixed list of short peptides, each with the side from which it comes and the residue it turns
to the ligand. For one ligand the peptides slide in, one after the other, along their directions until
they touch the ligand or each other, then rest near there: the sequence and arrangement stay, the fit is
induced. So no two atoms are nearer than the sum of their contact radii, by construction.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from .ligand import CONTACT_RADII, N_CORES, Ligand
from .residue import Peptide, facing, peptide, rotation_about, rotation_to, strained

Floats = NDArray[np.float64]

_STREAM: Final = 2
_CORES_PER_TARGET: Final = 4
_STARTS: Final = 5  # turns of each segment, of which the one that comes deepest counts
_JITTER: Final = 0.7  # angstrom, of a segment's start from one complex of a target to the next
PACKING: Final = 0.9  # contact radii within the protein, of those between ligand and protein
_POSES: Final = 6  # orientations of a ligand that are compared

APOLAR: Final = ("ALA", "ILE", "LEU", "MET", "PHE", "PRO", "TRP", "VAL", "LEU", "PHE", "VAL", "CYS")
POLAR: Final = ("ASN", "GLN", "SER", "THR", "TYR", "HIS", "GLY", "SER", "ASN", "TYR")
CHARGED: Final = ("ARG", "LYS", "ASP", "GLU")
IONS: Final = ("ZN", "MG", "NA", "CL")


@dataclass(frozen=True, slots=True, eq=False)
class Segment:
    """A peptide of a target, its facing tip at the origin.

    Attributes
    ----------
    peptide : its residues
    starts : float64 (starts, n_atoms, 3), ways it may come in, its facing tip at the origin, angstrom
    outward : unit vector from the ligand's axis towards where it comes from
    height : where along the ligand's axis it aims, in half lengths of the ligand
    face : 1 if it turns N or O to the ligand, -1 if carbon or sulphur
    chain, number, insertion : of each residue
    b_factor : float64 (n_atoms,), angstrom^2
    """

    peptide: Peptide
    starts: Floats
    outward: Floats
    height: float
    face: float
    chain: str
    number: tuple[int, ...]
    insertion: tuple[str, ...]
    b_factor: Floats


@dataclass(frozen=True, slots=True, eq=False)
class Target:
    """What all complexes of a target share."""

    name: str
    segments: tuple[Segment, ...]
    cores: tuple[int, ...]  # scaffolds of the ligands it is tried with


@dataclass(frozen=True, slots=True, eq=False)
class Pose:
    """A ligand in its pocket, in the frame of the ligand's axis; positions in angstrom.

    Attributes
    ----------
    ligand : float64 (n_ligand_atoms, 3), hydrogens included
    segments : one float64 (n_atoms, 3) for each segment of the target
    waters : float64 (n_waters, 3)
    ion : float64 (0 or 1, 3)
    """

    ligand: Floats
    segments: tuple[Floats, ...]
    waters: Floats
    ion: Floats


@lru_cache(maxsize=64)
def target(seed: int, index: int) -> Target:
    """The target of this number; the same for every call."""
    rng = np.random.default_rng([seed, _STREAM, index])
    cores = tuple(int(c) for c in rng.choice(N_CORES, _CORES_PER_TARGET, replace=False))
    apolar, width = rng.uniform(0.25, 0.75), rng.uniform(0.6, 1.0)
    n_shell = int(rng.integers(9, 19))
    # Around the axis evenly with jitter; `width` leaves a side open to solvent.
    azimuth = 2 * np.pi * width * (rng.permutation(n_shell) + rng.uniform(-0.3, 0.3, n_shell)) / n_shell
    height = rng.uniform(-0.9, 0.9, n_shell)
    outward = [np.array([np.cos(a), np.sin(a), 0.25 * rng.normal()]) for a in azimuth]
    outward[:0] = [np.array([0.3, 0.2, 1.0]), np.array([-0.2, 0.3, -1.0])]
    heights = [0.6, -0.6, *height]
    for _ in range(int(rng.integers(1, 4))):  # residues behind, to fill holes and the second shell
        outward.append(rng.normal(size=3))
        heights.append(0.0)
    n_chains = 2 if rng.random() < 0.25 else 1
    number, segments = int(rng.integers(8, 90)), []
    for k, (direction, aim) in enumerate(zip(outward, heights, strict=True)):
        chain = "AB"[k * n_chains // len(outward)]
        segments.append(_segment(rng, apolar, direction / np.linalg.norm(direction), aim, chain, number))
        number = segments[-1].number[-1] + int(rng.integers(2, 40))
    return Target(f"T{index:05d}", tuple(segments), cores)


def _segment(
    rng: np.random.Generator, apolar: float, outward: Floats, height: float, chain: str, number: int
) -> Segment:
    length = int(rng.choice((1, 2, 3), p=(0.7, 0.22, 0.08)))
    while True:
        names = tuple(_amino_acid(rng, apolar) for _ in range(length))
        angles = np.stack([rng.normal(-115, 20, length), rng.normal(135, 20, length)], axis=1)
        angles[[n == "PRO" for n in names], 0] = -65.0
        built = peptide(names, angles)
        if not strained(built):
            break
    k = int(rng.integers(length))
    tip, reach = facing(built, k, backbone=rng.random() < 0.2)
    # Not all point straight at the ligand: most line the pocket with their sides.
    lean = -outward + rng.uniform(0.0, 2.0) * np.cross(outward, _direction(rng))
    turn = rotation_to(reach, lean / np.linalg.norm(lean), rng.uniform(0, 2 * np.pi))
    position = (built.position - tip) @ turn.T
    rolls = [rotation_about(outward, rng.normal(0.0, 0.6)) for _ in range(_STARTS)]
    at_tip = int(np.argmin((position**2).sum(axis=1)))
    symbol = [e for r in built.residues for e in r.elements][at_tip]
    numbers, insertions = _numbering(rng, number, length)
    return Segment(
        peptide=built,
        starts=np.stack([position @ roll.T for roll in rolls]),
        outward=outward,
        height=height,
        face=1.0 if symbol in ("N", "O") else -1.0,
        chain=chain,
        number=numbers,
        insertion=insertions,
        b_factor=np.round(rng.uniform(12, 40) + rng.gamma(2.0, 3.0, len(position)), 2),
    )


def _amino_acid(rng: np.random.Generator, apolar: float) -> str:
    draw = rng.random()
    kind = APOLAR if draw < apolar else POLAR if draw < apolar + 0.6 * (1 - apolar) else CHARGED
    return kind[rng.integers(len(kind))]


def _numbering(rng: np.random.Generator, number: int, length: int) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Consecutive numbers, or now and then one number with insertion codes."""
    if length > 1 and rng.random() < 0.05:
        return (number,) * length, tuple("ABC"[k - 1] if k else "" for k in range(length))
    return tuple(range(number, number + length)), ("",) * length


def pose(goal: Target, ligands: tuple[Ligand, ...], rng: np.random.Generator) -> tuple[Pose, ...]:
    """Close one pocket around each of these ligands at once; usually there is one.

    Several ligands share the protein, as in a series of docked or superposed ligands: the pocket is moulded
    on all of them together.
    """
    looseness = rng.uniform(0.0, 1.0)
    placed = [_orient(goal, mol, rng) for mol in ligands]
    obstacles = np.concatenate([p[: m.n_heavy] for p, m in zip(placed, ligands, strict=True)])
    radii = np.concatenate([m.radius for m in ligands])
    half = float(np.abs(obstacles[:, 2]).max())
    segments = []
    for segment in goal.segments:
        atoms = _deepest(segment, half, obstacles, radii, rng)
        gap = abs(rng.normal(0.0, 0.12)) + (rng.uniform(0.3, 2.5) if rng.random() < 0.6 * looseness else 0.0)
        segments.append(atoms + gap * segment.outward)
        heavy = segment.peptide.heavy
        obstacles = np.concatenate([obstacles, segments[-1][heavy]])
        radii = np.concatenate([radii, PACKING * segment.peptide.radius[heavy]])
    waters, ion = _solvent(rng, obstacles, radii)
    return tuple(Pose(p, tuple(segments), waters, ion) for p in placed)


def _orient(goal: Target, mol: Ligand, rng: np.random.Generator) -> Floats:
    """Lay the ligand along z, turned so that it matches the pocket well or badly, by chance."""
    heavy = mol.position[: mol.n_heavy]
    _, _, axes = np.linalg.svd(heavy, full_matrices=False)
    lying = mol.position @ rotation_to(axes[0], np.array([0.0, 0.0, 1.0]), 0.0).T
    turns = []
    for _ in range(_POSES):
        flip = np.diag([1.0, -1.0, -1.0]) if rng.random() < 0.5 else np.eye(3)
        tilt = rotation_about(_direction(rng), rng.normal(0.0, 0.15))
        turns.append(tilt @ rotation_about(np.array([0.0, 0.0, 1.0]), rng.uniform(0, 2 * np.pi)) @ flip)
    matches = [_match(goal, lying[: mol.n_heavy] @ turn.T, mol.polarity) for turn in turns]
    chosen = np.argsort(matches)[int(rng.integers(_POSES))]
    return np.asarray(lying @ turns[chosen].T)


def _match(goal: Target, heavy: Floats, polarity: Floats) -> float:
    """How often a segment meets an atom of its own polarity, between -1 and 1."""
    half = np.abs(heavy[:, 2]).max()
    outward = np.stack([s.outward for s in goal.segments])  # (segments, 3)
    aim = np.array([[0.0, 0.0, s.height * half] for s in goal.segments])
    away = heavy[None] - aim[:, None]  # (segments, atoms, 3)
    along = np.einsum("sad,sd->sa", away, outward)
    aside = np.sqrt(np.maximum((away**2).sum(axis=-1) - along**2, 0.0))
    met = np.argmax(along - 1.5 * aside, axis=1)
    return float(np.mean(polarity[met] * np.array([s.face for s in goal.segments])))


def _deepest(
    segment: Segment, half: float, obstacles: Floats, radii: Floats, rng: np.random.Generator
) -> Floats:
    """The segment's atoms after sliding in, from the start that comes deepest."""
    aim = np.array([0.0, 0.0, segment.height * half])
    starts = segment.starts + (aim + rng.normal(0.0, _JITTER, (len(segment.starts), 3)))[:, None]
    heavy = starts[:, segment.peptide.heavy]
    stops = _slide(heavy, segment.peptide.radius[segment.peptide.heavy], segment.outward, obstacles, radii)
    best = int(np.argmin(heavy.mean(axis=1) @ segment.outward + stops))
    return np.asarray(starts[best] + stops[best] * segment.outward)


def _slide(atoms: Floats, radius: Floats, outward: Floats, obstacles: Floats, radii: Floats) -> Floats:
    """Shift along ``outward`` at which groups of atoms coming in from afar first touch an obstacle.

    Solves |atom + t * outward - obstacle| = sum of radii for every pair; the largest root is the first touch.
    Shapes are (groups, n, 3) and (groups,); a group that touches nothing stays 6 angstrom outside.
    """
    # Squares by products of matrices, since this is where the time goes.
    groups = len(atoms)
    flat = atoms.reshape(-1, 3)
    along = (flat @ outward)[:, None] - obstacles @ outward
    square = (flat**2).sum(axis=1)[:, None] + (obstacles**2).sum(axis=1) - 2.0 * (flat @ obstacles.T)
    root = along**2 - square + np.tile((radius[:, None] + radii) ** 2, (groups, 1))
    shift = np.where(root > 0.0, np.sqrt(np.maximum(root, 0.0)) - along, -np.inf)
    first = shift.reshape(groups, -1).max(axis=1)
    return np.where(np.isfinite(first), first, 6.0)


def _solvent(rng: np.random.Generator, obstacles: Floats, radii: Floats) -> tuple[Floats, Floats]:
    """A few waters in contact with the complex, and now and then an ion."""
    n_waters, n_ions = int(rng.integers(0, 5)), int(rng.random() < 0.15)
    placed = np.zeros((0, 3))
    for _ in range(n_waters + n_ions):
        outward = _direction(rng)
        start = (outward + rng.normal(0.0, 1.5, 3))[None]
        size = np.array([CONTACT_RADII["O"]])
        found = start + _slide(start[None], size, outward, obstacles, radii) * outward
        placed = np.concatenate([placed, found])
        obstacles, radii = np.concatenate([obstacles, found]), np.concatenate([radii, size])
    return placed[:n_waters], placed[n_waters:]


def _direction(rng: np.random.Generator) -> Floats:
    v = rng.normal(size=3)
    return np.asarray(v / np.linalg.norm(v))
