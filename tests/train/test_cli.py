from __future__ import annotations

import csv
import json
import logging

import numpy as np
import pytest
from worlds import config, metrics

from holoshard.__main__ import main
from holoshard.shards.read.dataset import open_dataset
from holoshard.train.configfile import dotted_keys, load_config
from holoshard.train.keys import keys
from holoshard.train.predictor import Predictor, export


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
        (["--parallel.topology", "none.toml"], "none.toml': no such file"),
        (["--nodes", "2", "--parallel.topology", "none.toml"], "none.toml': no such file"),
        (["--nodes", "2000"], "2000 processes, expected at most 1024"),
        (
            ["--nodes", "4", "--parallel.reshard", "part", "--parallel.reshard_size", "3"],
            "parallel.reshard_size = 3, expected a divisor of the 4 processes",
        ),
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


def test_a_file_is_no_folder_of_a_run(shards, tmp_path, capsys):
    (tmp_path / "c.toml").write_text(config(shards))
    for out in (tmp_path / "c.toml", tmp_path / "c.toml" / "run"):
        assert main(["train", str(tmp_path / "c.toml"), "--out", str(out)]) == 2
        assert "c.toml is a file, expected a folder; name another" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["--data.path", "x"], ["--out", "OUT", "--data.path=x"]])
def test_keys_without_a_configuration_are_said_to_lack_it(tmp_path, capsys, arguments):
    named = [a.replace("OUT", str(tmp_path / "run")) for a in arguments]
    assert main(["train", *named]) == 2
    assert "no configuration is named before --data.path" in capsys.readouterr().err
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


@pytest.mark.parametrize("share", [0.0, 0.5])
def test_predict_says_what_nobody_measured(run, shards, tmp_path, capsys, caplog, share):
    config, model = Predictor.load(run).config, Predictor.load(run).model
    export(model, config, 3, tmp_path / "m.safetensors", synthetic=share)
    out = ["--out", str(tmp_path / "p.csv")]
    assert main(["predict", str(tmp_path / "m.safetensors"), str(shards), *out, "--json"]) == 0
    assert last_line(capsys)["synthetic_labels"] == share
    assert ("learned from synthetic labels (50 % of them)" in caplog.text) == (share > 0)


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


def test_predict_reads_what_ingest_leaves(run, shards, tmp_path, capsys):
    parts = shards.parent / "parts"
    (tmp_path / "ingested" / "parts").mkdir(parents=True)
    for name in ("part-a.h5", "part-b.h5"):
        (tmp_path / "ingested" / "parts" / name).write_bytes((parts / "part-0.h5").read_bytes())
    (tmp_path / "ingested" / "summary.json").write_text("{}")
    rows = {}
    for source in (parts / "part-0.h5", parts, tmp_path / "ingested"):
        assert main(["predict", str(run), str(source), "--out", str(tmp_path / "p.csv")]) == 0
        rows[source] = (tmp_path / "p.csv").read_text().splitlines()
    one, folder, ingested = rows.values()
    assert one == folder
    assert len(one) == 97
    assert ingested == [*one, *one[1:]]
    assert main(["predict", str(run), str(tmp_path / "none"), "--out", str(tmp_path / "q.csv")]) == 2
    assert not (tmp_path / "q.csv").exists()


def test_eval_against_another_run(run, tmp_path, capsys):
    assert main(["eval", str(run), "--no-report", "--against", str(tmp_path)]) == 2
    assert "write them with: holoshard eval" in capsys.readouterr().err
    (tmp_path / "other").mkdir()
    text = (run / "predictions-test.csv").read_text() if (run / "predictions-test.csv").is_file() else ""
    if not text:
        assert main(["eval", str(run), "--no-report"]) == 0
        text = (run / "predictions-test.csv").read_text()
    (tmp_path / "other" / "predictions-test.csv").write_text(text)
    capsys.readouterr()
    assert main(["eval", str(run), "--no-report", "--against", str(tmp_path / "other"), "--json"]) == 0
    found = last_line(capsys)["against"]["other"]
    assert found["rmse"] > 0
    assert abs(found["difference"]["rmse"]) < 1e-5  # the CSV keeps six decimals
    for name in ("predictions-test.csv", "evaluation-test.json"):
        (run / name).unlink()


def test_every_key_is_listed_with_its_meaning(capsys):
    assert main(["train", "--keys"]) == 0
    text = capsys.readouterr().out
    found = {key.name: key for key in keys()}
    assert set(found) == set(dotted_keys())
    assert all(len(key.meaning) > 10 for key in found.values())
    assert found["optimizer.clip"].default == "1.0"
    assert found["loss.kind"].choices == ('"huber"', '"mse"')
    assert '[loss]\nkind = "huber"  ("huber" | "mse")\n    huber is linear beyond delta.\n' in text
    assert main(["train"]) == 2
