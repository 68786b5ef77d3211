"""Drawings that no valence model accepts, made from sound molecules as the writers at fault make them."""

from __future__ import annotations

import pytest
from rdkit import Chem
from rdkit.Chem import AllChem

from holoshard.ingest.read.ligand import Ligand, read_ligand


def posed(smiles: str) -> Chem.RWMol:
    mol = Chem.AddHs(Chem.MolFromSmiles(smiles))
    assert AllChem.EmbedMolecule(mol, randomSeed=11) == 0
    return Chem.RWMol(mol)


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
