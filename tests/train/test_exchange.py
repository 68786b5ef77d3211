from __future__ import annotations

import json

import pytest
import torch
from exchange_world import bytes_on_the_wire, thousand_steps
from worlds import run_world

from holoshard.train.compress.eden import Eden
from holoshard.train.compress.exchange import Exchange
from holoshard.train.compress.sign import Sign
from holoshard.train.compress.simulated import simulate
from holoshard.train.compress.two_level import pieces_of
from holoshard.train.compress.vector import buckets, flatten, unflatten

N = 10_000


def values_of(rank, step=0):
    return torch.randn(N, generator=torch.Generator().manual_seed(100 * step + rank))


@pytest.mark.parametrize(
    ("compressor", "loss"), [(Eden(8), 1e-4), (Eden(4), 0.02), (Eden(1), 1.8), (Sign(), 0.8)], ids=repr
)
def test_all_replicas_get_the_same_and_nearly_the_mean(compressor, loss):
    found = simulate(3, lambda r: Exchange([N], r, compressor, feedback=False).mean(values_of(r.rank), 0))
    assert all(torch.equal(found[0], other) for other in found)
    mean = torch.stack([values_of(rank) for rank in range(3)]).mean(0)
    assert 0 < (found[0] - mean).square().sum() / mean.square().sum() < loss


def test_what_was_lost_comes_with_the_next():
    """With feedback the sum over steps is exact but for the newest errors; without, signs never get there."""
    target = torch.stack([values_of(rank) for rank in range(2)]).mean(0)

    def work(replicas, feedback):
        exchange = Exchange([N], replicas, Sign(), feedback=feedback)
        total = torch.zeros(N)
        for step in range(200):
            total += exchange.mean(values_of(replicas.rank), step)
        return total / 200, exchange.errors

    (kept, errors), (_, other) = simulate(2, lambda r: work(r, True))
    lost = simulate(2, lambda r: work(r, False))[0][0]
    assert (kept - target).norm() < 0.1 * target.norm()
    assert (lost - target).norm() > 0.4 * target.norm()
    # The account closes: mean of all that was given = what came out + the errors that are left.
    left = (errors["sent"] + other["sent"])[:N] / 2 + torch.cat([errors["served"], other["served"]])[:N]
    torch.testing.assert_close(kept + left / 200, target, atol=1e-4, rtol=1e-3)


def test_parts_of_a_vector_share_no_scale():
    """A part of small values beside one of large ones keeps its magnitude, and what fills up stays zero."""
    sizes = [300, 5000, 1]
    given = torch.cat([torch.full((300,), 1e-3), torch.full((5000,), -10.0), torch.full((1,), 7.0)])

    def work(replicas):
        exchange = Exchange(sizes, replicas, Sign(), feedback=True)
        for step in range(3):
            found = exchange.mean(given, step)
        return found, exchange

    (found, exchange), (_, other) = simulate(2, work)
    torch.testing.assert_close(found, given)
    assert exchange.chunk == 4 * 1024  # 1 + 5 + 1 blocks, on two replicas
    for each in (exchange, other):
        assert not each.errors["served"].any()
        for a, b in each.gaps["sent"]:
            assert not each.errors["sent"][a:b].any()


def test_pieces_of_parts_in_a_rack():
    assert [pieces_of([5, 3, 4], 4, k) for k in range(3)] == [[4], [1, 3], [4]]
    assert [pieces_of([5, 2], 4, k) for k in range(2)] == [[4], [1, 2, 1]]  # the last is filled up


def test_unbiased_over_steps_without_feedback():
    mean = torch.stack([values_of(rank) for rank in range(2)]).mean(0)

    def work(replicas):
        exchange = Exchange([N], replicas, Eden(2), feedback=False)
        return [exchange.mean(values_of(replicas.rank), step) for step in range(100)]

    steps = torch.stack(simulate(2, work)[0])
    single = (steps - mean).square().sum(1).mean()
    assert (steps.mean(0) - mean).square().sum() < 1.3 * single / 100


def test_a_failing_replica_ends_the_others():
    def work(replicas):
        if replicas.rank == 1:
            raise KeyError("gone")
        replicas.sum(torch.zeros(1))

    with pytest.raises(KeyError, match="gone"):
        simulate(3, work)


@pytest.mark.parametrize("size", [2, 3])
def test_bytes_on_the_wire(tmp_path, size):
    n = size * 50 * 4096
    run_world(size, bytes_on_the_wire, str(tmp_path), n)
    found = json.loads((tmp_path / "bytes.json").read_text())
    assert found["float32"] == 2 * (size - 1) / size * n * 4  # a ring's reduce-scatter and all-gather
    assert found["float32"] / found["sign"] >= 30
    assert found["bfloat16"] / found["sign"] >= 15
    for bits in (1, 2, 4, 8):
        share = found[f"eden{bits}"] / found["float32"]
        assert share == pytest.approx(bits / 32 + 1 / 4096)  # and one scale a block


def test_replicas_are_bit_identical_after_1000_steps(tmp_path):
    run_world(2, thousand_steps, str(tmp_path))
    one, two = (torch.load(tmp_path / f"{rank}.pt", weights_only=True) for rank in range(2))
    for name, parameter in one["parameters"].items():
        assert torch.equal(parameter, two["parameters"][name]), name
    assert all(torch.equal(a, b) for a, b in zip(one["moments"], two["moments"], strict=True))
    # They did get different gradients, and none of it is 0 or out of bounds.
    assert not torch.equal(one["errors"][0], two["errors"][0])
    assert all(p.isfinite().all() and p.abs().max() < 10 for p in one["parameters"].values())


def test_tensors_travel_as_one_vector():
    tensors = [torch.arange(6.0).view(2, 3), torch.zeros(0, 3), torch.ones(4, dtype=torch.bfloat16)]
    vector = flatten(tensors)
    assert vector.dtype == torch.float32
    assert vector.tolist() == [0, 1, 2, 3, 4, 5, 1, 1, 1, 1]
    unflatten(vector * 2, tensors)
    assert tensors[0].tolist() == [[0, 2, 4], [6, 8, 10]]
    assert tensors[2].tolist() == [2, 2, 2, 2]
    assert [len(run) for run in buckets(tensors, largest=6)] == [2, 1]
    assert [len(run) for run in buckets(tensors, largest=3)] == [1, 1, 1]
