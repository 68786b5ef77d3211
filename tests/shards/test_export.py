"""Back to SDF and PDB: other programs read the same molecule at the same place."""

from __future__ import annotations

import csv
import dataclasses
import math

import numpy as np
import pytest
from random_complexes import random_complex

from holoshard.__main__ import main
from holoshard.shards.complex import BOND_ORDERS, RESIDUE_TYPES, Affinity, encode_names
from holoshard.shards.errors import DataError
from holoshard.shards.export.labelled import label
from holoshard.shards.make.kekule import kekulise
from holoshard.shards.make.structures import to_pdb, to_sdf
from holoshard.shards.make.writer import write_part

Chem = pytest.importorskip("rdkit.Chem")
gemmi = pytest.importorskip("gemmi")

SMILES = [
    "c1ccccc1", "c1cc[nH]c1", "c1ccoc1", "c1ccsc1", "c1ccc2cccc2cc1", "c1ncc2nc[nH]c2n1", "C[n+]1ccccc1",
    "O=c1cc[nH]c2ccccc12", "c1ccc2c(c1)c1ccccc1c1ccccc21", "Cn1c(=O)c2[nH]cnc2n(C)c1=O", "c1cnn[nH]1",
    "O=C([O-])c1ccccc1[N+](=O)[O-]", "CS(=O)(=O)c1ccc(Cl)cc1Br", "C#CCN=C=O", "c1cc[cH-]c1",
    "[O-][n+]1ccccc1", "c1ccc2[nH]c3ccccc3c2c1", "B(O)(O)c1ccccc1", "c1cc2cccc3ccc4cccc1c4c23",
]  # fmt: skip
ORDERS = {"SINGLE": "single", "DOUBLE": "double", "TRIPLE": "triple", "AROMATIC": "aromatic"}


def arrays(molecule):
    """What ingest would store of a molecule: bonds, orders, elements, charges, hydrogens."""
    bonds = [sorted((b.GetBeginAtomIdx(), b.GetEndAtomIdx())) for b in molecule.GetBonds()]
    orders = [BOND_ORDERS.index(ORDERS[str(b.GetBondType())]) for b in molecule.GetBonds()]
    atoms = list(molecule.GetAtoms())
    return (
        np.array(bonds, np.uint16).reshape(-1, 2), np.array(orders, np.uint8),
        np.array([a.GetAtomicNum() for a in atoms], np.uint8),
        np.array([a.GetFormalCharge() for a in atoms], np.int8),
        np.array([a.GetTotalNumHs() for a in atoms], np.uint8),
    )  # fmt: skip


def complex_of(smiles, name="x", chain="A"):
    """A ligand in a pocket of one glycine and one ion, at places with three decimals."""
    bonds, orders, elements, charges, hydrogens = arrays(Chem.MolFromSmiles(smiles))
    n, rng = len(elements), np.random.default_rng(len(smiles))
    base = random_complex(rng, name, n_atoms=n + 5, smiles=smiles)
    pocket = np.array([[n, n + 1], [n + 1, n + 2], [n + 2, n + 3]], np.uint16)
    residues = [RESIDUE_TYPES.index(t) for t in ("ligand", "GLY", "ion")]
    return dataclasses.replace(
        base,
        element=np.r_[elements, [7, 6, 6, 8, 30]].astype(np.uint8),
        charge=np.r_[charges, [0, 0, 0, 0, 2]].astype(np.int8),
        hydrogens=np.r_[hydrogens, [1, 2, 0, 0, 0]].astype(np.uint8),
        name=encode_names([*(f"L{i}" for i in range(n)), "N", "CA", "C", "O", "ZN"], 4),
        residue=np.r_[np.zeros(n), [1] * 4, 2].astype(np.uint16),
        bond_atoms=np.concatenate([bonds, pocket]),
        bond_order=np.r_[orders, [1, 1, 2]].astype(np.uint8),
        **{f"bond_{k}": np.zeros(len(bonds) + 3, np.uint8) for k in ("conjugated", "ring", "stereo")},
        residue_type=np.array(residues, np.uint8),
        residue_name=encode_names(["LIG", "GLY", "ZN"], 8),
        residue_chain=encode_names([chain] * 3, 8),
        residue_number=np.array([1, -5, 301], np.int32),
        residue_insertion=np.array([0, ord("B"), 0], np.uint8),
        n_ligand_atoms=n,
    )


def read_sdf(text):
    supplier = Chem.SDMolSupplier()
    supplier.SetData(text)
    (molecule,) = list(supplier)
    return molecule


@pytest.mark.parametrize("smiles", SMILES)
def test_rdkit_reads_the_same_ligand(smiles):
    c = complex_of(smiles)
    molecule = read_sdf(to_sdf(c))
    assert Chem.MolToSmiles(molecule) == Chem.CanonSmiles(smiles)
    assert np.array_equal(np.round(molecule.GetConformer().GetPositions(), 3), c.xyz[: c.n_ligand_atoms])
    assert molecule.GetProp("id") == "x"
    assert " 4  0" not in to_sdf(c).replace("\n", " ")  # no aromatic bond is left


def test_no_double_bonds_fit():
    bonds, orders, elements, charges, hydrogens = arrays(Chem.MolFromSmiles("c1cc[nH]c1"))
    assert kekulise(bonds, orders, elements, charges, np.where(elements == 7, 0, hydrogens)) is None


def test_gemmi_reads_the_same_pocket():
    c = complex_of("c1ccccc1")
    (atoms,) = (
        [(r, a) for chain in model for r in chain for a in r] for model in gemmi.read_pdb_string(to_pdb(c))
    )
    found = [(r.name, str(r.seqid), a.name, a.element.name, a.charge) for r, a in atoms]
    assert found == [
        ("GLY", "-5B", "N", "N", 0), ("GLY", "-5B", "CA", "C", 0), ("GLY", "-5B", "C", "C", 0),
        ("GLY", "-5B", "O", "O", 0), ("ZN", "301", "ZN", "Zn", 2),
    ]  # fmt: skip
    assert np.array_equal(np.round([a.pos.tolist() for _, a in atoms], 3), c.xyz[6:])
    assert [a.b_iso for _, a in atoms] == pytest.approx(c.b_factor[6:].tolist(), abs=1e-3)


def test_a_long_chain_name_gets_a_letter_and_a_remark():
    text = to_pdb(complex_of("CCO", chain="A-2"))
    assert "REMARK 999 CHAIN A IS A-2" in text
    assert gemmi.read_pdb_string(text)[0][0].name == "A"


def test_what_does_not_fit_is_refused():
    c = complex_of("CCO")
    with pytest.raises(DataError, match="does not fit the columns of PDB"):
        to_pdb(dataclasses.replace(c, residue_number=np.array([1, 100000, 2], np.int32)))
    far = dataclasses.replace(c, centre=np.array([1e5, 0, 0]))
    with pytest.raises(DataError, match="does not fit"):
        to_pdb(far)


@pytest.mark.parametrize(
    ("affinity", "row"),
    [
        (Affinity(7.0, "=", "Ki"), ("Ki", "=", "1.000000e-07", "M")),
        (Affinity(5.0, "<", "IC50"), ("IC50", ">", "1.000000e-05", "M")),
        (Affinity(9.5, ">=", "Kd"), ("Kd", "<=", "3.162278e-10", "M")),
        (Affinity(6.0, "~", "pK"), ("pK", "~", "6.000000", "")),
        (Affinity(6.0, "<", "pK"), ("pK", "<", "6.000000", "")),
        (Affinity(math.nan, "none", "active", 0), ("active", "", "", "")),
        (Affinity(math.nan, "none", "none", 0), ("", "", "", "")),
    ],
)
def test_labels_leave_as_they_came(affinity, row):
    assert label(affinity) == row


def test_a_label_comes_back_through_ingest():
    """Kind, relation and pK to 1e-5, by the room that reads labels, from what a table says."""
    item = pytest.importorskip("holoshard.ingest.item")
    from holoshard.ingest.chemistry.affinity import to_affinity

    for kind in ("Kd", "Ki", "IC50", "EC50", "dG", "pK"):
        for relation in ("=", "<", ">", "<=", ">=", "~"):
            a = Affinity(6.789, relation, kind)
            written, sign, value, unit = label(a)
            found = to_affinity([item.Label(written, sign, value, unit)])
            assert (found.kind, found.relation) == (kind, relation)
            assert found.pk == pytest.approx(a.pk, abs=1e-5)


def test_command(capsys, tmp_path):
    complexes = [complex_of(s, name) for s, name in zip(SMILES, ["a/b", "A b", "../../c", "d"], strict=False)]
    write_part(tmp_path / "part.h5", complexes)
    assert main(["export", str(tmp_path / "part.h5"), "--out", str(tmp_path / "out")]) == 0
    with (tmp_path / "out" / "labels.csv").open() as file:
        rows = {r["id"]: r for r in csv.DictReader(file)}
    assert list(rows) == [c.id for c in complexes]
    assert len({r["ligand_path"].lower() for r in rows.values()}) == 4
    assert len(list((tmp_path / "out").iterdir())) == 9
    for c in complexes:
        assert (tmp_path / "out" / rows[c.id]["ligand_path"]).read_text() == to_sdf(c)
    assert main(["export", str(tmp_path / "part.h5"), "d", "0", "--out", str(tmp_path / "two")]) == 0
    assert "two: 2 complexes as sdf" in capsys.readouterr().out
    assert main(["export", str(tmp_path / "part.h5"), "--out", str(tmp_path / "two")]) == 2
