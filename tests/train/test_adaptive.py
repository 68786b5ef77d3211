from __future__ import annotations

import shutil
from dataclasses import replace

import pytest
import torch
from toy_model import TINY, make, random_batch
from worlds import config, largest_difference, metrics, run_world, train

from holoshard.__main__ import main
from holoshard.shards.errors import ConfigError, UsageError
from holoshard.shards.read.dataset import open_dataset
from holoshard.train.config import TrainConfig
from holoshard.train.configfile import parse_config
from holoshard.train.predictor import Predictor
from holoshard.train.prune.adaptive import AdaptiveHeads
from holoshard.train.prune.cut import silence
from holoshard.train.prune.prune import alone, load_run, open_gates
from holoshard.train.prune.settings import SparsityConfig

EVERY = 5


def watched(keep=0.5, steps=100, start=0.2, end=0.6):
    model = make().train()
    settings = TrainConfig(model=TINY, sparsity=SparsityConfig(keep, start, end, EVERY))
    return model, AdaptiveHeads(model, settings, alone(), steps)


def steps(model, heads, first, last, batch=None):
    batch = batch or random_batch()
    for step in range(first, last + 1):
        heads.look(batch["atom_mask"])
        model(batch)
        heads.advance(step)


def silent(heads):
    return sum(int((gate == 0).sum()) for gate in heads.gates)


def test_heads_fall_silent_on_schedule_and_then_no_more():
    model, heads = watched()
    steps(model, heads, 1, 19)
    assert all((gate == 1).all() for gate in heads.gates)
    counts = []
    for step in range(20, 101):
        steps(model, heads, step, step)
        counts.append(silent(heads))
    assert counts == sorted(counts)
    assert counts[25] > 4 * 25 / 40  # cubic: more at first
    assert counts[-1] == 4
    assert heads.final
    assert all(gate in (0, 1) for layer in heads.gates for gate in layer.tolist())
    assert all(len(kept) >= 1 for kept in heads.kept)


def test_a_gate_moves_softly_and_multiplies_the_head():
    model, heads = watched()
    heads.kept = [[0, 1, 2], [0, 1, 2, 3]]
    heads.advance(1)
    assert heads.gates[0].tolist() == pytest.approx([1, 1, 1, 1 - 1 / EVERY])
    with torch.no_grad():
        gated = model.eval()(random_batch())
        other = make()
        other.layers["0"].attention.out.weight[:, 24:] *= 1 - 1 / EVERY
        torch.testing.assert_close(gated, other(random_batch()), atol=1e-6, rtol=1e-6)
    for _ in range(EVERY):
        heads.advance(1)
    with torch.no_grad():
        silence(other.state_dict(), TINY, [[0, 1, 2], [0, 1, 2, 3]])
        torch.testing.assert_close(model(random_batch()), other(random_batch()), atol=1e-6, rtol=1e-6)
    baked = {name: heads.bake(name, tensor) for name, tensor in make().state_dict().items()}
    assert all(torch.equal(baked[name], tensor) for name, tensor in other.state_dict().items())


def test_a_head_that_matters_again_comes_back():
    model, heads = watched(keep=0.75, start=0.0, end=0.9)
    steps(model, heads, 1, 60)
    layer, head = next((i, h) for i, gate in enumerate(heads.gates) for h in range(4) if gate[h] == 0)
    value = model.layers[str(layer)].attention.value
    with torch.no_grad():  # as if training had found a use for it
        value.weight[8 * head : 8 * head + 8] *= 30
    steps(model, heads, 61, 85)
    assert heads.gates[layer][head] == 1
    assert silent(heads) >= 1


def test_what_is_not_finite_does_not_count():
    model, heads = watched()
    steps(model, heads, 1, EVERY)
    before = [layer.clone() for layer in heads.importance]
    bad = random_batch()
    bad["position"] = bad["position"] * torch.nan
    steps(model, heads, EVERY + 1, 2 * EVERY, bad)
    assert all(torch.equal(a, b) for a, b in zip(before, heads.importance, strict=True))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("keep = 0.0", "sparsity.keep = 0.0, expected a share"),
        ("keep = 0.5\nstart = 0.7", "sparsity.end = 0.6, expected a share of the run after"),
        ("every = 0", "sparsity.every = 0, expected at least 1"),
        ("keep = 0.5\n[parallel]\npipeline = 2", "sparsity.keep = 0.5, expected 1 with a pipeline"),
    ],
)
def test_what_cannot_be_is_refused(text, expected):
    with pytest.raises(ConfigError) as error:
        parse_config("[sparsity]\n" + text, "x.toml")
    assert expected in str(error.value)


SPARSITY = {"keep": 0.5, "start": 0.1, "end": 0.5, "every": 2}


@pytest.fixture(scope="module")
def whole(shards, tmp_path_factory):
    """A run in one process in which half of the heads fall silent."""
    folder = tmp_path_factory.mktemp("whole")
    run_world(1, train, config(shards, sparsity=SPARSITY), str(folder))
    return folder


def test_it_is_another_run(whole, shards, tmp_path):
    run_world(1, train, config(shards), str(tmp_path))
    assert metrics(tmp_path)[10]["loss"] != metrics(whole)[10]["loss"]


@pytest.mark.parametrize(
    ("size", "parallel"),
    [(2, {}), (2, {"tensor": 2}), (4, {"replicate": 2, "checkpointing": "full", "accumulate": 2})],
    ids=str,
)
def test_the_same_in_every_mode(whole, shards, tmp_path, size, parallel):
    if parallel.get("tensor", 1) > 1:  # whole pairs of heads go there: another choice
        run_world(size, train, config(shards, sparsity=SPARSITY, parallel=parallel), str(tmp_path))
        gates = load_run(tmp_path).state["heads"]["gates"]
        assert all(sum(layer) % 2 == 0 for layer in gates)
        assert sum(map(sum, gates)) == 4
        return
    run_world(size, train, config(shards, sparsity=SPARSITY, parallel=parallel), str(tmp_path))
    assert largest_difference(whole, tmp_path) <= 1e-5
    assert load_run(tmp_path).state["heads"]["gates"] == load_run(whole).state["heads"]["gates"]


def test_a_resumed_run_is_the_same_bit_for_bit(shards, tmp_path):
    text = config(shards, sparsity=SPARSITY)
    run_world(2, train, text, str(tmp_path / "whole"))
    shutil.copytree(tmp_path / "whole", tmp_path / "again")
    shutil.rmtree(tmp_path / "again" / "checkpoints" / "step-00000010")
    lines = (tmp_path / "again" / "metrics.jsonl").read_text().splitlines()
    (tmp_path / "again" / "metrics.jsonl").write_text("\n".join(lines[:6]) + "\n")
    run_world(2, train, text, str(tmp_path / "again"))
    assert largest_difference(tmp_path / "whole", tmp_path / "again") == 0
    ends = [load_run(tmp_path / name).state["heads"] for name in ("whole", "again")]
    assert ends[0] == ends[1]


def test_silent_heads_are_cut_and_nothing_changes(whole, tmp_path, shards):
    out = tmp_path / "cut"
    assert main(["prune", str(whole), "--by", "gates", "--out", str(out)]) == 0
    cut, old = Predictor.load(out), load_run(whole)
    assert sum(cut.config.model.layer_heads) == 4
    assert cut.config.sparsity == SparsityConfig()
    silence(old.tensors, old.config.model, open_gates(whole, old.state)[1])
    dataset = open_dataset(shards)
    before = Predictor(old.model, replace(old.config, sparsity=SparsityConfig()), 0, whole)
    torch.testing.assert_close(
        torch.from_numpy(cut.predict(dataset, "test").pk),
        torch.from_numpy(before.predict(dataset, "test").pk), atol=1e-5, rtol=1e-5,
    )  # fmt: skip
    # The exported model of the run has the gates in its weights.
    best = Predictor.load(whole)
    last = old.state["heads"]["gates"]
    weight = best.model.layers["0"].attention.out.weight
    assert [bool(weight[:, 8 * h : 8 * h + 8].any()) for h in range(4)] == [bool(g) for g in last[0]]


def test_moving_gates_are_not_cut(shards, tmp_path):
    text = config(shards, sparsity={**SPARSITY, "start": 0.4, "end": 1.0, "every": 5})
    run_world(1, train, text, str(tmp_path / "run"))
    with pytest.raises(UsageError, match="heads still fall silent or come back; train beyond"):
        open_gates(tmp_path / "run", load_run(tmp_path / "run").state)
    with pytest.raises(UsageError, match="has no gates"):
        open_gates(tmp_path, {"heads": {}})
