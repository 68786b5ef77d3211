from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
from rdkit import Chem, rdBase

from holoshard.ingest.read.ligand import n_records, read_ligand
from holoshard.ingest.read.mol2 import element_of
from holoshard.shards.complex import decode_names
from holoshard.shards.errors import StructureError

ACETATE = """@<TRIPOS>MOLECULE
acetate
 4 3 0 0 0
SMALL
NO_CHARGES

@<TRIPOS>ATOM
 1 C1 0.0 0.0 0.1 C.3 1 ACT 0.0
 2 C2 1.5 0.0 0.0 C.2 1 ACT 0.0
 3 O1 2.1 1.1 0.0 O.co2 1 ACT 0.0
 4 O2 2.1 -1.1 0.0 O.co2 1 ACT 0.0
@<TRIPOS>BOND
 1 1 2 1
 2 2 3 ar
 3 2 4 ar
"""


def reason_of(data: bytes, record: int = 0) -> str:
    with pytest.raises(StructureError) as caught:
        read_ligand(data, "x.mol2", record)
    return caught.value.reason


def test_mol2_has_names_and_charges(shared: Path) -> None:
    path = shared / "data/real/layouts/pdbbind_style_diffdock/1a0q/1a0q_ligand.mol2"
    ligand = read_ligand(path.read_bytes(), path.name)
    assert ligand.title == "1a0q_ligand"
    assert decode_names(ligand.name)[:3] == ["C1", "C2", "C3"]
    assert ligand.smiles == "CCCC[C@H](NC(=O)CCC(=O)[O-])[P@@](=O)([O-])Oc1ccccc1"  # O.co2
    with_ = read_ligand(path.read_bytes(), path.name, hydrogens=True)
    assert (with_.n_atoms, ligand.n_atoms) == (43, 23)


def test_mol2_agrees_with_rdkit_where_rdkit_reads_it(shared: Path) -> None:
    data = gzip.decompress((shared / "data/real/layouts/dude/fabp4/actives_final.mol2.gz").read_bytes())
    blocks = data.split(b"@<TRIPOS>MOLECULE")[1:]
    assert n_records(data) == len(blocks) == 57
    for k, block in enumerate(blocks):
        with rdBase.BlockLogs():
            mol = Chem.MolFromMol2Block("@<TRIPOS>MOLECULE" + block.decode())
        Chem.AssignStereochemistryFrom3D(mol)
        ligand = read_ligand(data, "x", k)
        assert ligand.smiles == Chem.MolToSmiles(mol)
        assert np.allclose(ligand.position, mol.GetConformer().GetPositions())


@pytest.mark.parametrize(
    ("bonds", "smiles"),
    [
        (("ar", "ar"), "CC(=O)[O-]"),
        (("2", "ar"), "CC(=O)[O-]"),
        (("2", "1"), "CC(=O)O"),  # a file without hydrogens, drawn in full: the acid
    ],
)
def test_carboxylates(bonds: tuple[str, str], smiles: str) -> None:
    text = ACETATE.replace("2 3 ar", f"2 3 {bonds[0]}").replace("2 4 ar", f"2 4 {bonds[1]}")
    assert read_ligand(text.encode(), "x").smiles == smiles


def test_oxygen_without_hydrogen_is_an_anion_where_hydrogens_are_drawn() -> None:
    text = ACETATE.replace("4 3 0", "5 4 0").replace("ar", "2", 1).replace("ar", "1", 1)
    text = text.replace("@<TRIPOS>BOND", " 5 H1 -0.4 0.9 0.1 H 1 ACT 0.0\n@<TRIPOS>BOND") + " 4 1 5 1\n"
    assert read_ligand(text.encode(), "x").smiles == "CC(=O)[O-]"


def test_charges_that_are_stated_win() -> None:
    text = ACETATE.replace("@<TRIPOS>BOND", "@<TRIPOS>UNITY_ATOM_ATTR\n3 1\ncharge -1\n@<TRIPOS>BOND")
    ligand = read_ligand(text.encode(), "x")
    assert ligand.charge.tolist() == [0, 0, -1, 0]


def test_line_ends_comments_and_a_second_molecule() -> None:
    plain = read_ligand(ACETATE.encode(), "x")
    two = ("# a comment\n\n" + ACETATE + "\n# another\n" + ACETATE.replace("acetate", "second")).encode()
    assert [read_ligand(two, "x", k).title for k in (0, 1)] == ["acetate", "second"]
    for newline in ("\r\n", "\r"):
        other = two.replace(b"\n", newline.encode())
        assert n_records(other) == 2
        assert read_ligand(other, "x", 1).smiles == plain.smiles
        assert decode_names(read_ligand(other, "x", 1).name) == ["C1", "C2", "O1", "O2"]


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (" 4 3 0 0 0", " 5 3 0 0 0", "parse_failed"),
        (" 3 2 4 ar", " 3 2 9 ar", "parse_failed"),
        (" 3 2 4 ar", " 3 2 3 ar", "parse_failed"),  # the same bond twice
        (" 3 2 4 ar", " 3 2 4 un", "ligand_no_bond_orders"),
        ("1 C1 0.0 0.0 0.1", "1 C1 0.0 0.0", "parse_failed"),
        ("C.3 1", "Du 1", "ligand_unreadable"),
        (" C.3 1 ACT", " 1 ACT", "ligand_no_bond_orders"),  # no column of types
        ("0.0 0.0 0.1", "0.0 0.0 0.0", "ligand_no_3d"),  # then everything lies at z = 0
        ("0.0 0.0 0.1", "nan 0.0 0.1", "structure_bad_coordinates"),
    ],
)
def test_refusals(old: str, new: str, reason: str) -> None:
    assert old in ACETATE
    assert reason_of(ACETATE.replace(old, new).encode()) == reason


def test_no_bond_section() -> None:
    text = ACETATE.split("@<TRIPOS>BOND")[0].replace("4 3 0", "4 0 0")
    assert reason_of(text.encode()) == "ligand_no_bond_orders"


@pytest.mark.parametrize(
    ("kind", "element"),
    [("C.ar", "C"), ("N.pl3", "N"), ("O.co2", "O"), ("Cl", "Cl"), ("CL", "Cl"), ("Br", "Br"), ("H", "H"),
     ("D", "H"), ("Ca", "Ca"), ("ca", "C"), ("c3", "C"), ("oh", "O"), ("cl", "Cl"), ("Fe", "Fe"),
     ("S.o2", "S"), ("Du", ""), ("LP", ""), ("Any", ""), ("Hev", "")],
)  # fmt: skip
def test_elements_of_types(kind: str, element: str) -> None:
    assert element_of(kind) == element
