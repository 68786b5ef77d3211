"""The order of an epoch: pure, complete, mixed, and of similar lengths."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holoshard.shards.errors import UsageError
from holoshard.shards.permutation import order_by
from holoshard.shards.read.order import Order, draw, share


def make(n=1000, block=16, **options):
    rows = np.arange(n)
    lengths = np.random.default_rng(3).integers(150, 600, n)
    return Order(rows, rows // block, lengths, **{"batch_size": 8, **options})


def epoch_rows(order):
    return [batch for w in range(order.n_windows) for batch in order.window(w).batches()]


@settings(max_examples=1000, deadline=None)
@given(
    n=st.integers(0, 700),
    block=st.integers(1, 40),
    batch_size=st.integers(1, 70),
    world=st.sampled_from([1, 2, 3, 4, 6, 8]),
    shuffle=st.sampled_from(["global", "local", "none"]),
    window=st.none() | st.integers(1, 300),
    lane_pick=st.none() | st.integers(0, 5),
    seed=st.integers(0, 5),
    epoch=st.integers(0, 5),
    repeat=st.booleans(),
)
def test_no_complex_twice_none_missing(
    n, block, batch_size, world, shuffle, window, lane_pick, seed, epoch, repeat
):
    rows = np.arange(n) + 5
    if repeat:
        rows = np.repeat(rows, np.arange(n) % 3)
    lanes = None
    if lane_pick is not None:
        divisors = [d for d in range(1, batch_size + 1) if batch_size % d == 0]
        lanes = divisors[lane_pick % len(divisors)]
    lengths = (rows * 7919) % 500 + 100
    order = Order(rows, rows // block, lengths, batch_size=batch_size, seed=seed, epoch=epoch,
                  shuffle=shuffle, window=window, lanes=lanes)  # fmt: skip
    batches = epoch_rows(order)
    assert [len(b) for b in batches] == [batch_size] * len(order) + [order.remainder] * bool(order.remainder)
    served = np.concatenate([*batches, np.zeros(0, np.int64)])
    assert np.array_equal(np.sort(served), rows)
    for batch in batches:
        parts = [batch[share(len(batch), r, world)] for r in range(world)]
        sizes = [len(p) for p in parts]
        assert max(sizes) - min(sizes) <= 1
        assert np.array_equal(np.concatenate(parts), batch)
    if batches:
        k = (seed * 31 + epoch) % len(batches)
        assert np.array_equal(order.batch(k), batches[k])


def test_the_same_arguments_give_the_same_order_and_others_another():
    rows = [np.concatenate(epoch_rows(make(seed=s, epoch=e))) for s, e in ((0, 0), (0, 0), (1, 0), (0, 1))]
    assert np.array_equal(rows[0], rows[1])
    assert not np.array_equal(rows[0], rows[2])
    assert not np.array_equal(rows[0], rows[3])


def test_the_order_is_pinned():
    """A change here breaks the resume of runs that others have begun: raise stream.VERSION."""
    assert make(n=24, block=4, batch_size=6, window=12, lanes=2).batch(1).tolist() == [12, 13, 3, 16, 18, 17]


def test_data_set_order():
    order = make(n=21, shuffle="none")
    assert np.array_equal(np.concatenate(epoch_rows(order)), np.arange(21))


def test_a_small_data_set_is_shuffled_perfectly():
    """Over many epochs each complex is equally often in the first batch."""
    first = np.concatenate([make(n=160, epoch=e, batch_size=32).batch(0) for e in range(300)])
    times = np.bincount(first, minlength=160)  # binomial(300, 0.2): mean 60, deviation 6.9
    assert abs(times.mean() - 60) < 1e-9
    assert 5 < times.std() < 9
    assert times.min() > 28


def test_lanes_are_whole_for_ranks_that_divide_them():
    """Each block is read by one rank, but for the blocks at the cuts between lanes."""
    order = make(n=64 * 600, block=64, batch_size=64)
    assert order.lanes == 64
    batches = np.stack([order.batch(k) for k in range(0, len(order), 7)])
    for world in (2, 4, 8):
        blocks = [set((batches[:, share(64, r, world)] // 64).ravel()) for r in range(world)]
        shared = sum(map(len, blocks)) - len(set.union(*blocks))
        assert shared < world


def test_lanes_meet_the_blocks_at_their_borders_together():
    """A block across the border of two lanes is in one window, or in two that follow each other."""
    order = make(n=64 * 61, block=64, batch_size=64, window=512, lanes=4)
    assert order.n_windows > 5
    seen = {}
    for w in range(order.n_windows):
        for block in np.unique(order.window(w).rows // 64).tolist():
            seen.setdefault(block, []).append(w)
    assert len(seen) == 61
    assert all(windows[-1] - windows[0] <= 1 for windows in seen.values())


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(*[st.integers(0, 2**k) for k in (3, 20, 62)]), max_size=50))
def test_order_by_is_lexsort(keys):
    columns = np.array(keys, np.int64).reshape(-1, 3).T
    for chosen in (columns, columns[:2]):  # the last key leaves no room for the others in 64 bits
        assert np.array_equal(order_by(*chosen), np.lexsort(chosen[::-1]))


def test_local_shuffle_keeps_the_blocks_of_a_rank():
    def blocks(epoch, shuffle):
        order = make(n=64 * 400, block=64, batch_size=64, epoch=epoch, shuffle=shuffle)
        return {int(r) for w in range(order.n_windows) for r in order.window(w).rows[:, :32].ravel() // 64}

    assert len(blocks(0, "local") ^ blocks(1, "local")) <= 2  # the tail's complexes may differ
    assert len(blocks(0, "global") ^ blocks(1, "global")) > 100


def test_batches_mix_as_many_blocks_as_a_perfect_shuffle_of_the_window():
    block, size = 256, 64
    order = make(n=block * 96, block=block, batch_size=size)
    window = order.window_steps * size / block
    perfect = window * (1 - (1 - 1 / window) ** size)
    distinct = [len(np.unique(batch // block)) for batch in epoch_rows(order)]
    assert np.mean(distinct) >= 0.98 * perfect


def test_batches_mix_scaffolds_and_proteins_as_a_perfect_shuffle():
    """Groups of very different sizes, mixed when they were packed: distinct ones a batch."""
    n, size = 256 * 96, 64
    rng = np.random.default_rng(5)
    lengths = make(n=n).lengths
    for groups in (30, 4000):  # proteins, scaffolds
        weight = 1.0 / (1 + np.arange(groups))
        group = rng.permutation(rng.choice(groups, n, p=weight / weight.sum()))
        served = epoch_rows(Order(np.arange(n), np.arange(n) // 256, lengths, batch_size=size))
        found = np.mean([len(np.unique(group[b])) for b in served])
        perfect = np.mean([len(np.unique(b)) for b in rng.permutation(group).reshape(-1, size)])
        assert found >= 0.98 * perfect


def test_a_complex_moves_as_far_as_in_a_perfect_shuffle():
    n, moved = 256 * 96, []
    for epoch in range(8):
        served = np.concatenate(epoch_rows(make(n=n, block=256, batch_size=64, epoch=epoch)))
        moved.append(np.abs(served - np.arange(n)).mean() / n)
    assert np.mean(moved) == pytest.approx(1 / 3, abs=0.025)  # the mean distance of two uniform places


def test_lengths_are_bucketed():
    order = make(n=256 * 64, block=256, batch_size=64)
    lengths = order.lengths
    padded = sum(int(lengths[b].max()) * len(b) for b in epoch_rows(order))
    assert padded / lengths.sum() < 1.06
    loose = make(n=256 * 64, block=256, batch_size=64, window=64)
    assert sum(int(lengths[b].max()) * len(b) for b in epoch_rows(loose)) / lengths.sum() > 1.3


def test_draw_follows_the_weights():
    rows, weights = np.arange(10) + 3, np.r_[np.zeros(5), np.ones(4), 6.0]
    times = sum(np.bincount(draw(rows, weights, seed=1, epoch=e) - 3, minlength=10) for e in range(50))
    assert times.tolist() == [0] * 5 + [50] * 4 + [300]
    assert np.array_equal(draw(rows, np.full(10, 0.3), seed=0, epoch=0), rows)


@pytest.mark.parametrize("weights", [[-1.0, 1.0], [0.0, 0.0], [np.nan, 1.0]])
def test_impossible_weights_are_refused(weights):
    with pytest.raises(UsageError, match="weights"):
        draw(np.arange(2), np.array(weights), seed=0, epoch=0)


@pytest.mark.parametrize("wrong", [{"batch_size": 0}, {"seed": -1}, {"lanes": 3}, {"window": 0}])
def test_impossible_options_are_refused(wrong):
    with pytest.raises(UsageError, match=next(iter(wrong))):
        make(**wrong)
