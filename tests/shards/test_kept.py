"""Decoded blocks that somebody keeps: the same batches, and nothing read twice."""

from __future__ import annotations

import numpy as np
import pytest

from holoshard.shards.read.dataset import open_dataset
from holoshard.shards.read.fetch import Pread
from holoshard.shards.read.kept import arrays_of, block_of


class Keeping(dict):
    """Keeps everything as bytes, so that nothing but the arrays' values can come through."""

    def __call__(self, name, make):
        if name not in self:
            self[name] = {k: (a.tobytes(), a.dtype.str, a.shape) for k, a in make().items()}
        return {k: np.frombuffer(b, d).reshape(s) for k, (b, d, s) in self[name].items()}


@pytest.mark.parametrize(
    "options", [{}, {"max_atoms": 24}, {"layout": "packed", "fields": ["position", "pk"]}]
)
def test_kept_blocks_give_the_same_batches_and_are_read_once(small_dataset, options):
    dataset, keep, fetched = open_dataset(small_dataset), Keeping(), []

    def fetch(path, offset, length):
        fetched.append((path, offset))
        return Pread()(path, offset, length)

    for epoch in range(3):
        how = {"batch_size": 4, "epoch": epoch, "window": 8, **options}
        plain = dataset.stream("train", **how)
        kept = dataset.stream("train", **how, keep=keep, fetch=fetch)
        for a, b in zip(plain, kept, strict=True):
            assert (a.index == b.index).all()
            assert a.columns.keys() == b.columns.keys()
            assert all(np.array_equal(a[k], b[k], equal_nan=a[k].dtype.kind == "f") for k in a)
    assert len(fetched) == len(set(fetched)) == len(keep)


def test_names_differ_wherever_arrays_may(small_dataset):
    dataset = open_dataset(small_dataset)
    ways = [{}, {"max_atoms": 24}, {"max_atoms": 25}, {"fields": ["position"]}, {"fields": ["element"]}]
    names = [{name for name, _ in dataset.stream("train", 4, **way).needs()} for way in ways]
    assert len(set.union(*names)) == sum(map(len, names))
    foretold = [s for _, spans in dataset.stream("train", 4).needs() for s in spans]
    assert foretold == list(dataset.stream("train", 4).ranges())


def test_a_block_survives_being_taken_apart(small_dataset):
    block = open_dataset(small_dataset).reader.read(0, raw=True)
    again = block_of(arrays_of(block))
    assert dict(again.fields) == {k: block.fields[k] for k in block.columns}
    assert again.n_complexes == block.n_complexes
    for axis, counts in block.counts.items():
        assert np.array_equal(again.counts[axis], counts)
        assert np.array_equal(again.starts[axis], block.starts[axis])
