"""Optional filters. All are off by default; what one of them refuses says which and why."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from rdkit import Chem

from ...shards.errors import StructureError, UsageError

_SYMBOLS: Final = frozenset(map(Chem.GetPeriodicTable().GetElementSymbol, range(1, 119)))
_MOST: Final = {
    "max_resolution": 1000.0, "min_occupancy": 1.0, "min_distance": 1000.0, "max_distance": 1e6,
    "max_missing": 1.0, "min_ligand_atoms": 1e6, "max_ligand_atoms": 1e6,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Filters:
    """Limits of quality; 0, or nothing, is off.

    Parameters
    ----------
    max_resolution
        Angstrom; a complex whose resolution nobody states passes. 0 is off, here and below.
    min_occupancy
        Mean occupancy of the ligand's atoms, and of the pocket's.
    min_distance
        Angstrom between the nearest heavy atoms of ligand and pocket, metals that it may coordinate left out:
        less is a clash.
    max_distance
        The same distance: more is a ligand that floats away.
    max_missing
        Share of the pocket's heavy atoms that the structure lacks, 0 to 1.
    min_ligand_atoms
        Fewest heavy atoms of a ligand.
    max_ligand_atoms
        Most heavy atoms of a ligand.
    elements
        Element symbols that a ligand may have, as in C,N,O,S.
    """

    max_resolution: float = 0.0
    min_occupancy: float = 0.0
    min_distance: float = 0.0
    max_distance: float = 0.0
    max_missing: float = 0.0
    min_ligand_atoms: int = 0
    max_ligand_atoms: int = 0
    elements: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name, most in _MOST.items():
            value = getattr(self, name)
            if not 0 <= value <= most:
                option = f"--filters.{name.replace('_', '-')}"
                raise UsageError(f"{option} is {value:g}; expected 0 (off) to {most:g}")
        symbols = tuple(s.strip() for text in self.elements for s in text.split(",") if s.strip())
        unknown = [s for s in symbols if s not in _SYMBOLS]
        if unknown:
            raise UsageError(f"{', '.join(unknown)} is no element symbol; expected some such as C,N,O,Cl")
        object.__setattr__(self, "elements", symbols)


NO_FILTERS = Filters()


@dataclass(frozen=True, slots=True, eq=False)
class Qualities:
    """What the filters look at."""

    resolution: float
    ligand_occupancy: NDArray[np.float32]
    pocket_occupancy: NDArray[np.float32]
    distance: float
    missing: float
    ligand_elements: NDArray[np.uint8]


def check(found: Qualities, limits: Filters) -> None:
    """Raise ``filtered`` with the first limit that is broken."""
    heavy = found.ligand_elements[found.ligand_elements != 1]
    occupancy = min(_mean(found.ligand_occupancy), _mean(found.pocket_occupancy))
    symbols = sorted({Chem.GetPeriodicTable().GetElementSymbol(int(z)) for z in heavy if z})
    foreign = [s for s in symbols if s not in limits.elements] if limits.elements else []
    broken = [
        (limits.max_resolution and found.resolution > limits.max_resolution,
         f"resolution: {found.resolution:g} angstrom, at most {limits.max_resolution:g}"),
        (occupancy < limits.min_occupancy,
         f"occupancy: mean {occupancy:.2f}, at least {limits.min_occupancy:g}"),
        (found.distance < limits.min_distance,
         f"clash: ligand and pocket {found.distance:.2f} angstrom apart, at least {limits.min_distance:g}"),
        (limits.max_distance and found.distance > limits.max_distance,
         f"distance: ligand and pocket {found.distance:.2f} angstrom apart, at most {limits.max_distance:g}"),
        (limits.max_missing and found.missing > limits.max_missing,
         f"missing: {found.missing:.1%} of the pocket's heavy atoms are not in the file, at most "
         f"{limits.max_missing:.1%}"),
        (len(heavy) < limits.min_ligand_atoms,
         f"ligand size: {len(heavy)} heavy atoms, at least {limits.min_ligand_atoms}"),
        (limits.max_ligand_atoms and len(heavy) > limits.max_ligand_atoms,
         f"ligand size: {len(heavy)} heavy atoms, at most {limits.max_ligand_atoms}"),
        (foreign, f"elements: the ligand has {', '.join(foreign)}, allowed are {', '.join(limits.elements)}"),
    ]  # fmt: skip
    for fails, message in broken:
        if fails:
            raise StructureError("filtered", message)


def _mean(values: NDArray[np.float32]) -> float:
    return float(values.mean()) if len(values) else math.inf
