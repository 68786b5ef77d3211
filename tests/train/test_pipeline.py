from __future__ import annotations

import shutil

import pytest
from safetensors.torch import load_file
from worlds import config, largest_difference, metrics, run_world, train, train_each

from holoshard.shards.errors import ConfigError
from holoshard.train.configfile import parse_config
from holoshard.train.parallel.mesh import start
from holoshard.train.parallel.pipeline import owners
from holoshard.train.predictor import BEST, Predictor
from holoshard.train.record import read_record

LAYERS = {"layers": 4}
ZB = {"pipeline": 2, "reshard": "grad_op"}
OF_TWO = {
    "gpipe": {"pipeline": 2, "schedule": "gpipe", "micro_batches": 4},
    "1f1b": {"pipeline": 2, "checkpointing": "full"},
    "interleaved": {"pipeline": 2, "schedule": "interleaved", "accumulate": 2, "offload": True},
    "interleaved-zb": {**ZB, "schedule": "interleaved-zb"},
    "zbv": {**ZB, "schedule": "zbv", "micro_batches": 4},
}
OF_FOUR = {
    "four stages": {"pipeline": 4, "micro_batches": 8},
    "sharded": {"pipeline": 2, "micro_batches": 4},
    "sharded zbv": {**ZB, "schedule": "zbv"},
    "replicated": {"pipeline": 2, "replicate": 2, "schedule": "interleaved", "checkpointing": "selective"},
    "cut": {"pipeline": 2, "tensor": 2, "micro_batches": 4},
    "cut zero bubble": {**ZB, "tensor": 2, "schedule": "interleaved-zb"},
}


def text(shards, parallel):
    return config(shards, model={**LAYERS, "uncertainty": True}, parallel=parallel)


@pytest.fixture(scope="module")
def alone(shards, tmp_path_factory):
    """A run in one process, which all others must equal."""
    folder = tmp_path_factory.mktemp("alone")
    run_world(1, train, text(shards, {}), str(folder))
    return folder


def stopped_half_way(run, to):
    """A copy of a finished run without its last checkpoint, as if it had been killed after the one before."""
    shutil.copytree(run, to)
    shutil.rmtree(to / "checkpoints" / "step-00000010")
    return to


@pytest.fixture(scope="module")
def of_two(shards, alone, tmp_path_factory):
    """Runs in two processes, the last of which goes on where the one alone was stopped."""
    base = tmp_path_factory.mktemp("two")
    stopped_half_way(alone, base / "resumed")
    modes = {**OF_TWO, "resumed": {**ZB, "schedule": "zbv"}}
    run_world(2, train_each, {name: text(shards, mode) for name, mode in modes.items()}, str(base))
    return base


@pytest.fixture(scope="module")
def of_four(shards, of_two, tmp_path_factory):
    base = tmp_path_factory.mktemp("four")
    stopped_half_way(of_two / "interleaved", base / "resumed")
    modes = {**OF_FOUR, "resumed": {"tensor": 2}}
    run_world(4, train_each, {name: text(shards, mode) for name, mode in modes.items()}, str(base))
    return base


def check_same(alone, run):
    assert largest_difference(alone, run) <= 1e-5
    assert largest_difference(alone, run, "grad_norm") <= 1e-5
    assert metrics(run)[10]["loss"] != metrics(run)[1]["loss"]
    one, other = load_file(alone / BEST), load_file(run / BEST)
    assert one.keys() == other.keys()
    assert max(float((one[name] - other[name]).abs().max()) for name in one) <= 1e-5
    assert Predictor.load(run).step == 10


@pytest.mark.parametrize("mode", OF_TWO)
def test_same_losses_in_two_stages(alone, of_two, mode):
    check_same(alone, of_two / mode)


@pytest.mark.parametrize("mode", OF_FOUR)
def test_same_losses_beside_other_axes(alone, of_four, mode):
    check_same(alone, of_four / mode)


def test_validation_on_batches_that_do_not_divide_evenly(shards, tmp_path):
    """Of 77 complexes the last batch has 5: 3 and 2 of them, in chunks that must be as many."""
    here = {"data": {"valid_split": "train"}, "model": LAYERS, "run": {"steps": 2, "eval_every": 2}}
    run_world(1, train, config(shards, **here), str(tmp_path / "one"))
    cut = {"pipeline": 2, "micro_batches": 4}
    run_world(4, train, config(shards, **here, parallel=cut), str(tmp_path / "four"))
    one, four = (
        next(m["eval"] for m in read_record(tmp_path / run) if "eval" in m) for run in ("one", "four")
    )
    assert one["n"] == four["n"] > 0
    assert four["loss"] == pytest.approx(one["loss"], abs=1e-5)


def test_a_run_goes_on_in_other_layouts(alone, of_two, of_four):
    for run in (of_two / "resumed", of_four / "resumed"):
        assert largest_difference(alone, run) <= 1e-6
        starts = [line for line in (run / "metrics.jsonl").read_text().splitlines() if '"run"' in line]
        assert len(starts) == 2
        assert '"step": 5' in starts[1]


def test_a_v_goes_there_and_back():
    parallel = parse_config("[parallel]\npipeline = 2\nschedule = 'zbv'\nreshard = 'grad_op'", "x").parallel
    assert owners(parallel) == [0, 1, 1, 0]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("pipeline = 3", "model.layers = 4 allows 2, 4 with 1 to a process"),
        ("pipeline = 4\nschedule = 'interleaved'", "model.layers = 4 allows 2 with 2 to a process"),
        ("pipeline = 4\nmicro_batches = 2", 'at least 4, one a stage, or parallel.schedule = "gpipe"'),
        ("pipeline = 2\nschedule = 'interleaved'\nmicro_batches = 5", "a multiple of parallel.pipeline = 2"),
        ("pipeline = 2\nstages = 2", 'or "interleaved"'),
        ("pipeline = 2\nstages = 1\nschedule = 'zbv'", '2 with this parallel.schedule, or .* "1f1b"'),
        ("pipeline = 2\nstages = 4\nschedule = 'zbv'", '2 with parallel.schedule = "zbv"'),
        ("pipeline = 2\nschedule = 'zbv'", '"grad_op" with parallel.schedule = "zbv"'),
        ("pipeline = 2\nschedule = 'zbv'\nreshard = 'grad_op'\ncheckpointing = 'full'", '"none" with'),
        ("micro_batches = 2", "0 without a pipeline"),
        ("pipeline = 4\n[model]\nshare_ffn_out = 'pairs'", "cut no group of model.share_ffn_out"),
    ],
)
def test_pipelines_that_cannot_run_are_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        parse_config(f"[parallel]\n{settings}", "x")


def test_micro_batches_are_equal(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "4")
    with pytest.raises(ConfigError, match=r"data\.batch_size = 20, expected a multiple of 8"):
        start(parse_config("[data]\nbatch_size = 20\n[parallel]\npipeline = 2\nmicro_batches = 4", "x"))
