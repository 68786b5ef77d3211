"""Many items: cut into tasks, spread over processes by Dask, streamed back, and settled in the ledger.

The result depends on the items and the options alone: not on the number of workers, the order in which
tasks end, or whether an earlier run was killed. Tasks are cut where an item's id says so, so that an item
that comes or goes changes the tasks next to it and no others.
"""

from __future__ import annotations

import fcntl
import importlib.metadata
import itertools
import logging
import shutil
import time
import uuid
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal

import polars as pl

from ..shards.console import progress
from ..shards.errors import UsageError
from ..shards.make.check import MAX_ID_BYTES
from ..shards.read.dataset import open_dataset
from . import ledger
from .item import Item, Rejection
from .pool import PoolOptions, pool
from .task import Expand, Job, Outcome, Process, Task, n_labelled, place_part

log = logging.getLogger("holoshard")

MARK: Final = ".lock"  # in every folder that an ingest has written to
MADE_UP: Final = ("id_missing", "unsafe_member")  # refusals whose names are no ids of the source
READERS: Final = ("gemmi", "rdkit", "biotite")  # whose versions decide what a file becomes


@dataclass(frozen=True, slots=True)
class EngineOptions(PoolOptions):
    """How a run is carried out; nothing here changes what an item becomes, but for ``duplicates``.

    Parameters
    ----------
    task_size
        Items a task, on average: a second of work or more.
    duplicates
        Whether to keep or refuse an item with the same files, record and label as an earlier one.
    """

    task_size: int = 256
    duplicates: Literal["keep", "refuse"] = "keep"

    def __post_init__(self) -> None:
        PoolOptions.__post_init__(self)
        if self.task_size < 1:
            raise UsageError(f"--task-size is {self.task_size}; expected at least 1 item")


def run(
    items: Iterable[Item | Rejection],
    out: Path,
    *,
    process: Process,
    options: Any,
    expand: Expand | None = None,
    prepare: Callable[[], None] | None = None,
    engine: EngineOptions | None = None,
    total: int | None = None,
    notes: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Read all items into ``out``: ``parts/``, ``ledger.parquet``, ``summary.json``; the summary comes back.

    Parameters
    ----------
    items : what to read, in a fixed order
    process : reads one item; importable by workers, raises nothing for bad data
    expand : finds the sites of an item that has ``sites`` set; importable by workers
    prepare : called once in a process, outside any item's time; importable by workers
    options : a dataclass, handed to ``process``; part of what decides whether earlier work still holds
    total : the number of items, if known, for the time left
    notes : what else the summary shall say

    Raises UsageError if another run writes to ``out``. Nothing kept is no error here.
    """
    engine = engine or EngineOptions()
    start = time.perf_counter()
    if (
        out.is_dir()
        and any(out.iterdir())
        and not any((out / name).exists() for name in (MARK, ledger.LEDGER))
    ):
        raise UsageError(f"{out} holds other things than an ingest: choose a new or empty folder for --out")
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        said = "there is a file of that name" if out.exists() else error.strerror
        raise UsageError(f"{out} cannot be made a folder: {said}; choose another --out") from error
    with _lock(out):
        decides = _fingerprint(process, options)
        name, limit = uuid.uuid4().hex, engine.timeout
        job = Job(out.resolve(), name, process, expand, options, decides, limit, prepare=prepare)
        prior = ledger.Prior(job.out)
        (job.out / ledger.SUMMARY).unlink(missing_ok=True)
        job.work.mkdir(parents=True)
        tasks = cut(_once(items), engine.task_size, prior)
        outcomes = _stream(job, tasks, engine, total)
        return _finish(job, outcomes, prior, engine, start, notes or {})


def cut(items: Iterable[Item | Rejection], size: int, prior: ledger.Prior) -> Iterator[Task]:
    """Tasks of ``size`` items, a quarter more or less: cut behind the id with the smallest checksum in reach.

    After an item that came or went the cuts soon fall where they fell before, so most parts stay as they are.
    """
    least, most = max(1, size * 3 // 4), max(1, size * 5 // 4)
    numbers, held = itertools.count(), list[Item | Rejection]()
    for item in items:
        held.append(item)
        if len(held) == most:
            stop = min(range(least, most + 1), key=lambda n: zlib.crc32(held[n - 1].id.encode()))
            yield Task(next(numbers), tuple(held[:stop]), prior.of(held[:stop]))
            del held[:stop]
    if held:
        yield Task(next(numbers), tuple(held), prior.of(held))


def _once(items: Iterable[Item | Rejection]) -> Iterator[Item | Rejection]:
    """Every id once. Repeats, and what has no id of its own, come last, under names that nothing else has."""
    seen = set[str]()
    held = list[Rejection]()
    for item in items:
        if not item.id.isprintable() or not 0 < len(item.id.encode(errors="replace")) <= MAX_ID_BYTES:
            held.append(_unusable(item))
        elif isinstance(item, Rejection) and item.reason in MADE_UP:
            held.append(item)
        elif item.id in seen:
            said = f"an earlier item of this run has the id {item.id}"
            held.append(Rejection(item.id, "duplicate_id", said))
        else:
            seen.add(item.id)
            yield item
    repeats = Counter[str]()
    for refused in held:
        name = refused.id
        while name in seen:
            repeats[refused.id] += 1
            name = f"{refused.id}#{repeats[refused.id] + 1}"
        seen.add(name)
        yield replace(refused, id=name)


def _unusable(item: Item | Rejection) -> Rejection:
    shown = repr(item.id)[:80]
    if isinstance(item, Rejection):
        return replace(item, id=shown)
    said = f"the id is {shown}, expected 1 to {MAX_ID_BYTES} bytes of printable text"
    return Rejection(shown, "id_unusable" if item.id else "id_missing", said)


def _stream(job: Job, tasks: Iterator[Task], engine: EngineOptions, total: int | None) -> list[Outcome]:
    outcomes: list[Outcome] = []
    counts = Counter[str]()
    with pool(engine) as run_all, progress("ingest", total) as bar:
        for outcome in run_all(job, tasks):
            outcomes.append(outcome)
            counts.update(outcome.counts)
            kept = counts[""]
            bar.advance(outcome.n_items, kept=kept, refused=counts.total() - kept)
    return outcomes


def _finish(
    job: Job,
    outcomes: list[Outcome],
    prior: ledger.Prior,
    engine: EngineOptions,
    start: float,
    notes: Mapping[str, Any],
) -> dict[str, Any]:
    """Settle what only the whole run can tell, write ledger and summary, then sweep."""
    receipts = [job.work / f"{number:08d}.parquet" for number in sorted(o.number for o in outcomes)]
    rows = pl.concat([pl.read_parquet(path) for path in receipts] or [ledger.SCHEMA.to_frame()])
    if engine.duplicates == "refuse":
        rows = refuse_duplicates(job.out, rows)
    ledger.place(rows, job.out)
    parts = sorted(set(rows["part"].to_list()) - {""})
    summary = {
        **ledger.account(rows),
        **notes,
        "removed": prior.n_kept_beside(rows["id"]),
        "labelled": _labelled(job.out, outcomes, parts, engine),
        "reused": sum(outcome.reused for outcome in outcomes),
        "parts": len(parts),
        "bytes": sum((job.out / ledger.PARTS / name).stat().st_size for name in parts),
        "seconds": round(time.perf_counter() - start, 3),
        "read_seconds": round(float(rows["seconds"].sum()), 3),
        "peak_worker_mib": round(max((o.peak_mib for o in outcomes), default=0.0), 1),
        "options": asdict(job.options),
    }
    ledger.write_json(summary, job.out / ledger.SUMMARY)
    _sweep(job.out, set(parts))
    return summary


def _labelled(out: Path, outcomes: list[Outcome], parts: list[str], engine: EngineOptions) -> int:
    """Kept complexes that have a pK; the tasks counted them, unless some were refused since."""
    if engine.duplicates == "refuse":
        return sum(n_labelled(out, part) for part in parts)
    return sum(outcome.labelled for outcome in outcomes)


def refuse_duplicates(out: Path, rows: pl.DataFrame) -> pl.DataFrame:
    """Take items whose content an earlier item has out of their parts."""
    again = ledger.duplicates(rows)
    settled = []
    for row in rows.iter_rows(named=True):
        if row["id"] in again:
            message = f"{again[row['id']]} has the same files, record and label"
            row |= {"status": "refused", "reason": "duplicate_content", "message": message}
        settled.append(row)
    for part in sorted({row["part"] for row in settled if row["id"] in again}):
        mine = [row for row in settled if row["part"] == part]
        kept = {row["id"] for row in mine if row["status"] == "kept"}
        before = open_dataset(out / ledger.PARTS / part)
        left = (complex_ for complex_ in before if complex_.id in kept)
        name = place_part(out / ledger.WORK / "left.h5", out, left) if kept else ""
        for row in mine:
            row["part"] = name if row["id"] in kept else ""
    return ledger.frame(settled)


def _sweep(out: Path, named: set[str]) -> None:
    """Remove parts and leavings that the ledger, which is in place now, does not name."""
    for path in (out / ledger.PARTS).glob("part-*.h5"):  # whatever else lies there is not ours
        if path.name not in named:
            path.unlink(missing_ok=True)
    shutil.rmtree(out / ledger.WORK, ignore_errors=True)


def _fingerprint(process: Process, options: Any) -> str:
    versions = {name: importlib.metadata.version(name) for name in READERS}
    versions["code"] = _code()
    versions["process"] = f"{getattr(process, '__module__', '')}.{getattr(process, '__qualname__', process)}"
    return ledger.fingerprint(options, versions)


def _code() -> str:
    """A hash of our files that decide what an item becomes; other changes make nothing be read anew."""
    root = Path(__file__).parent
    shards = ("../shards/complex.py", "../shards/format", "../shards/make/writer.py")
    value = 0
    for place in ("read", "chemistry", "pipeline.py", *shards):
        path = root / place
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            value = zlib.crc32(file.read_bytes(), value) if file.is_file() else value
    return f"{value:08x}"


@contextmanager
def _lock(out: Path) -> Iterator[None]:
    """One run at a time in a folder; the kernel lets go of the lock if the run is killed."""
    if (out / MARK).exists() and not (out / MARK).is_file():  # a pipe would be waited for
        raise UsageError(f"{out / MARK} is no regular file: remove it, or give another --out")
    with (out / MARK).open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise UsageError(f"another ingest writes to {out}: wait for it, or give another --out") from error
        except OSError as error:  # a file system without locks
            log.warning("%s cannot be locked (%s): let no other ingest write to it", out, error)
        yield
