"""Nodes get the part of the data that they hold, however ranks and nodes changed since."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from holoshard.cache.tiered import open_cache
from holoshard.shards.read.dataset import open_dataset
from holoshard.train.placement import Part, deal, parts_of, place


class Worlds:
    """Processes of a job as threads: they meet in ``sum`` and ``gather``."""

    def __init__(self, size: int, each: int) -> None:
        self.meeting, self.values = threading.Barrier(size), [None] * size
        same = {"size": size, "local_size": each, "data_size": size, "device": "cpu", "sizes": {"tensor": 1}}
        self.all = [SimpleNamespace(rank=r, data_rank=r, topology=None, **same) for r in range(size)]
        for world in self.all:
            world.sum = lambda v, w=world: self.meet(w, v).sum(0)
            world.gather = lambda v, w=world: self.meet(w, v).flatten()

    def meet(self, world, value):
        self.values[world.rank] = value.clone()
        self.meeting.wait(20)
        found = torch.stack(list(self.values))
        self.meeting.wait(20)
        return found

    def run(self, work):
        found = [None] * len(self.all)

        def one(world):
            found[world.rank] = work(world)

        threads = [threading.Thread(target=one, args=(world,)) for world in self.all]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        return found


@pytest.fixture(scope="module")
def wide(tmp_path_factory):
    """A data set of 48 blocks, so that a small window has lanes."""
    from random_complexes import random_complexes

    from holoshard.shards.format.records import stack
    from holoshard.shards.make.writer import DatasetWriter

    folder = tmp_path_factory.mktemp("wide") / "dataset"
    with DatasetWriter(folder, block_size=2) as writer:
        writer.write("train", [stack(list(random_complexes(96, seed=2)))])
        writer.finish()
    return folder


def stream(dataset, share, epoch, fetch=None):
    return dataset.stream(
        "train", 24, seed=3, epoch=epoch, rank=share.data_rank, world_size=share.data_size,
        shuffle="local", window=48, lanes=12, fetch=fetch, threads=0,
    )  # fmt: skip


def job(folder, nodes, each, epochs):
    """Train for some epochs on named nodes; bytes fetched from the source by each node."""
    dataset, worlds = open_dataset(folder), Worlds(len(nodes) * each, each)
    caches = {node: open_cache([f"{node}:64MiB"], folder) for node in nodes}

    def work(world):
        cache = caches[nodes[world.rank // each]]
        share = place(world, stream(dataset, world, 0), cache)
        for epoch in epochs:
            list(stream(dataset, share, epoch, cache))
        return share.data_rank

    ranks = worlds.run(work)
    fetched = {node: cache.source.fetched_bytes for node, cache in caches.items()}
    for cache in caches.values():
        cache.close()
    return ranks, fetched


def test_a_node_keeps_its_part_wherever_its_ranks_are_after_a_restart(wide, tmp_path):
    names = [tmp_path / name for name in "abc"]
    for name in names:
        name.mkdir()
    ranks, cold = job(wide, names, 2, range(2))
    assert ranks == list(range(6))  # nothing held: as it comes
    size = open_dataset(wide).reader.table["length"].sum()
    assert size <= sum(cold.values()) < 1.3 * size  # each block on one node, but for those at a cut
    a, b, c = names
    ranks, again = job(wide, [c, a, b], 2, range(2, 4))
    assert ranks == [4, 5, 0, 1, 2, 3]
    assert not any(again.values())
    ranks, fewer = job(wide, [c, b], 3, range(4, 6))  # a node left: the others keep what they can
    assert ranks == [3, 4, 5, 0, 1, 2]
    assert sum(fewer.values()) < 0.7 * size


def test_parts_are_dealt_by_what_is_held():
    assert deal(np.zeros((3, 3))) == [0, 1, 2]
    assert deal(np.array([[0, 9, 0], [8, 9, 0], [0, 0, 0]])) == [1, 0, 2]
    assert sorted(deal(np.ones((5, 5)))) == list(range(5))


def test_nodes_that_share_parts_are_left_as_they_are():
    def world(size, each, tensor=1, data=None):
        return SimpleNamespace(
            size=size, local_size=each, data_size=data or size // tensor, sizes={"tensor": tensor}
        )

    assert parts_of(world(4, 2)) == [[0, 1], [2, 3]]
    assert parts_of(world(8, 4, tensor=2)) == [[0, 1], [2, 3]]
    assert parts_of(world(8, 4, data=4)) is None  # two stages of a pipeline read the same
    assert parts_of(world(6, 4)) is None
    assert Part(1, 2).data_size == 2


def test_a_part_is_what_the_rank_reads_in_every_epoch(wide):
    dataset = open_dataset(wide)
    for rank in range(3):
        parts = []
        for epoch in range(2):
            one = stream(dataset, Part(rank, 3), epoch)
            parts.append(np.sort(one.order.part(rank, 3)))
            served = np.concatenate([batch.index for batch in one])
            assert set(served.tolist()) == set(parts[-1].tolist())
        assert np.array_equal(*parts)
