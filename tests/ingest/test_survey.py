"""What a run leaves unread is counted before it starts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from test_cli import _fresh_logging, call  # noqa: F401
from trees import items, tar_of, touch

from holoshard.ingest.sources.layouts import choose
from holoshard.ingest.survey import survey

PAIR = ("1abc/1abc_protein.pdb", "1abc/1abc_ligand.sdf")
STRAYS = ("docked/a.mol2.gz", "docked/b.MOL2", "docked/c.sdf", "old/systems.tar.gz")
OTHER = ("1abc/1abc_pocket.pdb", "1abc/notes.sdf", "docked/README", "docked/labels.csv", "docked/x.py")


@pytest.mark.parametrize("packed", [False, True])
def test_files_of_no_complex_are_counted_by_ending(tmp_path, packed):
    touch(tmp_path / "in", *PAIR, *STRAYS, *OTHER)
    source = tar_of(tmp_path / "in", tmp_path / "in.tar") if packed else tmp_path / "in"
    found = survey([choose(source, "pdbbind")])
    assert found.n_items == 1
    assert found.unused == {".mol2": 2, ".sdf": 1, ".tar": 1}


def test_files_of_refused_items_are_in_the_ledger_and_not_counted(tmp_path):
    touch(tmp_path, *PAIR, "2abc/2abc_ligand.sdf", "3abc/3abc_protein.pdb", "4abc/4abc.pdb")
    found = survey([choose(tmp_path, "pdbbind")])
    assert (found.n_items, found.unused) == (3, {".pdb": 1})


def test_a_table_is_not_walked_for_it(tmp_path):
    touch(tmp_path, *PAIR, *STRAYS)
    (tmp_path / "t.csv").write_text(
        f"id,protein,ligand,pK\n1,{PAIR[0]},{PAIR[1]},5\n1,{PAIR[0]},{PAIR[1]},6\n"
    )
    chosen = choose(tmp_path)
    assert (survey([chosen]).n_items, survey([chosen], apart=True).n_items) == (1, 2)
    assert survey([chosen]).unused == {}
    assert not chosen.request.tree.is_walked


LAYOUTS = ("crossdocked2020", "diffsbdd", "openfe_benchmarks", "pdbbind_style", "pdbbind_style_diffdock",
           "plinder", "plinder_ingest", "posebusters", "rcsb_same_entry", "targetdiff", "vina")  # fmt: skip


@pytest.mark.parametrize("folder", LAYOUTS)
def test_no_false_alarm_for_real_layouts(shared, folder):
    source = shared / "data/real/layouts" / folder
    found = survey([choose(source)])
    assert found.unused == {}
    assert found.n_items == len(items(source))


def test_the_run_says_so_and_so_does_its_summary(tmp_path, capsys, shared):
    source: Path = tmp_path / "in"
    source.mkdir()
    (source / "one").symlink_to(shared / "data/real/layouts/pdbbind_style")
    arguments = ("ingest", source, "--out", tmp_path / "out", "--workers", 0)
    code, result, said = call(capsys, *arguments)
    assert (code, result["unused_files"], "belong" in said) == (0, {}, False)
    touch(source, *STRAYS)
    code, result, said = call(capsys, *arguments)
    assert (code, result["kept"]) == (0, 2)
    assert "2 kept: 2 labelled, 0 without a pK" in said
    assert "4 files belong to no complex: 2 .mol2, 1 .sdf, 1 .tar; ingest them apart" in said
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary["unused_files"] == result["unused_files"] == {".mol2": 2, ".sdf": 1, ".tar": 1}


def test_another_source_does_not_remove_what_is_there(tmp_path, capsys, shared):
    layouts, out = shared / "data/real/layouts", tmp_path / "out"
    first, other = (layouts / "rcsb_same_entry", layouts / "pdbbind_style")
    how = ("--out", out, "--workers", 0)
    assert call(capsys, "ingest", first, *how)[1]["kept"] == 2
    before = (out / "ledger.parquet").read_bytes(), (out / "summary.json").read_bytes()
    code, result, _ = call(capsys, "ingest", other, *how)
    assert code == 2
    assert "holds 2 complexes of an earlier ingest, and the source names not one" in result["error"]
    assert "--replace" in result["error"]
    assert ((out / "ledger.parquet").read_bytes(), (out / "summary.json").read_bytes()) == before
    assert call(capsys, "ingest", first, *how)[0] == 0  # sites of an entry are its own
    code, result, _ = call(capsys, "ingest", first, other, *how)
    assert (code, result["kept"], result["removed"]) == (0, 4, 0)
    code, result, _ = call(capsys, "ingest", other, *how)
    assert (code, result["kept"], result["removed"]) == (0, 2, 2)  # some of it is there: as before
    code, result, _ = call(capsys, "ingest", first, *how, "--replace")
    assert (code, result["kept"], result["removed"]) == (0, 2, 2)


def test_no_items_at_all_are_not_explained_by_an_empty_ledger(tmp_path, capsys):
    (tmp_path / "t.csv").write_text("id,protein,ligand\n")
    code, result, said = call(
        capsys, "ingest", tmp_path / "t.csv", "--layout", "table", "--out", tmp_path / "out", "--workers", 0
    )
    assert (code, result["seen"]) == (1, 0)
    assert "nothing was kept of 0 items; the source names none" in result["error"]
    assert "one by one" not in said


def test_labels_that_no_complex_has_are_said(tmp_path, capsys, shared):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "one").symlink_to(shared / "data/real/layouts/pdbbind_style")
    (tmp_path / "labels.csv").write_text("pdb,Ki (nM)\n10GS,5\n1abc,6\n")
    code, result, said = call(
        capsys, "ingest", tmp_path / "in", "--labels", tmp_path / "labels.csv", "--layout", "pdbbind",
        "--out", tmp_path / "out", "--workers", 0,
    )  # fmt: skip
    assert (code, result["labelled"], result["labels_unused"]) == (0, 1, 1)
    assert "warning: 1 ids of the labels are no complex here: 1abc" in said
