"""The same batches through a torch DataLoader, for any number of workers."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from random_complexes import random_complexes

from holoshard.shards.make.writer import write_part
from holoshard.shards.read.dataset import open_dataset
from holoshard.shards.read.torch_data import iterable

torch_data = pytest.importorskip("torch.utils.data")


@pytest.mark.filterwarnings("ignore:This DataLoader will create")  # more workers than cores
@pytest.mark.parametrize("workers", [0, 1, 3])
def test_workers_give_the_same_batches(tmp_path, workers):
    write_part(tmp_path / "part.h5", random_complexes(70, seed=5), block_size=8)
    dataset = open_dataset(tmp_path / "part.h5")
    options = {"batch_size": 4, "window": 16, "drop_last": False, "skip": 3, "threads": 1}
    loader = torch_data.DataLoader(iterable(dataset.stream(**options)), batch_size=None, num_workers=workers)
    found, expected = list(loader), list(dataset.stream(**options))
    assert len(found) == len(expected) == len(loader) == 15
    for tensors, batch in zip(found, expected, strict=True):
        assert set(tensors) == {*batch, "index"}
        assert all(np.array_equal(tensors[k].numpy(), batch[k], equal_nan=k == "pk") for k in batch)


def test_pickles(tmp_path):
    write_part(tmp_path / "part.h5", random_complexes(9, seed=5))
    stream = open_dataset(tmp_path / "part.h5").stream(batch_size=3)
    again = pickle.loads(pickle.dumps(iterable(stream)))
    assert [b["index"].tolist() for b in again] == [b.index.tolist() for b in stream]
