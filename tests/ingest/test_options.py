"""Every option that changes what becomes of an item, from the command line to the record."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from pdbtext import atom_line, chain_lines, residue_lines

from holoshard.__main__ import main
from holoshard.shards.complex import RESIDUE_TYPES, Complex
from holoshard.shards.read.dataset import open_dataset

PROTEIN = chain_lines(["ALA", "SER", "GLY", "LEU", "VAL", "ASP", "LYS"])
HEAD = "REMARK   2 RESOLUTION.    3.10 ANGSTROMS.\n"
LIGAND = residue_lines("STI", "A", 900, (8.0, 9.0, 1.0), het=True)
WATER = atom_line("O", "HOH", "A", 903, (8, 5, -4), "O", het=True)
TABLE = "id,structure,ligand_name,type,relation,value,unit\n"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "source"
    folder.mkdir()
    thin = PROTEIN.replace("1.00 20.00", "0.50 20.00")
    (folder / "a.pdb").write_text(HEAD + thin + LIGAND + WATER)
    (folder / "labels.csv").write_text(TABLE + "a,a.pdb,STI,Kd,=,10,nM\n")
    return folder


def ingest(capsys, source: Path, *arguments: object) -> tuple[dict, dict[str, Complex]]:
    out = source.parent / "out"
    main(["ingest", str(source), "--out", str(out), "--workers", "0", "--json", *map(str, arguments)])
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    return result, {c.id: c for part in sorted((out / "parts").glob("*.h5")) for c in open_dataset(part)}


@pytest.mark.parametrize(
    "arguments",
    [
        ["--filters.max-resolution", 2.5],
        ["--filters.min-occupancy", 0.9],
        ["--filters.min-distance", 30],
        ["--filters.max-distance", 0.5],
        ["--filters.max-missing", 0.01],
        ["--filters.min-ligand-atoms", 60],
        ["--filters.max-ligand-atoms", 10],
        ["--filters.elements", "C,O"],
        ["--max-atoms", 40],
    ],
)
def test_limits_refuse_and_are_counted(source, capsys, arguments):
    assert ingest(capsys, source)[0]["kept"] == 1
    result, found = ingest(capsys, source, *arguments)
    reason = "too_large" if arguments[0] == "--max-atoms" else "filtered"
    assert (result["reasons"], found) == ({reason: 1}, {})
    assert ingest(capsys, source)[0]["kept"] == 1


def test_lenient_limits_keep(source, capsys):
    limits = ["--filters.max-resolution", 3.1, "--filters.min-occupancy", 0.5, "--filters.elements", "C,N"]
    limits += ["--filters.elements", "O", "--filters.max-ligand-atoms", 37, "--filters.min-ligand-atoms", 37]
    result, _ = ingest(capsys, source, *limits)
    assert result["kept"] == 1
    assert result["options"]["filters"]["elements"] == ["C", "N", "O"]
    result, _ = ingest(capsys, source, "--filters.elements", "C,Xx")
    assert result["exit"] == 2
    assert "Xx is no element symbol" in result["error"]


@pytest.mark.parametrize(
    ("option", "values"),
    [
        ("--pocket", ["nan", "-1", "0", "inf", "1e300"]),
        ("--timeout", ["nan", "-1", "0", "inf", "1e300"]),
        ("--task-size", ["0", "-3"]),
        ("--max-atoms", ["0", "-1"]),
        ("--filters.max-resolution", ["nan", "-1", "inf"]),
        ("--filters.min-occupancy", ["-1", "2"]),
        ("--filters.max-missing", ["7"]),
        ("--filters.min-ligand-atoms", ["-1"]),
    ],
)
def test_absurd_numbers_are_wrong_calls(source, capsys, option, values):
    for value in values:
        result, found = ingest(capsys, source, option, value)
        assert (result["exit"], found) == (2, {}), value
        assert f"{option} is {value.replace('1e300', '1e+300')}; expected" in result["error"]


def test_absurd_memory_and_folders_are_wrong_calls(source, tmp_path, capsys):
    for workers in ("-5", "100000"):
        assert main(["ingest", str(source), "--out", str(tmp_path / "o"), "--workers", workers]) == 2
        assert f"--workers is {workers}; expected" in capsys.readouterr().err
    for memory in ("nonsense", "1", "5MiB"):
        assert main(["ingest", str(source), "--out", str(tmp_path / "o"), "--memory", memory]) == 2
        assert f"--memory is '{memory}'; expected" in capsys.readouterr().err
    (tmp_path / "file").write_text("x")
    for place in ("file", "file/x"):
        assert main(["ingest", str(source), "--out", str(tmp_path / place), "--workers", "0"]) == 2
        assert "cannot be made a folder" in capsys.readouterr().err
    (tmp_path / "o" / "parts").mkdir(parents=True, exist_ok=True)
    (tmp_path / "o" / ".lock").unlink(missing_ok=True)
    os.mkfifo(tmp_path / "o" / ".lock")
    assert main(["ingest", str(source), "--out", str(tmp_path / "o"), "--workers", "0"]) == 2
    assert "no regular file" in capsys.readouterr().err


def test_pocket_waters_and_hydrogens(source, capsys):
    plain = ingest(capsys, source)[1]["a"]
    wide = ingest(capsys, source, "--pocket", 12)[1]["a"]
    assert (plain.pocket_radius, wide.pocket_radius) == (8, 12)
    assert wide.n_atoms > plain.n_atoms
    wet = ingest(capsys, source, "--waters")[1]["a"]
    assert [RESIDUE_TYPES[t] for t in wet.residue_type].count("water") == 1
    light = residue_lines("STI", "A", 900, (8.0, 9.0, 1.0), het=True, hydrogens=True)
    (source / "a.pdb").write_text(PROTEIN + light)
    assert (ingest(capsys, source)[1]["a"].element != 1).all()
    assert (ingest(capsys, source, "--hydrogens")[1]["a"].element == 1).sum() > 10


def test_an_assembly_is_built_on_request(source, capsys):
    # A twofold axis along z: the copy of the chain stands beside the ligand, too.
    lines = "REMARK 350 BIOMOLECULE: 1\nREMARK 350 APPLY THE FOLLOWING TO CHAINS: A, L\n"
    for number, (x, y) in enumerate(((1, 20), (-1, -20)), 1):
        lines += (
            f"REMARK 350   BIOMT1 {number:>3} {x:9.6f}  0.000000  0.000000 {0 if x > 0 else 16.0:14.5f}\n"
        )
        lines += (
            f"REMARK 350   BIOMT2 {number:>3}  0.000000 {x:9.6f}  0.000000 {0 if y > 0 else 18.0:14.5f}\n"
        )
        lines += f"REMARK 350   BIOMT3 {number:>3}  0.000000  0.000000  1.000000 {0.0:14.5f}\n"
    (source / "a.pdb").write_text(lines + PROTEIN + LIGAND.replace(" A 900", " L 900"))
    (source / "labels.csv").write_text(TABLE + "a,a.pdb,L:STI:900,Kd,=,10,nM\n")
    single = ingest(capsys, source)[1]["a"]
    double = ingest(capsys, source, "--assembly", 1)[1]["a"]
    assert double.n_atoms - double.n_ligand_atoms > single.n_atoms - single.n_ligand_atoms
    assert set(single.text["sequences"]) == {"A"}
    assert set(double.text["sequences"]) == {"A1", "A2"}
    assert ingest(capsys, source, "--assembly", 7)[0]["reasons"] == {"parse_failed": 1}


def test_rows_of_one_complex_are_its_measurements(source, capsys):
    rows = [
        "a,a.pdb,STI,Kd,=,10,nM",
        "a,a.pdb,STI,Kd,=,1000,nM",
        "b,a.pdb,STI,Kd,=,5,nM",
        "a,a.pdb,STI,Ki,=,1,nM",
    ]
    (source / "labels.csv").write_text(TABLE + "\n".join(rows) + "\n")
    result, found = ingest(capsys, source)
    assert (result["seen"], result["kept"]) == (2, 2)
    affinity = found["a"].affinity
    assert (affinity.kind, affinity.count) == ("Kd", 2)  # kinds are never mixed
    assert affinity.pk == pytest.approx(7)
    assert "Ki" in affinity.text
    result, found = ingest(capsys, source, "--merge", "separate")
    labels = {c.id: (c.affinity.kind, round(c.affinity.pk, 3), c.affinity.count) for c in found.values()}
    assert labels == {"a@1": ("Kd", 8, 1), "a@2": ("Kd", 6, 1), "a@3": ("Ki", 9, 1), "b": ("Kd", 8.301, 1)}
    assert main(["shard", str(source.parent / "out"), "--out", str(source.parent / "set"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["n_complexes"] == 4


def test_an_id_with_other_files_is_refused(source, capsys):
    (source / "b.pdb").write_text(PROTEIN + LIGAND)
    rows = "a,a.pdb,STI,Kd,=,10,nM\na,b.pdb,STI,Kd,=,20,nM\n"
    (source / "labels.csv").write_text(TABLE + rows)
    result, found = ingest(capsys, source)
    assert (result["kept"], result["reasons"], found["a"].affinity.count) == (1, {"duplicate_id": 1}, 1)


def test_duplicates_by_content(source, capsys):
    (source / "b.pdb").write_bytes((source / "a.pdb").read_bytes())
    rows = "a,a.pdb,STI,Kd,=,10,nM\nb,b.pdb,STI,Kd,=,10,nM\nc,b.pdb,STI,Kd,=,11,nM\n"
    (source / "labels.csv").write_text(TABLE + rows)
    assert ingest(capsys, source)[0]["kept"] == 3
    result, found = ingest(capsys, source, "--duplicates", "refuse")
    assert (sorted(found), result["reasons"]) == (["a", "c"], {"duplicate_content": 1})
    assert ingest(capsys, source)[0]["kept"] == 3


def test_the_unlabelled_are_kept_or_refused(source, capsys):
    (source / "labels.csv").write_text(TABLE + "a,a.pdb,STI,,,,\n")
    result, found = ingest(capsys, source)
    assert (result["kept"], found["a"].affinity.count) == (1, 0)
    assert ingest(capsys, source, "--unlabelled", "refuse")[0]["reasons"] == {"label_missing": 1}
