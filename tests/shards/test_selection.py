"""Few complexes of many blocks, a budget of bytes, weights by a column: on files, beside ``ds[i]``."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from make_datasets import write_dataset
from random_complexes import random_complexes

from holoshard.shards.errors import UsageError
from holoshard.shards.read.batch import DEFAULT_FIELDS
from holoshard.shards.read.dataset import open_dataset


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    out = tmp_path_factory.mktemp("selection") / "set"
    complexes = [
        replace(c, extra={"complex/often": np.float32(i % 3)}) for i, c in enumerate(random_complexes(300))
    ]
    write_dataset(out, complexes)
    return open_dataset(out)


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """Ten times as many; more than the budgets below when it is unpacked."""
    out = tmp_path_factory.mktemp("budget") / "set"
    some = list(random_complexes(300, seed=1))
    named = (replace(c, text={**c.text, "id": f"{k}-{c.id}"}) for k in range(10) for c in some)
    write_dataset(out, list(named))
    return open_dataset(out)


def assert_batch(batch, dataset):
    for b, row in enumerate(batch.index.tolist()):
        c = dataset[row]
        assert np.array_equal(batch["position"][b, : c.n_atoms], c.position)
        assert np.array_equal(batch["bond_atoms"][b, : len(c.bond_atoms)], c.bond_atoms)
        assert batch["atom_mask"][b].sum() == c.n_atoms


@pytest.mark.parametrize("threads", [0, 2])
def test_few_complexes_of_many_blocks(small, threads):
    rows = np.arange(1, 300, 7)
    stream = small.stream(rows=rows, batch_size=5, drop_last=False, window=15, threads=threads)
    batches = list(stream)
    assert np.array_equal(np.sort(np.concatenate([b.index for b in batches])), rows)
    for batch in batches:
        assert_batch(batch, small)
    assert stream.blocks is not small.reader
    assert small.stream(rows=np.arange(100), batch_size=5).blocks is small.reader


def test_rotation_and_state_know_the_rows(small):
    rows = np.arange(0, 300, 9)
    turned = next(iter(small.stream(rows=rows, batch_size=8, rotate=True)))
    everything = {
        int(i): b["position"][k]
        for b in small.stream(batch_size=10, rotate=True)
        for k, i in enumerate(b.index)
    }
    for k, row in enumerate(turned.index.tolist()):
        n = small[row].n_atoms
        assert turned["position"][k, :n] == pytest.approx(everything[row][:n], abs=1e-5)
    state = small.stream(rows=rows, batch_size=8).state_dict()
    with pytest.raises(UsageError, match="fingerprint"):
        small.stream(rows=rows + 1, batch_size=8).load_state_dict(state)


def peak(stream):
    _ = len(stream.order)  # a few numbers a complex; there before the first batch
    tracemalloc.start()
    try:
        n = sum(batch.size for batch in stream)
        return n, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("threads", [0, 2])
def test_a_few_complexes_take_little_memory(large, threads):
    rows = np.arange(0, 3000, 15)
    n, sparse = peak(large.stream(rows=rows, batch_size=8, drop_last=False, threads=threads))
    _, whole = peak(large.stream(batch_size=8, threads=threads))
    assert n == 200
    assert sparse < whole / 3


@pytest.mark.parametrize("threads", [0, 2])
@pytest.mark.parametrize("layout", ["padded", "packed"])
def test_memory_stays_under_its_budget(large, threads, layout):
    whole = sum(large.reader.read(b, list(DEFAULT_FIELDS[:5])).columns["position"].nbytes
                for b in range(large.reader.n_blocks))  # fmt: skip
    for budget in (1_700_000, 2_100_000):
        stream = large.stream(batch_size=8, memory=budget, threads=threads, layout=layout, drop_last=False)
        n, found = peak(stream)
        assert n == 3000
        assert budget / 8 < found < budget
        assert whole > budget  # positions alone would not fit


def test_a_budget_gives_every_rank_the_same_order(large):
    whole = [b.index for b in large.stream(batch_size=24, memory=3_000_000)]
    parts = [list(large.stream(batch_size=24, memory=3_000_000, rank=r, world_size=3)) for r in range(3)]
    for k, rows in enumerate(whole):
        assert np.array_equal(np.concatenate([part[k].index for part in parts]), rows)


def test_impossible_budgets_are_refused(large):
    with pytest.raises(UsageError, match=r"at least \d+ are needed"):
        large.stream(batch_size=8, memory=50_000)
    with pytest.raises(UsageError, match="not both"):
        large.stream(batch_size=8, memory=10**7, window=64)


def test_weights_by_the_name_of_a_column(small):
    served = [
        np.concatenate([b.index for b in small.stream(weights="often", epoch=e, batch_size=10)])
        for e in (0, 1, 0)
    ]
    assert np.array_equal(served[0], served[2])
    assert not np.array_equal(served[0], served[1])
    assert len(served[0]) == 300  # an epoch is as long as without weights
    times = np.bincount(np.concatenate(served), minlength=300).reshape(-1, 3).sum(0)
    assert times.tolist() == [0, 300, 600]
    with pytest.raises(UsageError, match="no column 'seldom'"):
        small.stream(weights="seldom")
    with pytest.raises(UsageError, match="weights must be finite"):
        list(small.stream(weights="resolution", batch_size=10))
