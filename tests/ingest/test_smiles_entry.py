"""Ligands that no dictionary knows: bonds from definitions in the file, or from a SMILES."""

from __future__ import annotations

import csv
import json
import tarfile
from pathlib import Path

import gemmi
import numpy as np
import polars as pl
import pytest
from biotite.structure.io import pdbx
from pdbtext import chain_lines, residue_lines
from rdkit import Chem
from rdkit.Chem import AllChem

from holoshard.__main__ import main
from holoshard.ingest.chemistry.smiles_entry import entry_from_smiles
from holoshard.ingest.item import Item, Locator, Rejection
from holoshard.ingest.pipeline import IngestOptions, clear_caches, process
from holoshard.ingest.read.archive import load
from holoshard.ingest.read.components import component
from holoshard.ingest.read.ligand import Ligand, ligand_from_residue, read_ligand
from holoshard.shards.complex import BOND_ORDERS, Complex, Flag
from holoshard.shards.errors import StructureError
from holoshard.shards.read.dataset import open_dataset

PROTEIN = chain_lines(["ALA", "SER", "GLY", "LEU", "VAL", "ASP", "LYS"])
GDP = "Nc1nc2n(cnc2c(=O)[nH]1)[C@@H]1O[C@H](COP(=O)(O)OP(=O)(O)O)[C@@H](O)[C@H]1O"


def laid(smiles: str, element: np.ndarray, position: np.ndarray) -> Ligand:
    n = len(element)
    return ligand_from_residue(
        residue_name="LIG", names=[str(k) for k in range(n)], element=element, charge=np.zeros(n, np.int8),
        position=position, b_factor=np.zeros(n, np.float32), occupancy=np.ones(n, np.float32),
        component=entry_from_smiles(smiles, element, position, "LIG"),
    )  # fmt: skip


def embedded(smiles: str) -> tuple[np.ndarray, np.ndarray]:
    """Elements and positions of the heavy atoms, in the order of the SMILES."""
    mol = Chem.AddHs(Chem.MolFromSmiles(smiles))
    assert AllChem.EmbedMolecule(mol, randomSeed=3) == 0
    mol = Chem.RemoveHs(mol)
    elements = np.array([atom.GetAtomicNum() for atom in mol.GetAtoms()], np.uint8)
    return elements, mol.GetConformer().GetPositions()


def reason(smiles: str, element: np.ndarray, position: np.ndarray) -> str:
    with pytest.raises(StructureError) as caught:
        entry_from_smiles(smiles, element, position, "LIG")
    assert caught.value.reason == "ligand_no_bond_orders"
    return str(caught.value)


def test_real_poses_in_any_order_get_their_chemistry_back(shared: Path) -> None:
    root = shared / "data/real"
    with (root / "complexes.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["protein_path"] != row["ligand_path"]]
    rng = np.random.default_rng(11)
    for row in rows[::40]:
        known = read_ligand(load(Locator(root / row["ligand_path"])), "x", int(row["ligand_record"]))
        order = rng.permutation(known.n_atoms)
        position = known.position[order] + rng.normal(0, 0.02, (known.n_atoms, 3))
        found = laid(known.smiles, known.element[order], position)
        assert found.smiles == known.smiles, row["id"]
        assert found.charge.sum() == known.charge.sum()
        pairs = {frozenset(order[pair].tolist()) for pair in found.bond_atoms}
        assert pairs == {frozenset(pair) for pair in known.bond_atoms.tolist()}, row["id"]
        assert found.hydrogens.sum() == known.hydrogens.sum()


def test_lengths_decide_between_like_atoms_and_the_order_of_the_smiles_goes_before() -> None:
    element, position = embedded("OC(=O)c1ccccc1")  # atom 2 is the carbonyl's oxygen, and nearer
    order = np.array([2, 0, 1, *range(3, 9)])
    found = laid("O=C(O)c1ccccc1", element[order], position[order])
    double = found.bond_atoms[found.bond_order == BOND_ORDERS.index("double")]
    assert double.tolist() == [[0, 2]]
    order = np.array([0, 2, 1, *range(3, 9)])  # neither order of oxygens is the SMILES's
    found = laid("O=C(O)c1ccccc1", element[order], position[order])
    double = found.bond_atoms[found.bond_order == BOND_ORDERS.index("double")]
    assert double.tolist() == [[1, 2]]


def test_a_poor_model_in_the_order_of_its_smiles_is_read() -> None:
    element, position = embedded("CC(=O)Nc1ccc(O)cc1")
    apart = position[0] - position[2]
    position[0] = position[2] + 1.35 * apart / np.linalg.norm(apart)  # the methyl runs into the oxygen
    assert laid("CC(=O)Nc1ccc(O)cc1", element, position).smiles == "CC(=O)Nc1ccc(O)cc1"
    order = np.arange(len(element))[::-1]
    assert "do not fit" in reason("CC(=O)Nc1ccc(O)cc1", element[order], position[order])


def test_the_smiles_of_another_molecule_is_refused() -> None:
    element, position = embedded("CC(=O)Nc1ccc(O)cc1")
    assert "C8NO2, the SMILES c1ccccc1 has C6" in reason("c1ccccc1", element, position)
    assert "do not fit" in reason("NC(=O)Cc1ccc(O)cc1", element, position)  # an isomer
    assert "cannot be read" in reason("C1CC", element, position)
    salt = laid("CC(=O)Nc1ccc(O)cc1.[Na+].[Cl-]", element, position)
    assert salt.smiles == "CC(=O)Nc1ccc(O)cc1"


def test_stereo_is_that_of_the_coordinates() -> None:
    element, position = embedded("C[C@H](N)C(=O)O")
    assert laid("C[C@@H](N)C(=O)O", element, position).smiles == "C[C@H](N)C(=O)O"


def with_ligand(folder: Path, form: str = "cif", **categories: tuple[list[str], list[list[str]]]) -> Item:
    """Benzamidine named LIG as an mmCIF or BinaryCIF, with more categories."""
    text = PROTEIN + residue_lines("BEN", "B", 1, (8, 9, 1), het=True).replace("BEN", "LIG")
    document = gemmi.read_pdb_string(text.encode()).make_mmcif_document()
    for category, (columns, rows) in categories.items():
        loop = document[0].init_loop(f"_{category}.", columns)
        for row in rows:
            loop.add_row([gemmi.cif.quote(cell) for cell in row])
    path = folder / "complex.cif"
    path.write_text(document.as_string())
    if form == "bcif":
        path = as_bcif(path)
    clear_caches()
    return Item("x", Locator(path))


def as_bcif(path: Path) -> Path:
    """The same categories in BinaryCIF, by biotite."""
    binary = pdbx.BinaryCIFBlock()
    for name, category in pdbx.CIFFile.read(path).block.items():
        columns = {}
        for key, column in category.items():
            mask = None if column.mask is None else pdbx.BinaryCIFData(column.mask.array)
            columns[key] = pdbx.BinaryCIFColumn(pdbx.BinaryCIFData(column.as_array(str)), mask)
        binary[name] = pdbx.BinaryCIFCategory(columns)
    pdbx.BinaryCIFFile({"X": binary}).write(path.with_suffix(".bcif"))
    return path.with_suffix(".bcif")


def bonds(orders: bool = True) -> tuple[list[str], list[list[str]]]:
    entry = component("BEN")
    assert entry is not None
    words = {1: "sing", 2: "DOUB"}
    rows = [
        ["LIG", entry.atom_names[i], entry.atom_names[j], words[order] if orders else "?"]
        for (i, j), order in zip(entry.bond_atoms.tolist(), entry.bond_order.tolist(), strict=True)
        if entry.element[i] != 1 != entry.element[j]
    ]
    return ["comp_id", "atom_id_1", "atom_id_2", "value_order"], rows


def smiles_of(item: Item) -> str:
    found = process(item, IngestOptions())
    return found.text["smiles"] if isinstance(found, Complex) else found.reason


@pytest.mark.parametrize("form", ["cif", "bcif"])
def test_definitions_of_the_file_are_read(tmp_path: Path, form: str) -> None:
    right, wrong = "N=C(N)c1ccccc1", "NC(N)C1CCCCC1"
    bare = process(with_ligand(tmp_path, form), IngestOptions())
    assert bare.text["repairs"] == ["bonds_perceived"]  # from the geometry, for want of anything better
    refused = process(with_ligand(tmp_path, form), IngestOptions(bonds="stated"))
    assert (refused.reason, "--bonds perceive" in refused.message) == ("ligand_no_bond_orders", True)
    item = with_ligand(tmp_path, form, chem_comp_bond=bonds())
    found = process(item, IngestOptions(bonds="stated"))
    assert isinstance(found, Complex)
    assert (found.text["smiles"], found.text["repairs"]) == (right, [])
    assert found.hydrogens[: found.n_ligand_atoms].sum() == 8
    charged = [["LIG", "C", "C", "0"], ["LIG", "N1", "N", "1"], ["LIG", "N2", "N", "0"]]
    atoms = (["comp_id", "atom_id", "type_symbol", "charge"], charged)
    assert (
        smiles_of(with_ligand(tmp_path, form, chem_comp_bond=bonds(), chem_comp_atom=atoms))
        == "NC(=[NH2+])c1ccccc1"
    )
    vague = process(with_ligand(tmp_path, form, chem_comp_bond=bonds(orders=False)), IngestOptions())
    assert vague.text["repairs"] == ["bonds_perceived"]
    for category, columns in (
        ("pdbx_chem_comp_descriptor", ["comp_id", "type", "descriptor"]),
        ("ma_chem_comp_descriptor", ["chem_comp_id", "type", "value"]),
    ):
        rows = [["LIG", "InChI", "InChI=1S/no"], ["LIG", "SMILES_CANONICAL", right], ["XXX", "SMILES", wrong]]
        assert smiles_of(with_ligand(tmp_path, form, **{category: (columns, rows)})) == right
    plain = (["id", "pdbx_smiles"], [["LIG", right]])
    both = with_ligand(tmp_path, form, chem_comp=plain, chem_comp_bond=bonds())
    assert smiles_of(both) == right
    with_smiles = process(with_ligand(tmp_path, form, chem_comp=plain), IngestOptions())
    assert isinstance(with_smiles, Complex)
    assert with_smiles.text["repairs"] == ["smiles_template"]
    assert Flag.REPAIRED in with_smiles.flags


def run(capsys, *arguments: object) -> dict:
    main([*map(str, arguments), "--json", "--workers", "0"])
    return json.loads(capsys.readouterr().out.splitlines()[-1])


def test_a_predicted_complex_and_its_smiles_in_a_table(tmp_path: Path, capsys, shared: Path) -> None:
    source = shared / "data/real/layouts/predicted_boltz"
    result = run(capsys, "ingest", source, "--out", tmp_path / "bare")
    assert (result["kept"], result["repairs"]) == (1, {"bonds_perceived": 1})
    (part,) = (tmp_path / "bare/parts").iterdir()
    assert open_dataset(part)[0].text["inchikey"] == "QGWNDRXFNXRZMB-UUOKFMHZSA-N"
    table = tmp_path / "labels.csv"
    table.write_text(f"id,Kd (nM),smiles\nNRAS_BRAF_GDP_model_0,20,{GDP}\n")
    result = run(capsys, "ingest", source, "--labels", table, "--out", tmp_path / "out")
    assert (result["kept"], result["repairs"]) == (1, {"smiles_template": 1})
    (part,) = (tmp_path / "out/parts").iterdir()
    found = open_dataset(part)[0]
    entry = component("GDP")
    assert entry is not None
    assert found.text["inchikey"] == "QGWNDRXFNXRZMB-UUOKFMHZSA-N"  # of GDP, stereo included
    assert found.n_ligand_atoms == (entry.element != 1).sum() == 28
    assert found.flags == Flag.PREDICTED | Flag.REPAIRED
    assert found.affinity.pk == pytest.approx(7.69897)
    table.write_text(table.read_text().replace(GDP, "c1ccccc1"))
    result = run(capsys, "ingest", source, "--labels", table, "--out", tmp_path / "out")
    assert (result["reused"], result["reasons"]) == (0, {"ligand_no_bond_orders": 1})


def test_sair_reads_the_smiles_of_its_table(tmp_path: Path, capsys, shared: Path) -> None:
    model = shared / "data/real/layouts/predicted_boltz/NRAS_BRAF_GDP_model_0.cif"
    with tarfile.open(tmp_path / "structures_0.tar.gz", "w:gz") as tar:
        tar.add(model, "sample_7_model_2.cif")
    frame = pl.DataFrame({"entry_id": [7], "index": [2], "SMILES": [GDP], "pIC50": [6.5]})
    frame.write_parquet(tmp_path / "sair.parquet")
    result = run(capsys, "ingest", tmp_path, "--out", tmp_path / "out")
    assert (result["layouts"], result["kept"]) == ({str(tmp_path): "sair"}, 1)
    (part,) = (tmp_path / "out/parts").iterdir()
    found = open_dataset(part)[0]
    assert (found.id, found.affinity.kind, found.text["inchikey"][:14]) == ("7_2", "IC50", "QGWNDRXFNXRZMB")
    assert Flag.PREDICTED in found.flags


def test_a_ligand_of_the_dictionary_needs_no_smiles(tmp_path: Path) -> None:
    path = tmp_path / "x.pdb"
    path.write_text(PROTEIN + residue_lines("BEN", "B", 1, (6, 6, 0), het=True))
    found = process(Item("x", Locator(path), smiles="CCO"), IngestOptions())
    assert not isinstance(found, Rejection)
    assert (found.text["smiles"], found.text["repairs"]) == ("N=C(N)c1ccccc1", [])
