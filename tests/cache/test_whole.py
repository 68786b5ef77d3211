"""Cold starts: whole shards in the background, once a node; data sets in Zarr as well as in HDF5."""

from __future__ import annotations

import json
import multiprocessing
import os
import threading
import time
from collections import Counter

import numpy as np
import pytest

from holoshard.__main__ import main
from holoshard.cache.errors import SettingError
from holoshard.cache.extents import read_extents
from holoshard.cache.source import PosixSource
from holoshard.cache.tiered import TieredCache, open_cache
from holoshard.cache.whole import WholeShards
from holoshard.shards.read.dataset import open_dataset

FORK = multiprocessing.get_context("fork")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """The same 60 complexes in blocks of 2, in both containers; shards of some blocks each."""
    from random_complexes import random_complexes

    from holoshard.shards.format.records import stack
    from holoshard.shards.make.writer import DatasetWriter

    folder, found = tmp_path_factory.mktemp("whole"), {}
    for container in ("hdf5", "zarr"):
        found[container] = folder / container
        with DatasetWriter(found[container], container=container, block_size=2, shard_bytes=30_000) as writer:
            complexes = list(random_complexes(60, seed=1))
            writer.write("train", [stack(complexes[:48])])
            writer.write("valid", [stack(complexes[48:])])
            writer.finish()
    return found


class Slow(PosixSource):
    """Says what it was asked for, and takes its time."""

    def __init__(self, pause=0.002):
        super().__init__()
        self.asked, self.pause = [], pause

    def __call__(self, path, offset, length):
        self.asked.append((path, offset, length))
        time.sleep(self.pause)
        return super().__call__(path, offset, length)


def covered(asked):
    """How often each byte of each file was read, at most."""
    counts = Counter()
    for path, offset, length in asked:
        counts.update((path, i) for i in range(offset, offset + length))
    return max(counts.values()), len(counts)


@pytest.mark.parametrize("container", ["hdf5", "zarr"])
def test_a_shard_comes_in_large_reads_once_while_others_ask(data, container, tmp_path):
    source, extents = Slow(), read_extents(data[container])
    ranges = list(extents.ranges("train"))
    bodies = {r: PosixSource()(*r) for r in ranges}
    cache = open_cache([f"{tmp_path}:64MiB"], data[container], source=source)
    wrong = []

    def ask(seed):
        for i in np.random.default_rng(seed).permutation(len(ranges))[:4]:
            if bytes(cache(*ranges[i])) != bodies[ranges[i]]:
                wrong.append(i)

    with WholeShards(cache, "train") as whole:
        threads = [threading.Thread(target=ask, args=(seed,)) for seed in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert whole.wait(60)
    most, n_bytes = covered(source.asked)
    assert not wrong
    assert most == 1
    assert n_bytes == sum(length for _, _, length in ranges)
    assert len(source.asked) < len(ranges)
    assert all(cache.holds(cache.key(*r)) for r in ranges)
    assert not any(cache.holds(cache.key(*r)) for r in extents.ranges("valid"))
    cache.close()


def _fill(folder, tier, log):
    class Logged(PosixSource):
        def __call__(self, path, offset, length):
            with open(log, "a") as file:
                file.write(f"{path} {offset} {length}\n")
            time.sleep(0.005)
            return super().__call__(path, offset, length)

    cache = open_cache([f"{tier}:64MiB"], folder, source=Logged())
    with WholeShards(cache) as whole:
        done = whole.wait(60)
    cache.close()
    os._exit(0 if done else 1)


def test_the_processes_of_a_node_share_the_work(data, tmp_path):
    log = tmp_path / "log"
    processes = [FORK.Process(target=_fill, args=(data["hdf5"], tmp_path, log)) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
        assert process.exitcode == 0
    lines = [line.split() for line in log.read_text().splitlines()]
    most, n_bytes = covered([(path, int(offset), int(length)) for path, offset, length in lines])
    assert most == 1
    assert n_bytes == read_extents(data["hdf5"]).n_bytes


def test_it_ends_when_full_when_closed_and_with_an_error(data, tmp_path, caplog):
    extents = read_extents(data["hdf5"])
    small = open_cache(["memory:20KiB"], data["hdf5"])
    with WholeShards(small) as whole:
        assert whole.wait(30)
    assert whole.counts["read_bytes"] < extents.n_bytes
    slow = open_cache(["memory:64MiB"], data["hdf5"], source=Slow(0.05))
    with WholeShards(slow, threads=1) as whole:
        pass
    assert whole.wait(30)
    assert whole.counts["read_bytes"] < extents.n_bytes

    def broken(path, offset, length):
        raise PermissionError(13, "Permission denied")

    with WholeShards(open_cache(["memory:64MiB"], data["hdf5"], source=broken)) as whole:
        assert whole.wait(30)
    assert "Permission denied" in caplog.text
    with pytest.raises(SettingError, match="extents"):
        WholeShards(TieredCache([], dataset="x"))


def test_a_data_set_in_zarr_is_warmed_and_served(data, tmp_path, capsys):
    folder = data["zarr"]
    assert main(["cache", "warm", str(folder), "--tiers", f"{tmp_path}:64MiB", "--json"]) == 0
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (told["refused"], told["read_bytes"]) == (0, read_extents(folder).n_bytes)
    assert read_extents(folder).n_bytes == read_extents(data["hdf5"]).n_bytes  # the same chunks
    cache = open_cache([f"{tmp_path}:64MiB"], folder)
    plain, cached = (open_dataset(folder).stream("train", 8, fetch=f) for f in (None, cache))
    for a, b in zip(plain, cached, strict=True):
        assert np.array_equal(a["position"], b["position"])
    assert cache.source.fetches == 0
    cache.close()
    assert main(["cache", "advise", str(folder), "--tiers", "memory:1GiB", "--json"]) == 0


def test_damage_in_a_column_of_a_zarr_shard_is_named(data, tmp_path):
    import shutil

    from holoshard.cache.errors import SourceError

    copy = tmp_path / "copy"
    shutil.copytree(data["zarr"], copy)
    path, offset, length = next(r for r in read_extents(copy).ranges() if "atom/position" in r[0])
    with open(path, "r+b") as file:
        file.seek(offset + length // 2)
        byte = file.read(1)
        file.seek(offset + length // 2)
        file.write(bytes([byte[0] ^ 1]))
    cache = open_cache(["memory:64MiB"], copy)
    with pytest.raises(SourceError, match=rf"atom/position/c/0/0, block of {length} bytes at {offset}"):
        cache(path, offset, length)
