"""The pocket: whole residues with any heavy atom within a radius of any heavy atom of the ligand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import gemmi
import numpy as np
from numpy.typing import NDArray

from ...shards.errors import StructureError
from ..kernel import kernel
from .receptor import Receptor
from .templates import ROLE

# A residue is a copy of the ligand if this share of its heavy atoms lies this near a ligand atom of the same
# element. A clashing pose comes near a few atoms of a side chain, never nearly all of a residue, element by
# element.
_COPY_DISTANCE: Final = 0.5  # angstrom
_COPY_SHARE: Final = 0.8
# The ligand of the crystal left in the file beside a docked pose of it: no polymer, no single atom, and half
# of it where no two molecules can be at once.
_OVERLAP_DISTANCE: Final = 1.2  # angstrom
_OVERLAP_SHARE: Final = 0.5
# A metal this far or farther is coordinated, no clash: zinc and its like have their donors at 1.9 to 2.3
# angstrom, few metals nearer than 1.8 (Harding, Acta Crystallogr. D 62 (2006) 678).
_COORDINATED: Final = 1.6  # angstrom
_METAL: Final = np.array([gemmi.Element(z).is_metal if z < 119 else False for z in range(256)])


@dataclass(frozen=True, slots=True, eq=False)
class Pocket:
    """Residues around a ligand.

    Attributes
    ----------
    residues : int64, rows in the receptor's residue table, ascending
    copies : int64, residues left out because they are the ligand once more
    nearest : angstrom between the nearest heavy atoms of ligand and pocket, those of bonds and of metals that
        the ligand may coordinate left out
    """

    residues: NDArray[np.int64]
    copies: NDArray[np.int64]
    nearest: float


def find_pocket(
    receptor: Receptor,
    position: NDArray[np.float64],
    element: NDArray[np.uint8],
    radius: float,
    *,
    own: NDArray[np.int64] | None = None,
    waters: bool = False,
    bonded: Sequence[int] = (),
) -> Pocket:
    """Whole residues near a ligand, found by its bounding box and then by every distance.

    Parameters
    ----------
    position, element : of the ligand's heavy atoms, shapes (n, 3) and (n,)
    radius : angstrom
    own : residues that are the ligand itself, never part of its pocket
    waters : take waters in, too
    bonded : atoms of the structure that are bonded to the ligand, which may come nearer than others

    Raises
    ------
    StructureError
        ``pocket_empty``.
    """
    s = receptor.structure
    skip = receptor.role == ROLE["water"] if not waters else np.zeros(s.n_residues, bool)
    if own is not None:
        skip[own] = True
    atoms, near, nearest = _around(s.position, s.element, s.residue, skip, position, radius)
    residue = s.residue[atoms]
    copies = np.zeros(0, np.int64)
    if len(atoms) and nearest.min() < _OVERLAP_DISTANCE**2:
        copies = _copies(receptor, atoms, near, nearest, element)
        nearest = np.where(np.isin(residue, copies), np.inf, nearest)
    close = nearest <= radius * radius
    found = np.zeros(s.n_residues, bool)
    found[residue[close]] = True
    residues = found.nonzero()[0]
    if not len(residues):
        raise StructureError("pocket_empty", f"no residue within {radius:g} angstrom of the ligand")
    free = nearest if not len(bonded) else np.where(np.isin(atoms, bonded), np.inf, nearest)
    free = np.where(_METAL.take(s.element.take(atoms)) & (nearest > _COORDINATED**2), np.inf, free)
    return Pocket(residues, copies, float(np.sqrt(free.min())))


@kernel
def _around(
    position: NDArray[np.float64],
    element: NDArray[np.uint8],
    residue: NDArray[np.int32],
    skip: NDArray[np.bool_],
    ligand: NDArray[np.float64],
    radius: float,
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """Heavy atoms of a structure, but for residues to skip, in the box of the ligand with a margin; for each
    the nearest atom of the ligand, and the square of its distance.
    """
    low, high = np.empty(3), np.empty(3)
    for axis in range(3):
        low[axis], high[axis] = ligand[:, axis].min() - radius, ligand[:, axis].max() + radius
    atoms, places, n = np.empty(len(position), np.int64), np.empty((3, len(position))), 0
    for i in range(len(position)):
        x, y, z = position[i, 0], position[i, 1], position[i, 2]
        within = low[0] <= x <= high[0] and low[1] <= y <= high[1] and low[2] <= z <= high[2]
        if within and element[i] > 1 and not skip[residue[i]]:
            atoms[n], places[0, n], places[1, n], places[2, n] = i, x, y, z
            n += 1
    near, nearest = np.zeros(n, np.int64), np.full(n, np.inf)
    xs, ys, zs = places[0], places[1], places[2]
    for j in range(len(ligand)):  # outside, so that several atoms are measured at once
        x, y, z = ligand[j, 0], ligand[j, 1], ligand[j, 2]
        for k in range(n):
            square = (xs[k] - x) ** 2 + (ys[k] - y) ** 2 + (zs[k] - z) ** 2
            closer = square < nearest[k]
            near[k] = j if closer else near[k]
            nearest[k] = square if closer else nearest[k]
    return atoms[:n].copy(), near, nearest


def _copies(
    receptor: Receptor,
    atoms: NDArray[np.int64],
    near: NDArray[np.int64],
    nearest: NDArray[np.float64],
    element: NDArray[np.uint8],
) -> NDArray[np.int64]:
    """Residues that are the ligand once more, by the rules at the top of this file."""
    s = receptor.structure
    n = s.n_residues
    residue = s.residue[atoms]
    total = np.bincount(s.residue[s.element > 1], minlength=n)
    same = (nearest < _COPY_DISTANCE**2) & (s.element[atoms] == element[near])
    matched = np.bincount(residue[same], minlength=n)
    overlapped = np.bincount(residue[nearest < _OVERLAP_DISTANCE**2], minlength=n)
    least = np.where(receptor.polymer, 4, 1)
    copy = (matched >= least) & (matched >= _COPY_SHARE * total)
    loose = ~receptor.polymer & (total > 1)
    copy |= loose & (overlapped >= np.maximum(_OVERLAP_SHARE * total, 2))
    return np.flatnonzero(copy)
