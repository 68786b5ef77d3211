"""The same batches through a torch DataLoader, for any number of workers."""

from __future__ import annotations

import pickle
import sys

import numpy as np
import pytest
from random_complexes import random_complexes

from holoshard.shards.errors import UsageError
from holoshard.shards.make.writer import write_part
from holoshard.shards.read.dataset import open_dataset
from holoshard.shards.read.torch_data import geometric, geometric_batch, iterable, mapped

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


@pytest.fixture
def dataset(tmp_path):
    write_part(tmp_path / "part.h5", random_complexes(30, seed=5), block_size=8)
    return open_dataset(tmp_path / "part.h5")


@pytest.mark.parametrize("workers", [0, 2])
def test_by_number_with_a_sampler(dataset, workers):
    data = mapped(dataset, [5, 29, 0], transform=atoms)
    loader = torch_data.DataLoader(data, batch_size=None, sampler=[2, 0, 1, -1], num_workers=workers)
    assert [len(x) for x in loader] == [dataset[i].n_atoms for i in (0, 5, 29, 0)]
    assert len(list(mapped(dataset))) == 30
    assert mapped(dataset)[3].id == dataset[3].id


def atoms(c):
    return c.position


def test_geometric(dataset):
    pytest.importorskip("torch_geometric", reason="torch_geometric is not installed")
    c, data = dataset[4], geometric(dataset[4])
    assert data.num_nodes == c.n_atoms
    assert np.array_equal(data.pos.numpy(), c.position)
    assert data.edge_index.shape == (2, 2 * len(c.bond_atoms))
    assert data.is_undirected() or len(np.unique(c.bond_atoms, axis=0)) < len(c.bond_atoms)
    assert np.array_equal(data.edge_index[:, : len(c.bond_atoms)].numpy().T, c.bond_atoms)
    from torch_geometric.data import Batch as GeometricBatch

    packed = next(iter(dataset.stream(batch_size=5, layout="packed")))
    ours, theirs = geometric_batch(packed), GeometricBatch.from_data_list([
        geometric(dataset[int(i)]) for i in packed.index
    ])  # fmt: skip
    for key in ("pos", "z", "charge", "residue_type", "ligand_mask", "batch", "ptr"):
        assert np.array_equal(ours[key].numpy(), theirs[key].numpy()), key
    assert np.array_equal(ours.y.numpy(), theirs.y.numpy(), equal_nan=True)
    edges = [sorted(zip(*d.edge_index.tolist(), d.edge_attr.tolist(), strict=True)) for d in (ours, theirs)]
    assert edges[0] == edges[1]
    with pytest.raises(ValueError, match="packed"):
        geometric_batch(next(iter(dataset.stream(batch_size=5))))


def test_without_geometric_it_says_what_to_install(dataset, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch_geometric.data", None)
    with pytest.raises(UsageError, match="pip install torch_geometric"):
        geometric(dataset[0])
