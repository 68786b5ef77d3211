"""Reading shards beside other formats: the same complexes, shuffled, as padded batches of 64.

    python benchmarks/shards.py [--data DIR] [--n 50000] [--quick] [--json]

DIR is a data set of holoshard; without it the embedded sample is made and ingested. Its complexes are
turned at random, shaken by 0.1 angstrom and repeated until there are n, then written in every format that
is installed (lmdb, tensorstore, webdataset, pyarrow, zarr, h5py, npz). Warm figures are complexes a CPU
second of one process, medians; cold ones are complexes a second with the files dropped from the page cache.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from peers import BATCH, PEERS, Rows, collate

from holoshard.shards.format.block import Block, concatenate
from holoshard.shards.format.codec import from_fixed
from holoshard.shards.format.records import texts_of
from holoshard.shards.make.writer import DatasetWriter
from holoshard.shards.read.ahead import ReadAhead, stored_fields
from holoshard.shards.read.batch import DEFAULT_FIELDS, rotations
from holoshard.shards.read.dataset import Dataset, open_dataset
from holoshard.shards.read.pool import Pool, Room

STRETCH = 4096


def source(data: Path | None, folder: Path) -> Dataset:
    """The data set given, or the embedded sample, ingested and packed."""
    if data is None:
        from holoshard.__main__ import main

        main(["sample", "--out", str(folder / "sample")])
        main(["ingest", str(folder / "sample"), "--out", str(folder / "parts")])
        main(["shard", str(folder / "parts"), "--out", str(folder / "packed")])
        data = folder / "packed"
    return open_dataset(data)


def copies(dataset: Dataset, n: int) -> Iterator[Block]:
    """Raw blocks of n complexes: the data set over and over, turned, shaken, and named anew."""
    whole = concatenate([dataset.reader.read(b, raw=True) for b in range(dataset.reader.n_blocks)])
    for begin in range(0, n, STRETCH):
        numbers = np.arange(begin, min(begin + STRETCH, n))
        block = whole.take(numbers % whole.n_complexes)
        turn = np.repeat(rotations(numbers, 0, 0), block.counts["atom"], axis=0)
        shake = np.random.default_rng(begin).normal(0, 100, (len(turn), 3))
        moved = np.einsum("ni,nij->nj", block.columns["position"], turn) + shake
        texts = [
            json.dumps({**t, "id": f"c{i:08d}"}).encode()
            for i, t in zip(numbers, texts_of(block), strict=True)
        ]
        columns = {
            **block.columns,
            "position": np.clip(np.rint(moved), -32767, 32767).astype(np.int16),
            "text_json": np.frombuffer(b"".join(texts), np.uint8),
        }
        yield Block.of(block.fields, columns, {**block.counts, "text": np.array([len(t) for t in texts])})


def samples(dataset: Dataset) -> Iterator[dict[str, Any]]:
    """Every complex as arrays of the default fields."""
    reader = ReadAhead(dataset.stream(threads=0), 0)
    for b in range(dataset.reader.n_blocks):
        block = reader.decode(b)
        for i in range(block.n_complexes):
            one = block.slice(i, i + 1)
            columns = {**one.columns, "position": from_fixed(one.columns["position"], 1000)}
            axes = {k: one.fields[k].axis for k in DEFAULT_FIELDS}
            yield {k: columns[k][0] if axes[k] == "complex" else columns[k] for k in DEFAULT_FIELDS}


def drop(path: Path) -> None:
    """Drop files from the page cache."""
    for file in [path] if path.is_file() else [p for p in path.rglob("*") if p.is_file()]:
        with file.open("rb") as handle:
            os.fsync(handle.fileno())
            os.posix_fadvise(handle.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def size(path: Path) -> int:
    return sum(p.stat().st_size for p in path.rglob("*") if p.is_file())


def count(batches: Iterable[Any]) -> int:
    return sum(len(b["pk"]) for b in batches)


def rate(make: Callable[[int], Iterable[Any]], repeats: int, clock: Callable[[], float]) -> float:
    """Complexes a second of ``clock``, median of some epochs."""
    found = []
    for epoch in range(repeats):
        gc.collect()
        start = clock()
        n = count(make(epoch))
        found.append(n / (clock() - start))
    return statistics.median(found)


def floor(dataset: Dataset) -> Iterator[dict[str, Any]]:
    """Read, decode and padded copy, in the order of the file, sorted by length within a block."""
    reader = ReadAhead(dataset.stream(threads=0), 0)
    for b in range(dataset.reader.n_blocks):
        block = reader.decode(b)
        pool = Pool([Room.of(block)], reader.pooled)
        pool.land(0, block)
        order = np.argsort(block.counts["atom"], kind="stable")
        for begin in range(0, len(order), BATCH):
            yield pool.padded(order[begin : begin + BATCH], DEFAULT_FIELDS)


def padding(dataset: Dataset) -> float:
    """Padded over real atoms of an epoch."""
    batches = [(b["atom_mask"].size, int(b["atom_mask"].sum())) for b in dataset.stream(drop_last=False)]
    padded, real = map(sum, zip(*batches, strict=True))
    return padded / real


def hot_bytes(dataset: Dataset) -> int:
    """Bytes on disk of the columns that a batch holds."""
    keys = stored_fields(DEFAULT_FIELDS, None)
    found = 0
    for b in range(dataset.reader.n_blocks):
        places, row = dataset.reader.places(b)
        found += sum(int(places.size[row, places.layout.index[k]]) for k in keys)
    return found


def workers(peer: Any, n: int) -> float:
    """Complexes a wall second of a DataLoader with two workers; 0 without torch or random access."""
    try:
        from torch.utils.data import DataLoader
    except ModuleNotFoundError:
        return 0.0
    if not isinstance(peer, Rows) or type(peer).batches is not Rows.batches:
        return 0.0
    loader = DataLoader(
        peer, batch_size=BATCH, shuffle=True, num_workers=2, collate_fn=collate, drop_last=True
    )
    start = time.perf_counter()
    return count(loader) / (time.perf_counter() - start)


def measure(dataset: Dataset, folder: Path, repeats: int) -> tuple[list[dict[str, Any]], dict[str, float]]:
    """Rows of the table, and the named ratios."""
    n = len(dataset)
    like = next(samples(dataset))
    raw = sum(a.nbytes for s in samples(dataset) for a in s.values()) / n
    rows = []
    for kind in PEERS:
        path = folder / kind.__name__.lower()
        peer = kind(path, like)
        start = time.process_time()
        peer.write(samples(dataset))
        row = {"format": kind.name, "bytes": size(path) / n, "write": n / (time.process_time() - start)}
        row["warm"] = rate(peer.batches, repeats, time.process_time)
        drop(path)
        row["cold"] = rate(peer.batches, 1, time.perf_counter)
        row["loader"] = workers(peer, n)
        rows.append(row)
    path = dataset.reader.source.root
    ours = {"format": "holoshard", "bytes": hot_bytes(dataset) / n, "write": float("nan")}
    ours["warm"] = rate(lambda e: dataset.stream(epoch=e, threads=0), repeats, time.process_time)
    drop(path)
    ours["cold"] = rate(lambda e: dataset.stream(epoch=e, threads=0), 1, time.perf_counter)
    ours["loader"] = rate(lambda e: dataset.stream(epoch=e, threads=1), repeats, time.perf_counter)
    least = rate(lambda _: floor(dataset), repeats, time.process_time)
    unchecked = open_dataset(path, verify=False)
    free = rate(lambda e: unchecked.stream(epoch=e, threads=0), repeats, time.process_time)
    packed = rate(lambda e: dataset.stream(epoch=e, threads=0, layout="packed"), repeats, time.process_time)
    best = {k: max((r[k] for r in rows), default=float("nan")) for k in ("warm", "cold", "loader")}
    lmdb = next((r for r in rows if r["format"] == "LMDB"), None)
    ratios = {
        "vs_best_peer_warm": ours["warm"] / best["warm"],
        "vs_best_peer_cold": ours["cold"] / best["cold"],
        "vs_lmdb_cold": ours["cold"] / lmdb["cold"] if lmdb else float("nan"),
        "loader_vs_best_peer": ours["loader"] / best["loader"] if best["loader"] else float("nan"),
        "of_floor": ours["warm"] / least,
        "bytes_vs_raw": ours["bytes"] / raw,
        "bytes_vs_smallest_peer": ours["bytes"] / min((r["bytes"] for r in rows), default=float("nan")),
        "padding": padding(dataset),
        "packed_vs_padded": packed / ours["warm"],
        "checksum_cost": 1 - ours["warm"] / free,
    }
    return [ours, *rows], {k: round(v, 3) for k, v in ratios.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path)
    parser.add_argument("--n", type=int, default=50_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="2,048 complexes, one repeat")
    parser.add_argument("--json", action="store_true", help="a last line with named ratios")
    options = parser.parse_args()
    n, repeats = (2048, 1) if options.quick else (options.n, options.repeats)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with DatasetWriter(folder / "ours") as writer:
            writer.write("train", copies(source(options.data, folder), n))
            writer.finish()
        rows, ratios = measure(open_dataset(folder / "ours"), folder, repeats)
    print(f"{n} complexes; bytes a complex of the same columns; complexes a second")
    print(f"{'format':<26}{'bytes':>7}{'write':>9}{'warm':>9}{'cold':>9}{'loader':>9}")
    for row in rows:
        print(f"{row['format']:<26}" + "".join(f"{row[k]:>{w}.0f}" for k, w in
              (("bytes", 7), ("write", 9), ("warm", 9), ("cold", 9), ("loader", 9))))  # fmt: skip
    print(", ".join(f"{k} {v}" for k, v in ratios.items()))
    if options.json:
        print(json.dumps(ratios))


if __name__ == "__main__":
    main()
