"""The commands: real files in, parts and a balanced ledger out, errors with the mend."""

from __future__ import annotations

import csv
import io
import json
import logging
import math
import tarfile
from hashlib import sha256
from pathlib import Path

import pytest

from holoshard.__main__ import main
from holoshard.shards.read.dataset import open_dataset


@pytest.fixture(autouse=True)
def _fresh_logging():
    """The command logs to the standard error of its process, which here changes with each test."""
    yield
    logging.getLogger("holoshard").handlers.clear()


def call(capsys, *arguments: object) -> tuple[int, dict, str]:
    code = main([*map(str, arguments), "--json"])
    said = capsys.readouterr()
    return code, json.loads(said.out.splitlines()[-1]), said.out + said.err


@pytest.fixture(scope="module")
def few(tmp_path_factory, shared) -> Path:
    """A table of a few complexes of each source of the shared pack, relative and censored labels included."""
    out = tmp_path_factory.mktemp("few")
    with (shared / "data/real/complexes.csv").open() as file:
        rows = list(csv.DictReader(file))
    seen: dict[tuple[str, str, str], int] = {}
    chosen = []
    for row in rows:
        key = (row["source"], row["affinity_type"], row["relation"])
        seen[key] = seen.get(key, 0) + 1
        if seen[key] <= 3:
            chosen.append(row)
    with (out / "labels.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(chosen)
    return out / "labels.csv"


def complexes(out: Path) -> dict[str, object]:
    return {c.id: c for part in sorted((out / "parts").iterdir()) for c in open_dataset(part)}


def test_ingest_of_a_table(tmp_path, capsys, shared, few):
    source, out = shared / "data/real", tmp_path / "out"
    code, result, said = call(capsys, "ingest", source, "--labels", few, "--out", out, "--workers", 0)
    rows = {row["id"]: row for row in csv.DictReader(few.read_text().splitlines())}
    assert code == 0
    assert result["seen"] == result["kept"] + result["refused"] == len(rows)
    assert result["layouts"] == {str(source): "table"}
    assert f"{result['kept']} kept" in " ".join(said.split())
    found = complexes(out)
    assert len(found) == result["kept"] >= len(rows) - 1
    for id_, complex_ in found.items():
        row, affinity = rows[id_], complex_.affinity
        if row["affinity_type"] == "dG_relative":
            assert math.isnan(affinity.pk)
        else:
            assert abs(affinity.pk - float(row["pK"])) <= 0.02
            assert affinity.relation == {"=": "=", ">": "<"}[row["relation"]]
        assert complex_.text["columns"]["cluster"] == row["cluster"]
    code, result, _ = call(capsys, "ingest", source, "--labels", few, "--out", out, "--workers", 0)
    assert result["reused"] == result["kept"]
    relative = sum(row["affinity_type"] == "dG_relative" for row in rows.values())
    arguments = ("ingest", source, "--labels", few, "--out", out, "--workers", 0, "--unlabelled", "refuse")
    assert call(capsys, *arguments)[1]["reasons"] == {"label_relative": relative}


def test_workers_do_not_change_a_byte(tmp_path, capsys, shared, few):
    found = []
    for workers in (0, 2):
        out = tmp_path / str(workers)
        call(
            capsys,
            "ingest",
            shared / "data/real",
            "--labels",
            few,
            "--out",
            out,
            "--workers",
            workers,
            "--task-size",
            4,
        )
        found.append({path.name: sha256(path.read_bytes()).hexdigest() for path in (out / "parts").iterdir()})
    assert found[0] == found[1]
    assert len(found[0]) > 2


# What becomes of the raw layouts of the shared pack: seen, kept, reasons.
LAYOUTS = {
    "crossdocked2020": (113, 13, {"file_missing": 100}),  # the types file names 100 poses that are not there
    "diffsbdd": (1, 1, {}),
    "openfe_benchmarks": (44, 44, {}),
    "pdbbind_style": (2, 2, {}),
    "pdbbind_style_diffdock": (1, 1, {}),
    "plinder": (2, 2, {}),
    "plinder_ingest": (1, 1, {}),
    "posebusters": (2, 2, {}),
    "rcsb_same_entry": (5, 2, {"ligand_missing": 3}),  # 1aki, 1o1z, 3jqh: water, ions and buffer only
    "targetdiff": (1, 1, {}),
    "vina": (6, 6, {}),
}


@pytest.mark.parametrize("folder", LAYOUTS)
def test_raw_layouts_are_ingested(tmp_path, capsys, shared, folder):
    seen, kept, reasons = LAYOUTS[folder]
    source = shared / "data/real/layouts" / folder
    code, result, said = call(capsys, "ingest", source, "--out", tmp_path, "--workers", 0)
    assert (result["seen"], result["kept"], result["reasons"]) == (seen, kept, reasons)
    assert code == 0
    assert ", because " in said or "layouts" in said


def test_labels_of_the_pdbbind_index(tmp_path, capsys, shared):
    call(capsys, "ingest", shared / "data/real/layouts/pdbbind_style", "--out", tmp_path, "--workers", 0)
    found = complexes(tmp_path)
    assert (found["10gs"].affinity.kind, round(found["10gs"].affinity.pk, 2)) == ("Ki", 6.40)
    assert (found["1imx"].affinity.kind, round(found["1imx"].affinity.pk, 2)) == ("Kd", 3.52)


def test_an_archive_gives_what_its_folder_gives(tmp_path, capsys, shared):
    source = shared / "data/real/layouts/pdbbind_style"
    with tarfile.open(tmp_path / "set.tar.gz", "w:gz") as tar:
        tar.add(source, "set")
        evil = tarfile.TarInfo("../evil_protein.pdb")
        tar.addfile(evil, io.BytesIO())
    call(capsys, "ingest", source, "--out", tmp_path / "folder", "--workers", 0)
    code, result, _ = call(
        capsys, "ingest", tmp_path / "set.tar.gz", "--out", tmp_path / "tar", "--workers", 0
    )
    assert (code, result["kept"], result["reasons"]) == (0, 2, {"unsafe_member": 1})
    a, b = complexes(tmp_path / "folder"), complexes(tmp_path / "tar")
    assert list(a) == list(b)
    assert all((a[id_].position == b[id_].position).all() for id_ in a)
    assert not list(tmp_path.parent.glob("evil*"))


def test_nothing_kept_ends_with_1_and_a_ledger(tmp_path, capsys, shared):
    source = shared / "data/real/layouts/misato"
    code, result, said = call(capsys, "ingest", source, "--out", tmp_path, "--workers", 0)
    assert code == result["exit"] == 1
    assert (result["seen"], result["kept"], result["reasons"]) == (20, 0, {"no_protein": 20})
    assert "nothing was kept of 20" in result["error"]
    assert "Traceback" not in said
    assert call(capsys, "ledger", tmp_path)[1]["refused"] == 20


def test_ledger_shows_and_filters(tmp_path, capsys, shared):
    source = shared / "data/real/layouts/rcsb_same_entry"
    call(capsys, "ingest", source, "--out", tmp_path, "--workers", 0, "--collect-refused")
    assert (tmp_path / "refused" / "ligand_missing" / "1aki" / "1aki.cif").is_file()
    code, result, said = call(capsys, "ledger", tmp_path)
    assert (code, result["shown"]) == (0, 3)
    assert "1aki\tligand_missing\t" in said
    assert call(capsys, "ledger", tmp_path, "--reason", "timeout")[1]["shown"] == 0
    code, result, said = call(capsys, "ledger", tmp_path, "--status", "all", "--csv")
    rows = list(csv.DictReader(said[: said.index('{"')].splitlines()))
    assert len(rows) == result["shown"] == 5
    assert rows[0].keys() >= {"id", "status", "reason", "sha256", "repairs", "seconds"}
    code, result, _ = call(capsys, "ledger", tmp_path, "--reason", "nonsense")
    assert code == 2
    assert "known are" in result["error"]


def test_a_sample_in_archives_is_ingested(tmp_path, capsys):
    for name, more in (("tar", ["--archive", "--workers", 2]), ("files", [])):
        code, result, _ = call(capsys, "sample", "--out", tmp_path / name, "--n", 24, *more)
        assert (code, result["n"]) == (0, 24)
        code, result, _ = call(
            capsys, "ingest", tmp_path / name, "--out", tmp_path / f"{name}-out", "--workers", 0
        )
        assert (code, result["kept"]) == (0, 24)
    assert [p.name for p in (tmp_path / "tar").glob("*.tar")] == ["structures-00000.tar"]
    a, b = complexes(tmp_path / "tar-out"), complexes(tmp_path / "files-out")
    assert all((a[id_].position == b[id_].position).all() and a[id_].affinity == b[id_].affinity for id_ in b)


def test_wrong_calls(tmp_path, capsys):
    assert call(capsys, "ingest", tmp_path / "none", "--out", tmp_path / "out")[0] == 2
    assert call(capsys, "ingest", tmp_path, "--out", tmp_path / "out", "--layout", "nonsense")[0] == 2
    assert call(capsys, "ingest", tmp_path, "--out", tmp_path / "out", "--timeout", "0")[0] == 2
    assert call(capsys, "ledger", tmp_path)[0] == 1
    assert call(capsys, "sample", "--out", tmp_path / "s", "--dirty", "2")[0] == 2
    assert call(capsys, "sample", "--out", tmp_path / "s", "--workers", "0")[0] == 2
    assert not (tmp_path / "out" / "ledger.parquet").exists()
