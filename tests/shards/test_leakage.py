"""The leakage of a split, on data where the truth is known by construction."""

from __future__ import annotations

import csv
import json
import subprocess
import sys

import numpy as np
import pytest
from families import kin, natural
from random_complexes import random_complex

from holoshard.__main__ import main
from holoshard.shards.make import mmseqs
from holoshard.shards.make.leakage import leakage
from holoshard.shards.make.pack import pack
from holoshard.shards.make.rule import Rule
from holoshard.shards.make.writer import write_part
from holoshard.shards.read.dataset import open_dataset

pytest.importorskip("rdkit")
SMILES = ["c1ccccc1C(=O)O", "CCN(CC)CC", "O=C1NC(=O)c2ccccc21", "CC(C)Cc1ccc(cc1)C(C)C(=O)O"]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Test complexes: 0 is in train as it is, 1 shares the protein, 2 the ligand, 3 nothing."""
    rng = np.random.default_rng(0)
    a, b, c = ("".join(rng.choice(list("ACDEFGHIKLMNPQRSTVWY"), 200)) for _ in range(3))
    table = [
        ("train0", a, SMILES[0], "train"), ("train1", b, SMILES[1], "train"), ("v", b, SMILES[1], "valid"),
        ("test0", a, SMILES[0], "test"), ("test1", b, SMILES[3], "test"), ("test2", c, SMILES[1], "test"),
        ("test3", c, SMILES[2], "test"),
    ]  # fmt: skip
    folder = tmp_path_factory.mktemp("leakage")
    write_part(
        folder / "part.h5",
        [
            random_complex(rng, name, sequences={"A": s}, smiles=smiles, columns={"split": split})
            for name, s, smiles, split in table
        ],
    )
    pack([folder / "part.h5"], folder / "out", rule=Rule("given"))
    return folder / "out"


def test_nearest_by_protein_ligand_and_both(data):
    found = leakage(open_dataset(data), compare_with="built-in")
    rows = {r[0]: r[1:] for r in found.rows()}
    assert rows["test0"] == ("train0", 1.0, "train0", 1.0, "train0", 1.0)
    assert rows["test1"][:2] == ("train1", 1.0)
    assert rows["test1"][3] < 0.4
    assert rows["test2"][2:4] == ("train1", 1.0)
    assert max(rows["test2"][1], rows["test3"][1]) < 0.1
    assert found.leakage == pytest.approx(np.mean([r[5] for r in rows.values()]), abs=1e-4)
    assert {k: sum(v) for k, v in found.histograms().items()} == {"protein": 4, "ligand": 4, "both": 4}
    assert found.histograms()["both"][-1] == 1


def test_tanimoto_is_rdkits(data):
    from rdkit import Chem, DataStructs
    from rdkit.Chem import rdFingerprintGenerator

    maker = rdFingerprintGenerator.GetMorganGenerator(radius=2, fpSize=2048)
    bits = [maker.GetFingerprint(Chem.MolFromSmiles(s)) for s in SMILES]
    (row,) = [r for r in leakage(open_dataset(data), compare_with="built-in").rows() if r[0] == "test3"]
    assert row[4] == pytest.approx(max(DataStructs.BulkTanimotoSimilarity(bits[2], bits[:2])), abs=1e-4)


def test_command(capsys, data, tmp_path):
    table = tmp_path / "near.csv"
    code = (
        "import os, sys; from pathlib import Path; from holoshard.shards.make.leakage import write_table\n"
        "write_table(Path(sys.argv[1]), (os.kill(os.getpid(), 9) for _ in 'a'))"
    )
    assert subprocess.run([sys.executable, "-c", code, str(table)], check=False).returncode == -9
    assert len(list(tmp_path.iterdir())) == 2  # what that left
    call = ["leakage", str(data), "--compare-with", "built-in", "--csv", str(table), "--json"]
    assert main(call) == 0
    assert list(tmp_path.iterdir()) == [table]
    lines = capsys.readouterr().out.splitlines()
    result = json.loads(lines[-1])
    assert result["n_test"] == 4
    assert "1 of 4 test complexes" in "\n".join(lines)
    assert lines[-2].startswith("a lower bound: proteins less than about 30 % identical")
    assert lines[-3] == "proteins compared by protein sequence, built in"
    assert result["limit"] == lines[-2]
    with table.open() as file:
        rows = list(csv.DictReader(file))
    assert [r["id"] for r in rows] == open_dataset(data).ids()[-4:]
    assert main(["leakage", str(data), "--train", "practice"]) == 2
    assert main(["leakage", str(data), "--csv", str(table / "x.csv")]) == 2
    assert main(["leakage", str(data), "--compare-with", "mmseqs", "--train", "practice"]) == 2


with_mmseqs = pytest.mark.skipif(not mmseqs.installed(), reason="MMseqs2 (mmseqs) is not installed")


@pytest.mark.parametrize("compare_with", ["built-in", pytest.param("mmseqs", marks=with_mmseqs)])
@pytest.mark.parametrize("share", [1, 0.5, 0.36])
def test_relatives_are_seen_and_strangers_are_not(tmp_path, compare_with, share):
    rng = np.random.default_rng(1)
    a = natural(rng, 300)
    table = {"train": a, "test": a if share == 1 else kin(rng, a, share), "test2": natural(rng, 300)}
    complexes = [
        random_complex(rng, n, sequences={"A": s}, smiles=SMILES[0], columns={"split": n.strip("2")})
        for n, s in table.items()
    ]
    write_part(tmp_path / "part.h5", complexes)
    pack([tmp_path / "part.h5"], tmp_path / "out", rule=Rule("given"))
    found = leakage(open_dataset(tmp_path / "out"), compare_with=compare_with)
    related, stranger = (
        dict(zip(found.ids, found.protein.tolist(), strict=True))[i] for i in ("test", "test2")
    )
    assert stranger == 0
    assert related == pytest.approx(share, abs=0.06)
    assert found.leakage == pytest.approx(related / 2)
    assert "lower bound" in found.lines()[-1]
    assert ("MMseqs2" in found.by) == (compare_with == "mmseqs")


def test_help_says_how_far_the_number_sees(capsys):
    main(["leakage", "--help"])
    text = " ".join(capsys.readouterr().out.split())
    assert "lower bound" in text
    assert "about 30 %" in text
