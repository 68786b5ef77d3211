"""Tables: which column holds what, in any form, and why a row is refused."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import polars as pl
import pytest
from trees import by_id, items, touch

from holoshard.ingest.item import Item, Label, Locator, Rejection
from holoshard.ingest.sources.labels import LabelColumns, read_table
from holoshard.ingest.sources.layouts import choose
from holoshard.ingest.sources.layouts import items as all_items
from holoshard.ingest.sources.source import Request
from holoshard.ingest.sources.table import Table
from holoshard.ingest.sources.tree import Tree
from holoshard.ingest.survey import survey
from holoshard.shards.errors import UsageError


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
        "row 3": "id_missing",
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


def test_ids_of_labels_match_in_any_case_and_the_rest_is_told(tmp_path):
    touch(
        tmp_path,
        "1abc/1abc_protein.pdb",
        "1abc/1abc_ligand.sdf",
        "2ABC/2ABC_protein.pdb",
        "2ABC/2ABC_ligand.sdf",
    )
    table = tmp_path.parent / "cased.csv"
    table.write_text("pdb,Ki (nM)\n1ABC,10\n2abc,20\n2Abc,30\n9xyz,40\n")
    chosen = choose(tmp_path, labels=table)
    found = {item.id: item.labels for item in chosen.items()}
    assert found == {"1abc": (Label("Ki", "=", "10", "nM"),), "2ABC": ()}  # 2abc or 2Abc: nobody knows
    assert survey([chosen]).unmet == ("2Abc", "2abc", "9xyz")


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
    ({"affinity": "Ki=20nM"}, [Label(text="Ki=20nM")]),
    ({"kind": "Ki", "relation": ">", "value": "4.5 ± 0.3", "unit": "uM"},
     [Label("Ki", ">", "", "uM", "4.5 ± 0.3")]),
    ({"dG_kcal": "-8.18", "temperature": "25 °C"}, [Label("dG", "=", "-8.18", "kcal", temperature=298.15)]),
    ({"affinity_text": "IC50<~1uM"}, [Label(text="IC50<~1uM")]),
    ({"affinity_text": "Ki=20 nM; IC50 > 1,5 uM (pH 7; 25 °C)"},
     [Label(text="Ki=20 nM"), Label(text="IC50 > 1,5 uM (pH 7; 25 °C)")]),
    ({"exp_dG (kcal/mol)": "-8.18", "pred_dG (kcal/mol)": "-7"}, [Label("dG", "=", "-8.18", "kcal/mol")]),
    ({"K_d (nM)": "5", "pIC50_exp": "7"}, [Label("K_d", "=", "5", "nM"), Label("pIC50", "=", "7")]),
    ({"Ki (nM)": "n.d.", "IC50 (nM)": "nt", "EC50 [nmol/L]": "5"}, [Label("EC50", "=", "5", "nmol/L")]),
    ({"value": "n/a", "pK": "NaN"}, []),
]  # fmt: skip


@pytest.mark.parametrize(("row", "expected"), LABELS)
def test_labels_of_a_row(row, expected):
    assert LabelColumns.of(list(row)).labels(row) == tuple(expected)


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


def test_a_table_whose_files_are_elsewhere_does_not_make_a_layout(tmp_path):
    touch(tmp_path, "example.csv", text="id,protein_path,ligand_path\n1,data/1.pdb,data/1.sdf\n")
    assert Table().recognise(Request(Tree(tmp_path))) == ""
    touch(tmp_path, "data/1.pdb")
    assert "example.csv" in Table().recognise(Request(Tree(tmp_path)))


def test_measurements_kept_apart_take_no_id_of_the_source(tmp_path):
    touch(tmp_path, "a.pdb", "a.sdf")
    rows = ["a,1", "a,2", "a@1,3", "a@2,4", "a@2,5"]
    text = "\n".join(["id,protein,ligand,pK", *(row.replace(",", ",a.pdb,a.sdf,") for row in rows)])
    (tmp_path / "labels.csv").write_text(text + "\n")
    found = [(item.id, item.labels[0].value) for item in all_items([choose(tmp_path)], apart=True)]
    assert found == [("a@1@", "1"), ("a@2@", "2"), ("a@1", "3"), ("a@2@1", "4"), ("a@2@2", "5")]


def test_a_table_whose_every_path_is_wrong_says_where_it_looked(tmp_path):
    rows = [f"{k},proteins/{k % 70}abc.pdb,proteins/{k}abc.sdf" for k in range(100)]
    (tmp_path / "t.csv").write_text("\n".join(["id,protein,ligand", *rows]) + "\n")
    said = "none of its 70 structure files is there; looked first for "
    with pytest.raises(UsageError, match=rf"{said}{tmp_path}/proteins/0abc\.pdb; paths are relative"):
        choose(tmp_path / "t.csv")
    (tmp_path / "t.csv").write_text("id,protein,ligand\n1,../../x.pdb,../../x.sdf\n")
    with pytest.raises(UsageError, match=r"none of its 1 structure files .* of the first: it lies outside"):
        choose(tmp_path / "t.csv")
    (tmp_path / "t.csv").write_text("id,weight\n1,2\n")
    with pytest.raises(UsageError, match="of no layout that is known"):
        choose(tmp_path / "t.csv")


def test_a_table_that_is_named_needs_only_one_file_that_is_there(tmp_path):
    rows = [f"{k},{k}.pdb,{k}.sdf" for k in range(100)]
    (tmp_path / "t.csv").write_text("\n".join(["id,protein,ligand", *rows]) + "\n")
    touch(tmp_path, "99.pdb")
    assert len(items(tmp_path / "t.csv")) == 100
