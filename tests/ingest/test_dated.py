"""Date and resolution of the source where the structure file states none."""

from __future__ import annotations

import math
from dataclasses import replace

import polars as pl
import pytest
from test_pipeline import LIGAND_AT, PROTEIN, ligand_file, write
from trees import by_id, touch

from holoshard.ingest.chemistry.quality import Filters
from holoshard.ingest.item import Item, Locator, Rejection
from holoshard.ingest.pipeline import IngestOptions, clear_caches, process
from holoshard.ingest.sources.dated import dated, to_date, to_resolution

DATES = {
    "1998-03-27": 19980327, "1998/3/7": 19980307, "1998-03-27 00:00:00": 19980327, "27-MAR-98": 19980327,
    "1998-03-27T00:00:00Z": 19980327, "19980327": 19980327, "1998": 19980101, "1998.0": 19980101,
    "": 0, "n/a": 0, "98": 0, "03/04/1998": 0, "1998-02-30": 0, "0000": 0, "9999": 0, "1998-13-01": 0,
}  # fmt: skip
RESOLUTIONS = {
    "2.10": 2.1, "2,1": 2.1, "2.1 Å": 2.1, "2.1A": 2.1, "3": 3.0, "NMR": 0.0, "": 0.0, "-1": 0.0, "0": 0.0,
    "nan": 0.0, "1e400": 0.0, "250": 0.0, "2.1-2.4": 0.0,
}  # fmt: skip


@pytest.mark.parametrize("text", DATES)
def test_dates(text):
    assert to_date(text) == DATES[text]


@pytest.mark.parametrize("text", RESOLUTIONS)
def test_resolutions(text):
    assert to_resolution(text) == pytest.approx(RESOLUTIONS[text])


def test_the_day_is_preferred_to_the_year_and_the_source_to_its_columns(tmp_path):
    item = Item("x", Locator(tmp_path), columns={"Year": "2001", "Release Date": "n/a", "resolution": "NMR"})
    assert (dated(item).deposited, dated(item).resolution) == (20010101, 0.0)
    item = replace(item, columns={"year": "2001", "deposition_date": "2000-05-01", "Resolution": "1.9"})
    assert (dated(item).deposited, dated(item).resolution) == (20000501, 1.9)
    assert dated(replace(item, deposited=19990101, resolution=3.0)).deposited == 19990101


def test_layouts_hand_them_on(tmp_path):
    touch(tmp_path / "p", "1abc/1abc_protein.pdb", "1abc/1abc_ligand.sdf")
    (tmp_path / "p" / "INDEX").write_text("1abc 2.10 1999 8.0 Ki=10nM // 1abc.pdf (HUX)\n")
    item = by_id(tmp_path / "p")["1abc"]
    assert (item.deposited, item.resolution) == (19990101, 2.1)
    (tmp_path / "mine.csv").write_text("pdb,pK,date\n1abc,5,2003-02-01\n")
    assert by_id(tmp_path / "p", labels=tmp_path / "mine.csv")["1abc"].deposited == 20030201
    system = "1bcd__1__1.A__1.B"
    touch(tmp_path / "q", f"{system}/receptor.cif", f"{system}/ligand_files/1.B.sdf")
    names = ["system_id", "ligand_instance_chain", "entry_release_date", "entry_resolution"]
    (tmp_path / "q" / "index").mkdir()
    frame = pl.DataFrame([(system, "1.B", "2010-11-03", 1.75)], schema=names, orient="row")
    frame.write_parquet(tmp_path / "q" / "index" / "annotation_table.parquet")
    item = by_id(tmp_path / "q")[system]
    assert (item.deposited, item.resolution) == (20101103, 1.75)


def test_they_reach_the_record_and_the_filter_where_the_file_has_none(tmp_path):
    clear_caches()
    ligand = ligand_file(tmp_path, at=LIGAND_AT)
    bare = Item("x", write(tmp_path, PROTEIN), ligand, deposited=19990101, resolution=3.5)
    found = process(bare, IngestOptions())
    assert (found.deposited, found.resolution) == (19990101, 3.5)
    sharp = IngestOptions(filters=Filters(max_resolution=2.5))
    verdict = process(bare, sharp)
    assert isinstance(verdict, Rejection)
    assert verdict.reason == "filtered"
    unknown = process(replace(bare, deposited=0, resolution=0.0), sharp)  # the protein is remembered
    assert unknown.deposited == 0
    assert math.isnan(unknown.resolution)
    header = (
        "HEADER    TRANSFERASE                             07-SEP-04   1XKK\n"
        "REMARK   2 RESOLUTION.    1.20 ANGSTROMS.\n"
    )
    stated = process(replace(bare, structure=write(tmp_path, header + PROTEIN, "stated.pdb")), sharp)
    assert (stated.deposited, stated.resolution) == (20040907, pytest.approx(1.2))
