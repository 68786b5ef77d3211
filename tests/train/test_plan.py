from __future__ import annotations

import json
import logging
import tomllib
from dataclasses import replace
from itertools import islice

import pytest
from measured import count_bytes, measure
from worlds import config, run_world

from holoshard.__main__ import main
from holoshard.train.config import ParallelConfig, TrainConfig
from holoshard.train.configfile import parse_config
from holoshard.train.model.transformer import parameter_count
from holoshard.train.plan import advise
from holoshard.train.plan.estimate import Estimator, line, peak
from holoshard.train.plan.strategies import Cluster, strategies
from holoshard.train.plan.trace import fake_processes
from holoshard.train.plan.traffic import bubble, gathered_once, traffic

LAYERS, DEEP, ROWS = 8, 16, 2
OF_TWO = {
    "full": {},
    "full checkpointed": {"checkpointing": "full"},
    "grad-op in pieces": {"reshard": "grad_op", "accumulate": 2},
    "cut": {"tensor": 2},
    "pipeline": {"pipeline": 2, "micro_batches": 4},
}
OF_FOUR = {
    "hybrid in pieces": {"replicate": 2, "accumulate": 2},
    "part": {"reshard": "part", "reshard_size": 2, "checkpointing": "selective"},
    "zero bubble": {"pipeline": 2, "schedule": "zbv", "reshard": "grad_op"},
}
MODES = {
    **{name: (2, mode) for name, mode in OF_TWO.items()},
    **{n: (4, mode) for n, mode in OF_FOUR.items()},
}


def text(parallel, **more):
    layers = DEEP if parallel.get("schedule") == "zbv" else LAYERS  # four stages
    model = {"width": 64, "layers": layers, "heads": 4, "rbf": 16, **more}
    return config("none", data={"max_atoms": 48, "batch_size": 32}, model=model, parallel=parallel)


SHARED = {"share_ffn_out": "2, 2x1, 2, 2x1"}  # a pair in either of two stages
PRUNED = {"layer_heads": [4, 3, 2, 1, 3, 2, 1, 1]}
PART = {"reshard": "part", "reshard_size": 2}
OTHERS = {  # processes, checkpointing that is traced, [parallel], more of [model]
    "other checkpointing": (2, "full", {}, {}),
    "two layers of three": (2, "none", {"checkpointing": "layers", "checkpoint_every": 1.5}, {}),
    "part for full": (4, "full", {**PART, "checkpointing": "full"}, {}),
    "part for none": (4, "full", PART, {}),
    "shared": (2, "none", {}, SHARED),
    "shared in stages": (2, "none", {"pipeline": 2, "micro_batches": 4}, SHARED),
    "pruned": (2, "none", {}, PRUNED),
}


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """Peaks of real processes, by mode and then by process."""
    folder, found = tmp_path_factory.mktemp("peaks"), {}
    for size in (2, 4):
        cases = {n: (text(mode), ROWS, True) for n, (of, mode) in MODES.items() if of == size}
        cases |= {n: (text(p, **m), ROWS, False) for n, (of, _, p, m) in OTHERS.items() if of == size}
        run_world(size, measure, cases, str(folder))
        for name in cases:
            files = [folder / f"{name}-{rank}.json" for rank in range(size)]
            found[name] = [json.loads(file.read_text()) for file in files]
    return found


@pytest.mark.parametrize("mode", OTHERS)
def test_one_trace_serves_other_choices_and_models(measured, mode):
    """From a trace with one complex, few and even layers."""
    size, traced, parallel, model = OTHERS[mode]
    wanted = parse_config(text(parallel, **model), "x")
    config = replace(wanted, parallel=replace(wanted.parallel, checkpointing=traced))
    with fake_processes(size):
        estimator = Estimator(config, size)
        predicted = sum(estimator.bytes(config, wanted.parallel.checkpointing, ROWS).values())
        assert estimator.line(config).high < LAYERS
    assert predicted == pytest.approx(max(found["meter"] for found in measured[mode]), rel=0.1)


def test_thousands_of_processes_are_no_more_work():
    config = parse_config(text({"reshard": "part", "reshard_size": 8}), "x")
    with fake_processes(65536):
        made = line(config, 65536)
    assert made.at_low.keys() == made.at_high.keys()
    assert max(sum(held.values()) for held in made(LAYERS).values()) > 0


@pytest.mark.parametrize("mode", MODES)
def test_predicted_peaks_are_those_of_real_processes(measured, mode):
    size, parallel = MODES[mode]
    config = parse_config(text(parallel), "x")
    with fake_processes(size):
        made = line(config, size, ROWS)
    assert made.high < config.model.layers, "nothing would be predicted"
    predicted = sum(peak(made(config.model.layers)).values())
    for found in measured[mode]:
        assert found.get("tracker", found["meter"]) == found["meter"], "torch's tracker counts the same"
    assert predicted == pytest.approx(max(found["meter"] for found in measured[mode]), rel=0.1)


@pytest.mark.parametrize(
    ("P", "M", "expected"),  # 1F1B, interleaved, ZBV; simulated with F = B = W = 1 and no communication
    [(4, 16, (0.158, 0.086, 0.030)), (8, 16, (0.304, 0.179, 0.068)), (8, 32, (0.179, 0.099, 0.035))],
)
def test_bubbles_are_those_of_a_simulation(P, M, expected):
    for schedule, share in zip(("1f1b", "interleaved", "zbv"), expected, strict=True):
        parallel = ParallelConfig(pipeline=P, micro_batches=M, schedule=schedule)
        assert bubble(parallel) == pytest.approx(share, abs=0.001)


def test_traffic():
    small = parse_config(text({}), "x")
    full = traffic(small, 4)
    whole = traffic(replace(small, parallel=ParallelConfig(reshard="grad_op")), 4)
    hybrid = traffic(replace(small, parallel=ParallelConfig(replicate=2)), 4)
    # Gathered twice, the end of the model once, and scattered once; or gathered once and scattered once.
    once = gathered_once(small.model) / parameter_count(small.model)
    assert 0.1 < once < 0.2
    assert full.shard == pytest.approx((1.5 - once / 2) * whole.shard)
    assert full.replicate == whole.replicate == 0
    assert hybrid.shard == pytest.approx(full.shard * (1 / 2) / (3 / 4))
    assert hybrid.replicate == pytest.approx(hybrid.shard / (3 - once))
    assert traffic(small, 1).total == 0


@pytest.mark.parametrize("parallel", [{}, {"accumulate": 2}, {"reshard": "grad_op"}], ids=str)
def test_traffic_is_what_fsdp_sends(tmp_path, parallel):
    wanted = text(parallel)
    run_world(2, count_bytes, wanted, str(tmp_path / "sent"))
    predicted = traffic(parse_config(wanted, "x"), 2).shard
    assert float((tmp_path / "sent").read_text()) == pytest.approx(predicted, rel=0.005)


def test_strategies_are_configurations_that_run():
    base = TrainConfig(
        data=replace(TrainConfig().data, batch_size=64), model=replace(TrainConfig().model, layers=8)
    )
    made = dict(strategies(base, Cluster(4, 2, 1 << 30)))
    assert {"full shard", "grad-op", "hybrid", "offload", "tensor 2", "pipeline 4"} <= made.keys()
    for name, found in made.items():
        assert found.parallel.pipeline * found.parallel.tensor <= 8, name
    assert "pipeline 4 zbv" in made
    assert not dict(strategies(replace(base, data=replace(base.data, batch_size=1)), Cluster(4, 2, 1 << 30)))


def test_command(tmp_path, capsys, caplog, monkeypatch):
    path = tmp_path / "small.toml"
    path.write_text(
        "[data]\nbatch_size = 4\nmax_atoms = 32\n[model]\nwidth = 32\nlayers = 2\n[parallel]\nprefetch = 0\n"
    )
    slow = ["--link", "1"]  # so that computing again hides behind what is sent
    with caplog.at_level(logging.INFO, "holoshard"):
        assert main(["plan", str(path), "--gpus-per-node", "2", "--memory", "1GiB", *slow, "--json"]) == 0
    assert "layout 1 of 5: full shard" in caplog.messages
    lines = capsys.readouterr().out.strip().splitlines()
    made = json.loads(lines[-1])
    rows = {(r["name"], r["checkpointing"]): r for r in made["strategies"]}
    none, full = rows["full shard", "none"], rows["full shard", "full"]
    assert none["total"] == sum(none["memory"].values())
    assert full["memory"]["activations"] < none["memory"]["activations"]
    assert rows["offload", "none"]["memory"]["optimizer"] == 0
    assert none["memory"]["optimizer"] == pytest.approx(made["parameters"] * 8 / 2, rel=0.05)
    best = made["recommended"]
    ParallelConfig(**tomllib.loads(best["parallel"])["parallel"])
    assert best["seconds"] == min(r["seconds"] for r in made["strategies"] if r["fits"])
    as_fast = [r for r in made["strategies"] if r["fits"] and r["seconds"] == best["seconds"]]
    assert min(as_fast, key=lambda r: r["total"])["checkpointing"] == "full"
    assert best["checkpointing"] == "none"
    assert "Recommended" in "\n".join(lines)
    monkeypatch.setattr(advise, "strategies", lambda *of: islice(strategies(*of), 1))
    assert main(["plan", str(path), "--gpus-per-node", "2", "--memory", "1KiB"]) == 1
    assert "nothing fits" in capsys.readouterr().out
    assert main(["plan", str(path), "--gpus-per-node", "3"]) == 2
    capsys.readouterr()
    assert main(["plan", "--data.path", "data/shards"]) == 2
    assert "no configuration is named before --data.path" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("option", "value"),
    [("tflops", "0"), ("tflops", "nan"), ("link", "-1"), ("link", "inf"), ("network", "nan"),
     ("nodes", "1000000000"), ("gpus-per-node", "65537")],
)  # fmt: skip
def test_machines_that_cannot_be_are_refused(tmp_path, capsys, option, value):
    (tmp_path / "small.toml").write_text("[model]\nwidth = 32\n")
    assert main(["plan", str(tmp_path / "small.toml"), f"--{option}={value}", "--json"]) == 2
    told = capsys.readouterr()
    assert f"--{option}" in told.err
    assert "NaN" not in told.out
