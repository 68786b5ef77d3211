"""Tables beside a layout that does not read them: an error or a counted warning, never silence."""

from __future__ import annotations

import gzip
import logging
import os
import random
from pathlib import Path

import polars as pl
import pytest
from trees import items, touch

from holoshard.ingest.sources.layouts import choose
from holoshard.shards.errors import StructureError, UsageError

GOOD = "id,protein_path,ligand_path,pK\n1abc,1abc/1abc_protein.pdb,1abc/1abc_ligand.sdf,5\n"
JUNK = random.Random(1).randbytes(5000)


@pytest.fixture
def source(tmp_path) -> Path:
    """A folder that is PDBbind's by its names, and the table's by what a test adds."""
    touch(tmp_path, "1abc/1abc_protein.pdb", "1abc/1abc_ligand.sdf")
    return tmp_path


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        ("labels.csv", JUNK, "binary"),
        ("labels.csv", b"", "no content"),
        ("labels.csv", (GOOD + "a,b,c,d,e,f\n").encode(), "more fields"),
        ("labels.csv", GOOD.encode() + JUNK, "binary"),
        ("labels.csv.gz", gzip.compress(GOOD.encode() * 50, mtime=0)[:60], "cut short"),
        ("labels.tsv", gzip.compress(GOOD.encode() * 50, mtime=0)[:60], "cut short"),
        ("affinity_labels.txt", JUNK, "binary"),
        ("table.parquet", b"PAR1" + JUNK + b"PAR1", "cannot be read"),
        ("table.parquet", b"PAR1", "cannot be read"),
    ],
)
def test_a_broken_table_stops_auto(source, name, data, said):
    (source / name).write_bytes(data)
    with pytest.raises(UsageError, match=rf"layout pdbbind, but {name}.*{said}.*--layout pdbbind"):
        choose(source)
    assert len(items(source, layout="pdbbind")) == 1


def test_a_parquet_that_was_cut_stops_auto(source):
    pl.DataFrame({"id": ["1abc"] * 500, "pK": [5.0] * 500}).write_parquet(source / "t.parquet")
    (source / "t.parquet").write_bytes((source / "t.parquet").read_bytes()[:-20])
    with pytest.raises(UsageError, match=r"t\.parquet"):
        choose(source)


def test_a_pipe_in_the_place_of_a_table_stops_auto_and_hangs_nothing(source):
    os.mkfifo(source / "labels.csv")
    with pytest.raises(UsageError, match="no regular file"):
        choose(source)
    with pytest.raises(UsageError, match="no regular file"):
        choose(source, labels=source / "labels.csv")
    with pytest.raises(UsageError, match="a pipe, socket or device"):
        choose(source / "labels.csv")
    (source / "labels.csv").unlink()
    os.mkfifo(source / "INDEX_general")
    with pytest.raises(StructureError, match="no regular file"):
        items(source)


def test_two_lists_of_complexes_are_for_the_user_to_choose_from(source):
    for name in ("labels.csv", "old.csv"):
        (source / name).write_text(GOOD)
    with pytest.raises(UsageError, match="could be the list of complexes"):
        choose(source)
    assert choose(source, labels=source / "old.csv").source.name == "table"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (GOOD.replace("ligand_path", "x"), "labels by id: --labels labels.csv"),
        ("pdb,Ki (nM)\n1abc,5\n", "labels by pdb"),
        ("pdb,weather\n1abc,5\n", "lacks a structure column"),
        (GOOD.replace(",", " "), "one column, 'id protein_path"),
        (GOOD.replace("1abc/", "elsewhere/"), "none of its first rows' is there"),
    ],
)
def test_a_table_that_is_left_alone_is_said_and_counted(source, caplog, text, said):
    (source / "labels.csv").write_text(text)
    with caplog.at_level(logging.WARNING, "holoshard"):
        chosen = choose(source)
    assert (chosen.source.name, chosen.unread) == ("pdbbind", ("labels.csv",))
    assert "labels.csv is not read: " in caplog.text
    assert said in caplog.text


def test_an_unknown_layout_speaks_of_the_tables(tmp_path):
    (tmp_path / "labels.csv").write_text(GOOD.replace(",", "#"))
    with pytest.raises(UsageError, match=r"no layout that is known.*labels\.csv: it has one column"):
        choose(tmp_path)


@pytest.mark.parametrize("form", ["bars", "utf-16"])
def test_other_ways_to_write_a_table(source, form):
    data = GOOD.replace(",", "|").encode() if form == "bars" else GOOD.encode("utf-16")
    (source / "labels.csv").write_bytes(data)
    (item,) = items(source)
    assert (item.source, item.labels[0].value) == ("table", "5")


def test_tables_that_a_layout_reads_itself_are_not_reported(tmp_path):
    pl.DataFrame({"entry_id": [7], "index": [0]}).write_parquet(tmp_path / "sair.parquet")
    touch(tmp_path, "sample_7_model_0.cif")
    assert (choose(tmp_path).source.name, choose(tmp_path).unread) == ("sair", ())
    (tmp_path / "sair.parquet").write_bytes(b"PAR1")
    touch(tmp_path, "a/a.pdb", "a/a.sdf")
    with pytest.raises(UsageError, match=r"sair\.parquet"):
        choose(tmp_path)


def test_index_lines_that_are_lost_are_counted(source, caplog):
    (source / "INDEX_x").write_text("# a comment // x\n1abc 2.1 1999 8.0 Ki = 10 nM // a\n2abc 8.0 // b\n")
    (item,) = items(source)
    assert item.labels[0].text == "Ki = 10 nM"
    assert "INDEX_x: 1 of 2 lines" in caplog.text
    (source / "INDEX_x").write_bytes(JUNK)
    with pytest.raises(UsageError, match="binary"):
        items(source)


def test_lines_of_a_types_file_that_are_lost_are_counted(tmp_path, caplog):
    touch(tmp_path, "a_rec.pdb", "a.sdf")
    (tmp_path / "set.types").write_text("1 6.5 0.9 a_rec.pdb a.sdf\n1 6.5\n\n# x\n")
    assert len(items(tmp_path)) == 1
    assert "set.types: 1 of 2 lines" in caplog.text
