"""Bond orders from geometry: right or refused."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
from rdkit import Chem
from rdkit.Chem import AllChem

from holoshard.ingest.chemistry.embedded import embedded_ligand
from holoshard.ingest.chemistry.geometry import entry_from_geometry
from holoshard.ingest.chemistry.receptor import as_receptor
from holoshard.ingest.chemistry.select import ligand_sites
from holoshard.ingest.item import Locator
from holoshard.ingest.read.archive import load
from holoshard.ingest.read.ligand import ligand_from_residue, read_ligand
from holoshard.ingest.read.structure import read_structure
from holoshard.shards.errors import StructureError


def perceived(element: np.ndarray, position: np.ndarray) -> str:
    """The InChIKey's skeleton, or "refused"."""
    n = len(element)
    try:
        entry = entry_from_geometry(element, position, "LIG")
        found = ligand_from_residue(
            residue_name="LIG", names=[str(k) for k in range(n)], element=element,
            charge=np.zeros(n, np.int8), position=position, b_factor=np.zeros(n, np.float32),
            occupancy=np.ones(n, np.float32), component=entry,
        )  # fmt: skip
    except StructureError as error:
        return "refused" if error.reason == "ligand_no_bond_orders" else error.reason
    return found.inchikey[:14]


def embedded(smiles: str) -> tuple[np.ndarray, np.ndarray, str]:
    mol = Chem.AddHs(Chem.MolFromSmiles(smiles))
    assert AllChem.EmbedMolecule(mol, randomSeed=7) == 0
    AllChem.MMFFOptimizeMolecule(mol, maxIters=2000)
    mol = Chem.RemoveHs(mol)
    element = np.array([atom.GetAtomicNum() for atom in mol.GetAtoms()], np.uint8)
    return element, mol.GetConformer().GetPositions(), Chem.MolToInchiKey(mol)[:14]


@pytest.mark.parametrize(
    "smiles",
    ["CC(=O)Nc1ccc(O)cc1", "c1ccc2[nH]ccc2c1", "N#Cc1ccccc1", "CC#CC", "O=[N+]([O-])c1ccccc1",
     "CS(=O)(=O)Nc1ccccc1", "CC(=O)O", "NC(=N)c1ccccc1", "C1CCCCC1", "O=c1cc[nH]c(=O)[nH]1", "CC=CC=O",
     "COP(=O)(O)O", "CCSC(=O)C", "c1ccsc1", "[O-][n+]1ccccc1", "CC(C)(C)Cl"],
)  # fmt: skip
def test_groups(smiles):
    element, position, key = embedded(smiles)
    assert perceived(element, position) == key


@pytest.mark.parametrize(("error", "least"), [(0.0, 0.8), (0.03, 0.4)])
def test_real_poses_are_right_or_refused(shared: Path, error: float, least: float):
    root, rng = shared / "data/real", np.random.default_rng(3)
    with (root / "complexes.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["protein_path"] != row["ligand_path"]]
    outcomes = []
    for row in rows[::36]:
        known = read_ligand(load(Locator(root / row["ligand_path"])), "x", int(row["ligand_record"]))
        key = perceived(known.element, known.position + rng.normal(0, error, known.position.shape))
        outcomes.append("refused" if key == "refused" else key == known.inchikey[:14])
    assert outcomes.count(True) >= least * len(outcomes)
    assert outcomes.count(False) <= 1 + 0.03 * outcomes.count(True) * (error > 0)


def test_deposited_ligands_are_right_or_refused(shared: Path):
    """Residues that the dictionary knows, as if it did not."""
    outcomes: dict[str, bool | str] = {}
    for path in sorted((shared / "data/real/sources/wwpdb_raw").iterdir()):
        if not path.name.removesuffix(".gz").endswith((".pdb", ".cif")):
            continue
        receptor = as_receptor(read_structure(load(Locator(path)), path.name))
        for site in ligand_sites(receptor):
            try:
                known = embedded_ligand(receptor, site)
            except StructureError:
                continue
            if not known.repairs:
                key = perceived(known.element, known.position)
                outcomes[known.inchikey] = "refused" if key == "refused" else key == known.inchikey[:14]
    found = list(outcomes.values())
    assert len(found) >= 10
    assert found.count(True) >= 0.6 * len(found)
    assert found.count(False) <= 1


def test_a_triazane_and_a_hydride_of_sulfur_are_doubts():
    assert perceived(*embedded("CNNNC")[:2]) == "refused"
    assert perceived(*embedded("C[S+](C)CC")[:2]) == "refused"


def test_doubt_is_a_refusal():
    element, position, _ = embedded("CC(=O)Nc1ccc(O)cc1")
    assert perceived(element, position * 1.08) == "refused"  # every bond stretched
    shaken = position + np.random.default_rng(1).normal(0, 0.15, position.shape)
    assert perceived(element, shaken) == "refused"
    metal = element.copy()
    metal[0] = 26
    assert perceived(metal, position) == "refused"
    apart = position.copy()
    apart[0] += 5  # in two pieces
    assert perceived(element, apart) == "refused"
    assert perceived(element[:1], position[:1]) == "refused"
