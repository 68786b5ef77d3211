from __future__ import annotations

import dataclasses
import json
import logging
import math
import os
import signal
import threading
import time

import numpy as np
import pytest
import torch
from toy_model import make, random_batch
from worlds import config, largest_difference, metrics, run_world, train

from holoshard.shards.read.dataset import open_dataset
from holoshard.train.config import LossConfig, OptimizerConfig
from holoshard.train.configfile import parse_config
from holoshard.train.diagnosis import diagnose
from holoshard.train.loop import REQUEUE, Trainer, TrainingError
from holoshard.train.optimizer import learning_rate, make_optimizer
from holoshard.train.parallel.mesh import start, stop
from holoshard.train.parallel.precision import LossScale
from holoshard.train.predictor import Predictor
from holoshard.train.record import read_record
from holoshard.train.validation import has_exact


def run(text, folder, *settings):
    """Train in this process."""
    checked = parse_config(text, "test.toml", settings)
    try:
        return Trainer(checked, folder, start(checked)).run()
    finally:
        stop()


def test_it_learns_and_writes_down_how(shards, tmp_path):
    text = config(shards, run={"epochs": 25, "steps": 0, "eval_every": 0}, optimizer={"lr": 3e-3})
    result = run(text, tmp_path)
    lines = read_record(tmp_path)
    losses = [m["loss"] for m in lines if "loss" in m]
    assert np.mean(losses[-9:]) < 0.5 * np.mean(losses[:9])
    judged = [m for m in lines if "eval" in m]
    assert len(judged) == 25
    assert result["best_rmse"] == pytest.approx(min(m["eval"]["rmse"] for m in judged), rel=1e-6)
    assert lines[0]["run"]["parameters"] > 1000
    step = metrics(tmp_path)[20]
    parts = ("data_wait", "communication", "forward", "backward", "optimizer")
    assert sum(step[part] for part in parts) == pytest.approx(step["seconds"], rel=0.2, abs=0.01)
    assert step["samples_per_s"] * step["seconds"] == pytest.approx(8, rel=1e-3)
    predictor = Predictor.load(tmp_path)
    assert predictor.step == result["best_step"]
    found = predictor.predict(open_dataset(shards), "valid")
    pk = open_dataset(shards).column("pk")[found.index]
    exact = np.isfinite(pk) & (open_dataset(shards).column("pk_relation")[found.index] == 1)
    rmse = math.sqrt(np.mean((found.pk - pk)[exact] ** 2))
    assert rmse == pytest.approx(result["best_rmse"], rel=1e-4)


def test_the_same_seed_gives_the_same_run(shards, tmp_path):
    text = config(shards, model={"dropout": 0.2}, data={"noise": 0.1})
    for name in ("a", "b"):
        run(text, tmp_path / name)
    run(text, tmp_path / "c", "--seed", "1")
    assert largest_difference(tmp_path / "a", tmp_path / "b") == 0
    assert largest_difference(tmp_path / "a", tmp_path / "c") > 0


def test_accumulation_equals_the_whole_batch(shards, tmp_path):
    run(config(shards), tmp_path / "whole")
    run(config(shards, parallel={"accumulate": 3}), tmp_path / "pieces")
    assert largest_difference(tmp_path / "whole", tmp_path / "pieces") <= 1e-5


@pytest.mark.parametrize(
    "mode", [{"checkpointing": mode} for mode in ("layers", "selective", "full")]
    + [{"checkpointing": "layers", "checkpoint_every": 1.5}], ids=str,
)  # fmt: skip
def test_recomputed_activations_give_the_same_gradients(shards, tmp_path, mode):
    text = {"run": {"steps": 4}, "model": {"dropout": 0.1, "layers": 3}}
    run(config(shards, **text), tmp_path / "kept")
    run(config(shards, **text, parallel=mode), tmp_path / "again")
    assert largest_difference(tmp_path / "kept", tmp_path / "again") == 0
    assert largest_difference(tmp_path / "kept", tmp_path / "again", "grad_norm") == 0
    assert (tmp_path / "again" / "best.safetensors").stat().st_size > 1000


@pytest.mark.parametrize("precision", [{"compute": "bf16"}, {"compute": "bf16", "whole_model": True},
                                       {"compute": "fp16", "init_scale": 1024.0}], ids=str)  # fmt: skip
def test_low_precision_stays_near(shards, tmp_path, precision):
    run_world(1, train, config(shards), str(tmp_path / "exact"))
    run_world(1, train, config(shards, precision=precision), str(tmp_path / "low"))
    assert 0 < largest_difference(tmp_path / "exact", tmp_path / "low") < 0.05
    lines = metrics(tmp_path / "low")
    assert lines[10]["skipped"] == 0
    assert lines[10]["loss_scale"] == precision.get("init_scale", 1.0)


def test_overflow_halves_the_scale_and_skips_in_every_process(shards, tmp_path):
    text = config(shards, precision={"compute": "fp16", "init_scale": 1e9, "growth_interval": 3})
    run_world(2, train, text, str(tmp_path), "--run.max_skipped", "30", "--run.steps", "24")
    events = [m for m in read_record(tmp_path) if m.get("event") == "skipped_step"]
    last = metrics(tmp_path)[24]
    assert 1 <= last["skipped"] == len(events) < 24
    assert all(len(e["ids"]) == 8 for e in events)
    assert events[0]["loss_scale"] == 5e8


def test_loss_scale_follows_its_rule():
    scale = LossScale(8.0, 2)
    assert [scale.update(n) for n in (1.0, math.inf, 1.0, 1.0, math.nan)] == [True, False, True, True, False]
    assert scale.value == 4.0  # halved, doubled after two, halved
    constant = LossScale(1.0, 0)
    assert not constant.update(math.inf)
    assert constant.value == 1.0


def test_a_run_that_blows_up_stops_with_a_diagnosis(shards, tmp_path):
    text = config(shards, optimizer={"lr": 1e-3, "warmup": 0.0, "clip": 0.0})
    checked = parse_config(text, "test.toml", ["--run.max_skipped", "3", "--run.steps", "30"])
    checked = dataclasses.replace(checked, optimizer=dataclasses.replace(checked.optimizer, lr=1e30))
    with pytest.raises(TrainingError, match="steps in a row") as error:
        Trainer(checked, tmp_path / "run", start(checked)).run()
    assert "first in" in str(error.value)
    lines = read_record(tmp_path / "run")
    assert sum(m.get("event") == "skipped_step" for m in lines) == 3
    assert next(m for m in lines if m.get("event") == "diagnosis")["module"]


def test_weights_that_are_not_finite_are_never_saved(shards, tmp_path):
    checked = parse_config(config(shards), "test.toml", ["--run.steps", "20"])
    trainer = Trainer(checked, tmp_path, start(checked))
    step = trainer.step

    def poisoned(batch, weight):
        step(batch, weight)
        if trainer.at.step == 8:
            with torch.no_grad():
                trainer.model.layers["1"].attention.out.bias[3] = math.inf

    trainer.step = poisoned
    with pytest.raises(TrainingError, match=r"step 10: parameters are not finite: layers\.1\.attention\.out"):
        trainer.run()
    assert (tmp_path / "checkpoints" / "latest").read_text().strip() == "step-00000005"
    judged = [m["eval"] for m in read_record(tmp_path) if "eval" in m]
    assert [m["rmse"] is None for m in judged] == [False, True]
    assert judged[0]["loss"] > 0
    assert Predictor.load(tmp_path).step == 5


def test_diagnosis_finds_the_module_and_the_complex():
    model, batch = make(), random_batch((20, 31, 25), (7, 12, 9))
    batch |= {"index": torch.tensor([5, 6, 7]), "pk": torch.tensor([6.0, math.inf, 5.0]),
              "pk_relation": torch.ones(3), "weight": torch.ones(3)}  # fmt: skip
    assert diagnose(model, batch, LossConfig()) == {"parameters": [], "module": "", "rows": [6]}
    with torch.no_grad():
        model.layers["1"].attention.value.weight[0, 0] = math.nan
    found = diagnose(model, batch, LossConfig())
    assert found["parameters"] == ["layers.1.attention.value.weight"]
    assert found["module"] == "layers.1.attention.value"
    assert found["rows"] == [5, 6, 7]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_a_signal_saves_and_asks_for_requeue(shards, tmp_path, number):
    text = config(shards, checkpoint={"every": 0})
    before = signal.getsignal(number)

    def tell():
        while not (tmp_path / "metrics.jsonl").is_file() or len(metrics(tmp_path)) < 3:
            time.sleep(0.01)
        os.kill(os.getpid(), number)

    thread = threading.Thread(target=tell)
    thread.start()
    result = run(text, tmp_path, "--run.steps", "5000")
    thread.join()
    assert result["outcome"] == "preempted"
    assert result["exit_code"] == REQUEUE
    assert 3 <= result["step"] < 5000
    assert signal.getsignal(number) == before
    name = (tmp_path / "checkpoints" / "latest").read_text().strip()
    assert name == f"step-{result['step']:08d}"
    again = run(text, tmp_path, "--run.steps", str(result["step"] + 2))
    assert again["step"] == result["step"] + 2


def test_patience_ends_a_run_that_gets_no_better(shards, tmp_path):
    text = config(shards, run={"steps": 500, "eval_every": 2, "patience": 2}, optimizer={"lr": 1e-9})
    result = run(text, tmp_path)
    assert result["outcome"] == "early_stop"
    assert result["step"] < 500


def test_a_finished_run_is_left_alone(shards, tmp_path):
    run(config(shards), tmp_path)
    before = (tmp_path / "best.safetensors").read_bytes()
    result = run(config(shards), tmp_path)
    assert result["step"] == 10
    assert (tmp_path / "best.safetensors").read_bytes() == before


def test_learning_rate_rises_and_falls():
    c = OptimizerConfig(lr=1.0, min_lr=0.1, warmup=0.1)
    rates = [learning_rate(c, step, 100) for step in range(100)]
    assert rates[:11] == sorted(set(rates[:11]))
    assert rates[10] == pytest.approx(1.0)
    assert rates[10:] == sorted(set(rates[10:]), reverse=True)
    assert rates[99] == pytest.approx(0.1)


def test_only_matrices_decay():
    model = make()
    decayed, others = make_optimizer(model, OptimizerConfig(weight_decay=0.3)).param_groups
    assert decayed["weight_decay"] == 0.3
    assert others["weight_decay"] == 0
    assert all(p.ndim == 2 for p in decayed["params"])
    assert model.embedding.table.weight in set(others["params"])
    assert len(decayed["params"]) + len(others["params"]) == len(list(model.parameters()))


def test_without_measured_complexes_to_validate_on_the_newest_is_kept(shards, tmp_path, monkeypatch, caplog):
    monkeypatch.setattr("holoshard.train.loop.has_exact", lambda dataset, split: False)
    with caplog.at_level(logging.INFO, "holoshard"):
        result = run(config(shards), tmp_path)
    assert (result["best_step"], result["best_rmse"]) == (10, None)
    assert Predictor.load(tmp_path).step == 10
    assert "complexes/s" in caplog.text
    assert "of the matmul peak" in caplog.text
    dataset = open_dataset(shards)
    assert has_exact(dataset, "valid")
    assert not has_exact(dataset, "nothing")


def test_lines_hold_no_nan(tmp_path, shards):
    run(config(shards, run={"steps": 2}), tmp_path)
    for line in (tmp_path / "metrics.jsonl").read_text().splitlines():
        json.loads(line, parse_constant=lambda name: pytest.fail(name))
