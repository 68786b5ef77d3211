"""The sample's ligands: molecules of the grammar with one conformer each, made once and kept."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from rdkit import Chem, rdBase
from rdkit.Chem import rdDistGeom

from .fragments import molecule

N_CORES: Final = 192  # scaffolds of a seed; targets draw theirs from these
N_VARIANTS: Final = 6  # decorations of a scaffold
_STREAM: Final = 1  # of the seed's random streams, so that ligands and pockets are independent
_EMBEDDING_ATTEMPTS: Final = 5

# Contact radii in angstrom: two atoms touch at the sum. Half the usual closest heavy-atom distances in
# crystal structures, so that N..O touch at 2.84 (a hydrogen bond) and C..C at 3.44.
CONTACT_RADII: Final = {"C": 1.72, "N": 1.42, "O": 1.42, "S": 1.75, "F": 1.45, "Cl": 1.70, "Br": 1.80}


@dataclass(frozen=True, slots=True, eq=False)
class Ligand:
    """A molecule with all hydrogens and one conformer; heavy atoms come first.

    Attributes
    ----------
    mol : RDKit molecule, charged as at pH 7
    name : "C012V3": core and variant
    position : float64 (n_atoms, 3), angstrom, about the centroid of the heavy atoms
    n_heavy : heavy atoms
    radius : float64 (n_heavy,), contact radii, angstrom
    polarity : float64 (n_heavy,), 1 for N and O, -1 for carbon away from them and halogens, else 0
    """

    mol: Any
    name: str
    position: NDArray[np.float64]
    n_heavy: int
    radius: NDArray[np.float64]
    polarity: NDArray[np.float64]


@lru_cache(maxsize=N_CORES * N_VARIANTS)
def ligand(seed: int, core: int, variant: int) -> Ligand:
    """The ligand of this core and variant; the same for every call with these numbers."""
    attempt = 0
    with _silence():
        while True:
            mol = Chem.AddHs(
                molecule(
                    np.random.default_rng([seed, _STREAM, core]),
                    np.random.default_rng([seed, _STREAM, core, variant, attempt]),
                )
            )
            options: Any = rdDistGeom.ETKDGv3()  # its stub declares the attributes wrongly
            options.randomSeed = 1 + attempt
            options.maxIterations = 20
            if rdDistGeom.EmbedMolecule(mol, options) == 0:
                return _ligand(mol, f"C{core:03d}V{variant}")
            attempt += 1
            if attempt > _EMBEDDING_ATTEMPTS * 10:
                raise AssertionError(f"no conformer for {Chem.MolToSmiles(mol)}")


def _ligand(mol: Any, name: str) -> Ligand:
    heavy = [a for a in mol.GetAtoms() if a.GetAtomicNum() > 1]
    position = np.array(mol.GetConformer().GetPositions())
    return Ligand(
        mol=mol,
        name=name,
        position=position - position[: len(heavy)].mean(axis=0),
        n_heavy=len(heavy),
        radius=np.array([CONTACT_RADII[a.GetSymbol()] for a in heavy]),
        polarity=np.array([_polarity(a) for a in heavy]),
    )


def _polarity(atom: Any) -> float:
    if atom.GetSymbol() in ("N", "O"):
        return 1.0
    beside_polar = any(b.GetSymbol() in ("N", "O") for b in atom.GetNeighbors())
    return 0.0 if beside_polar else -1.0


class _silence:  # noqa: N801 - reads as a verb where it is used
    """RDKit reports each rejected draft of the grammar; those are not news."""

    def __enter__(self) -> None:
        self.block = rdBase.BlockLogs()

    def __exit__(self, *_: object) -> None:
        del self.block
