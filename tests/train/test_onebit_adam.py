from __future__ import annotations

import json
import logging
import shutil

import pytest
import torch
from exchange_world import train_and_compare, two_layers
from worlds import config, largest_difference, metrics, run_world, train

from holoshard.shards.errors import ConfigError
from holoshard.train.compress.adamw import ReplicatedAdamW
from holoshard.train.compress.eden import Eden
from holoshard.train.compress.make import replicated
from holoshard.train.compress.onebit_adam import FLOOR, OneBitAdam
from holoshard.train.compress.sign import Sign
from holoshard.train.compress.simulated import simulate
from holoshard.train.configfile import parse_config

LR, BETAS = 1e-3, (0.9, 0.95)


def make(replicas, kind=OneBitAdam, compressor=None, **options):
    model = two_layers()
    packed = [model[0].weight, model[2].weight]
    groups = [
        {"params": packed, "weight_decay": 0.1},
        {"params": [model[0].bias, model[2].bias], "weight_decay": 0.0},
    ]
    compressor = compressor or Sign(block=256)
    return model, kind(groups, replicas, packed, compressor, lr=LR, betas=BETAS, **options)


def give_gradients(model, rank, size, step, scale=1.0):
    """This replica's part of a gradient that is the sum of all parts."""
    generator = torch.Generator().manual_seed(1000 * step + rank)
    for parameter in model.parameters():
        parameter.grad = (0.3 + torch.randn(parameter.shape, generator=generator)) * scale / size


def run(replicas, steps, **options):
    model, optimizer = make(replicas, **options)
    for step in range(steps):
        give_gradients(model, replicas.rank, replicas.size, step)
        optimizer.step()
    return model, optimizer


def flat(model):
    return torch.cat([p.detach().reshape(-1) for p in model.parameters()])


def plain_adamw(size, steps):
    model = two_layers()
    weights, biases = [model[0].weight, model[2].weight], [model[0].bias, model[2].bias]
    groups = [{"params": weights, "weight_decay": 0.1}, {"params": biases, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=LR, betas=BETAS)
    for step in range(steps):
        total = None
        for rank in range(size):
            give_gradients(model, rank, size, step)
            parts = [p.grad for p in model.parameters()]
            total = parts if total is None else [a + b for a, b in zip(total, parts, strict=True)]
        for parameter, gradient in zip(model.parameters(), total, strict=True):
            parameter.grad = gradient
        optimizer.step()
    return model


def test_warmup_is_adamw():
    expected = flat(plain_adamw(3, 15))
    for model, optimizer in simulate(3, lambda r: run(r, 15, warmup=99)):
        torch.testing.assert_close(flat(model), expected, atol=1e-6, rtol=1e-5)
        assert optimizer.frozen_at is None


def test_many_bits_are_nearly_adamw():
    expected, start = flat(plain_adamw(2, 20)), flat(two_layers())
    model, _ = simulate(2, lambda r: run(r, 20, kind=ReplicatedAdamW, compressor=Eden(8), feedback=False))[0]
    assert (flat(model) - expected).norm() < 0.02 * (expected - start).norm()


def test_after_warmup_the_variance_of_matrices_alone_is_frozen():
    def work(replicas):
        model, optimizer = run(replicas, 10, warmup=10)
        before = [optimizer.state[p]["exp_avg_sq"].clone() for p in model.parameters()]
        give_gradients(model, replicas.rank, replicas.size, 11)
        optimizer.step()
        return model, optimizer, before

    (model, optimizer, before), _ = simulate(2, work)
    assert optimizer.frozen_at == 10
    for parameter, old in zip(model.parameters(), before, strict=True):
        state = optimizer.state[parameter]
        assert torch.equal(state["exp_avg_sq"], old) == (parameter.dim() == 2)
        assert float(state["step"]) == 11


def test_the_update_is_that_of_adam_with_the_packed_momentum():
    def work(replicas):
        model, optimizer = run(replicas, 12, warmup=10)
        old = model[0].weight.detach().clone()
        give_gradients(model, replicas.rank, replicas.size, 50)
        optimizer.step()
        return old, model[0].weight.detach(), optimizer.state[model[0].weight]

    (old, new, state), (_, other, _) = simulate(2, work)
    assert torch.equal(new, other)
    moment, second = state["exp_avg"] / (1 - BETAS[0] ** 13), state["exp_avg_sq"] / (1 - BETAS[1] ** 10)
    expected = old * (1 - LR * 0.1) - LR * moment / (second.sqrt() + 1e-8)
    torch.testing.assert_close(new, expected)
    assert len(state["exp_avg"].abs().unique()) <= 12  # one magnitude a block of 256 of 3,072


def test_a_tiny_variance_gets_a_floor_and_none_stays_put():
    def work(replicas):
        model, optimizer = make(replicas, warmup=3)
        start = model[0].weight.detach().clone()
        for step in range(6):
            give_gradients(model, replicas.rank, replicas.size, step)
            model[0].weight.grad[0] *= 1e-6
            model[0].weight.grad[1] = 0.0
            optimizer.step()
        return start, model[0].weight.detach(), optimizer.state[model[0].weight]["exp_avg_sq"]

    start, weight, second = simulate(2, work)[0]
    assert float(second[0].min()) == pytest.approx(FLOOR * float(second.mean()), rel=0.1)
    assert not second[1].any()
    torch.testing.assert_close(weight[1], start[1] * (1 - LR * 0.1) ** 6)  # decay alone
    assert (weight - start).abs().max() < 6 * LR / FLOOR**0.5 * 1.5


def test_warmup_ends_by_itself_when_the_variance_is_steady():
    """Gradients of one size: steady after the first look; growing ones or a rising rate: not yet."""

    def work(replicas, growth, rise, latest=0):
        model, optimizer = make(replicas, latest=latest)
        for step in range(100):
            optimizer.param_groups[0]["lr"] = LR * (1 + rise * step)
            give_gradients(model, replicas.rank, replicas.size, step, scale=growth**step)
            optimizer.step()
        return optimizer.frozen_at

    assert simulate(2, lambda r: work(r, 1.0, 0.0)) in ([60, 60], [80, 80])  # looks every 20: beta2 is 0.95
    assert simulate(2, lambda r: work(r, 1.05, 0.0)) == [None, None]
    assert simulate(2, lambda r: work(r, 1.0, 0.1)) == [None, None]
    assert simulate(2, lambda r: work(r, 1.05, 0.0, latest=50)) == [50, 50]
    assert simulate(2, lambda r: work(r, 1.0, 0.1, latest=99)) == [99, 99]
    assert simulate(2, lambda r: work(r, 1.0, 0.0, latest=99))[0] in (60, 80)


def test_warmup_ends_halfway_at_the_latest():
    config = parse_config("[optimizer]\nkind = 'onebit-adam'\n[parallel]\nreplicate = 2", "x.toml")
    fixed = parse_config("[compression]\nwarmup = 7", "x.toml", ["--optimizer.kind", "onebit-adam",
                                                                "--parallel.replicate", "2"])  # fmt: skip

    def work(replicas):
        return [replicated(two_layers(), c, replicas, {}, steps=41).end for c in (config, fixed)]

    assert simulate(2, work) == [[20, 7], [20, 7]]


def test_other_processes_begin_with_empty_buffers_and_a_warning(caplog):
    def work(replicas):
        _, optimizer = run(replicas, 8, warmup=2, layout={"replicate": 2})
        return optimizer

    optimizer, _ = simulate(2, work)
    saved = json.loads(json.dumps(optimizer.saved()))
    assert saved["frozen_at"] == 2
    with caplog.at_level(logging.WARNING, "holoshard"):
        assert set(optimizer.resume(saved, 0)) == {"error.sent.0.0", "error.served.0.0"}
        assert not caplog.text
        assert optimizer.errors(0)["error.sent.0.0"].any()
        assert optimizer.resume({**saved, "layout": {"replicate": 4}}, 0) == {}
    assert "error buffers of compressed exchange begin at zero" in caplog.text
    assert not optimizer.errors(0)["error.sent.0.0"].any()
    assert optimizer.frozen_at == 2


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('[optimizer]\nkind = "onebit-adam"', "parallel.replicate = 1, expected 2 or more"),
        ('[compression]\nkind = "eden"', "parallel.replicate = 1, expected 2 or more"),
        ('[parallel]\nreplicate = 2\n[optimizer]\nkind = "onebit-adam"\n[compression]\nkind = "none"',
         "compression.kind = 'none', expected \"sign\" or \"eden\""),
        ("[compression]\nbits = 2", "compression.bits = 2, expected 1, or"),
        ('[compression]\nbits = 9\nkind = "eden"', "compression.bits = 9, expected 1 to 8"),
        ("[compression]\nwarmup = 9", "compression.warmup = 9, expected 0, or"),
        ('[parallel]\nreplicate = 2\noffload = true\n[compression]\nkind = "eden"',
         "parallel.offload = True, expected false"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused(text, expected):
    with pytest.raises(ConfigError) as error:
        parse_config(text, "x.toml")
    assert expected in str(error.value)


NO_CLIP = {"clip": 0.0}
ONEBIT = {"kind": "onebit-adam", **NO_CLIP}


def test_the_trainer_warms_up_as_adamw(shards, tmp_path):
    """Two replicas of two shards, all ten steps of the warm-up: the losses of one process."""
    run_world(1, train, config(shards, optimizer=NO_CLIP), str(tmp_path / "one"))
    tables = {"optimizer": ONEBIT, "parallel": {"replicate": 2}, "compression": {"warmup": 99}}
    run_world(4, train, config(shards, **tables), str(tmp_path / "four"))
    assert largest_difference(tmp_path / "one", tmp_path / "four") <= 1e-5


@pytest.mark.parametrize(
    ("size", "tables"),
    [
        (2, {"parallel": {"replicate": 2}}),
        (4, {"parallel": {"replicate": 2, "accumulate": 2}}),
        (4, {"parallel": {"replicate": 2, "tensor": 2}}),
        (4, {"parallel": {"replicate": 2, "pipeline": 2}}),
        (2, {"parallel": {"replicate": 2}, "compression": {"kind": "eden", "bits": 2, "warmup": 3}}),
    ],
    ids=str,
)
def test_replicas_stay_equal_in_every_mode(shards, tmp_path, size, tables):
    text = config(shards, **{"optimizer": {"kind": "onebit-adam"}, "compression": {"warmup": 3}, **tables})
    run_world(size, train_and_compare, text, str(tmp_path))
    for rank in range(size):
        report = json.loads((tmp_path / f"report-{rank}.json").read_text())
        assert report["equal"]
        assert report["errors"]
        assert report["moved"]
        assert report["frozen_at"] == 3
        assert report["packed"] >= 6
    losses = [m["loss"] for m in metrics(tmp_path).values()]
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("compression", [{"kind": "sign"}, {"kind": "eden", "bits": 4}], ids=str)
def test_packed_gradients_train(shards, tmp_path, compression):
    text = config(shards, compression=compression, parallel={"replicate": 2})
    run_world(2, train_and_compare, text, str(tmp_path))
    report = json.loads((tmp_path / "report-0.json").read_text())
    assert report["equal"]
    assert report["errors"] == (compression["kind"] == "sign")
    losses = [m["loss"] for m in metrics(tmp_path).values()]
    assert losses[-1] < losses[0]


def test_a_step_without_finite_gradient_changes_no_state(shards, tmp_path):
    precision = {"compute": "fp16", "init_scale": 1e30}
    tables = {"optimizer": ONEBIT, "parallel": {"replicate": 2}, "compression": {"warmup": 1}}
    text = config(shards, precision=precision, **tables, run={"steps": 5})
    run_world(2, train_and_compare, text, str(tmp_path))
    report = json.loads((tmp_path / "report-0.json").read_text())
    assert report["skipped"] == 5
    assert report["updates"] == 0
    assert report["frozen_at"] is None
    assert not report["errors"]
    assert not report["moved"]
    precision["init_scale"] = 1e7  # some are skipped, the others count
    text = config(shards, precision=precision, **tables, run={"steps": 20, "max_skipped": 20})
    run_world(2, train_and_compare, text, str(tmp_path / "more"))
    report = json.loads((tmp_path / "more" / "report-0.json").read_text())
    assert report["skipped"] > 0
    assert report["updates"] == 20 - report["skipped"]
    assert report["frozen_at"] == 1
    assert report["equal"]


def test_error_buffers_are_part_of_a_checkpoint(shards, tmp_path):
    """A run from the checkpoint of step 5 equals the run that went on, bit for bit; elsewhere it goes on."""
    tables = {"optimizer": ONEBIT, "parallel": {"replicate": 2}, "compression": {"warmup": 3}}
    run_world(2, train, config(shards, **tables), str(tmp_path / "whole"))
    for name in ("again", "elsewhere"):
        shutil.copytree(tmp_path / "whole", tmp_path / name)
        shutil.rmtree(tmp_path / name / "checkpoints" / "step-00000010")
        lines = (tmp_path / name / "metrics.jsonl").read_text().splitlines()
        (tmp_path / name / "metrics.jsonl").write_text("\n".join(lines[:6]) + "\n")
    run_world(2, train, config(shards, **tables), str(tmp_path / "again"))
    assert largest_difference(tmp_path / "whole", tmp_path / "again") == 0
    run_world(4, train, config(shards, **tables), str(tmp_path / "elsewhere"))
    found = largest_difference(tmp_path / "whole", tmp_path / "elsewhere")
    assert 0 < found < 0.2
