"""Aromatic bonds as alternating single and double ones, for file formats that want them so.

The hydrogens of each atom are known, so which atoms still need a double bond follows from their usual
valence; the double bonds are a perfect matching of these atoms along aromatic bonds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ..complex import BOND_ORDERS

SINGLE, DOUBLE, AROMATIC = (BOND_ORDERS.index(o) for o in ("single", "double", "aromatic"))
VALUE: Final = {BOND_ORDERS.index(o): v for o, v in (("single", 1), ("double", 2), ("triple", 3))}
# Usual valence of the neutral atom; a charge changes it as in the element beside it in the periodic table.
VALENCE: Final = {5: 3, 6: 4, 7: 3, 8: 2, 15: 3, 16: 2, 33: 3, 34: 2, 52: 2}
GROUP_4: Final = (6, 14)


def kekulise(
    bonds: NDArray[np.integer],
    orders: NDArray[np.uint8],
    elements: NDArray[np.uint8],
    charges: NDArray[np.int8],
    hydrogens: NDArray[np.uint8],
) -> NDArray[np.uint8] | None:
    """Return orders, shape (m,), without an aromatic one; None if no choice of double bonds fits."""
    aromatic = np.flatnonzero(orders == AROMATIC)
    if not len(aromatic):
        return orders
    bonded = np.zeros(len(elements), np.int64)
    for (i, j), order in zip(bonds.tolist(), orders.tolist(), strict=True):
        bonded[[i, j]] += VALUE.get(order, 1 if order == AROMATIC else 0)
    needs = set()
    for atom in np.unique(bonds[aromatic]).tolist():
        element, charge = int(elements[atom]), int(charges[atom])
        usual = VALENCE.get(element, 0) + (-abs(charge) if element in GROUP_4 else charge)
        if usual - int(bonded[atom]) - int(hydrogens[atom]) > 0:
            needs.add(atom)
    neighbours: dict[int, list[int]] = {atom: [] for atom in needs}
    for i, j in bonds[aromatic].tolist():
        if i in needs and j in needs:
            neighbours[i].append(j)
            neighbours[j].append(i)
    partner = _match(neighbours)
    if partner is None:
        return None
    result = orders.copy()
    result[aromatic] = [DOUBLE if partner.get(i) == j else SINGLE for i, j in bonds[aromatic].tolist()]
    return result


def _match(neighbours: dict[int, list[int]]) -> dict[int, int] | None:
    """Perfect matching: the atom with fewest free neighbours first, taking back what leads nowhere."""
    partner: dict[int, int] = {}
    trail: list[tuple[int, list[int]]] = []  # an atom, and the partners not yet tried
    while len(partner) < len(neighbours):
        atom, free = _tightest(neighbours, partner)
        while not free:
            if not trail:
                return None
            atom, free = trail.pop()
            del partner[partner.pop(atom)]
        other, *rest = free
        trail.append((atom, rest))
        partner[atom], partner[other] = other, atom
    return partner


def _tightest(neighbours: dict[int, list[int]], partner: dict[int, int]) -> tuple[int, Sequence[int]]:
    open_atoms = (
        (atom, [o for o in near if o not in partner])
        for atom, near in neighbours.items()
        if atom not in partner
    )
    return min(open_atoms, key=lambda pair: len(pair[1]))
