"""Bond orders from the distances and angles between heavy atoms, where no file, dictionary or SMILES has any.

The limits lie between the mean lengths of single and double bonds in Allen et al., J. Chem. Soc. Perkin
Trans. 2 (1987) S1. Planar five- and six-rings of short bonds are aromatic; groups
that are drawn in one form only (nitro, sulfonyl, phosphate, carboxyl) get it. What comes of it is then held
against the angles: a molecule of which one atom does not fit is refused, not guessed at, and so is one that
small errors of the coordinates would make another.

That is reliable for poses with the geometry of a force field or a dictionary, as programs write them, less so
the further coordinates are off; ``tests/ingest/test_geometry.py`` has the shares.
"""

from __future__ import annotations

from itertools import combinations
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from rdkit import Chem, rdBase

from ...shards.errors import StructureError
from ..read.residue import Entry
from .mend import mark_aromatic
from .molecule import inchikey
from .perceive import sanitise
from .smiles_entry import entry_of

_RADII: Final = np.array([0.0, *map(Chem.GetPeriodicTable().GetRcovalent, range(1, 119))])
_REACH: Final = 0.4  # angstrom beyond the sum of covalent radii
_NEIGHBOURS: Final = {6: 4, 7: 4, 8: 2, 9: 1, 15: 4, 16: 4, 17: 1, 35: 1, 53: 1}  # the elements that are read
_VALENCE: Final = {6: 4, 7: 3, 8: 2, 15: 5}
_MOST_HYDROGENS: Final = 3  # given to ring nitrogens; xanthine has two in its five-ring and beside it
_SULFUR: Final = {1: 2, 2: 2, 3: 4, 4: 6}  # by neighbours
# By elements, lower number first: shorter is of an aromatic ring, double, triple, of no sp3 carbon; angstrom.
_LIMITS: Final = {
    (6, 6): (1.46, 1.41, 1.26, 1.45), (6, 7): (1.42, 1.33, 1.22, 1.40), (6, 8): (1.42, 1.30, 0.0, 1.36),
    (6, 16): (1.79, 1.70, 0.0, 1.74), (7, 7): (1.42, 1.32, 0.0, 0.0), (7, 8): (1.45, 1.29, 0.0, 0.0),
    (7, 16): (1.72, 1.60, 0.0, 0.0),
}  # fmt: skip
_EXCESS: Final = (
    0.045,
    -0.03,
)  # angstrom over the limit: of the longest bond of an aromatic ring, of the mean
_FLAT: Final = 0.15  # angstrom from the plane of an aromatic ring
_PLANAR, _PYRAMIDAL = (
    356.5,
    340.0,
)  # degrees: sum of three angles at an atom, certain beyond
_BENT: Final = 350.0  # less than this is no atom of an aromatic ring
_TETRAHEDRAL, _TRIGONAL = (
    114.0,
    117.5,
)  # at a carbon of two neighbours: sp3 below the first, not above the last
_LINEAR: Final = 160.0
_TRIALS, _ERROR = 6, 0.02  # times all atoms are moved, by a normal error on each axis in angstrom


def entry_from_geometry(
    element: NDArray[np.uint8], position: NDArray[np.float64], residue_name: str
) -> Entry:
    """An entry for one residue, its heavy atoms named "0", "1", ... in the order given.

    Parameters
    ----------
    element, position : of the heavy atoms, shapes (n,) and (n, 3) in angstrom

    Raises
    ------
    StructureError
        ``ligand_no_bond_orders`` if the geometry leaves a doubt.
    """
    shaken = np.random.default_rng(0)  # the same each time
    try:
        with rdBase.BlockLogs():
            mol = _Drawing(element, position).molecule()
            said = _skeleton(mol)
            for _ in range(_TRIALS):
                other = _trial(element, position + shaken.normal(0, _ERROR, position.shape))
                if other not in ("", said):
                    raise _doubt(f"{_ERROR} angstrom more or less would make another molecule of it")
            Chem.Kekulize(mol, clearAromaticFlags=True)
            return entry_of(mol, np.arange(len(element)), residue_name)
    except (StructureError, Chem.MolSanitizeException, RuntimeError) as error:
        why = " ".join(str(error).split())
        message = f"bonds of residue {residue_name!r} cannot be told from its geometry: {why}"
        raise StructureError("ligand_no_bond_orders", message) from error


def _trial(element: NDArray[np.uint8], position: NDArray[np.float64]) -> str:
    """The skeleton of what these coordinates make, "" for a doubt, which is no other answer."""
    try:
        return _skeleton(_Drawing(element, position).molecule())
    except (StructureError, Chem.MolSanitizeException, RuntimeError):
        return ""


def _skeleton(mol: Any) -> str:
    """Equal for the tautomers and forms of one molecule: the first block of its InChIKey."""
    return inchikey(mol)[:14]


class _Drawing:
    """A molecule whose bonds are drawn step by step."""

    def __init__(self, element: NDArray[np.uint8], position: NDArray[np.float64]) -> None:
        foreign = sorted(set(element.tolist()) - set(_NEIGHBOURS))
        if foreign or len(element) < 2:
            raise _doubt(f"elements {foreign} are beyond it" if foreign else "it is a single atom")
        self.z: list[int] = element.tolist()
        self.at = position
        gaps = np.linalg.norm(position[:, None] - position[None], axis=2)
        near = gaps < _RADII[element][:, None] + _RADII[element][None] + _REACH
        self.pairs = [(i, j) for i, j in np.argwhere(np.triu(near, 1)).tolist()]
        self.length = {pair: float(gaps[pair]) for pair in self.pairs}
        self.near: list[list[int]] = [
            np.flatnonzero(row).tolist() for row in near & ~np.eye(len(near), dtype=bool)
        ]
        for atom, others in enumerate(self.near):
            if not 0 < len(others) <= _NEIGHBOURS[self.z[atom]]:
                raise _doubt(f"atom {atom + 1} has {len(others)} neighbours")
        self.order = dict.fromkeys(self.pairs, 1)
        self.charge = [0] * len(self.z)
        self.aromatic: set[tuple[int, int]] = set()

    def molecule(self) -> Any:
        """All steps, and the test of what came of them."""
        self._draw_rings()
        self._draw_groups()
        self._draw_triples()
        self._draw_doubles()
        mol, _ = sanitise(self._with_ring_hydrogens())
        if len(Chem.GetMolFrags(mol)) > 1:
            raise _doubt("it is in several pieces")
        self._check(mol)
        return mol

    def _drawn(self) -> Any:
        kinds = {1: Chem.BondType.SINGLE, 2: Chem.BondType.DOUBLE, 3: Chem.BondType.TRIPLE}
        mol = Chem.RWMol()
        for number, charge in zip(self.z, self.charge, strict=True):
            atom = Chem.Atom(number)
            atom.SetFormalCharge(charge)
            mol.AddAtom(atom)
        for pair in self.pairs:
            mol.AddBond(*pair, Chem.BondType.AROMATIC if pair in self.aromatic else kinds[self.order[pair]])
        return mol

    def _with_ring_hydrogens(self) -> Any:
        """Nitrogens of five-rings get a hydrogen where Kekulé forms ask for it, the widest angles first."""
        mol = self._drawn()
        bare = [a for a, z in enumerate(self.z) if z == 7 and len(self.near[a]) == 2]
        nitrogens = [a for a in bare if all(_pair(a, b) in self.aromatic for b in self.near[a])]
        nitrogens.sort(key=lambda a: -self._angle(a))
        fives = {a for ring in Chem.GetSymmSSSR(mol) if len(ring) == 5 for a in ring}
        mark_aromatic(mol)
        for number in range(_MOST_HYDROGENS + 1):
            for chosen in combinations([a for a in nitrogens if a in fives], number):
                trial = Chem.Mol(mol)
                for a in chosen:
                    trial.GetAtomWithIdx(a).SetNumExplicitHs(1)
                problems = Chem.DetectChemistryProblems(trial)
                if not any(problem.GetType() == "KekulizeException" for problem in problems):
                    return trial
        return mol

    def _limits(self, pair: tuple[int, int]) -> tuple[float, float, float, float]:
        low, high = sorted((self.z[pair[0]], self.z[pair[1]]))
        return _LIMITS.get((low, high), (0.0, 0.0, 0.0, 0.0))

    def _draw_rings(self) -> None:
        """Planar rings of short bonds."""
        mol = self._drawn()
        for ring in map(list, Chem.GetSymmSSSR(mol)):
            bonds = [_pair(a, b) for a, b in zip(ring, [*ring[1:], ring[0]], strict=True)]
            excess = [self.length[pair] - self._limits(pair)[0] for pair in bonds]
            short = max(excess) < _EXCESS[0] and sum(excess) < _EXCESS[1] * len(ring)
            full = any(self.z[a] == 6 and (len(self.near[a]) > 3 or 0 < self._sum(a) < _BENT) for a in ring)
            if len(ring) in (5, 6) and short and not full and self._is_flat(ring):
                self.aromatic.update(bonds)

    def _is_flat(self, ring: list[int]) -> bool:
        centre = self.at[ring].mean(axis=0)
        normal = np.linalg.svd(self.at[ring] - centre)[2][2]
        beside = sorted({b for a in ring for b in self.near[a]} - set(ring))
        out = np.abs((self.at[ring] - centre) @ normal).max()
        return bool(
            out < _FLAT and (not beside or np.abs((self.at[beside] - centre) @ normal).max() < 4 * _FLAT)
        )

    def _draw_groups(self) -> None:
        """Nitro, N-oxide, sulfonyl, sulfoxide, phosphate: the oxygens that end there, nearest first."""
        for atom, others in enumerate(self.near):
            ends = [b for b in others if self.z[b] == 8 and len(self.near[b]) == 1]
            ends.sort(key=lambda b: self.length[_pair(atom, b)])
            ringed = any(_pair(atom, b) in self.aromatic for b in others)
            if self.z[atom] == 7 and len(others) == 3 and ends and (ringed or len(ends) == 2):
                self.charge[atom], self.charge[ends[-1]] = 1, -1
                for b in ends[:-1]:
                    self.order[_pair(atom, b)] = 2
            elif self.z[atom] == 15:
                for b in ends[:1]:
                    self.order[_pair(atom, b)] = 2
            elif self.z[atom] == 16 and len(others) > 2:
                for b in ends[: len(others) - 2]:
                    self.order[_pair(atom, b)] = 2

    def _draw_triples(self) -> None:
        for pair in self.pairs:
            angles = [self._angle(a) for a in pair if len(self.near[a]) == 2]
            ends = max(len(self.near[a]) for a in pair) <= 2
            if ends and self.length[pair] < self._limits(pair)[2] and all(x > _LINEAR for x in angles):
                self.order[pair] = 3

    def _draw_doubles(self) -> None:
        """Short bonds first; then what planar carbons still lack."""
        open_ = [pair for pair in self.pairs if pair not in self.aromatic]
        open_.sort(key=lambda pair: self.length[pair] - self._limits(pair)[1])
        for pair in open_:
            if self.length[pair] < self._limits(pair)[1] and self._may_double(pair):
                self.order[pair] = 2
        for atom in range(len(self.z)):
            if self.z[atom] == 6 and self._sum(atom) > _PLANAR and not self._is_unsaturated(atom):
                free = [pair for pair in open_ if atom in pair and self._may_double(pair)]
                free = [pair for pair in free if self.length[pair] < self._limits(pair)[1] + 0.06]
                if free:
                    self.order[free[0]] = 2

    def _may_double(self, pair: tuple[int, int]) -> bool:
        """Both ends have room; an aromatic carbon has it for what is not carbon, at the end of a chain."""
        for atom, other in (pair, pair[::-1]):
            ringed = any(_pair(atom, b) in self.aromatic for b in self.near[atom])
            if ringed and (self.z[atom] != 6 or self.z[other] == 6 or len(self.near[other]) > 1):
                return False
            used = sum(self.order[_pair(atom, b)] for b in self.near[atom])
            most = _SULFUR[len(self.near[atom])] if self.z[atom] == 16 else _VALENCE.get(self.z[atom], 1)
            if not ringed and (used >= most or self._is_unsaturated(atom)):
                return False
            bent = len(self.near[atom]) == 2 and self._angle(atom) < _TETRAHEDRAL
            if self.z[atom] == 6 and (bent or 0 < self._sum(atom) < _PYRAMIDAL):
                return False
        return self.order[pair] == 1

    def _is_unsaturated(self, atom: int) -> bool:
        pairs = [_pair(atom, b) for b in self.near[atom]]
        return any(self.order[pair] > 1 or pair in self.aromatic for pair in pairs)

    def _angle(self, atom: int, *others: int) -> float:
        a, b = (self.at[other] - self.at[atom] for other in (others or self.near[atom]))
        cosine = float(a @ b / (np.linalg.norm(a) * np.linalg.norm(b)))
        return float(np.degrees(np.arccos(np.clip(cosine, -1.0, 1.0))))

    def _sum(self, atom: int) -> float:
        """Sum of the angles at an atom of three neighbours, 0 for others."""
        others = self.near[atom]
        return sum(self._angle(atom, *two) for two in combinations(others, 2)) if len(others) == 3 else 0.0

    def _is_short(self, atom: int) -> bool:
        """True if a bond is shorter than those of sp3 carbons mostly are."""
        pairs = [_pair(atom, b) for b in self.near[atom]]
        return any(self.length[pair] < self._limits(pair)[3] + 0.03 for pair in pairs)

    def _is_triazane(self, atom: Any) -> bool:
        """True for the middle of three nitrogens in a row, all bonds single: no ligand has these."""
        ends = [a for a in atom.GetNeighbors() if a.GetAtomicNum() == 7]
        row = [atom, *ends]
        return len(ends) == 2 and not any(map(_is_unsaturated, row))

    def _check(self, mol: Any) -> None:
        """Angles and lengths against what was drawn."""
        for atom in mol.GetAtoms():
            index, flat = atom.GetIdx(), atom.GetHybridization() != Chem.HybridizationType.SP3
            total = self._sum(index)
            if atom.GetFormalCharge() != self.charge[index] and len(self.near[index]) < 4:
                raise _doubt(f"atom {index + 1} would be charged")
            if atom.GetNumRadicalElectrons():
                raise _doubt(f"atom {index + 1} would be a radical")
            if self.z[index] == 16 and len(self.near[index]) > 1 and atom.GetTotalNumHs():
                raise _doubt(f"sulfur {index + 1} would have hydrogens beside {len(self.near[index])} bonds")
            if self.z[index] == 7 and self._is_triazane(atom):
                raise _doubt(f"nitrogen {index + 1} would be singly bonded to two others")
            if self.z[index] == 6 and ((total > _PLANAR and not flat) or (0 < total < _PYRAMIDAL and flat)):
                raise _doubt(f"the angles at atom {index + 1} sum up to {total:.0f} degrees")
            angle = self._angle(index) if len(self.near[index]) == 2 else 0.0
            if angle > _LINEAR and atom.GetHybridization() != Chem.HybridizationType.SP:
                raise _doubt(f"atom {index + 1} is linear")
            if self.z[index] == 6 and angle > _TRIGONAL and not flat and self._is_short(index):
                raise _doubt(f"the angle at atom {index + 1} is {angle:.0f} degrees")
        for bond in mol.GetBonds():
            pair = _pair(bond.GetBeginAtomIdx(), bond.GetEndAtomIdx())
            single = bond.GetBondTypeAsDouble() == 1.0 and not bond.GetIsConjugated()
            if single and self.length[pair] < self._limits(pair)[1] - 0.04:
                raise _doubt(
                    f"atoms {pair[0] + 1} and {pair[1] + 1} are {self.length[pair]:.2f} angstrom apart"
                )


def _is_unsaturated(atom: Any) -> bool:
    return any(bond.GetBondTypeAsDouble() > 1 for bond in atom.GetBonds())


def _pair(a: int, b: int) -> tuple[int, int]:
    return (a, b) if a < b else (b, a)


def _doubt(said: str) -> StructureError:
    return StructureError("ligand_no_bond_orders", said)
