"""Write a sample: many drafts, a few tables, one folder that appears whole or not at all."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import tarfile
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final, Self

import numpy as np

from ...shards.console import progress
from ...shards.errors import UsageError
from ..interrupt import end_with_parent, interruptible, quiet_tracker
from .dirt import DIRT_COLUMNS, plan
from .draft import COLUMNS, PER_TARGET, TRUTH_COLUMNS, Draft, draft, identifier, is_pair

PER_CHUNK: Final = 64 * PER_TARGET  # complexes made at a stretch, and in one archive
MOST: Final = 1_000_000_000
MOST_WORKERS: Final = 1024
_MARK: Final = "sample.json"  # only a folder that has it is ever replaced


def write_sample(
    out: Path, n: int = 256, seed: int = 0, dirty: float = 0.0, *, archive: bool = False, workers: int = 1
) -> dict[str, Any]:
    """Write n synthetic complexes with labels into the folder ``out``.

    The same arguments give the same bytes; the first complexes of a larger sample are those of a smaller one.

    Parameters
    ----------
    out : a new or empty folder, or a sample written before, which is replaced
    n : complexes
    seed : of everything
    dirty : share of the complexes made bad in known ways, see ``dirt.csv``
    archive : write structures into tar archives of 1,024 complexes instead of single files
    workers : processes; the result does not depend on it

    Returns
    -------
    dict with ``n``, ``targets``, ``ligands`` (distinct), ``dirty``, ``files``, ``bytes``, ``pk_mean``,
    ``pk_sd``, ``seconds``

    Raises
    ------
    UsageError if ``out`` holds anything else, or an argument is out of range.
    """
    wrong = not 1 <= n <= MOST or not 0 <= seed < 1 << 63 or not 1 <= workers <= MOST_WORKERS
    if wrong or not 0.0 <= dirty <= 1.0:
        raise UsageError(
            f"n={n}, seed={seed}, workers={workers}, dirty={dirty}; expected n of 1 to {MOST}, "
            f"workers of 1 to {MOST_WORKERS}, seed of 0 to 2**63 - 1 and dirty from 0 to 1"
        )
    start, spoiled, tally = time.monotonic(), plan(n, dirty), _Tally()
    with _folder(Path(out)) as folder, progress("sample", n) as bar:
        with (
            _Table(folder / "labels.csv", COLUMNS) as labels,
            _Table(folder / "truth.csv", TRUTH_COLUMNS) as truth,
        ):
            for chunk in _chunks(folder, n, seed, dirty, archive, workers):
                labels.write(chunk.rows)
                truth.write(chunk.truths)
                tally.add(chunk)
                bar.advance(len(chunk.rows))
        with _Table(folder / "dirt.csv", ("id", *DIRT_COLUMNS)) as table:
            table.write([{"id": identifier(seed, k)} | kind.cells for k, kind in spoiled.items()])
        asked = {"n": n, "seed": seed, "dirty": dirty, "archive": archive, "synthetic": True}
        (folder / _MARK).write_text(json.dumps(asked, sort_keys=True) + "\n")
    seconds = round(time.monotonic() - start, 2)
    return {"n": n, "dirty": len(spoiled), **tally.summary(), "seconds": seconds}


@dataclass(frozen=True, slots=True)
class _Chunk:
    """What was written at a stretch: rows of labels.csv and truth.csv; structure files and their bytes."""

    rows: list[dict[str, str]]
    truths: list[dict[str, str]]
    n_files: int
    n_bytes: int


@dataclass(slots=True)
class _Tally:
    """Sums over chunks, so that no more than one chunk is held at a time."""

    files: int = 0
    bytes: int = 0
    targets: set[str] = field(default_factory=set)
    ligands: set[str] = field(default_factory=set)
    pk: list[float] = field(default_factory=list)

    def add(self, chunk: _Chunk) -> None:
        """Count a chunk."""
        self.files += chunk.n_files
        self.bytes += chunk.n_bytes
        self.targets.update(row["target"] for row in chunk.rows)
        self.ligands.update(row["ligand_name"] for row in chunk.rows)
        self.pk += [float(row["noisy"]) for row in chunk.truths]

    def summary(self) -> dict[str, Any]:
        """As ``write_sample`` returns it."""
        return {
            "targets": len(self.targets),
            "ligands": len(self.ligands),
            "files": self.files,
            "bytes": self.bytes,
            "pk_mean": round(float(np.mean(self.pk)), 3),
            "pk_sd": round(float(np.std(self.pk)), 3),
        }


def _chunks(folder: Path, n: int, seed: int, dirty: float, archive: bool, workers: int) -> Iterator[_Chunk]:
    """Write chunk by chunk, in order, in this process or in several."""
    # A chunk is a few targets where the sample is small, so that every worker and the progress get some.
    size = PER_CHUNK if archive or n > PER_CHUNK * workers else PER_TARGET
    bounds = [*range(0, n, size), n]
    write = partial(_write_chunk, folder, n, seed, dirty, archive)
    if workers == 1 or len(bounds) < 3:
        yield from map(write, pairwise(bounds))
        return
    quiet_tracker()
    with interruptible() as interrupts:
        # Spawned, not forked: the parent may run threads.
        n_processes = min(workers, len(bounds) - 1)
        pool = ProcessPoolExecutor(n_processes, get_context("spawn"), initializer=end_with_parent)
        try:
            yield from interrupts.shielded(lambda: pool.map(write, pairwise(bounds)))
        finally:
            pool.shutdown(wait=not interrupts.told, cancel_futures=True)


def _write_chunk(
    folder: Path, n: int, seed: int, dirty: float, archive: bool, bounds: tuple[int, int]
) -> _Chunk:
    drafts = list(_drafts(n, seed, dirty, *bounds))
    files = {path: data for d in drafts for path, data in d.files.items()}
    if archive:
        name = f"structures-{bounds[0] // PER_CHUNK:05d}.tar"
        _write_tar(folder / name, files)
        for d in drafts:
            for column in ("protein_path", "ligand_path"):
                d.row[column] = f"{name}!{d.row[column]}"
    else:
        for parent in sorted({str(Path(path).parent) for path in files}):
            (folder / parent).mkdir(parents=True, exist_ok=True)
        for path, data in files.items():
            (folder / path).write_bytes(data)
    n_bytes = sum(map(len, files.values()))
    return _Chunk([d.row for d in drafts], [d.truth for d in drafts], len(files), n_bytes)


def _drafts(n: int, seed: int, dirty: float, first: int, stop: int) -> Iterator[Draft]:
    spoiled = plan(min(n, stop), dirty)
    needs = {index: d.need for index, d in spoiled.items()}
    for index in range(first, stop):
        if is_pair(index) and index % 2:
            continue  # came with the one before
        for k, made in enumerate(draft(seed, index, needs)):
            if index + k < stop:
                if index + k in spoiled:
                    spoiled[index + k].spoil(made)
                yield made


def _write_tar(path: Path, files: dict[str, bytes]) -> None:
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as tar:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))


class _Table:
    """A CSV file, written as it grows."""

    def __init__(self, path: Path, columns: Sequence[str]) -> None:
        self._file = path.open("w", encoding="utf-8", newline="")
        self._table = csv.DictWriter(self._file, columns, lineterminator="\n")
        self._table.writeheader()

    def write(self, rows: Iterable[dict[str, str]]) -> None:
        """Add rows; a column they lack is empty."""
        self._table.writerows(rows)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()


@contextmanager
def _folder(out: Path) -> Iterator[Path]:
    """A temporary folder that takes the place of ``out`` if nothing goes wrong."""
    if out.exists() and (not out.is_dir() or (any(out.iterdir()) and not (out / _MARK).is_file())):
        raise UsageError(f"{out} exists and is no sample; choose another folder, or remove it first")
    out.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent))
    try:
        temporary.chmod(0o777 & ~_umask())
        yield temporary
        if out.exists():
            old = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent))
            os.replace(out, old)
            os.replace(temporary, out)
            shutil.rmtree(old)
        else:
            os.replace(temporary, out)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
