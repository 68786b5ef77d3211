"""Complexes as they will be written: the rows of the tables and the bytes of the files."""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray
from rdkit import Chem

from . import formula
from .label import Written, write_label
from .ligand import N_VARIANTS, Ligand, ligand
from .ligand_file import write_mol2, write_sdf
from .pocket import IONS, Pose, Target, pose, target
from .protein_file import AtomLine, write_cif, write_pdb
from .residue import random_rotation, rotation_about

Floats = NDArray[np.float64]

PER_TARGET: Final = 16  # complexes of a target, one after the other
PAIRS_FROM: Final = 12  # within a target: from here on two ligands share a protein file and an SD file
_STREAM: Final = 3
_SIDE_CHAIN_BEYOND_CB: Final = 5  # after N, CA, C, O, CB
_WIDEST: Final = 60.0  # angstrom, how far from the origin a complex may lie

PROTEIN_SUFFIXES: Final = ((".pdb", 0.45), (".pdb.gz", 0.15), (".cif", 0.25), (".cif.gz", 0.15))
LIGAND_SUFFIXES: Final = ((".sdf", 0.5), (".mol2", 0.3), (".sdf.gz", 0.12), (".mol2.gz", 0.08))


@dataclass(slots=True)
class Draft:
    """One complex before it is written; ``dirt`` changes it.

    Attributes
    ----------
    row : of labels.csv
    truth : of truth.csv
    files : path below the sample's folder -> bytes; a path of ``row`` that is not here will be missing
    """

    row: dict[str, str]
    truth: dict[str, str]
    files: dict[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Need:
    """What a kind of dirt asks of the files it spoils; empty for "whatever is drawn"."""

    protein: str = ""
    ligand: str = ""


def is_pair(index: int) -> bool:
    """True if this complex shares its files with another."""
    return index % PER_TARGET >= PAIRS_FROM


def identifier(seed: int, index: int) -> str:
    """Unique over seeds, so that samples can be mixed."""
    return f"s{seed}-T{index // PER_TARGET:05d}-{index % PER_TARGET:02d}"


def draft(seed: int, index: int, needs: Mapping[int, Need]) -> list[Draft]:
    """The complex of this index, or the pair that begins with it. Depends on nothing but its arguments."""
    rng = np.random.default_rng([seed, _STREAM, index])
    goal = target(seed, index // PER_TARGET)
    n = 2 if is_pair(index) else 1
    ligands = tuple(_choose_ligand(seed, goal, rng) for _ in range(n))
    poses = pose(goal, ligands, rng)
    turn, shift = random_rotation(rng), rng.uniform(-_WIDEST, _WIDEST, 3)
    atoms = _protein_lines(goal, poses[0], turn, shift, rng)
    need = needs.get(index, Need())
    protein_suffix = need.protein or _draw(PROTEIN_SUFFIXES, rng)
    ligand_suffix = need.ligand or _draw(LIGAND_SUFFIXES if n == 1 else LIGAND_SUFFIXES[:1], rng)
    hydrogens = bool(rng.random() < 0.7)
    name = identifier(seed, index)
    stem = f"structures/{goal.name}/{name}"
    drafts, ligand_text = [], ""
    for k, (mol, posed) in enumerate(zip(ligands, poses, strict=True)):
        position = np.round(posed.ligand @ turn.T + shift, 3)
        ligand_text += (
            write_mol2(mol, mol.name, position)
            if ligand_suffix.startswith(".mol2")
            else write_sdf(mol, mol.name, position, hydrogens=hydrogens)
        )
        terms = _score(seed, index // PER_TARGET, mol, position, atoms)
        pk = float(np.clip(terms.pk + rng.normal(0.0, formula.NOISE_SD), *formula.RANGE))
        label = write_label(pk, rng)
        row = _row(identifier(seed, index + k), goal, mol, label)
        row["protein_path"] = f"{stem}_protein{protein_suffix}"
        row["ligand_path"] = f"{stem}_ligand{ligand_suffix}"
        row["ligand_record"] = str(k)
        drafts.append(Draft(row, _truth(row["id"], terms, pk, label, mol)))
    title = f"SYNTHETIC POCKET {goal.name} SAMPLE {name.upper()}"
    text = write_pdb(title, atoms) if protein_suffix.startswith(".pdb") else write_cif(title, name, atoms)
    drafts[0].files = {
        drafts[0].row["protein_path"]: _packed(text, protein_suffix),
        drafts[0].row["ligand_path"]: _packed(ligand_text, ligand_suffix),
    }
    return drafts


COLUMNS: Final = (
    "id", "source", "protein_path", "ligand_path", "ligand_record", "ligand_name",
    "affinity_type", "relation", "value", "unit", "target", "cluster", "synthetic",
)  # fmt: skip
TRUTH_COLUMNS: Final = (
    "id", "formula", "noisy", "written", "written_relation", "smiles", "hydrogen_bonds", "ionic_contacts",
    "lipophilic_atoms", "unpaired_polar_atoms", "burial", "rotatable_bonds",
)  # fmt: skip


def _choose_ligand(seed: int, goal: Target, rng: np.random.Generator) -> Ligand:
    core = goal.cores[int(rng.integers(len(goal.cores)))]
    return ligand(seed, core, int(rng.integers(N_VARIANTS)))


def _row(name: str, goal: Target, mol: Ligand, label: Written) -> dict[str, str]:
    return {
        "id": name,
        "source": "holoshard-sample",
        "ligand_name": mol.name,
        "affinity_type": label.affinity_type,
        "relation": label.relation,
        "value": label.value,
        "unit": label.unit,
        "target": goal.name,
        "cluster": str(int(goal.name[1:])),
        "synthetic": "true",
    }


def _truth(name: str, terms: formula.Terms, pk: float, label: Written, mol: Ligand) -> dict[str, str]:
    return {
        "id": name,
        "formula": f"{terms.pk:.4f}",
        "noisy": f"{pk:.4f}",
        "written": f"{label.pk:.4f}",
        "written_relation": label.pk_relation,
        "smiles": str(Chem.MolToSmiles(Chem.RemoveHs(mol.mol), isomericSmiles=False)),
        **{name: f"{getattr(terms, name):.4f}" for name in TRUTH_COLUMNS[-6:]},
    }


@lru_cache(maxsize=64)
def _protein_sites(seed: int, index: int) -> formula.Sites:
    residues = [residue for segment in target(seed, index).segments for residue in segment.peptide.residues]
    atoms = [(residue.name, name) for residue in residues for name in residue.names]
    counted = [atom for atom in atoms if formula.is_counted(*atom)]
    return formula.protein_sites([r for r, _ in counted], [n for _, n in counted])


@lru_cache(maxsize=4096)
def _ligand_sites(mol: Ligand) -> tuple[formula.Sites, int]:
    return formula.ligand_sites(mol.mol), formula.rotatable_bonds(mol.mol)


def _score(seed: int, index: int, mol: Ligand, position: Floats, atoms: list[AtomLine]) -> formula.Terms:
    sites, rotors = _ligand_sites(mol)
    protein = np.array(
        [(a.x, a.y, a.z) for a in atoms if a.altloc != "B" and a.element != "H" and not a.hetero]
    )
    return formula.score_sites(sites, position[: mol.n_heavy], _protein_sites(seed, index), protein, rotors)


def _protein_lines(
    goal: Target, posed: Pose, turn: Floats, shift: Floats, rng: np.random.Generator
) -> list[AtomLine]:
    """The pocket's atoms, then ion and waters; now and then with hydrogens, or a residue in two places."""
    with_hydrogens, doubled = bool(rng.random() < 0.15), -1
    residues = [(segment, k) for segment in goal.segments for k in range(len(segment.number))]
    if rng.random() < 0.2 and not with_hydrogens:
        doubled = int(rng.integers(len(residues)))
    lines: list[AtomLine] = []
    count = 0
    for segment, placed in zip(goal.segments, posed.segments, strict=True):
        position = np.round(placed @ turn.T + shift, 3)
        for k, residue in enumerate(segment.peptide.residues):
            rows = np.flatnonzero(segment.peptide.residue == k)
            rows = rows if with_hydrogens else rows[: residue.n_heavy]
            second = (
                _second_place(position[rows])
                if count == doubled and residue.n_heavy > _SIDE_CHAIN_BEYOND_CB
                else None
            )
            place = (residue.name, segment.chain, segment.number[k], segment.insertion[k])
            b_factors = segment.b_factor[rows].tolist()
            for j, (x, y, z) in enumerate(position[rows].tolist()):
                name, element, b = residue.names[j], residue.elements[j], b_factors[j]
                if second is None or j < _SIDE_CHAIN_BEYOND_CB:
                    lines.append(AtomLine(False, name, "", *place, x, y, z, 1.0, b, element))
                else:
                    x2, y2, z2 = second[j].tolist()
                    lines.append(AtomLine(False, name, "A", *place, x, y, z, 0.6, b, element))
                    lines.append(AtomLine(False, name, "B", *place, x2, y2, z2, 0.4, b, element))
            count += 1
    return lines + _hetero_lines(posed, turn, shift, rng)


def _second_place(position: Floats) -> Floats:
    """The residue's side chain turned by 25 degrees about CA-CB."""
    axis = position[4] - position[1]
    turn = rotation_about(axis / np.linalg.norm(axis), np.radians(25.0))
    return np.asarray(np.round((position - position[1]) @ turn.T + position[1], 3))


def _hetero_lines(posed: Pose, turn: Floats, shift: Floats, rng: np.random.Generator) -> list[AtomLine]:
    lines = []
    ions = np.round(posed.ion @ turn.T + shift, 3).tolist()
    for number, (x, y, z) in enumerate(ions, start=901):
        name = IONS[int(rng.integers(len(IONS)))]
        lines.append(AtomLine(True, name, "", name, "A", number, "", x, y, z, 1.0, 30.0, name.capitalize()))
    waters = np.round(posed.waters @ turn.T + shift, 3).tolist()
    for number, (x, y, z) in enumerate(waters, start=911):
        lines.append(AtomLine(True, "O", "", "HOH", "A", number, "", x, y, z, 1.0, 35.0, "O"))
    return lines


def _packed(text: str, suffix: str) -> bytes:
    data = text.encode("ascii")
    return gzip.compress(data, 6, mtime=0) if suffix.endswith(".gz") else data


def _draw(choices: tuple[tuple[str, float], ...], rng: np.random.Generator) -> str:
    shares = np.cumsum([share for _, share in choices])
    return choices[int(np.searchsorted(shares, rng.random() * shares[-1], side="right"))][0]
