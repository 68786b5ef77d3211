from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from holoshard.ingest.read.ligand import read_ligand
from holoshard.shards.errors import StructureError

ETHANOL = """REMARK SMILES OCC
REMARK SMILES IDX 2 1 3 2 1 3
REMARK H PARENT 1 4
ROOT
ATOM      1  C1  UNL     1       0.000   0.000   0.100  1.00  0.00     0.000 C
ATOM      2  C2  UNL     1      -0.800   1.200   0.000  1.00  0.00     0.000 C
ATOM      3  O1  UNL     1       1.400   0.100   0.000  1.00  0.00     0.000 OA
ATOM      4  H1  UNL     1       1.700   0.900   0.000  1.00  0.00     0.000 HD
ENDROOT
TORSDOF 0
"""


def reason_of(text: str) -> str:
    with pytest.raises(StructureError) as caught:
        read_ligand(text.encode(), "x.pdbqt")
    return caught.value.reason


def test_coordinates_go_to_the_atoms_of_the_smiles() -> None:
    ligand = read_ligand(ETHANOL.encode(), "x", hydrogens=True)
    assert ligand.smiles == "CCO"
    assert ligand.element.tolist() == [8, 6, 6, 1]
    assert ligand.position[:, 0].tolist() == [1.4, 0.0, -0.8, 1.7]
    assert ligand.hydrogens.tolist() == [1, 2, 3, 0]


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("REMARK SMILES OCC\n", "", "ligand_no_bond_orders"),
        ("OCC", "OCCN", "parse_failed"),
        ("OCC", "O(C", "ligand_unreadable"),
        ("IDX 2 1 3 2 1 3", "IDX 2 1 3 2", "parse_failed"),
        ("IDX 2 1 3 2 1 3", "IDX 2 1 3 2 1 9", "parse_failed"),
        ("PARENT 1 4", "PARENT 7 4", "parse_failed"),
        ("       0.000   0.000   0.100", "       0.0x0   0.000   0.100", "parse_failed"),
    ],
)
def test_refusals(old: str, new: str, reason: str) -> None:
    assert old in ETHANOL
    assert reason_of(ETHANOL.replace(old, new)) == reason


def test_pdbqt_pose(shared: Path) -> None:
    folder = shared / "data/real/layouts/vina/basic_docking"
    pose = read_ligand((folder / "solution/1iep_ligand.pdbqt").read_bytes(), "pose")
    crystal = read_ligand((folder / "data/1iep_ligand.sdf").read_bytes(), "crystal")
    assert (pose.smiles, pose.inchikey) == (crystal.smiles, crystal.inchikey)
    gaps = np.linalg.norm(pose.position[:, None] - crystal.position, axis=-1)
    assert gaps.min(axis=1).max() < 0.01  # the same pose, in another order
    polar = read_ligand((folder / "solution/1iep_ligand.pdbqt").read_bytes(), "pose", hydrogens=True)
    assert polar.n_atoms - polar.n_heavy_atoms == 3
    assert np.array_equal(polar.hydrogens[polar.element != 1], pose.hydrogens)


def test_pdbqt_models_are_records(shared: Path) -> None:
    data = (shared / "data/real/layouts/vina/basic_docking/solution/1iep_ligand_vina_out.pdbqt").read_bytes()
    first, second = read_ligand(data, "x", 0), read_ligand(data, "x", 1)
    assert first.smiles == second.smiles
    assert np.abs(first.position - second.position).max() > 0.5
