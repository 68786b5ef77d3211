"""Drawings that no valence model accepts, made from sound molecules as the writers at fault make them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from rdkit import Chem
from rdkit.Chem import AllChem

from holoshard.ingest.read.ligand import Ligand, read_ligand
from holoshard.shards.errors import StructureError


def posed(smiles: str) -> Chem.RWMol:
    mol = Chem.AddHs(Chem.MolFromSmiles(smiles))
    assert AllChem.EmbedMolecule(mol, randomSeed=11) == 0
    return Chem.RWMol(mol)


def reason_of(data: bytes) -> str:
    with pytest.raises(StructureError) as caught:
        read_ligand(data, "ligand")
    return caught.value.reason


def drawn_as_x_tool_does(smiles: str, group: str) -> bytes:
    """The bonds from the first atom of a pattern to the others made double, its charge that of the group."""
    mol = posed(smiles)
    Chem.Kekulize(mol, clearAromaticFlags=True)
    for centre, *partners in mol.GetSubstructMatches(Chem.MolFromSmarts(group)):
        charge = 0
        for partner in partners:
            charge += mol.GetAtomWithIdx(partner).GetFormalCharge()
            mol.GetAtomWithIdx(partner).SetFormalCharge(0)
            mol.GetBondBetweenAtoms(centre, partner).SetBondType(Chem.BondType.DOUBLE)
        if mol.GetAtomWithIdx(centre).GetAtomicNum() == 6:
            mol.GetAtomWithIdx(centre).SetFormalCharge(charge)
    return Chem.MolToMolBlock(mol, kekulize=False).encode()


@pytest.mark.parametrize(
    ("smiles", "group"),
    [
        ("CC(=O)[O-]", "C(=O)[O-]"),
        ("[O-]C(=O)CCc1ccccc1C(=O)[O-]", "C(=O)[O-]"),
        ("CCNC(N)=[NH2+]", "C(N)(N)=[N+]"),
        ("NC(=[NH2+])c1ccccc1", "C(N)=[N+]"),
        ("COP(=O)([O-])[O-]", "P(=O)([O-])[O-]"),
        ("COP(=O)([O-])OC", "P(=O)[O-]"),
        ("CS(=O)(=O)[O-]", "S(=O)(=O)[O-]"),
        ("CC(=S)[S-]", "C(=S)[S-]"),
    ],
)
def test_delocalised_groups(smiles: str, group: str) -> None:
    block = drawn_as_x_tool_does(smiles, group)
    assert Chem.MolFromMolBlock(block.decode()) is None  # as drawn it is no molecule
    ligand = read_ligand(block, "x")
    assert _resonance_form(ligand) == _resonance_form(
        read_ligand(Chem.MolToMolBlock(posed(smiles)).encode(), "x")
    )
    assert ligand.repairs == ("delocalised_group",)
    assert ligand.charge.sum() == Chem.GetFormalCharge(Chem.MolFromSmiles(smiles))


def _resonance_form(ligand: Ligand) -> str:
    """InChI sees no difference between resonance forms."""
    return ligand.inchikey


@pytest.mark.parametrize(
    "smiles", ["O=C=O", "CN=C=NC", "CC(=O)OC", "CS(C)(=O)=O", "C=C=C", "CS(=O)(=O)N", "O=P(C)(C)C"]
)
def test_double_bonds_that_are_right_stay(smiles: str) -> None:
    ligand = read_ligand(Chem.MolToMolBlock(posed(smiles)).encode(), "x")
    assert (ligand.smiles, ligand.repairs) == (Chem.CanonSmiles(smiles), ())


def test_case_missing_nh(shared: Path) -> None:
    case = shared / "cases/12-kekule-missing-nh"
    ligand = read_ligand((case / "ligand.sdf").read_bytes(), "ligand.sdf")
    assert ligand.smiles == json.loads((case / "expected.json").read_text())["smiles"]
    assert ligand.repairs == ("aromatic_nh_added",)


def _without_hydrogen_on_nitrogen(smiles: str) -> bytes:
    """Aromatic bonds as type 4, and no hydrogen on any aromatic nitrogen."""
    mol = Chem.RWMol(posed(smiles))
    mol.BeginBatchEdit()
    for atom in mol.GetAtoms():
        if (
            atom.GetAtomicNum() == 1
            and atom.GetNeighbors()[0].GetIsAromatic()
            and atom.GetNeighbors()[0].GetAtomicNum() == 7
        ):
            mol.RemoveAtom(atom.GetIdx())
    mol.CommitBatchEdit()
    return Chem.MolToMolBlock(mol, kekulize=False).encode()


@pytest.mark.parametrize(
    "smiles",
    [
        "c1ccc2[nH]ccc2c1",
        "O=c1[nH]c(=O)[nH]cc1C",
        "c1cc(-c2ccc[nH]2)[nH]c1",
        "c1ccc2[nH]cnc2c1",
        "Cc1n[nH]c(C)c1CCO",
    ],
)
def test_nitrogens_without_their_hydrogen(smiles: str) -> None:
    ligand = read_ligand(_without_hydrogen_on_nitrogen(smiles), "x")
    assert ligand.smiles == Chem.CanonSmiles(smiles)
    assert ligand.repairs == ("aromatic_nh_added",)
    nh = (ligand.element == 7) & (ligand.hydrogens == 1) & (ligand.aromatic == 1)
    assert nh.sum() == smiles.count("[nH]")


@pytest.mark.parametrize(
    "smiles", ["C[N+](C)(C)CCO", "OC[n+]1ccccc1", "F[B-](F)(F)c1ccccc1", "C[NH+]1CCOCC1"]
)
def test_charges_that_the_drawing_demands(smiles: str) -> None:
    block = Chem.MolToMolBlock(posed(smiles), kekulize=False)
    bare = "\n".join(line for line in block.split("\n") if not line.startswith("M  CHG"))
    assert bare != block
    ligand = read_ligand(bare.encode(), "x")
    assert Chem.CanonSmiles(ligand.smiles) == Chem.CanonSmiles(smiles)
    assert ligand.repairs == ("charge_adjusted",)


@pytest.mark.parametrize(
    "smiles", ["OC[N+](=O)[O-]", "CS(=O)(=O)c1ccccc1", "COP(=O)(O)O", "CC(=O)[O-]", "FP(F)(F)(F)F"]
)
def test_chemistry_that_needs_no_repair(smiles: str) -> None:
    ligand = read_ligand(Chem.MolToMolBlock(posed(smiles)).encode(), "x")
    assert (ligand.smiles, ligand.repairs) == (Chem.CanonSmiles(smiles), ())


def test_five_bonds_on_carbon_cannot_be_mended() -> None:
    block = Chem.MolToMolBlock(posed("CC(C)(C)C")).replace("  1  2  1  0", "  1  2  2  0")
    assert reason_of(block.encode()) == "ligand_unreadable"


def test_salts_are_left_out() -> None:
    mol = Chem.CombineMols(posed("C[NH+](C)Cc1ccccc1"), posed("[Cl-]"))
    mol = Chem.CombineMols(mol, posed("O"))
    for atom in mol.GetAtoms():  # apart from each other
        if atom.GetIdx() >= 24:
            xyz = mol.GetConformer().GetAtomPosition(atom.GetIdx())
            mol.GetConformer().SetAtomPosition(atom.GetIdx(), [xyz.x + 2 * atom.GetIdx(), xyz.y, xyz.z + 9])
    ligand = read_ligand(Chem.MolToMolBlock(mol).encode(), "x")
    assert ligand.smiles == "C[NH+](C)Cc1ccccc1"
    assert ligand.repairs == ("fragments_dropped",)
    assert np.allclose(mol.GetConformer().GetPositions()[ligand.row], ligand.position, atol=1e-4)


def test_two_ligands_in_one_record_are_ambiguous() -> None:
    a, b = posed("Cc1ccccc1"), posed("CCCCCC")
    mol = Chem.CombineMols(a, b)
    for i in range(a.GetNumAtoms(), mol.GetNumAtoms()):
        xyz = mol.GetConformer().GetAtomPosition(i)
        mol.GetConformer().SetAtomPosition(i, [xyz.x + 20, xyz.y, xyz.z])
    assert reason_of(Chem.MolToMolBlock(mol).encode()) == "ligand_ambiguous"
