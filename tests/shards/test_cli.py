"""The commands shard, info, show and verify, as a shell sees them."""

from __future__ import annotations

import dataclasses
import json
import shutil

import numpy as np
import pytest
from random_complexes import random_complex, random_complexes

from holoshard.__main__ import main
from holoshard.shards.complex import Affinity
from holoshard.shards.make.writer import write_part
from holoshard.shards.read.dataset import open_dataset

COMPLEXES = list(random_complexes(60, seed=2))


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    write_part(folder / "ingested" / "parts" / "part-0.h5", COMPLEXES[:35])
    write_part(folder / "ingested" / "parts" / "part-1.h5", COMPLEXES[35:] + COMPLEXES[:2])
    assert main(["shard", str(folder / "ingested"), "--out", str(folder / "shards"), "--seed", "3"]) == 0
    return folder


def run(capsys, *arguments):
    code = main([*map(str, arguments), "--json"])
    lines = capsys.readouterr().out.splitlines()
    return code, "\n".join(lines[:-1]), json.loads(lines[-1])


def test_shard(capsys, data, tmp_path):
    code, text, result = run(
        capsys, "shard", data / "ingested", "--out", tmp_path / "out", "--split", "scaffold"
    )
    assert code == result["exit"] == 0
    assert result["n_complexes"] == sum(result["splits"].values()) == 60
    assert (result["seen"], result["same_id"]) == (62, 2)
    assert result["split"]["groups_by"] == "scaffold"
    assert "60 complexes in 3 shards" in text
    assert "2 came twice" in text


def test_info(capsys, data):
    code, text, result = run(capsys, "info", data / "shards")
    assert code == 0
    assert {k: v["n"] for k, v in result["splits"].items()} == {"train": 48, "valid": 6, "test": 6}
    labelled = [c.affinity.pk for c in COMPLEXES if c.affinity.pk == c.affinity.pk]
    assert result["pk"]["labelled"] == len(labelled)
    assert result["pk"]["mean"] == pytest.approx(sum(labelled) / len(labelled), abs=1e-3)
    assert result["sizes"]["n_atoms"][-1] == max(c.n_atoms for c in COMPLEXES)
    assert sum(result["kinds"].values()) == 60
    assert result["flags"] == {"SYNTHETIC": 60}
    assert "60 complexes in 3 hdf5 shards" in text
    assert "of 62 complexes seen: 2 came twice" in text


def test_show_says_the_kind_of_a_label_once(capsys, tmp_path):
    c = COMPLEXES[0]
    labels = [Affinity(8.0, "=", "Kd", text=text) for text in ("Kd = 10 nM", "8.00")]
    made = [
        dataclasses.replace(c, affinity=a, text={**c.text, "id": f"x{i}", "label": a.text})
        for i, a in enumerate(labels)
    ]
    write_part(tmp_path / "p.h5", made)
    told = []
    for i in range(2):
        main(["show", str(tmp_path / "p.h5"), str(i)])
        told.append(capsys.readouterr().out.splitlines()[1])
    assert told == ["label     pK 8.00, from Kd = 10 nM", "label     pK 8.00, from Kd 8.00"]


def test_info_of_a_part(capsys, data):
    code, _, result = run(capsys, "info", data / "ingested" / "parts" / "part-0.h5")
    assert code == 0
    assert result["n_complexes"] == 35


@pytest.mark.parametrize("which", ["id", "row", "negative"])
def test_show(capsys, data, which):
    dataset = open_dataset(data / "shards")
    c = dataset[59]
    arguments = {"id": [c.id], "row": ["59"], "negative": ["--", "-1"]}[which]
    code = main(["show", str(data / "shards"), *(["--json"] if which != "negative" else []), *arguments])
    text = capsys.readouterr().out
    assert code == 0
    assert text.startswith(f"{c.id} (row 59, test)")
    assert f"{c.n_ligand_atoms} heavy atoms" in text
    if which != "negative":
        result = json.loads(text.splitlines()[-1])
        assert (result["id"], result["n_atoms"], result["split"]) == (c.id, c.n_atoms, "test")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["show", "{}/shards", "c0001x"], "no complex 'c0001x' among 60"),
        (["show", "{}/shards", "C0001"], "near it: c0001"),
        (["show", "{}/shards", "60"], "rows are 0 to 59"),
        (["info", "{}/nowhere"], "does not exist"),
        (["info", "{}/ingested"], "parts holds 2 parts and no data set: name one of them, such as"),
        (["show", "{}/ingested/parts", "0"], "or make a data set: holoshard shard"),
        (["shard", "{}/nowhere", "--out", "{}/x"], "does not exist"),
        (["shard", "{}/ingested", "--out", "{}/x", "--split", "given"], "no complex has a column 'split'"),
        (["shard", "{}/ingested", "--out", "{}/x", "--split", "best"], "best"),
        (["shard", "{}/ingested", "--out", "{}/ingested"], "not a data set"),
        (
            ["shard", "{}/ingested", "--out", "{}/x", "--block-size", "0"],
            "--block-size 0: expected 1",
        ),
        (["shard", "{}/ingested", "--out", "{}/x", "--block-size", "99999"], "--block-size 99999"),
        (["shard", "{}/ingested", "--out", "{}/x", "--shard-bytes", "-5"], "'-5' is no size; expected one"),
        (["shard", "{}/ingested", "--out", "{}/x", "--memory", "1 parsec"], "'1 parsec' is no size"),
        (["shard", "{}/ingested", "--out", "{}/x", "--memory", "0"], "--memory 0"),
        (["shard", "{}/ingested", "--out", "{}/x", "--threads", "0"], "--threads 0: expected 1 to 1024"),
        (["shard", "{}/ingested", "--out", "{}/x", "--seed", "-1"], "--seed -1"),
        (["shard", "{}/ingested", "--out", "{}/x", "--fractions", "nan", "nan", "nan"], "add up to 1"),
        (["verify", "{}/shards", "--threads", "-1"], "--threads -1"),
        (["append", "{}/nowhere", "{}/ingested"], "does not exist"),
    ],
)
def test_a_wrong_call_is_one_line_and_exit_code_2(capsys, data, arguments, message):
    assert main([a.format(data) for a in arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error
    assert not (data / "x").exists()


def test_sizes_have_units(capsys, data, tmp_path):
    """A shard of 2 KiB holds less than all complexes, of 1 GiB all of a split."""
    n = {}
    for size in ("2KiB", "2048", "1GiB"):
        out = ["--out", str(tmp_path / size), "--shard-bytes", size, "--memory", "1.5 GB"]
        assert main(["shard", str(data / "ingested"), *out, "--block-size", "8"]) == 0
        n[size] = len(list((tmp_path / size).glob("train-*.h5")))
    assert n["2KiB"] == n["2048"] > n["1GiB"] == 1


@pytest.mark.parametrize("command", ["shard", "append", "info", "show", "verify", "convert"])
def test_help_has_examples(capsys, command):
    main([command, "--help"])
    text = capsys.readouterr().out
    assert f"holoshard {command} data/" in text
    words = " ".join(text.replace("│", " ").split())
    assert "or one shard or part file" in words or command in ("shard", "append")


def test_verify(capsys, data, tmp_path):
    code, text, result = run(capsys, "verify", data / "shards")
    assert code == 0
    assert result["ok"]
    assert "all as written" in text
    shutil.copytree(data / "shards", tmp_path / "bad")
    dataset = open_dataset(tmp_path / "bad")
    block = dataset.reader.table[1]
    shard = tmp_path / "bad" / dataset.manifest.shards[int(block["shard"])].name
    damaged = bytearray(shard.read_bytes())
    damaged[int(block["offset"]) + 5] ^= 16
    shard.write_bytes(damaged)
    code, text, result = run(capsys, "verify", tmp_path / "bad")
    assert code == result["exit"] == 1
    (found,) = [d for d in result["damage"] if d["block"] == 1]
    assert found["file"] == shard.name
    assert found["ids"] == dataset.ids()[8:16]
    assert found["ids"][0] in text


def test_verify_of_what_ingest_wrote_looks_at_every_part(capsys, data, tmp_path):
    shutil.copytree(data / "ingested", tmp_path / "in")
    assert run(capsys, "verify", tmp_path / "in")[2]["n_complexes"] == 62
    part = tmp_path / "in" / "parts" / "part-1.h5"
    damaged = bytearray(part.read_bytes())
    damaged[int(open_dataset(part).reader.table[0]["offset"]) + 7] ^= 4
    part.write_bytes(damaged)
    code, _, result = run(capsys, "verify", tmp_path / "in")
    assert (code, [d["file"] for d in result["damage"]]) == (1, ["part-1.h5"])


def test_verify_mends_from_the_parts(capsys, data, tmp_path):
    shutil.copytree(data / "shards", tmp_path / "bad")
    shard = tmp_path / "bad" / "train-00000.h5"
    damaged = bytearray(shard.read_bytes())
    block = open_dataset(tmp_path / "bad").reader.table[2]
    damaged[int(block["offset"]) + 50] ^= 8
    shard.write_bytes(damaged)
    code, text, result = run(capsys, "verify", tmp_path / "bad", "--repair-from", data / "ingested")
    assert (code, result["ok"]) == (0, True)
    assert {d["block"] for d in result["damage"]} == {None, 2}
    assert (result["mended"], result["mended_blocks"]) == (["train-00000.h5"], 1)
    assert "all as written" in text.splitlines()[-1]
    assert shard.read_bytes() == (data / "shards" / shard.name).read_bytes()


def test_convert_and_back(capsys, data, tmp_path):
    code, text, result = run(capsys, "convert", data / "shards", tmp_path / "zarr")
    assert (code, result["container"]) == (0, "zarr")
    assert "60 complexes in 3 zarr shards" in text
    assert result["fingerprint"] == open_dataset(data / "shards").manifest.fingerprint
    assert run(capsys, "convert", tmp_path / "zarr", tmp_path / "back", "--container", "hdf5")[0] == 0
    for path in (data / "shards").iterdir():
        assert (tmp_path / "back" / path.name).read_bytes() == path.read_bytes()
    code, _, result = run(capsys, "convert", data / "shards", data / "shards")
    assert code == 2
    assert "choose another" in result["error"]


def test_convert_replaces_nothing(capsys, data, tmp_path):
    write_part(tmp_path / "part.h5", COMPLEXES[:9])
    other = tmp_path / "other"
    assert main(["shard", str(tmp_path / "part.h5"), "--out", str(other)]) == 0
    before = {p.name: p.read_bytes() for p in other.iterdir()}
    code, _, result = run(capsys, "convert", data / "shards", other)
    assert code == 2
    assert f"{other} exists; choose another folder" in result["error"]
    assert {p.name: p.read_bytes() for p in other.iterdir()} == before
    (tmp_path / "empty").mkdir()
    assert run(capsys, "convert", data / "shards", tmp_path / "empty")[0] == 0


def test_shard_counts_the_groups_of_each_split_and_warns_of_few(capsys, caplog, tmp_path):
    rng = np.random.default_rng(0)
    complexes = [random_complex(rng, f"c{i}", columns={"cluster": str(i % 40)}) for i in range(120)]
    write_part(tmp_path / "part.h5", complexes)
    command = ["shard", tmp_path / "part.h5", "--out", tmp_path / "out", "--split", "cluster"]
    assert main([*map(str, command), "--fractions", "0.6", "0.35", "0.05", "--json"]) == 0
    out = capsys.readouterr().out
    result = json.loads(out.splitlines()[-1])
    found, dataset = result["split"]["groups_in"], open_dataset(tmp_path / "out")
    for name, n in dataset.splits.items():
        clusters = {dataset[int(i)].text["columns"]["cluster"] for i in dataset.indices(name)}
        assert found[name] == len(clusters)
        assert f"{name}: {n} complexes of {len(clusters)} clusters" in out
    assert found["test"] < 10 <= found["valid"]
    assert f"fewer than 10 clusters in a split (test {found['test']})" in caplog.text
    caplog.clear()
    assert main([*map(str, command), "--fractions", "0.4", "0.3", "0.3"]) == 0
    assert "fewer than" not in caplog.text
    capsys.readouterr()
    assert main([*map(str, command[:-1]), "random", "--json"]) == 0
    assert "groups_in" not in json.loads(capsys.readouterr().out.splitlines()[-1])["split"]
