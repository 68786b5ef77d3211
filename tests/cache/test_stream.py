"""A real data set read through a cache: the same batches, whole blocks, nothing fetched twice."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

pytest.importorskip("rdkit")

from holoshard.cache.errors import SourceError
from holoshard.cache.extents import read_extents
from holoshard.cache.prefetch import Prefetcher
from holoshard.cache.tiered import open_cache
from holoshard.shards.errors import HoloshardError
from holoshard.shards.read.dataset import open_dataset
from holoshard.shards.read.fetch import Pread


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    from holoshard.__main__ import main

    root = tmp_path_factory.mktemp("stream")
    assert main(["sample", "--out", str(root / "sample"), "--n", "40"]) == 0
    assert main(["ingest", str(root / "sample"), "--out", str(root / "in"), "--workers", "1"]) == 0
    assert main(["shard", str(root / "in"), "--out", str(root / "data"), "--block-size", "4"]) == 0
    return root / "data"


def test_a_stream_through_a_cache_gives_the_same_batches(folder, tmp_path):
    dataset = open_dataset(folder)
    extents = read_extents(folder)
    assert extents.dataset == dataset.manifest.fingerprint
    blocks = dataset.reader.table
    assert sum(map(len, extents.files.values())) == len(blocks)
    assert extents.n_bytes == blocks["length"].sum()
    cache = open_cache([f"{tmp_path}:64MiB"], folder)
    for epoch in range(2):
        plain = dataset.stream("train", 6, seed=3, epoch=epoch)
        cached = dataset.stream("train", 6, seed=3, epoch=epoch, fetch=cache)
        for a, b in zip(plain, cached, strict=True):
            assert (a.index == b.index).all()
            assert np.array_equal(a["position"], b["position"])
    counted = cache.counters()["source"]
    assert counted["fetches"] == len(extents.files["train-00000.h5"])


def test_damage_reaches_the_consumer_with_its_block(folder, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    shard = copy / "train-00000.h5"
    data = bytearray(shard.read_bytes())
    offset, length, _ = read_extents(copy).files[shard.name][1]
    data[offset + length // 2] ^= 4
    shard.write_bytes(data)
    cache = open_cache(["memory:64MiB"], copy)
    with pytest.raises((HoloshardError, SourceError), match=rf"block of {length} bytes at {offset}"):
        list(open_dataset(copy).stream("train", 6, fetch=cache))


def test_a_single_shard_file_has_extents_too(folder):
    path = folder / "train-00000.h5"
    extents = read_extents(path)
    assert np.array_equal(extents.files[path.name], read_extents(folder).files[path.name])
    dataset = open_dataset(path)
    cache = open_cache(["memory:64MiB"], path)
    assert len(list(dataset.stream(None, 8, fetch=cache))) == len(dataset) // 8
    assert cache.counters()["source"]["fetches"] == len(extents.files[path.name])


@pytest.mark.parametrize(("rank", "world_size", "skip"), [(0, 1, 0), (1, 3, 0), (2, 3, 2)])
def test_a_stream_foretells_what_it_reads(folder, rank, world_size, skip):
    dataset, asked = open_dataset(folder), []

    def fetch(path, offset, length):
        asked.append((path, offset, length))
        return Pread()(path, offset, length)

    options = {"seed": 5, "epoch": 2, "rank": rank, "world_size": world_size, "skip": skip, "window": 8}
    stream = dataset.stream("train", 6, threads=0, fetch=fetch, **options)
    foretold = [(s.path, s.offset, s.length) for s in stream.ranges()]
    assert list(stream)
    assert asked == foretold


def test_reading_ahead_of_a_stream_changes_nothing_but_the_waiting(folder):
    dataset = open_dataset(folder)
    cache = open_cache(["memory:64MiB"], folder)

    def streams(fetch=None):
        for epoch in range(3):
            yield dataset.stream("train", 6, seed=1, epoch=epoch, window=8, threads=1, fetch=fetch)

    future = ((r.path, r.offset, r.length) for s in streams() for r in s.ranges())
    with Prefetcher(cache, future, readers=3) as ahead:
        for plain, read in zip(streams(), streams(ahead), strict=True):
            for a, b in zip(plain, read, strict=True):
                assert (a.index == b.index).all()
                assert np.array_equal(a["element"], b["element"])
    blocks = cache.extents.files["train-00000.h5"]
    assert cache.source.fetched_bytes == blocks[:, 1].sum()  # once each, neighbours together
    assert cache.source.fetches <= len(blocks)
    assert ahead.ahead.ready + ahead.ahead.late > 0.5 * ahead.ahead.requests
