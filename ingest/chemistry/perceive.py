"""From atoms and bonds as a file draws them to a molecule whose chemistry is known.

Aromaticity, conjugation and valence are RDKit's. What a file leaves out for a known cause is added and
recorded; nothing is ever guessed beyond that: a ligand that still makes no sense is refused.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from rdkit import Chem, rdBase

from ...shards.errors import StructureError
from ..kernel import kernel
from .mend import charge_oniums, localise_groups, mark_aromatic, mend_ring
from .molecule import Posed

_PLANE: Final = 1e-3  # angstrom: coordinates nearer than this to z = 0 are drawn in the plane
_COINCIDENT: Final = 0.25  # angstrom: no two heavy atoms are this near each other


def perceive(
    mol: Any, *, hydrogens: bool, claims_3d: bool | None = None
) -> tuple[Any, NDArray[np.int64], list[str]]:
    """Check, sanitise, choose the fragment, drop hydrogens, and take stereo from the coordinates.

    Parameters
    ----------
    mol : RDKit molecule with one conformer and every atom of the file, not sanitised
    hydrogens : keep the hydrogens that the file has
    claims_3d : True or False if the file says that it is or is not 3-D, else None

    Returns
    -------
    The molecule, the place of each of its atoms in ``mol``, the repairs.

    Raises
    ------
    StructureError
        ``ligand_empty``, ``ligand_no_3d``, ``structure_bad_coordinates``, ``ligand_unreadable``,
        ``ligand_ambiguous``, ``ligand_artefact``.
    """
    with rdBase.BlockLogs():
        refuse_queries(mol)
        check_coordinates(mol, claims_3d)
        try:
            return _perceive(mol, hydrogens)
        except (Chem.MolSanitizeException, RuntimeError) as error:
            reason = str(error).strip().partition("\n")[0]
            raise StructureError("ligand_unreadable", reason or type(error).__name__) from error


def _perceive(mol: Any, hydrogens: bool) -> tuple[Any, NDArray[np.int64], list[str]]:
    for atom in mol.GetAtoms():
        if atom.GetAtomicNum() == 1 and atom.GetIsotope():
            atom.SetIsotope(0)  # deuterium is hydrogen here
    mol, repairs = sanitise(mol)
    mol, row, dropped = main_fragment(mol)
    repairs += dropped
    mol.GetConformer().Set3D(True)
    Chem.AssignStereochemistryFrom3D(mol, -1, True)  # while the hydrogens are there to help
    if not hydrogens:
        heavy = np.array([atom.GetAtomicNum() != 1 for atom in mol.GetAtoms()], dtype=bool)
        mol, row = Chem.RemoveAllHs(mol), row[heavy]
    flag_stereo(mol)
    return mol, row, repairs


def flag_stereo(mol: Any) -> None:
    """Label what stereo the coordinates gave, and flag the centres and bonds for which they could not say."""
    Chem.AssignStereochemistry(mol, True, True, True)


def refuse_queries(mol: Any) -> None:
    """Raise ``ligand_unreadable`` for dummy atoms, R groups, atom lists and query bonds."""
    if mol.HasQuery():
        raise StructureError(
            "ligand_unreadable", "query atoms or bonds where a molecule is due: this is a search pattern"
        )
    for atom in mol.GetAtoms():
        if not atom.GetAtomicNum():
            raise StructureError(
                "ligand_unreadable", f"atom {atom.GetIdx() + 1} is a dummy or R group where an element is due"
            )


def is_posed(mol: Any) -> bool:
    """True if nothing is wrong with the coordinates; :func:`check_coordinates` says what is."""
    positions = mol.GetConformer().GetPositions()
    finite = np.isfinite(positions.sum())  # also false where the sum overflows: no pose either
    crowded = _crowded(positions, _COINCIDENT) and _closest(mol) is not None
    return bool(finite and not _is_flat(positions) and not crowded)


@kernel
def _crowded(position: NDArray[np.float64], reach: float) -> bool:
    """True if any two atoms are nearer than some distance."""
    for i in range(len(position)):
        for j in range(i):
            square = 0.0
            for axis in range(3):
                square += (position[i, axis] - position[j, axis]) ** 2
            if square < reach * reach:
                return True
    return False


def _is_flat(positions: NDArray[np.float64]) -> bool:
    """True if every atom lies in the plane z = 0, as in a drawing (or where there are no coordinates)."""
    return bool(np.abs(positions[:, 2]).max() < _PLANE)


def check_coordinates(mol: Any, claims_3d: bool | None) -> None:
    """Raise if the ligand has no heavy atom, or no pose.

    A molecule of a few atoms, or a flat one whose file says that it is 3-D, may lie in the plane z = 0 in
    truth; one with a tetrahedral centre of heavy atoms cannot.
    """
    if not mol.GetNumHeavyAtoms():
        raise StructureError(
            "ligand_empty", f"{mol.GetNumAtoms()} atoms, none of them heavy, where a ligand is due"
        )
    if not mol.GetNumConformers():
        raise StructureError("ligand_no_3d", "no coordinates where a pose is due")
    positions = mol.GetConformer().GetPositions()
    if not np.isfinite(positions).all():
        raise StructureError("structure_bad_coordinates", "coordinates of the ligand are not finite")
    if not positions.any():
        raise StructureError("ligand_no_3d", "all coordinates are zero where a pose is due")
    if _is_flat(positions):
        heavy = [atom for atom in mol.GetAtoms() if atom.GetAtomicNum() != 1]
        if claims_3d is False or (
            len(heavy) > 3 and (not claims_3d or any(_is_branched(atom) for atom in heavy))
        ):
            raise StructureError(
                "ligand_no_3d", "every z is zero: a drawing in the plane where a pose is due"
            )
    pair = _closest(mol)
    if pair is not None:
        gap = np.linalg.norm(positions[pair[0]] - positions[pair[1]])
        raise StructureError(
            "structure_bad_coordinates",
            f"atoms {pair[0] + 1} and {pair[1] + 1} of the ligand are {gap:.2f} angstrom apart",
        )


def _closest(mol: Any) -> tuple[int, int] | None:
    """Two heavy atoms on top of each other; hydrogens without coordinates of their own do no harm."""
    gaps = Chem.Get3DDistanceMatrix(mol)
    n = len(gaps)
    if np.count_nonzero(gaps < _COINCIDENT) == n:  # each with itself
        return None
    heavy = np.array([mol.GetAtomWithIdx(i).GetAtomicNum() != 1 for i in range(n)])
    close = np.argwhere((gaps < _COINCIDENT) & ~np.eye(n, dtype=bool) & heavy & heavy[:, None])
    return (int(close[0, 0]), int(close[0, 1])) if len(close) else None


def _is_branched(atom: Any) -> bool:
    """True for a tetrahedral centre with three or more heavy neighbours: never flat."""
    if atom.GetAtomicNum() not in (6, 15, 16):
        return False
    neighbours = sum(n.GetAtomicNum() != 1 for n in atom.GetNeighbors())
    return neighbours > 3 or (
        neighbours == 3 and atom.GetAtomicNum() == 6
        and all(b.GetBondType() == Chem.BondType.SINGLE for b in atom.GetBonds()) and not atom.GetIsAromatic()
        and atom.GetFormalCharge() == 0
    )  # fmt: skip


def sanitise(mol: Any) -> tuple[Any, list[str]]:
    """The molecule sanitised, what a known cause left out added; and the repairs.

    Raises ``ligand_unreadable`` where no known repair helps.
    """
    repairs: list[str] = []
    mark_aromatic(mol)
    if localise_groups(mol):
        repairs.append("delocalised_group")
    if charge_oniums(mol):
        repairs.append("charge_adjusted")
    for _ in range(8):  # ring systems of one ligand with something missing
        trial = Chem.Mol(mol)  # failing, RDKit leaves a molecule half changed
        try:
            Chem.SanitizeMol(trial)
        except Chem.KekulizeException:
            code = mend_ring(mol)
            if not code:
                raise StructureError(
                    "ligand_unreadable", "aromatic bonds that no arrangement of double bonds explains"
                ) from None
            repairs.append(code)
        except Chem.MolSanitizeException as error:
            raise StructureError("ligand_unreadable", str(error).strip()) from None
        else:
            return trial, repairs
    raise StructureError("ligand_unreadable", "too many aromatic rings without their hydrogens")


def main_fragment(mol: Any) -> tuple[Any, NDArray[np.int64], list[str]]:
    """The ligand of a record with counter-ions or solvent beside it: the largest organic fragment.

    Raises ``ligand_artefact`` if all fragments are single atoms, ``ligand_ambiguous`` if a second one has
    more than half of the heavy atoms of the first.
    """
    fragments = Chem.GetMolFrags(mol)
    if len(fragments) == 1:
        return mol, np.arange(mol.GetNumAtoms(), dtype=np.int64), []
    sizes = []
    for fragment in fragments:
        elements = [mol.GetAtomWithIdx(i).GetAtomicNum() for i in fragment]
        sizes.append((6 in elements, sum(z != 1 for z in elements)))
    order = sorted(range(len(sizes)), key=lambda k: sizes[k], reverse=True)
    first, second = order[0], order[1]
    if sizes[first][1] < 2:
        raise StructureError("ligand_artefact", f"{len(fragments)} single atoms where a ligand is due")
    if sizes[second][0] == sizes[first][0] and 2 * sizes[second][1] > sizes[first][1]:
        raise StructureError(
            "ligand_ambiguous",
            f"{len(fragments)} fragments, the largest of {sizes[first][1]} and {sizes[second][1]} heavy "
            "atoms, where one molecule is due",
        )
    keep = sorted(fragments[first])
    editable = Chem.RWMol(mol)
    editable.BeginBatchEdit()
    for index in set(range(mol.GetNumAtoms())) - set(keep):
        editable.RemoveAtom(index)
    editable.CommitBatchEdit()
    chosen = editable.GetMol()
    Chem.SanitizeMol(chosen)
    return chosen, np.array(keep, dtype=np.int64), ["fragments_dropped"]


def posed(mol: Any, *, hydrogens: bool, claims_3d: bool | None = None, names: tuple[str, ...] | None = None,
          title: str = "", repairs: tuple[str, ...] = ()) -> Posed:  # fmt: skip
    """:func:`perceive` with what the file said of its atoms."""
    perceived, row, more = perceive(mol, hydrogens=hydrogens, claims_3d=claims_3d)
    return Posed(perceived, row, names, title, tuple(dict.fromkeys((*repairs, *more))))
