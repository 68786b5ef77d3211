"""The layouts of large collections: PLINDER, SAIR, CrossDocked, DUD-E, mirrors, pairs."""

from __future__ import annotations

import zipfile

import polars as pl
from trees import by_id, tar_of, touch

from holoshard.ingest.item import Label, Locator
from holoshard.ingest.read import archive
from holoshard.ingest.sources.pairs import match


def test_plinder_as_released(tmp_path):
    (tmp_path / "systems").mkdir()
    (tmp_path / "index").mkdir()
    with zipfile.ZipFile(tmp_path / "systems" / "bc.zip", "w") as packed:
        for name in ("receptor.cif", "receptor.pdb", "ligand_files/1.B.sdf", "ligand_files/1.C.sdf"):
            packed.writestr(f"1bcd__1__1.A__1.B_1.C/{name}", "x")
        packed.writestr("2bcd__1__1.A__1.B/receptor.cif", "x")
    rows = [("1bcd__1__1.A__1.B_1.C", "1.B", "ABC", 7.5), ("1bcd__1__1.A__1.B_1.C", "1.C", "XYZ", 7.5)]
    names = ["system_id", "ligand_instance_chain", "ligand_ccd_code", "ligand_binding_affinity"]
    pl.DataFrame(rows, schema=names, orient="row").write_parquet(
        tmp_path / "index" / "annotation_table.parquet"
    )
    found = by_id(tmp_path)
    assert list(found) == ["1bcd__1__1.A__1.B_1.C:1.B", "1bcd__1__1.A__1.B_1.C:1.C", "2bcd__1__1.A__1.B"]
    item = found["1bcd__1__1.A__1.B_1.C:1.C"]
    assert item.structure.member.endswith("receptor.cif")
    assert archive.load(item.ligand) == b"x"
    assert item.columns["ligand_ccd_code"] == "XYZ"
    assert item.labels == ()  # its affinities were withdrawn
    assert found["2bcd__1__1.A__1.B"].reason == "file_missing"


def test_sair_table_and_archives(tmp_path):
    touch(tmp_path / "in", "structures/sample_7_model_1.cif", "structures/sample_7_model_0.cif")
    touch(tmp_path / "in", "structures/sample_9_model_0.cif")
    (tmp_path / "set" / "structures_compressed").mkdir(parents=True)
    tar_of(tmp_path / "in", tmp_path / "set" / "structures_compressed" / "part_0.tar.gz")
    rows = [(7, 0, "P1", 6.5), (7, 1, "P1", 6.5), (8, 0, "P2", 5.0)]
    frame = pl.DataFrame(rows, schema=["entry_id", "index", "protein", "pIC50"], orient="row")
    frame.write_parquet(tmp_path / "set" / "sair.parquet")
    found = by_id(tmp_path / "set")
    assert list(found) == ["7_0", "7_1", "9_0", "8_0"]
    assert found["7_1"].labels == (Label("pIC50", "=", "6.5"),)
    assert found["7_1"].predicted
    assert found["7_1"].columns["protein"] == "P1"
    assert found["9_0"].labels == ()  # a model that no row names is kept as unlabelled
    assert found["8_0"].reason == "file_missing"
    assert archive.load(found["7_1"].structure) == b"x"


def test_crossdocked_types(tmp_path):
    folder = "POCKET_1"
    touch(tmp_path, f"{folder}/1abc_A_rec.pdb", f"{folder}/1abc_A_rec_2abc_x_lig_tt_min_0.sdf.gz")
    touch(
        tmp_path,
        f"{folder}/1abc_A_rec_3abc_x_lig_tt_docked.sdf.gz",
        f"{folder}/1abc_A_rec_4abc_y_lig_tt_min_0.sdf",
    )
    touch(
        tmp_path, "set.types",
        text=f"1 6.5 0.9 {folder}/1abc_A_rec.pdb {folder}/1abc_A_rec_2abc_x_lig_tt_min_0.sdf.gz #-7.1\n"
        f"0 -5.5 4.0 {folder}/1abc_A_rec_0.gninatypes "
        f"{folder}/1abc_A_rec_3abc_x_lig_tt_docked_2.gninatypes #-6\n"
        f"1 0.0 0.9 {folder}/gone_rec.pdb ../escape.sdf #-6\n",
    )  # fmt: skip
    found = by_id(tmp_path)
    first, second, escape, rest = found.values()
    assert first.labels == (Label("pK", "=", "6.5"),)
    assert first.columns["good_pose"] == "1"
    assert (second.record, second.labels) == (2, (Label("pK", "=", "5.5"),))
    assert second.structure == Locator(tmp_path / folder / "1abc_A_rec.pdb")
    assert second.ligand == Locator(tmp_path / folder / "1abc_A_rec_3abc_x_lig_tt_docked.sdf.gz")
    assert escape.reason == "unsafe_member"
    assert rest.id == f"{folder}/1abc_A_rec_4abc_y_lig_tt_min_0"
    assert rest.labels == ()


def test_dude_labels_are_active_and_inactive(tmp_path):
    mol2 = "@<TRIPOS>MOLECULE\nC1\nx\n@<TRIPOS>MOLECULE\nC1\ny\n"
    touch(
        tmp_path,
        "t/receptor.pdb",
        "t/actives_final.mol2",
        "t/decoys_final.mol2",
        "t/actives_final.sdf",
        text=mol2,
    )
    found = by_id(tmp_path)
    assert {id_: item.labels[0].kind for id_, item in found.items()} == {
        "t/actives_final/0": "active", "t/actives_final/1": "active",
        "t/decoys_final/0": "inactive", "t/decoys_final/1": "inactive",
    }  # fmt: skip


def test_a_mirror_in_divided_folders(tmp_path):
    touch(
        tmp_path,
        "ab/1abc.cif.gz",
        "ab/1abc.pdb",
        "bc/pdb2bcd.ent.gz",
        "cd/pdb_00003cde_xyz-enrich.cif.gz",
        "ls-lR",
    )
    found = by_id(tmp_path)
    assert {id_: item.structure.path.name for id_, item in found.items()} == {
        "1abc": "1abc.cif.gz", "2bcd": "pdb2bcd.ent.gz", "3cde": "pdb_00003cde_xyz-enrich.cif.gz"
    }  # fmt: skip
    assert all(item.sites and item.assembly == "1" for item in found.values())


def test_pairs_by_shared_words():
    structures = ["1abc_rec.pdb", "1abc_A_rec.pdb", "2abc.pdb"]
    assert match("1abc_A_lig.sdf", structures) == "1abc_A_rec.pdb"
    assert match("2abc_lig.sdf", structures) == "2abc.pdb"
    assert match("other.sdf", structures) == ""
    assert match("other.sdf", ["one.pdb"]) == "one.pdb"
