"""Waiting for data on a busy parallel file system: small files, shards, and shards behind tiers.

    python benchmarks/cache.py [--data DIR] [--n 65536] [--mount DIR] [--quick] [--json]

16 nodes of 8 readers, threads of this process, each working 50 ms a complex (asleep) on its part of the
stream's own shuffle. The server is a model: 2 slots of 1 ms for metadata, 16 slots of 1 ms for reads of at
most 1 MiB, 500 MB/s in all; with ``--mount`` it is the slow file system that is mounted there. DIR is a
data set; without it the embedded sample is made, and repeated until there are n complexes.

A share of waiting is the time in which readers have no batch over all their time. Readers ask for the bytes
of the stream's plan when the stream would, but do not decode them: 128 readers in one process would wait
for each other's arithmetic. ``iowait_floor`` is what remains of that, with no server at all.

``warm_overhead`` and ``decoded_saves`` are of CPU time: of a stream through a warm node tier, and through a
tier of decoded blocks, against one that reads the shards from the page cache.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from hit_ratios import hit_ratios
from slow_server import Mounted, Server

from holoshard.cache.decoded import Decoded
from holoshard.cache.disk import DiskTier
from holoshard.cache.extents import Extents, read_extents
from holoshard.cache.memory import MemoryTier
from holoshard.cache.prefetch import Prefetcher
from holoshard.cache.source import PosixSource
from holoshard.cache.tier import Range
from holoshard.cache.tiered import TieredCache
from holoshard.shards.make.writer import DatasetWriter
from holoshard.shards.read.ahead import ReadAhead
from holoshard.shards.read.dataset import Dataset, open_dataset
from holoshard.shards.read.order import share
from shards import copies

NODES, READERS = 16, 8
WORK_S = 0.05
BATCH = 4  # complexes of a reader's step
MOST_FILES = 4096
SMALL_BYTES = 20_000  # a structure and a ligand as text files


class Node:
    """A node's view of the server: opening a file costs once, reading each time.

    Attributes
    ----------
    blocks : fetched so far, by file and offset; each as often as it was fetched
    """

    def __init__(self, server: Server, extents: Extents) -> None:
        self.server, self.files, self.source = server, set[str](), PosixSource()
        self.starts = {f"{extents.root}/{name}": rows[:, 0] for name, rows in extents.files.items()}
        self.lock = threading.Lock()
        self.blocks: list[tuple[str, int]] = []

    def __call__(self, path: str, offset: int, length: int) -> bytes:
        """Fetch a range."""
        with self.lock:
            new = path not in self.files
            self.files.add(path)
            first, last = np.searchsorted(self.starts[path], [offset, offset + length - 1], side="right")
            self.blocks += [(path, start) for start in self.starts[path][first - 1 : last].tolist()]
        if new:
            self.server.opened()
        self.server.read(length)
        return self.source(path, offset, length)


def nodes(server: Server, extents: Extents) -> list[Node]:
    """A node's view each."""
    return [Node(server, extents) for _ in range(NODES)]


def waiting(batches: list[Iterable[int]]) -> float:
    """Share of the readers' time in ``next``; each works as long as its batch needs."""
    waited, worked = [0.0] * len(batches), [0.0] * len(batches)
    errors: list[BaseException] = []

    def reader(i: int) -> None:
        try:
            steps = iter(batches[i])
            while True:
                start = time.perf_counter()
                size = next(steps, None)
                waited[i] += time.perf_counter() - start
                if size is None:
                    return
                time.sleep(size * WORK_S)
                worked[i] += size * WORK_S
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=reader, args=(i,)) for i in range(len(batches))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return sum(waited) / (sum(waited) + sum(worked))


def small_files(server: Server, n: int, folder: Path) -> float:
    """Every complex a file: opened, read, closed."""
    folder.mkdir(exist_ok=True)
    body = os.urandom(SMALL_BYTES)
    files = min(n, MOST_FILES)  # each is read several times: the server keeps nothing for its clients
    for i in range(files):
        (folder / f"{i}.bin").write_bytes(body)
    order = list(range(n))
    random.Random(0).shuffle(order)

    def one(part: list[int]) -> Iterator[int]:
        for i in part:
            server.opened()
            with open(folder / f"{i % files}.bin", "rb", buffering=0) as file:
                file.read(SMALL_BYTES)
            server.read(SMALL_BYTES)
            yield 1

    ranks = NODES * READERS
    return waiting([one(order[r::ranks]) for r in range(ranks)])


Plan = list[tuple[list[Range], list[int]]]  # of each window: what it needs, and how many rows each step has


def plan(dataset: Dataset, number: int, rank: int) -> Plan:
    """What one reader asks for and serves in an epoch."""
    ranks = NODES * READERS
    stream = dataset.stream("train", BATCH * ranks, epoch=number, rank=rank, world_size=ranks, threads=0,
                            shuffle="local")  # fmt: skip
    reader = ReadAhead(stream, len(stream))
    windows = (reader.plan(w, 0) for w in range(stream.order.n_windows))
    return [
        ([(s.path, s.offset, s.length) for b in w.needs.tolist()
          for s in dataset.reader.spans(b, reader.stored)], [len(rows) for rows in w.steps])
        for w in windows if w is not None
    ]  # fmt: skip


def epoch(plans: list[Plan], fetches: list[Callable[..., Any]]) -> float:
    """An epoch over all readers; reader r reads through its node's fetch."""
    return waiting([steps(p, f) for p, f in zip(plans, fetches, strict=True)])


def steps(windows: Plan, fetch: Callable[..., Any]) -> Iterator[int]:
    """Sizes of a reader's batches, each when its bytes are there: the reading of ReadAhead.batches."""
    with ThreadPoolExecutor(1) as thread:
        held = {r: thread.submit(fetch, *r) for r in windows[0][0]}
        for (needs, sizes), following in zip(windows, [*(n for n, _ in windows[1:]), []], strict=True):
            for r in needs:
                held[r].result()
            ahead = {r: held[r] for r in following if r in held}
            for i, size in enumerate(sizes):
                for r in following[share(len(following), i, len(sizes))]:
                    if r not in ahead:
                        ahead[r] = thread.submit(fetch, *r)
                yield size
            held = ahead


def behind_tiers(plans: list[list[Plan]], extents: Extents, server: Server, folder: Path) -> dict[str, float]:
    """Two epochs through a node tier that holds a node's part, with reading ahead."""
    mounts, caches = nodes(server, extents), []
    for i, node in enumerate(mounts):
        (folder / f"nvme{i}").mkdir()
        tier = DiskTier(folder / f"nvme{i}", 2 * extents.n_bytes)
        caches.append(TieredCache([tier], node, extents=extents))

    def future(rank: int) -> Iterator[Range]:
        for number in plans:
            held: list[Range] = []
            for needs, _ in number[rank]:
                yield from (r for r in needs if r not in held)
                held = needs

    ranks = NODES * READERS
    with ExitStack() as stack:
        ahead = [
            stack.enter_context(Prefetcher(caches[r // READERS], future(r), readers=2, max_bytes=8 << 20))
            for r in range(ranks)
        ]
        first = epoch(plans[0], list(ahead))
        then = epoch(plans[1], list(ahead))
    fetched = sum(len(node.blocks) for node in mounts)
    needed = sum(len(set(node.blocks)) for node in mounts)
    for cache in caches:
        cache.close()
    return {"iowait_first_epoch": first, "iowait_tiers": then, "fetches_per_block_node": fetched / needed}


def warm(dataset: Dataset, extents: Extents, folder: Path, repeats: int) -> dict[str, float]:
    """CPU time of a stream that a warm tier serves over one that reads the shards; both in page cache."""
    (folder / "warm").mkdir()
    cache = TieredCache([DiskTier(folder / "warm", 2 * extents.n_bytes)], extents=extents)
    keep = Decoded(MemoryTier(16 * extents.n_bytes), extents.dataset)

    def once(**how: Any) -> float:
        start = time.process_time()
        for _ in dataset.stream("train", 64, threads=0, **how):
            pass
        return time.process_time() - start

    rows = [(once(fetch=cache), once(), once(keep=keep)) for _ in range(repeats + 1)][1:]
    tier, decoded = (float(np.median([row[i] / row[1] for row in rows])) for i in (0, 2))
    return {"warm_overhead": tier - 1, "decoded_saves": 1 - decoded}


def sampled(folder: Path, n: int) -> Path:
    """The embedded sample, ingested in this process, and packed."""
    from holoshard.__main__ import main

    main(["sample", "--out", str(folder / "sample"), "--n", str(n)])
    main(["ingest", str(folder / "sample"), "--out", str(folder / "parts"), "--workers", "0"])
    main(["shard", str(folder / "parts"), "--out", str(folder / "packed")])
    return folder / "packed"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path)
    parser.add_argument("--n", type=int, default=65_536)
    parser.add_argument(
        "--mount", type=Path, help="where a slow file system is mounted, instead of the model"
    )
    parser.add_argument(
        "--quick", action="store_true", help="32,768 complexes, two windows; small files and tiers only"
    )
    parser.add_argument("--json", action="store_true", help="a last line with named figures")
    options = parser.parse_args()
    n = 32_768 if options.quick else options.n
    found: dict[str, float] = hit_ratios()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        far = options.mount or folder
        with DatasetWriter(far / "ours") as writer:
            data = options.data or sampled(folder, 64 if options.quick else 256)
            writer.write("train", copies(open_dataset(data), n))
            writer.finish()
        dataset, extents = open_dataset(far / "ours"), read_extents(far / "ours")
        plans = [[plan(dataset, number, rank) for rank in range(NODES * READERS)] for number in range(2)]
        server = Mounted(options.mount) if options.mount else Server()
        runs: dict[str, Callable[[], Any]] = {
            "small files": lambda: {"iowait_small_files": small_files(server, n // 8, far / "small")},
            "shards": lambda: {"iowait_shards": epoch(
                plans[0], [node for node in nodes(server, extents) for _ in range(READERS)])},
            "tiers": lambda: behind_tiers(plans, extents, server, folder),
            "no server": lambda: {"iowait_floor": epoch(plans[1], [PosixSource()] * (NODES * READERS))},
        }  # fmt: skip
        for what in ("small files", "tiers") if options.quick else runs:
            before = server.counts()
            told = runs[what]()
            meta, reads = (b - a for a, b in zip(before, server.counts(), strict=True))
            found |= told
            words = ", ".join(f"{k} {v:.4f}" for k, v in told.items())
            print(f"{what:12s} {words}; metadata {meta}, reads {reads}", flush=True)
        found |= warm(dataset, extents, folder, 2 if options.quick else 9)
    print(", ".join(f"{k} {v:.4f}" for k, v in found.items()))
    if options.json:
        print(json.dumps({k: round(v, 4) for k, v in found.items()}))


if __name__ == "__main__":
    main()
