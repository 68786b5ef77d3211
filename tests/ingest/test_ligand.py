from __future__ import annotations

import csv
import json
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
from rdkit import Chem, rdBase
from rdkit.Chem import AllChem, rdCIPLabeler
from rdkit.Chem.inchi import MolToInchiKey
from rdkit.Chem.Scaffolds import MurckoScaffold

from holoshard.ingest.read.ligand import Ligand, ligand_format, n_records, read_ligand
from holoshard.shards.complex import (
    BOND_ORDERS,
    BOND_STEREOS,
    CHIRALITIES,
    FIELDS,
    HYBRIDISATIONS,
)
from holoshard.shards.errors import StructureError


def molecule(smiles: str, seed: int = 7) -> Chem.Mol:
    mol = Chem.AddHs(Chem.MolFromSmiles(smiles))
    assert AllChem.EmbedMolecule(mol, randomSeed=seed) == 0
    return mol


def sdf(smiles: str, seed: int = 7) -> bytes:
    return Chem.MolToMolBlock(molecule(smiles, seed)).encode() + b"$$$$\n"


def reason_of(data: bytes, record: int = 0) -> str:
    with pytest.raises(StructureError) as caught:
        read_ligand(data, "ligand", record)
    return caught.value.reason


def same(a: Ligand, b: Ligand) -> bool:
    return all(
        np.array_equal(getattr(a, f.name), getattr(b, f.name))
        if isinstance(getattr(a, f.name), np.ndarray)
        else getattr(a, f.name) == getattr(b, f.name)
        for f in fields(Ligand)
    )


# What is read


def test_columns_have_the_shapes_and_dtypes_of_the_fields() -> None:
    ligand = read_ligand(sdf("C[C@H](N)C(=O)Nc1ccccc1"), "x")
    n, m = ligand.n_atoms, len(ligand.bond_order)
    assert ligand.position.dtype == np.float64
    for field in FIELDS:
        if hasattr(ligand, field.key) and field.key != "position":
            array = getattr(ligand, field.key)
            assert array.dtype == field.value_dtype, field.key
            assert array.shape == ((n if field.axis == "atom" else m), *field.shape), field.key
    assert (ligand.bond_atoms[:, 0] < ligand.bond_atoms[:, 1]).all()
    assert (np.diff(ligand.bond_atoms.astype(int) @ [n, 1]) > 0).all()


@pytest.mark.parametrize("hydrogens", [False, True])
def test_columns_agree_with_rdkit_atom_by_atom(shared: Path, hydrogens: bool) -> None:
    with (shared / "data/real/complexes.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["ligand_path"].endswith(".sdf")][::40]
    for row in rows:
        path = shared / "data/real" / row["ligand_path"]
        ligand = read_ligand(path.read_bytes(), path.name, int(row["ligand_record"]), hydrogens)
        with rdBase.BlockLogs():
            mol = Chem.SDMolSupplier(str(path), removeHs=not hydrogens)[int(row["ligand_record"])]
        assert ligand.smiles == row["smiles"]
        assert ligand.inchikey == MolToInchiKey(mol)
        assert ligand.scaffold == Chem.MolToSmiles(MurckoScaffold.GetScaffoldForMol(Chem.RemoveHs(mol)))
        assert np.allclose(ligand.position, mol.GetConformer().GetPositions())
        rdCIPLabeler.AssignCIPLabels(mol)
        for i, atom in enumerate(mol.GetAtoms()):
            assert ligand.element[i] == atom.GetAtomicNum()
            assert ligand.charge[i] == atom.GetFormalCharge()
            assert HYBRIDISATIONS[ligand.hybridisation[i]] == str(atom.GetHybridization()).lower()
            assert ligand.degree[i] == sum(n.GetAtomicNum() > 1 for n in atom.GetNeighbors())
            assert ligand.hydrogens[i] == atom.GetTotalNumHs(includeNeighbors=True)
            assert (ligand.aromatic[i], ligand.ring[i]) == (atom.GetIsAromatic(), atom.IsInRing())
            if atom.HasProp("_CIPCode") and atom.GetProp("_CIPCode") in "RS":
                assert CHIRALITIES[ligand.chirality[i]] == atom.GetProp("_CIPCode")
        bonds = {tuple(sorted((b.GetBeginAtomIdx(), b.GetEndAtomIdx()))): b for b in mol.GetBonds()}
        assert list(map(tuple, ligand.bond_atoms.tolist())) == sorted(bonds)
        for k, key in enumerate(sorted(bonds)):
            assert BOND_ORDERS[ligand.bond_order[k]] == str(bonds[key].GetBondType()).lower()
            assert ligand.bond_conjugated[k] == bonds[key].GetIsConjugated()
            assert ligand.bond_ring[k] == bonds[key].IsInRing()


def test_every_real_ligand_is_the_compound_of_the_table(shared: Path) -> None:
    seen, data = 0, {}
    with (shared / "data/real/complexes.csv").open() as file:
        for row in csv.DictReader(file):
            if not row["ligand_path"].endswith(".sdf"):
                continue
            path = shared / "data/real" / row["ligand_path"]
            content = data.setdefault(path, path.read_bytes())
            ligand = read_ligand(content, path.name, int(row["ligand_record"]))
            assert ligand.smiles == row["smiles"], row["id"]
            assert ligand.repairs == (), row["id"]
            seen += 1
    assert seen == 1459


def test_hydrogens_are_kept_on_demand_and_change_nothing_else() -> None:
    data = sdf("C[C@H](N)C(=O)Nc1ccccc1")
    without, with_ = read_ligand(data, "x"), read_ligand(data, "x", hydrogens=True)
    heavy = with_.element != 1
    assert with_.n_atoms == 24
    assert (with_.n_heavy_atoms, without.n_atoms) == (12, 12)
    for key in (
        "position",
        "element",
        "charge",
        "hybridisation",
        "degree",
        "hydrogens",
        "aromatic",
        "chirality",
    ):
        assert np.array_equal(getattr(with_, key)[heavy], getattr(without, key)), key
    assert (with_.smiles, with_.inchikey, with_.scaffold) == (
        without.smiles,
        without.inchikey,
        without.scaffold,
    )
    assert with_.hydrogens[~heavy].max() == 0
    assert set(with_.degree[~heavy].tolist()) == {1}


def test_row_points_into_the_files_atoms() -> None:
    mol = molecule("OCC(=O)N")
    order = np.random.default_rng(0).permutation(mol.GetNumAtoms()).tolist()
    mol = Chem.RenumberAtoms(mol, order)  # hydrogens in between
    ligand = read_ligand(Chem.MolToMolBlock(mol).encode(), "x")
    assert np.allclose(mol.GetConformer().GetPositions()[ligand.row], ligand.position, atol=1e-4)


def test_deuterium_is_hydrogen() -> None:
    mol = molecule("OCCO")
    for atom in mol.GetAtoms():
        if atom.GetAtomicNum() == 1 and atom.GetIdx() % 2:
            atom.SetIsotope(2)
    block = Chem.MolToMolBlock(mol)
    plain = Chem.MolToMolBlock(molecule("OCCO"))
    assert "M  ISO" in block
    assert same(read_ligand(block.encode(), "x"), read_ligand(plain.encode(), "x"))
    kept = read_ligand(block.encode(), "x", hydrogens=True)
    assert kept.smiles == "OCCO"
    assert sorted(kept.element.tolist()) == [1] * 6 + [6, 6, 8, 8]


def test_deuterium_as_a_symbol() -> None:
    block = Chem.MolToMolBlock(molecule("OCCO"))
    drawn = block.replace(" H   0", " D   0", 2)
    assert drawn != block
    assert same(read_ligand(drawn.encode(), "x"), read_ligand(block.encode(), "x"))


def test_v3000_is_read_as_v2000() -> None:
    mol = molecule("C[N+](C)(C)C[C@@H](O)/C=C/c1cc[nH]c1")
    old = read_ligand(Chem.MolToMolBlock(mol).encode(), "x")
    new = read_ligand(Chem.MolToV3KMolBlock(mol).encode(), "x")
    assert "V3000" in Chem.MolToV3KMolBlock(mol)
    assert np.abs(old.position - new.position).max() < 1e-4  # V2000 has four digits
    assert same(old, replace(new, position=old.position))


# Stereo


@pytest.mark.parametrize("smiles", ["C[C@H](N)C(=O)O", "C[C@@H](N)C(=O)O", "F[C@](Cl)(Br)I"])
def test_chirality_comes_from_the_coordinates(smiles: str) -> None:
    mol = molecule(smiles)
    truth = dict(Chem.FindMolChiralCenters(mol, useLegacyImplementation=False))
    block = Chem.MolToMolBlock(mol)
    mirror = Chem.Mol(mol)
    for i, xyz in enumerate(mol.GetConformer().GetPositions() * [1, 1, -1]):
        mirror.GetConformer().SetAtomPosition(i, xyz.tolist())
    lines, mirrored = block.split("\n"), Chem.MolToMolBlock(mirror).split("\n")
    n = mol.GetNumAtoms()
    # the mirror's coordinates under the first one's wedges and parities, and no word on the dimension
    lines[4 : 4 + n] = [m[:30] + line[30:] for m, line in zip(mirrored[4:], lines[4 : 4 + n], strict=False)]
    lines[1] = ""
    ligand, image = read_ligand(block.encode(), "x"), read_ligand("\n".join(lines).encode(), "x")
    for i, label in truth.items():
        assert CHIRALITIES[ligand.chirality[i]] == label
        assert CHIRALITIES[image.chirality[i]] == {"R": "S", "S": "R"}[label]
    assert ligand.smiles != image.smiles


def test_case_mirror_images_differ(shared: Path) -> None:
    case = shared / "cases/35-stereo-from-3d"
    one, other = (read_ligand((case / name).read_bytes(), name) for name in ("ligand.sdf", "mirror.sdf"))
    assert json.loads((case / "expected.json").read_text())["different"] is (one.smiles != other.smiles)
    labels = [{CHIRALITIES[c] for c in ligand.chirality.tolist()} - {"none"} for ligand in (one, other)]
    assert sorted(map(sorted, labels)) == [["R"], ["S"]]


def test_a_centre_too_flat_to_tell_is_unassigned() -> None:
    mol = Chem.RemoveHs(molecule("F[C@H](Cl)Br"))
    xyz = np.array([[1.35, 0, 5], [0, 0, 5.001], [-0.88, 1.52, 5], [-0.97, -1.67, 5]])
    for i, point in enumerate(xyz):
        mol.GetConformer().SetAtomPosition(i, point.tolist())
    ligand = read_ligand(Chem.MolToMolBlock(mol).encode(), "x")
    assert [CHIRALITIES[c] for c in ligand.chirality.tolist()] == ["none", "unassigned", "none", "none"]
    assert "@" not in ligand.smiles


@pytest.mark.parametrize(
    ("smiles", "label"), [("C/C=C/CO", "E"), ("C/C=C\\CO", "Z"), ("C/C(Cl)=C(/F)CO", "Z")]
)
def test_double_bonds(smiles: str, label: str) -> None:
    ligand = read_ligand(sdf(smiles), "x")
    double = ligand.bond_order == BOND_ORDERS.index("double")
    assert [BOND_STEREOS[s] for s in ligand.bond_stereo[double].tolist()] == [label]
    assert not ligand.bond_stereo[~double].any()
    assert ligand.smiles == Chem.CanonSmiles(smiles)


# Refusals


def flattened(block: bytes, header: bytes) -> bytes:
    lines = block.split(b"\n")
    lines[1] = b"  test              " + header
    n = int(lines[3][:3])
    lines[4 : 4 + n] = [line[:20] + b"    0.0000" + line[30:] for line in lines[4 : 4 + n]]
    return b"\n".join(lines)


@pytest.mark.parametrize("header", [b"", b"2D", b"3D"])
def test_a_drawing_is_no_pose(header: bytes) -> None:
    assert reason_of(flattened(sdf("CC(C)C(N)C(=O)O"), header)) == "ligand_no_3d"


@pytest.mark.parametrize("smiles", ["CCS(=O)(=O)Nc1ccccc1", "C[C@H](N)C(=O)O", "CCO", "CC(C)(C)NS(=O)(=O)C"])
@pytest.mark.parametrize("v3000", [False, True])
def test_zeros_are_no_pose_whatever_the_second_line_claims(smiles: str, v3000: bool) -> None:
    # RDKit returns no molecule at all for a sulfone of zeros that claims to be 3-D.
    mol = molecule(smiles)
    mol.GetConformer().SetPositions(np.zeros((mol.GetNumAtoms(), 3)))
    block = Chem.MolToMolBlock(mol, forceV3000=v3000)
    assert "3D" in block.split("\n")[1]
    assert reason_of(block.encode()) == "ligand_no_3d"


def test_a_flat_molecule_may_lie_in_the_plane(shared: Path) -> None:
    benzene = (shared / "cases/10-sdf-hcount-field/ligand.sdf").read_bytes()
    assert read_ligand(benzene, "x").smiles == "c1ccccc1"
    assert reason_of(benzene.replace(b"3D", b"2D")) == "ligand_no_3d"
    assert reason_of(benzene.replace(b"3D", b"  ")) == "ligand_no_3d"


def test_a_2d_flag_on_a_pose_is_not_believed() -> None:
    data = sdf("C[C@H](N)C(=O)O")
    assert b"3D" in data
    assert same(read_ligand(data.replace(b"3D", b"2D"), "x"), read_ligand(data, "x"))


def test_case_zero_coordinates(shared: Path) -> None:
    case = shared / "cases/42-ligand-zero-coords"
    assert (
        reason_of((case / "ligand.sdf").read_bytes())
        == json.loads((case / "expected.json").read_text())["code"]
    )


def test_case_empty_file(shared: Path) -> None:
    case = shared / "cases/19-empty-file"
    assert (
        reason_of((case / "ligand.sdf").read_bytes())
        == json.loads((case / "expected.json").read_text())["code"]
    )


def test_atoms_on_top_of_each_other() -> None:
    mol = molecule("CCO")
    mol.GetConformer().SetAtomPosition(1, mol.GetConformer().GetAtomPosition(0))
    assert reason_of(Chem.MolToMolBlock(mol).encode()) == "structure_bad_coordinates"


def test_hydrogens_without_coordinates_do_no_harm() -> None:
    mol = molecule("CCO")
    for atom in mol.GetAtoms():
        if atom.GetAtomicNum() == 1:
            mol.GetConformer().SetAtomPosition(atom.GetIdx(), [0, 0, 0])
    assert read_ligand(Chem.MolToMolBlock(mol).encode(), "x").smiles == "CCO"


@pytest.mark.parametrize("symbol", [b"* ", b"R#", b"A ", b"Q "])
def test_dummies_and_queries_are_refused(symbol: bytes) -> None:
    data = sdf("CCO").replace(b" O   0", b" " + symbol + b"  0", 1)
    assert reason_of(data) == "ligand_unreadable"


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "empty_file"),
        (b"\r\n \r\n", "empty_file"),
        (b"id,smiles\n1,CCO\n", "format_unknown"),
        (
            b"ATOM      1  N   ALA A   1      11.104   6.134  -6.504  1.00  0.00           N\n",
            "format_mismatch",
        ),
        (b"data_1ABC\n_atom_site.id 1\n", "format_mismatch"),
        (b"\x1f\x8b\x08\x00rest", "format_mismatch"),
        (b"\n\n\n  0  0  0  0  0  0  0  0  0  0999 V2000\nM  END\n", "ligand_empty"),
    ],
)
def test_what_is_no_ligand(data: bytes, reason: str) -> None:
    assert reason_of(data) == reason


@pytest.mark.parametrize("record", [1, 7, -1])
def test_a_record_that_is_not_there(record: int) -> None:
    assert reason_of(sdf("CCO"), record) == "record_missing"


def test_the_message_names_file_and_record() -> None:
    with pytest.raises(StructureError, match=r"^lig\.sdf record 1: 0 atoms"):
        read_ligand(sdf("CCO") + b"\n\n\n  0  0  0  0  0  0  0  0  0  0999 V2000\nM  END\n", "lig.sdf", 1)


def test_nothing_is_said_on_standard_error(capfd: pytest.CaptureFixture[str], shared: Path) -> None:
    for path in sorted((shared / "data/real/nasty/rdkit").glob("*.*")):
        try:
            read_ligand(path.read_bytes(), path.name)
        except StructureError:
            continue
    assert capfd.readouterr() == ("", "")


def test_formats_by_content(shared: Path) -> None:
    real = shared / "data/real/layouts"
    assert ligand_format((real / "pdbbind_style_diffdock/1a0q/1a0q_ligand.mol2").read_bytes()) == "mol2"
    assert ligand_format((real / "pdbbind_style_diffdock/1a0q/1a0q_ligand.sdf").read_bytes()) == "sdf"
    poses = (real / "vina/basic_docking/solution/1iep_ligand_vina_out.pdbqt").read_bytes()
    assert (ligand_format(poses), n_records(poses)) == ("pdbqt", 4)
