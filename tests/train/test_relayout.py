from __future__ import annotations

import json
import subprocess
from types import SimpleNamespace

import pytest
from worlds import config, largest_difference, metrics, run_world, train

from holoshard.train import relayout
from holoshard.train.configfile import load_config, parse_config
from holoshard.train.record import read_record

EPOCHS = {"steps": 0, "epochs": 4, "log_every": 1}


def train_with_plans(text, folder, *plans):
    """Train in one process of a world, with these plans for the ends of its epochs."""
    coming = iter(plans)
    relayout.planned = lambda folder, world: next(coming)
    return train(text, folder)


def test_between_epochs_a_run_goes_on_in_another_layout(shards, tmp_path):
    """Full shard, then replicas, then tensor parallel: the losses are those of a run that nobody touched."""
    plans = ["[parallel]\nreplicate = 2\n", "", '[parallel]\ntensor = 2\ncheckpointing = "full"\n']
    text = config(shards, run={**EPOCHS, "replan": "epoch"})
    run_world(2, train_with_plans, text, str(tmp_path / "changing"), *plans)
    run_world(2, train, config(shards, run=EPOCHS), str(tmp_path / "same"))
    assert largest_difference(tmp_path / "changing", tmp_path / "same") <= 1e-6
    starts = [m["run"]["parallel"] for m in read_record(tmp_path / "changing") if "run" in m]
    assert [s["replicate"] * 10 + s["tensor"] for s in starts] == [11, 21, 12]
    assert load_config(tmp_path / "changing" / "config.toml").parallel.tensor == 2


def test_a_start_after_a_stop_keeps_the_layout_that_it_had_come_to(shards, tmp_path, monkeypatch):
    text = config(shards, run={**EPOCHS, "replan": "epoch"})
    run_world(2, train_with_plans, text, str(tmp_path), "[parallel]\nreplicate = 2\n", "", "")
    before = parse_config(text, "x")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert relayout.resumed(before, tmp_path).parallel.replicate == 2
    monkeypatch.setenv("WORLD_SIZE", "3")  # it does not fit there
    assert relayout.resumed(before, tmp_path) == before
    never = parse_config(config(shards), "x")
    assert relayout.resumed(never, tmp_path) == never


@pytest.mark.parametrize(
    ("code", "made", "expected"),
    [(0, {"changed": True}, "[parallel]"), (0, {"changed": False}, ""), (2, {}, "")],
)
def test_what_a_plan_says_is_taken_if_it_changes_something(monkeypatch, caplog, code, made, expected):
    said = "a table\n" + json.dumps({"recommended": {"parallel": "[parallel]"}, **made})
    asked = []

    def run(command, **more):
        asked.append((command, more["env"]))
        return SimpleNamespace(returncode=code, stdout=said, stderr="first\ntoo short to tell\n")

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setenv("RANK", "0")
    here = SimpleNamespace(size=8, local_size=4, device=SimpleNamespace(type="cpu"))
    assert relayout.planned("runs/x", here) == expected
    command, environment = asked[0]
    assert command[command.index("--nodes") + 1] == "2"
    assert command[command.index("--gpus-per-node") + 1] == "4"
    assert "RANK" not in environment
    assert ("too short to tell" in caplog.text) == (code == 2)


@pytest.mark.slow
def test_the_real_plan_between_epochs(shards, tmp_path):
    text = config(shards, run={**EPOCHS, "epochs": 2, "replan": "epoch"})
    run_world(2, train, text, str(tmp_path / "run"))
    run_world(2, train, config(shards, run={**EPOCHS, "epochs": 2}), str(tmp_path / "same"))
    assert max(metrics(tmp_path / "run")) == max(metrics(tmp_path / "same"))
    assert largest_difference(tmp_path / "run", tmp_path / "same") <= 1e-6
