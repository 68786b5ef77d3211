"""The label of a sample complex: a documented function of the coordinates that were written.

An empirical score in the manner of LUDI (Böhm, J. Comput.-Aided Mol. Des. 1994, 8, 243) and ChemScore
(Eldridge et al., J. Comput.-Aided Mol. Des. 1997, 11, 425): counts of hydrogen bonds, ionic contacts and
lipophilic contacts that fade out with distance, a cost for polar atoms buried without a partner, and a cost
a rotatable bond. The forms are theirs, simplified to heavy atoms; the coefficients are our own, chosen so
that the sample's pK values spread as measured ones do. It is the law of a synthetic world, no more.

    pK = 3.4 + 0.5 * hydrogen bonds + 0.5 * ionic contacts + 0.38 * lipophilic atoms
             - 0.2 * unpaired polar atoms + 0.4 * burial - 0.12 * rotatable bonds  (+ noise, sd 0.3)

With f(d; a, b) = 1 below a, 0 above b and linear between, over heavy atoms of the ligand and of amino acids:

hydrogen bonds
    sum over ligand N and O of min(1.5, sum over complementary protein N and O of f(d; 3.3, 3.7)); a donor
    has a hydrogen, an acceptor is any O or a nitrogen with a lone pair to give
ionic contacts
    sum over charged ligand atoms of min(1, sum over opposite charges of the protein of f(d; 3.6, 4.4)); minus
    the same over like charges
lipophilic atoms
    sum over ligand C away from N and O, S, Cl, Br, F of min(1, (sum over protein C away from N and O, and S,
    of f(d; 4.2, 4.8)) / 3)
unpaired polar atoms
    sum over ligand N and O of (1 - min(1, its hydrogen bonds)) * min(1, (sum over lipophilic protein atoms of
    f(d; 4.2, 4.8)) / 2)
burial
    mean over ligand atoms of the sum over protein atoms of f(d; 4.5, 5.5)
rotatable bonds
    RDKit's strict count of the ligand
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from rdkit import Chem
from rdkit.Chem import rdMolDescriptors

from ...shards.complex import AMINO_ACIDS

Floats = NDArray[np.float64]

NOISE_SD: Final = 0.3
RANGE: Final = (2.5, 11.5)  # what assays can resolve; the few labels outside are set to its ends
BASE, PER_HYDROGEN_BOND, PER_IONIC_CONTACT, PER_LIPOPHILIC_ATOM = 3.4, 0.5, 0.5, 0.38
PER_UNPAIRED_POLAR_ATOM, PER_BURIAL, PER_ROTATABLE_BOND = -0.2, 0.4, -0.12

# Protein atoms by residue and name; the backbone's N (but PRO's) gives, its O takes.
_DONORS: Final = {
    "ARG": "NE NH1 NH2", "ASN": "ND2", "GLN": "NE2", "HIS": "ND1", "LYS": "NZ", "SER": "OG", "THR": "OG1",
    "TRP": "NE1", "TYR": "OH",
}  # fmt: skip
_ACCEPTORS: Final = {
    "ASN": "OD1", "ASP": "OD1 OD2", "GLN": "OE1", "GLU": "OE1 OE2", "HIS": "NE2", "SER": "OG", "THR": "OG1",
    "TYR": "OH",
}  # fmt: skip
_POSITIVE: Final = {"ARG": "NH1 NH2", "LYS": "NZ"}
_NEGATIVE: Final = {"ASP": "OD1 OD2", "GLU": "OE1 OE2"}
# Carbons bonded to no N or O, and sulphur.
_LIPOPHILIC: Final = {
    "ALA": "CB", "ARG": "CB CG", "ASN": "CB", "ASP": "CB", "CYS": "CB SG", "GLN": "CB CG", "GLU": "CB CG",
    "HIS": "CB", "ILE": "CB CG1 CG2 CD1", "LEU": "CB CG CD1 CD2", "LYS": "CB CG CD", "MET": "CB CG SD CE",
    "PHE": "CB CG CD1 CD2 CE1 CE2 CZ", "PRO": "CB CG", "THR": "CG2", "TRP": "CB CG CD2 CE3 CZ2 CZ3 CH2",
    "TYR": "CB CG CD1 CD2 CE1 CE2", "VAL": "CB CG1 CG2",
}  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class Sites:
    """What atoms can do, boolean arrays of shape (n_atoms,), of a ligand or of protein atoms."""

    donor: NDArray[np.bool_]
    acceptor: NDArray[np.bool_]
    positive: NDArray[np.bool_]
    negative: NDArray[np.bool_]
    lipophilic: NDArray[np.bool_]
    polar: NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Terms:
    """The terms of the formula, each as a count; see the module's text."""

    hydrogen_bonds: float
    ionic_contacts: float
    lipophilic_atoms: float
    unpaired_polar_atoms: float
    burial: float
    rotatable_bonds: int

    @property
    def pk(self) -> float:
        """-log10(mol/L), without noise."""
        return (
            BASE
            + PER_HYDROGEN_BOND * self.hydrogen_bonds
            + PER_IONIC_CONTACT * self.ionic_contacts
            + PER_LIPOPHILIC_ATOM * self.lipophilic_atoms
            + PER_UNPAIRED_POLAR_ATOM * self.unpaired_polar_atoms
            + PER_BURIAL * self.burial
            + PER_ROTATABLE_BOND * self.rotatable_bonds
        )


def score(mol: Any, residues: Sequence[str], names: Sequence[str], position: Floats) -> Terms:
    """The formula for one complex.

    Parameters
    ----------
    mol : RDKit molecule of the ligand, charged, with one conformer in the frame of the protein
    residues, names : residue and atom name of each heavy protein atom; of alternate locations the first only.
        Waters, ions and hydrogens count for nothing and may be left in.
    position : float64 (n, 3), angstrom
    """
    heavy = [a.GetIdx() for a in mol.GetAtoms() if a.GetAtomicNum() > 1]
    kept = [k for k, (r, n) in enumerate(zip(residues, names, strict=True)) if is_counted(r, n)]
    return score_sites(
        ligand_sites(mol),
        np.asarray(mol.GetConformer().GetPositions())[heavy],
        protein_sites([residues[k] for k in kept], [names[k] for k in kept]),
        np.asarray(position)[kept],
        rotatable_bonds(mol),
    )


def score_sites(
    ligand: Sites, ligand_position: Floats, protein: Sites, protein_position: Floats, rotors: int
) -> Terms:
    """The formula for heavy atoms whose sites are known."""
    distance = np.sqrt(
        np.maximum(
            (ligand_position**2).sum(axis=1)[:, None]
            + (protein_position**2).sum(axis=1)
            - 2.0 * ligand_position @ protein_position.T,
            0.0,
        )
    )
    paired = (ligand.donor[:, None] & protein.acceptor) | (ligand.acceptor[:, None] & protein.donor)
    bonds = np.where(paired, _fade(distance, 3.3, 3.7), 0.0).sum(axis=1)
    grease = np.where(protein.lipophilic, _fade(distance, 4.2, 4.8), 0.0).sum(axis=1)
    near = _fade(distance, 3.6, 4.4)
    opposite = (ligand.positive[:, None] & protein.negative) | (ligand.negative[:, None] & protein.positive)
    like = (ligand.positive[:, None] & protein.positive) | (ligand.negative[:, None] & protein.negative)
    attraction, repulsion = (
        np.minimum(np.where(pairs, near, 0.0).sum(axis=1), 1.0).sum() for pairs in (opposite, like)
    )
    unpaired = (1.0 - np.minimum(bonds, 1.0)) * np.minimum(grease / 2.0, 1.0)
    return Terms(
        hydrogen_bonds=float(np.minimum(bonds, 1.5).sum()),
        ionic_contacts=float(attraction - repulsion),
        lipophilic_atoms=float(np.minimum(grease / 3.0, 1.0)[ligand.lipophilic].sum()),
        unpaired_polar_atoms=float(unpaired[ligand.polar].sum()),
        burial=float(_fade(distance, 4.5, 5.5).sum(axis=1).mean()),
        rotatable_bonds=rotors,
    )


def ligand_sites(mol: Any) -> Sites:
    """What the ligand's heavy atoms can do, in their order in the molecule."""
    atoms = [a for a in mol.GetAtoms() if a.GetAtomicNum() > 1]
    charges = [_charge(a) for a in atoms]
    return Sites(
        donor=np.array([_is_polar(a) and a.GetTotalNumHs(includeNeighbors=True) > 0 for a in atoms]),
        acceptor=np.array([_accepts(a) for a in atoms]),
        positive=np.array([c > 0 for c in charges]),
        negative=np.array([c < 0 for c in charges]),
        lipophilic=np.array([_is_lipophilic(a) for a in atoms]),
        polar=np.array([_is_polar(a) for a in atoms]),
    )


def protein_sites(residues: Sequence[str], names: Sequence[str]) -> Sites:
    """What these protein atoms can do."""
    pairs = list(zip(residues, names, strict=True))
    return Sites(
        donor=np.array([p in _table("donor") or (p[1] == "N" and p[0] != "PRO") for p in pairs]),
        acceptor=np.array([p in _table("acceptor") or p[1] in ("O", "OXT") for p in pairs]),
        positive=np.array([p in _table("positive") for p in pairs]),
        negative=np.array([p in _table("negative") for p in pairs]),
        lipophilic=np.array([p in _table("lipophilic") for p in pairs]),
        polar=np.array([p[1][0] in "NO" for p in pairs]),
    )


def is_counted(residue: str, name: str) -> bool:
    """True for heavy atoms of the twenty amino acids."""
    return residue in AMINO_ACIDS and not name.lstrip("0123456789").startswith(("H", "D"))


def rotatable_bonds(mol: Any) -> int:
    """RDKit's strict count: no amide bonds, no ends of chains. Drawn hydrogens would be ends, so they go."""
    return int(rdMolDescriptors.CalcNumRotatableBonds(Chem.RemoveHs(mol)))


@lru_cache(maxsize=8)
def _table(kind: str) -> frozenset[tuple[str, str]]:
    table = {
        "donor": _DONORS, "acceptor": _ACCEPTORS, "positive": _POSITIVE, "negative": _NEGATIVE,
        "lipophilic": _LIPOPHILIC,
    }[kind]  # fmt: skip
    return frozenset((residue, name) for residue, names in table.items() for name in names.split())


def _fade(distance: Floats, full: float, gone: float) -> Floats:
    """1 up to ``full``, 0 from ``gone`` on, linear between; angstrom."""
    return np.clip((gone - distance) / (gone - full), 0.0, 1.0)


def _is_polar(atom: Any) -> bool:
    return atom.GetSymbol() in ("N", "O")


def _accepts(atom: Any) -> bool:
    """Oxygen; or nitrogen without a hydrogen, uncharged, whose lone pair is not in a pi system."""
    if atom.GetSymbol() == "O":
        return True
    if atom.GetSymbol() != "N" or atom.GetFormalCharge() > 0 or atom.GetTotalNumHs(includeNeighbors=True):
        return False
    heavy = sum(b.GetAtomicNum() > 1 for b in atom.GetNeighbors())
    if heavy <= 2:  # aromatic as in pyridine, imine, nitrile
        return True
    return not any(b.GetIsConjugated() for b in atom.GetBonds())


def _charge(atom: Any) -> int:
    """Sign of the charge, shared by both oxygens of a carboxylate and both nitrogens of an amidinium."""
    if atom.GetFormalCharge():
        return int(np.sign(atom.GetFormalCharge()))
    if not _is_polar(atom):
        return 0
    for middle in atom.GetNeighbors():
        if middle.GetSymbol() != "C":
            continue
        for other in middle.GetNeighbors():
            alike = other.GetIdx() != atom.GetIdx() and other.GetSymbol() == atom.GetSymbol()
            shared = atom.GetIsAromatic() is False and any(b.GetIsConjugated() for b in other.GetBonds())
            if alike and shared and other.GetFormalCharge():
                return int(np.sign(other.GetFormalCharge()))
    return 0


def _is_lipophilic(atom: Any) -> bool:
    symbol = atom.GetSymbol()
    if symbol == "C":
        return not any(_is_polar(b) for b in atom.GetNeighbors()) and atom.GetFormalCharge() == 0
    return symbol in ("S", "Cl", "Br", "F") and not any(_is_polar(b) for b in atom.GetNeighbors())
