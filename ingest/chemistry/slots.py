"""Pocket atoms in the slots of their templates, and what the templates say of them: loops over atoms.

A slot is an atom of the template of one residue of the pocket; the slots of a residue follow those of the
one before.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..kernel import kernel


@kernel
def heavy_and_drawn(
    residues: NDArray[np.int64], start: NDArray[np.int64], element: NDArray[np.uint8]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Heavy atoms of residues and the place of their residue among these; the same of drawn hydrogens.

    Parameters
    ----------
    residues : rows of a structure's residue table; start, element : of the structure
    """
    n = 0
    for r in residues:
        n += start[r + 1] - start[r]
    rows, residue = np.empty(n, np.int64), np.empty(n, np.int64)
    drawn, owner = np.empty(n, np.int64), np.empty(n, np.int64)
    heavy = light = 0
    for k in range(len(residues)):
        for atom in range(start[residues[k]], start[residues[k] + 1]):
            if element[atom] > 1:
                rows[heavy], residue[heavy] = atom, k
                heavy += 1
            else:
                drawn[light], owner[light] = atom, k
                light += 1
    return rows[:heavy], residue[:heavy], drawn[:light], owner[:light]


@kernel
def fill(
    template: NDArray[np.int64],
    residue: NDArray[np.int64],
    found: NDArray[np.int64],
    atom_start: NDArray[np.int64],
) -> tuple[NDArray[np.int64], NDArray[np.int64], bool]:
    """First slot of each residue, the pocket atom in each slot or -1, whether two atoms fell in one slot.

    Parameters
    ----------
    template : of each residue; atom_start : first atom of each template
    residue, found : residue of each atom, and its row in the templates' atoms or -1
    """  # fmt: skip
    base = np.empty(len(template), np.int64)
    n = 0
    for k in range(len(template)):
        base[k] = n
        n += atom_start[template[k] + 1] - atom_start[template[k]]
    atom = np.full(n, -1, np.int64)
    twice = False
    for i in range(len(found)):
        if found[i] >= 0:
            slot = base[residue[i]] + found[i] - atom_start[template[residue[i]]]
            twice |= atom[slot] >= 0
            atom[slot] = i
    return base, atom, twice


@kernel
def bonds_within(
    template: NDArray[np.int64],
    base: NDArray[np.int64],
    atom: NDArray[np.int64],
    bond_start: NDArray[np.int64],
    bonds: NDArray[np.int64],
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Both ends of each bond of the templates whose atoms are there, and its row in the templates' bonds.

    Parameters
    ----------
    base, atom : from :func:`fill`; bond_start, bonds : of the templates
    """  # fmt: skip
    n = 0
    for t in template:
        n += bond_start[t + 1] - bond_start[t]
    ends, rows = np.empty((n, 2), np.int64), np.empty(n, np.int64)
    n = 0
    for k in range(len(template)):
        for row in range(bond_start[template[k]], bond_start[template[k] + 1]):
            first, second = atom[base[k] + bonds[row, 0]], atom[base[k] + bonds[row, 1]]
            if first >= 0 and second >= 0:
                ends[n, 0], ends[n, 1], rows[n] = first, second, row
                n += 1
    return ends[:n], rows[:n]


@kernel
def volumes(
    template: NDArray[np.int64],
    base: NDArray[np.int64],
    atom: NDArray[np.int64],
    centre_start: NDArray[np.int64],
    centres: NDArray[np.int64],
    rows: NDArray[np.int64],
    position: NDArray[np.float64],
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """The templates' stereocentres with all their atoms there: the atom, the centre's row in the templates'
    centres, and the triple product of its first three bonds in cubic angstrom.

    Parameters
    ----------
    base, atom : from :func:`fill`; centre_start, centres : of the templates
    rows, position : structure atom of each pocket atom, and coordinates of the structure
    """  # fmt: skip
    n = 0
    for t in template:
        n += centre_start[t + 1] - centre_start[t]
    at, which, volume = np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n)
    n = 0
    legs = np.empty((3, 3))
    for k in range(len(template)):
        for row in range(centre_start[template[k]], centre_start[template[k] + 1]):
            centre = atom[base[k] + centres[row, 0]]
            whole = centre >= 0
            for leg in range(3):
                end = atom[base[k] + centres[row, 1 + leg]]
                whole &= end >= 0
                if whole:
                    for axis in range(3):
                        legs[leg, axis] = position[rows[end], axis] - position[rows[centre], axis]
            if whole:
                a, b, c = legs[0], legs[1], legs[2]
                at[n], which[n] = centre, row
                volume[n] = (
                    a[0] * (b[1] * c[2] - b[2] * c[1])
                    + a[1] * (b[2] * c[0] - b[0] * c[2])
                    + a[2] * (b[0] * c[1] - b[1] * c[0])
                )
                n += 1
    return at[:n], which[:n], volume[:n]


@kernel
def parents(
    drawn: NDArray[np.int64],
    owner: NDArray[np.int64],
    rows: NDArray[np.int64],
    residue: NDArray[np.int64],
    position: NDArray[np.float64],
    reach: float,
) -> NDArray[np.int64]:
    """Pocket row of the nearest heavy atom in the residue of each drawn hydrogen, -1 if none is near.

    Parameters
    ----------
    drawn, owner, rows, residue : from :func:`heavy_and_drawn`
    reach : angstrom
    """  # fmt: skip
    found = np.full(len(drawn), -1, np.int64)
    first = 0
    for i in range(len(drawn)):
        while first < len(rows) and residue[first] < owner[i]:
            first += 1
        least = reach * reach
        k = first
        while k < len(rows) and residue[k] == owner[i]:
            square = 0.0
            for axis in range(3):
                square += (position[drawn[i], axis] - position[rows[k], axis]) ** 2
            if square < least:
                least, found[i] = square, k
            k += 1
    return found
