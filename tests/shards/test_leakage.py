"""The leakage of a split, on data where the truth is known by construction."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest
from random_complexes import random_complex

from holoshard.__main__ import main
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
    found = leakage(open_dataset(data))
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
    (row,) = [r for r in leakage(open_dataset(data)).rows() if r[0] == "test3"]
    assert row[4] == pytest.approx(max(DataStructs.BulkTanimotoSimilarity(bits[2], bits[:2])), abs=1e-4)


def test_command(capsys, data, tmp_path):
    assert main(["leakage", str(data), "--csv", str(tmp_path / "near.csv"), "--json"]) == 0
    lines = capsys.readouterr().out.splitlines()
    result = json.loads(lines[-1])
    assert result["n_test"] == 4
    assert "1 of 4 test complexes" in "\n".join(lines)
    assert lines[-2].startswith("a lower bound: proteins less than about 45 % identical")
    assert result["limit"] == lines[-2]
    with (tmp_path / "near.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [r["id"] for r in rows] == open_dataset(data).ids()[-4:]
    assert main(["leakage", str(data), "--train", "practice"]) == 2


def test_a_distant_relative_counts_as_a_stranger_and_the_report_says_so(tmp_path):
    rng = np.random.default_rng(1)
    letters = np.array(list("ACDEFGHIKLMNPQRSTVWY"))
    a = rng.choice(letters, 300)
    distant = np.where(rng.random(300) < 0.3, a, rng.choice(letters, 300))  # about a third identical
    assert 0.28 < (a == distant).mean() < 0.4
    complexes = [
        random_complex(rng, name, sequences={"A": "".join(s)}, smiles=SMILES[0], columns={"split": name})
        for name, s in (("train", a), ("test", distant))
    ]
    write_part(tmp_path / "part.h5", complexes)
    pack([tmp_path / "part.h5"], tmp_path / "out", rule=Rule("given"))
    found = leakage(open_dataset(tmp_path / "out"))
    assert found.leakage == 0
    assert "lower bound" in found.lines()[-1]
    assert "nothing like" not in "\n".join(found.lines())


def test_help_says_how_far_the_number_sees(capsys):
    main(["leakage", "--help"])
    text = " ".join(capsys.readouterr().out.split())
    assert "lower bound" in text
    assert "about 45 %" in text
