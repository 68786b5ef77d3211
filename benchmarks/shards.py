"""Reading shards beside other formats: the same complexes, shuffled, as padded batches of 64.

    python benchmarks/shards.py [--data DIR] [--n 50176] [--work DIR] [--quick] [--json]

DIR is a data set of holoshard; without it the embedded sample is made and ingested. Its complexes are
turned at random, shaken by 0.1 angstrom and repeated until there are n, then written in every format that
is installed (extra bench; MDS needs pip install --no-deps mosaicml-streaming). Figures are complexes a
second: warm of CPU time of one process, medians of epochs of another order each; cold of wall time, files
dropped from the page cache; loader of wall time, a DataLoader with two workers beside our threads; random
of wall time, one by one. A format that is slow is stopped after some seconds. --work keeps what was written.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from _peer_streams import PEERS
from _peers import BATCH, Rows
from _records import as_records
from _samples import samples, written

from holoshard.shards.read.ahead import ReadAhead, stored_fields
from holoshard.shards.read.batch import DEFAULT_FIELDS
from holoshard.shards.read.dataset import Dataset, open_dataset
from holoshard.shards.read.gather import Gather
from holoshard.shards.read.pool import Pool

PATIENCE = 12.0  # seconds of one measurement
FLOOR_BLOCKS = 4
RANDOM = 2000  # complexes of a measurement one by one


def drop(path: Path) -> None:
    """Drop files from the page cache."""
    for file in [path] if path.is_file() else [p for p in path.rglob("*") if p.is_file()]:
        with file.open("rb") as handle:
            os.fsync(handle.fileno())
            os.posix_fadvise(handle.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def size(path: Path) -> int:
    return sum(p.stat().st_size for p in path.rglob("*") if p.is_file())


def rate(make: Callable[[int], Iterable[Any]], repeats: int, clock: Callable[[], float]) -> float:
    """Complexes a second of ``clock``, median of some epochs, each cut short when it takes too long."""
    found = []
    for epoch in range(repeats):
        gc.collect()
        n, start = 0, clock()
        for batch in make(epoch):
            n += len(batch["pk"])
            if clock() - start > PATIENCE:
                break
        found.append(n / (clock() - start))
    return statistics.median(found)


def side_by_side(makes: dict[str, Callable[[int], Iterable[Any]]], repeats: int) -> dict[str, float]:
    """Complexes a second of CPU time of each, in turns: ratios of few percent must not hang on the moment."""
    found: dict[str, list[float]] = {name: [] for name in makes}
    for epoch in range(repeats + 1):
        for name, make in makes.items():
            found[name].append(rate(lambda _: make(epoch), 1, time.process_time))  # noqa: B023
    return {name: statistics.median(rates[1:]) for name, rates in found.items()}  # the first takes its memory


def one_by_one(get: Callable[[int], Any], n: int) -> float:
    """Complexes a wall second at random places."""
    rows = np.random.default_rng(0).integers(0, n, RANDOM).tolist()
    start = time.perf_counter()
    for row in rows:
        get(row)
    return len(rows) / (time.perf_counter() - start)


def floor(dataset: Dataset) -> Iterator[dict[str, Any]]:
    """Read, decode and padded copy, nothing else: in the order of the file, four blocks sorted by length.

    So many blocks pad as little as the stream does, and fit the caches best of 1, 2, 4, 8, 16 and 32.
    """
    reader = ReadAhead(dataset.stream(threads=0), 0)
    pool = Pool(reader.room(), FLOOR_BLOCKS, reader.pooled)
    for first in range(0, dataset.reader.n_blocks, FLOOR_BLOCKS):
        here = min(FLOOR_BLOCKS, dataset.reader.n_blocks - first)
        for i in range(here):
            pool.land(i, reader.decode(first + i, pool.regions(i)))
        slots = [i * pool.size + np.arange(pool.block(i).n_complexes) for i in range(here)]
        order = np.concatenate(slots)
        order = order[np.argsort(pool.counts["atom"][order], kind="stable")]
        steps = np.split(order, range(BATCH, len(order), BATCH))
        yield from map(Gather(pool, steps, DEFAULT_FIELDS).padded, range(len(steps)))


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


def loader(peer: Any) -> float:
    """Complexes a wall second of a DataLoader with two workers, once it is under way; 0 without torch."""
    try:
        from torch.utils.data import DataLoader, IterableDataset, get_worker_info
    except ModuleNotFoundError:
        return 0.0
    peer.close()
    peer.share()

    class Parts(IterableDataset):  # type: ignore[type-arg]  # of one peer, a worker each
        def __iter__(self) -> Iterator[Any]:
            worker = get_worker_info()
            return iter(peer.batches(0, worker.id, worker.num_workers))

    batches = iter(DataLoader(Parts(), batch_size=None, num_workers=2, multiprocessing_context="fork"))
    next(batches)
    n, start = 0, time.perf_counter()
    for batch in batches:
        n += len(batch["pk"])
        if time.perf_counter() - start > PATIENCE:
            break
    return n / (time.perf_counter() - start)


def peer_row(kind: Any, path: Path, dataset: Dataset, like: Any, repeats: int) -> dict[str, Any]:
    """A line of the table."""
    peer, n = kind(path, like), len(dataset)
    told = path.with_suffix(".json")
    if not told.exists():
        shutil.rmtree(path, ignore_errors=True)
        start = time.process_time()
        peer.write(samples(dataset))
        told.write_text(json.dumps(n / (time.process_time() - start)))
    row = {"format": kind.name, "bytes": size(path) / n, "write": json.loads(told.read_text())}
    # Workers first: what is open here, and its threads, must not be carried through a fork.
    row["loader"] = loader(peer)
    row["warm"] = rate(peer.batches, repeats, time.process_time)
    peer.close()
    drop(path)
    row["cold"] = rate(peer.batches, 1, time.perf_counter)
    by_number = isinstance(peer, Rows) and type(peer).batches is Rows.batches
    row["random"] = one_by_one(peer.__getitem__, n) if by_number else 0.0
    peer.close()
    return row


def epochs(dataset: Dataset, **how: Any) -> Callable[[int], Iterable[Any]]:
    """A stream, epoch after epoch, as a trainer uses it."""
    stream = dataset.stream(**how)

    def one(epoch: int) -> Iterable[Any]:
        stream.set_epoch(epoch)
        return stream

    return one


def our_row(dataset: Dataset, repeats: int) -> dict[str, Any]:
    """Ours."""
    path, n = dataset.reader.source.root, len(dataset)
    ours: dict[str, Any] = {"format": "holoshard", "bytes": hot_bytes(dataset) / n, "write": 0.0}
    alone = epochs(dataset, threads=0)
    ours["warm"] = rate(alone, repeats, time.process_time)
    ours["loader"] = max(rate(epochs(dataset, threads=t), repeats, time.perf_counter) for t in (1, 2))
    dataset.reader.fetch.close()
    drop(path)
    ours["cold"] = rate(alone, 1, time.perf_counter)
    ours["random"] = one_by_one(dataset.__getitem__, n)
    return ours


def compare(rows: list[dict[str, Any]], ours: dict[str, Any]) -> dict[str, float]:
    """Ratios beside the peers."""
    best = {k: max((r[k] for r in rows), default=float("nan")) for k in ("warm", "cold", "loader")}
    found = {
        "vs_best_peer_warm": ours["warm"] / best["warm"],
        "vs_best_peer_cold": ours["cold"] / best["cold"],
        "vs_lmdb_cold": float("nan"),
        "loader_vs_best_peer": ours["loader"] / best["loader"] if best["loader"] else float("nan"),
        "bytes_vs_smallest_peer": ours["bytes"] / min((r["bytes"] for r in rows), default=float("nan")),
    }
    for row in rows:
        name = row["format"].split()[0].strip(",").lower()
        if name in ("lmdb", "tensorstore", "litdata", "webdataset", "mds"):
            found[f"vs_{name}_warm"] = ours["warm"] / row["warm"]
        if name == "lmdb":
            found["vs_lmdb_cold"] = ours["cold"] / row["cold"]
            found["random_vs_lmdb"] = ours["random"] / row["random"]
    return found


def measure(dataset: Dataset, folder: Path, repeats: int) -> tuple[list[dict[str, Any]], dict[str, float]]:
    """Rows of the table, and the named ratios."""
    n = len(dataset)
    like = next(samples(dataset))
    raw = sum(a.nbytes for s in samples(dataset) for a in s.values()) / n
    rows = []
    for kind in PEERS:
        try:
            rows.append(peer_row(kind, folder / kind.__name__.lower(), dataset, like, repeats))
        except Exception as error:  # a peer that does not run here is no reason to measure nothing
            print(f"{kind.name}: {type(error).__name__}: {error}", file=sys.stderr)
    ours = our_row(dataset, repeats)
    unchecked = open_dataset(dataset.reader.source.root, verify=False)
    own = side_by_side(
        {
            "floor": lambda _: floor(unchecked),
            "stream": epochs(dataset, threads=0),
            "unchecked": epochs(unchecked, threads=0),
            "packed": epochs(dataset, threads=0, layout="packed"),
        },
        repeats,
    )
    ratios = {
        **compare(rows, ours),
        "of_floor": own["stream"] / own["floor"],
        "bytes_vs_raw": ours["bytes"] / raw,
        "padding": padding(dataset),
        "packed_vs_padded": own["packed"] / own["stream"],
        "packed_of_floor": own["packed"] / own["floor"],
        **as_records(dataset),
        "checksum_cost": 1 - own["stream"] / own["unchecked"],
    }
    return [ours, *rows], {k: round(v, 3) for k, v in ratios.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path)
    parser.add_argument("--n", type=int, default=50_176)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--work", type=Path, help="keep what is written here, and use it again")
    parser.add_argument("--quick", action="store_true", help="2,048 complexes, one repeat")
    parser.add_argument("--json", action="store_true", help="a last line with named ratios")
    options = parser.parse_args()
    n, repeats = (2048, 1) if options.quick else (options.n, options.repeats)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(options.work or name)
        folder.mkdir(parents=True, exist_ok=True)
        rows, ratios = measure(written(folder, options.data, n), folder / f"peers-{n}", repeats)
    columns = (("bytes", 7), ("write", 9), ("warm", 9), ("cold", 9), ("loader", 9), ("random", 9))
    print(f"{n} complexes; bytes a complex of the same columns; complexes a second")
    print(f"{'format':<26}" + "".join(f"{k:>{w}}" for k, w in columns))
    for row in rows:
        print(f"{row['format']:<26}" + "".join(f"{row[k] or '-':>{w}{'.0f' if row[k] else ''}}"
              for k, w in columns))  # fmt: skip
    print(", ".join(f"{k} {v}" for k, v in ratios.items()))
    if options.json:
        print(json.dumps(ratios))


if __name__ == "__main__":
    main()
