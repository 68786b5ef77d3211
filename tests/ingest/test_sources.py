"""Layouts: what is recognised and why, which items come of it, and that no name leads outside."""

from __future__ import annotations

import io
import shutil
import tarfile
import zipfile
from collections import Counter
from pathlib import Path

import polars as pl
import pytest

from holoshard.ingest.item import Item, Label, Locator, Rejection
from holoshard.ingest.read import archive
from holoshard.ingest.sources.labels import LabelColumns, read_table
from holoshard.ingest.sources.layouts import LAYOUTS, choose, named
from holoshard.ingest.sources.pairs import match
from holoshard.ingest.sources.pdbbind import parse_index
from holoshard.ingest.sources.source import Request
from holoshard.ingest.sources.table import Table
from holoshard.ingest.sources.tree import Tree
from holoshard.shards.errors import UsageError


def touch(root: Path, *names: str, text: str = "x") -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def tar_of(folder: Path, path: Path) -> Path:
    with tarfile.open(path, "w:gz" if path.name.endswith("gz") else "w") as tar:
        for file in sorted(folder.rglob("*")):
            tar.add(file, file.relative_to(folder), recursive=False)
    return path


def items(path: Path, layout: str = "auto", labels: Path | None = None) -> list[Item | Rejection]:
    return list(choose(path, layout, labels).items())


def by_id(path: Path, **how) -> dict[str, Item | Rejection]:
    found = items(path, **how)
    assert len({item.id for item in found}) == len(found)
    return {item.id: item for item in found}


# --- tables


def table(root: Path, text: str, name: str = "labels.csv") -> dict[str, Item | Rejection]:
    touch(root, "p/a.pdb", "p/a.sdf")
    (root / name).write_text(text)
    return by_id(root)


def test_ids_stay_text(tmp_path, shared):
    shutil.copy(shared / "cases" / "32-ids-that-look-like-numbers" / "labels.csv", tmp_path)
    frame = read_table(Locator(tmp_path / "labels.csv"))
    assert frame["pdb"].to_list() == ["1e66", "3e10", "0001"]
    assert frame["pK"].to_list() == ["9.89", "6.00", "5.00"]


@pytest.mark.parametrize("form", ["csv", "tsv", "semicolon", "parquet", "csv.gz", "bom", "latin"])
def test_a_table_in_any_form(tmp_path, form):
    head = [
        "ID",
        "protein path",
        "ligand",
        "ligand_record",
        "affinity_type",
        "relation",
        "value",
        "unit",
        "Größe",
    ]
    row = ["1e66", "p/a.pdb", "p/a.sdf", "3", "Ki", "<", "12.50", "nM", "x y"]
    touch(tmp_path, "p/a.pdb", "p/a.sdf")
    if form == "parquet":
        pl.DataFrame([row], schema=head, orient="row").write_parquet(tmp_path / "labels.parquet")
    else:
        mark = {"tsv": "\t", "semicolon": ";"}.get(form, ",")
        text = "\r\n".join([mark.join(head), mark.join(row), ""])
        data = text.encode({"bom": "utf-8-sig", "latin": "latin-1"}.get(form, "utf-8"))
        if form == "csv.gz":
            import gzip

            data = gzip.compress(data)
        (tmp_path / {"tsv": "labels.tsv", "csv.gz": "labels.csv.gz"}.get(form, "labels.csv")).write_bytes(
            data
        )
    (item,) = items(tmp_path)
    assert item == Item(
        id="1e66",
        structure=Locator(tmp_path / "p/a.pdb"),
        ligand=Locator(tmp_path / "p/a.sdf"),
        record=3,
        labels=(Label("Ki", "<", "12.50", "nM"),),
        columns=dict(zip(head, row, strict=True)),
        source="table",
    )


def test_a_residue_of_the_structure_file(tmp_path):
    text = (
        "id,protein_path,ligand_path,ligand_name,pK\n"
        "1,p/a.pdb,p/a.pdb,A:FMN:150,5\n2,p/a.pdb,,B:X:1,5\n3,p/a.pdb,,,5\n"
    )
    found = table(tmp_path, text)
    assert (found["1"].ligand, found["1"].residue) == (None, "A:FMN:150")
    assert (found["2"].ligand, found["2"].residue) == (None, "B:X:1")
    assert found["3"].reason == "ligand_missing"


def test_rows_that_cannot_be_items_say_why(tmp_path):
    touch(tmp_path.parent, "outside.pdb")
    found = table(
        tmp_path,
        "id,protein,ligand,record\n"
        "smiles,p/a.pdb,COc(cc1)ccc1C#N,\n"
        "none,,p/a.sdf,\n"
        ",p/a.pdb,p/a.sdf,\n"
        "up,../outside.pdb,p/a.sdf,\n"
        f"abs,{tmp_path.parent}/outside.pdb,p/a.sdf,\n"
        f"inside,{tmp_path}/p/a.pdb,p/../p/a.sdf,\n"
        "member,p/a.pdb,lib.zip!../x.sdf,\n"
        "record,p/a.pdb,p/a.sdf,two\n"
        "gone,p/b.pdb,p/a.sdf,\n",
    )
    assert {id_: item.reason for id_, item in found.items() if isinstance(item, Rejection)} == {
        "smiles": "ligand_no_3d",
        "none": "file_missing",
        "row 3": "file_missing",
        "up": "unsafe_member",
        "abs": "unsafe_member",
        "member": "unsafe_member",
        "record": "record_missing",
    }
    assert found["inside"].structure == Locator(tmp_path / "p/a.pdb")
    assert found["gone"].structure == Locator(tmp_path / "p/b.pdb")  # the reader says that it is missing


def test_a_table_says_what_it_lacks(tmp_path):
    touch(tmp_path, "labels.csv", text="id,affinity\n1,2\n")
    with pytest.raises(UsageError, match="lacks a structure column"):
        items(tmp_path, layout="table", labels=tmp_path / "labels.csv")
    touch(tmp_path, "a.csv", "b.csv", text="id,protein,ligand\n")
    with pytest.raises(UsageError, match="several tables"):
        items(tmp_path, layout="table")


def test_a_broken_table_is_a_wrong_call(tmp_path):
    touch(tmp_path, "labels.csv", text="id,protein,ligand\n1,a.pdb,a.sdf,what,is,this\n")
    with pytest.raises(UsageError, match=r"labels\.csv cannot be read"):
        items(tmp_path, layout="table")


def test_labels_by_id_are_joined_to_any_layout(tmp_path):
    touch(
        tmp_path,
        "1abc/1abc_protein.pdb",
        "1abc/1abc_ligand.sdf",
        "2abc/2abc_protein.pdb",
        "2abc/2abc_ligand.sdf",
    )
    touch(tmp_path.parent, "mine.csv", text="pdb,Ki (nM),target\n1abc,>10,T\n1abc,20,T\n")
    found = by_id(tmp_path, labels=tmp_path.parent / "mine.csv")
    assert found["1abc"].labels == (Label("Ki", ">", "10", "nM"), Label("Ki", "=", "20", "nM"))
    assert found["1abc"].columns["target"] == "T"
    assert found["2abc"].labels == ()


LABELS = [
    ({"Ki (nM)": ">10000", "Kd (nM)": "", "IC50 (nM)": ""}, [Label("Ki", ">", "10000", "nM")]),
    ({"Ki (nM)": "", "Kd (nM)": "<0.1", "IC50 (nM)": " 12.5"},
     [Label("Kd", "<", "0.1", "nM"), Label("IC50", "=", "12.5", "nM")]),
    ({"IC50_uM": "1,200"}, [Label("IC50", "=", "1,200", "uM")]),
    ({"dG_kcal": "-8.18", "T": "298.15"}, [Label("dG", "=", "-8.18", "kcal", temperature=298.15)]),
    ({"dG_kcal": "-34.2 kJ/mol", "T": ""}, [Label("dG", "=", "-34.2", "kJ/mol")]),
    ({"pIC50": "7.2"}, [Label("pIC50", "=", "7.2")]),
    ({"-logKd/Ki": "6.4"}, [Label("-logKd/Ki", "=", "6.4")]),
    ({"type": "Kd", "relation": ">", "value": "5", "unit": "uM", "pK": "5.3"}, [Label("Kd", ">", "5", "uM")]),
    ({"type": "", "relation": "", "value": "", "unit": "", "pK": "5.3"}, [Label("pK", "=", "5.3")]),
    ({"affinity": "Ki=20nM"}, [Label("", "=", "Ki=20nM")]),
    ({"affinity_text": "IC50<~1uM"}, [Label(text="IC50<~1uM")]),
    ({"value": "n/a", "pK": "NaN"}, []),
]  # fmt: skip


@pytest.mark.parametrize(("row", "expected"), LABELS)
def test_labels_of_a_row(row, expected):
    assert LabelColumns.of(list(row)).labels(row) == tuple(expected)


# --- PDBbind


def test_index_lines_of_case_28(shared):
    found = {
        row["code"]: row for row in parse_index((shared / "cases/28-label-index-units/INDEX.txt").read_text())
    }
    assert [row["label"] for row in found.values()] == [
        "Kd=100uM", "Ki=10nM", "IC50~1.5mM", "Kd<=10pM", "Ki>500uM", "Kd=1000fM", "Kd=0.40M"
    ]  # fmt: skip
    assert found["9aad"]["resolution"] == "NMR"
    assert found["9aae"]["remark"] == "incomplete ligand"
    assert parse_index("2tpi  2.10  1982  Kd=49uM       // 2tpi.pdf (2-mer)")[0]["label"] == "Kd=49uM"


def test_pdbbind_in_a_folder_and_in_archives(tmp_path):
    root = tmp_path / "set"
    touch(
        root, "1e66/1e66_protein.pdb", "1e66/1e66_ligand.sdf", "1e66/1e66_ligand.mol2", "1e66/1e66_pocket.pdb"
    )
    touch(root, "deep/2abc/2abc_pocket.pdb.gz", "deep/2abc/2abc_ligand.mol2", "3abc/3abc_protein.pdb")
    touch(root, "4abc/4abc_ligand.sdf")
    touch(root, "index/INDEX_general_PL_data.2016", text="1e66 2.1 1999 8.0 Ki=10nM // 1e66.pdf (HUX)\n")
    touch(root, "index/INDEX_core_data.2016", text="1e66 2.1 1999 9.9 Ki=0.1nM // 1e66.pdf (HUX)\n")
    found = by_id(root)
    item = found["1e66"]
    assert item.structure == Locator(root / "1e66/1e66_protein.pdb")
    assert item.ligand == Locator(root / "1e66/1e66_ligand.sdf")
    assert item.alternates == (Locator(root / "1e66/1e66_ligand.mol2"),)
    assert item.labels == (Label(text="Ki=10nM"),)
    assert item.columns["sets"] == "INDEX_general_PL_data.2016,INDEX_core_data.2016"
    assert found["2abc"].structure == Locator(root / "deep/2abc/2abc_pocket.pdb.gz")
    assert found["3abc"].reason == found["4abc"].reason == "file_missing"
    for end in ("tar", "tar.gz"):
        packed = by_id(tar_of(root, tmp_path / f"set.{end}"))
        assert list(packed) == list(found)
        assert archive.load(packed["1e66"].alternates[0]) == b"x"
        assert packed["1e66"].labels == item.labels


def test_unsafe_members_of_a_source_are_refused_by_name(tmp_path):
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        for name in (
            "1abc/1abc_protein.pdb",
            "1abc/1abc_ligand.sdf",
            "../evil_protein.pdb",
            "/abs_ligand.sdf",
        ):
            entry = tarfile.TarInfo(name)
            entry.size = 1
            tar.addfile(entry, io.BytesIO(b"x"))
    found = by_id(tmp_path / "a.tar")
    assert {id_: getattr(item, "reason", "") for id_, item in found.items()} == {
        "../evil_protein.pdb": "unsafe_member", "/abs_ligand.sdf": "unsafe_member", "1abc": ""
    }  # fmt: skip


# --- the other layouts


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


# What the raw layouts of the shared pack are, and how many items and refusals each names.
SHARED = {
    "crossdocked2020": ("crossdocked", 113, {}),
    "diffsbdd": ("pairs", 1, {}),
    "dude": ("dude", 58, {}),
    "misato": ("misato", 0, {"no_protein": 20}),
    "openfe_benchmarks": ("openfe", 44, {}),
    "pdbbind_style": ("pdbbind", 2, {}),
    "pdbbind_style_diffdock": ("pdbbind", 1, {}),
    "plinder": ("plinder", 2, {}),
    "plinder_ingest": ("pairs", 1, {}),
    "posebusters": ("posebusters", 2, {}),
    "predicted_boltz": ("predicted", 1, {}),
    "rcsb_same_entry": ("rcsb", 5, {}),
    "targetdiff": ("crossdocked", 1, {}),
    "vina": ("pairs", 6, {}),
}


def test_the_list_of_shared_layouts_is_whole(shared):
    assert sorted(SHARED) == sorted(path.name for path in (shared / "data/real/layouts").iterdir())


@pytest.mark.parametrize("folder", SHARED)
def test_shared_layouts_are_recognised(shared, folder):
    layout, n_items, refused = SHARED[folder]
    chosen = choose(shared / "data/real/layouts" / folder)
    assert chosen.source.name == layout
    assert chosen.why
    found = list(chosen.items())
    assert len({item.id for item in found}) == len(found)
    assert sum(isinstance(item, Item) for item in found) == n_items
    assert Counter(item.reason for item in found if isinstance(item, Rejection)) == refused


def test_the_shared_table(shared):
    found = by_id(shared / "data/real", labels=Path("complexes.csv"))
    assert len(found) == 1476
    assert all(isinstance(item, Item) for item in found.values())
    assert sum(item.ligand is None for item in found.values()) == 17
    item = found["wwpdb_raw:1aku:A:FMN:150"]
    assert (item.residue, item.source) == ("A:FMN:150", "wwpdb_raw")
    assert item.labels == (Label("Kd", "=", "746.0", "nM"),)
    assert item.columns["cluster"] == "13"
    assert Counter(label.kind for item in found.values() for label in item.labels)["dG_relative"] == 23


# --- choosing


def test_what_is_not_known_is_a_wrong_call_with_the_mend(tmp_path):
    touch(tmp_path, "readme.txt")
    with pytest.raises(UsageError, match=r"no layout that is known.*--layout"):
        choose(tmp_path)
    with pytest.raises(UsageError, match="there is no layout 'pdbbnd'"):
        named("pdbbnd")
    with pytest.raises(UsageError, match="there is no labels file"):
        choose(tmp_path, labels=Path("none.csv"))
    with pytest.raises(UsageError, match="there is no"):
        choose(tmp_path / "none")
    with pytest.raises(UsageError, match="cannot be loaded"):
        named("no.such.module:Layout")


def test_a_layout_of_the_users_own(tmp_path, monkeypatch):
    touch(tmp_path, "mine/a.xyz")
    (tmp_path / "own_layout.py").write_text(
        "from holoshard.ingest.item import Item\n"
        "class Own:\n"
        "    name = 'own'\n"
        "    def recognise(self, request):\n"
        "        return ''\n"
        "    def items(self, request):\n"
        "        for name in request.tree.names:\n"
        "            yield Item(name, request.tree.locator(name))\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    assert [item.id for item in items(tmp_path / "mine", layout="own_layout:Own")] == ["a.xyz"]


def test_names_of_layouts_are_unique():
    assert len({source.name for source in LAYOUTS}) == len(LAYOUTS)
    assert all(source.__class__.__doc__ for source in LAYOUTS)


def test_links_to_folders_end(tmp_path):
    touch(tmp_path / "a", "x.pdb", "sub/y.pdb")
    (tmp_path / "a" / "sub" / "loop").symlink_to(tmp_path / "a")
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "link").symlink_to(tmp_path / "a" / "sub")
    assert Tree(tmp_path / "a").names == ["sub/y.pdb", "x.pdb"]
    assert "link/y.pdb" in Tree(tmp_path / "b").names


def test_a_table_whose_files_are_elsewhere_does_not_make_a_layout(tmp_path):
    touch(tmp_path, "example.csv", text="id,protein_path,ligand_path\n1,data/1.pdb,data/1.sdf\n")
    assert Table().recognise(Request(Tree(tmp_path))) == ""
    touch(tmp_path, "data/1.pdb")
    assert "example.csv" in Table().recognise(Request(Tree(tmp_path)))
