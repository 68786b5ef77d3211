from __future__ import annotations

import csv
import json
import logging

import numpy as np
import pytest
from worlds import config, metrics

from holoshard.__main__ import main
from holoshard.shards.read.dataset import open_dataset
from holoshard.train.configfile import load_config
from holoshard.train.predictor import Predictor


@pytest.fixture(scope="module")
def run(shards, tmp_path_factory):
    """A run with uncertainty, made by the command."""
    folder = tmp_path_factory.mktemp("cli")
    (folder / "c.toml").write_text(config(shards))
    arguments = ["train", str(folder / "c.toml"), "--model.uncertainty", "--out", str(folder / "run")]
    assert main([*arguments, "--run.steps=12"]) == 0
    return folder / "run"


def last_line(capsys):
    return json.loads(capsys.readouterr().out.splitlines()[-1])


def test_train_leaves_all_that_others_need(run):
    names = {path.name for path in run.iterdir()}
    assert names == {"config.toml", "metrics.jsonl", "checkpoints", "best.safetensors", "result.json"}
    written = load_config(run / "config.toml")
    assert (written.run.steps, written.model.uncertainty) == (12, True)
    assert len(metrics(run)) == 12


def test_several_processes_by_one_option(shards, tmp_path, capsys, caplog):
    (tmp_path / "c.toml").write_text(config(shards))
    with caplog.at_level(logging.INFO, "holoshard"):
        arguments = ["--out", str(tmp_path / "run"), "--nodes", "2", "--json"]
        assert main(["train", str(tmp_path / "c.toml"), *arguments]) == 0
    assert "2 processes on this machine stand for 2 nodes" in caplog.text
    found = last_line(capsys)
    assert (found["processes"], found["step"], found["exit"]) == (2, 10, 0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--data.batch_sice", "3"], "did you mean data.batch_size?"),
        (["--nodes", "0"], "expected at least 1 of each"),
        (["--nodes", "3", "--parallel.replicate", "2"], "start a multiple of 2"),
        (["--data.path", "nowhere"], "nowhere does not exist"),
        (
            ["--data.batch_size", "1", "--parallel.accumulate", "2"],
            "data.batch_size = 1, expected at least 2",
        ),
    ],
)
def test_wrong_calls_start_nothing(shards, tmp_path, capsys, arguments, message):
    (tmp_path / "c.toml").write_text(config(shards))
    assert main(["train", str(tmp_path / "c.toml"), *arguments, "--out", str(tmp_path / "run")]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_predict_writes_an_interval(run, shards, tmp_path, capsys):
    out = tmp_path / "p.csv"
    assert main(["predict", str(run), str(shards), "--split", "test", "--out", str(out), "--json"]) == 0
    dataset = open_dataset(shards)
    with out.open() as file:
        rows = list(csv.DictReader(file))
    assert last_line(capsys)["n"] == len(rows) == dataset.splits["test"]
    found = Predictor.load(run).predict(dataset, "test")
    assert [r["id"] for r in rows] == [dataset[i].id for i in found.index]
    np.testing.assert_allclose([float(r["pk"]) for r in rows], found.pk, atol=1e-4)
    width = [float(r["high"]) - float(r["low"]) for r in rows]
    np.testing.assert_allclose(width, 2 * 1.96 * found.sd, atol=3e-4)


def test_predict_does_not_depend_on_the_batch(run, shards):
    dataset = open_dataset(shards)
    a = Predictor.load(run).predict(dataset)
    b = Predictor.load(run).predict(dataset, batch_size=3)
    assert np.array_equal(a.index, np.arange(len(dataset)))
    np.testing.assert_allclose(a.pk, b.pk, atol=1e-5)


def test_predict_refuses_what_is_no_model(run, shards, tmp_path, capsys):
    out = ["--out", str(tmp_path / "p.csv")]
    assert main(["predict", str(tmp_path), str(shards), *out]) == 2
    assert "expected a run folder" in capsys.readouterr().err
    broken = tmp_path / "m.safetensors"
    broken.write_bytes((run / "best.safetensors").read_bytes()[:-50])
    assert main(["predict", str(broken), str(shards), *out]) == 1
    assert "not a whole model" in capsys.readouterr().err
    assert main(["predict", str(run), str(shards), "--split", "none", *out]) == 2
    assert "it has train, valid, test" in capsys.readouterr().err


def test_eval_judges_and_reports(run, capsys):
    assert main(["eval", str(run), "--json"]) == 0
    found = last_line(capsys)
    assert found["n"] > 0
    assert found["rmse"] > 0
    assert (run / "predictions-test.csv").is_file()
    assert (run / "report.html").is_file()
    for name in ("predictions-test.csv", "evaluation-test.json", "report.html"):
        (run / name).unlink()
