"""A few hundred items: read in one process, written as one part, accounted for in one receipt."""

from __future__ import annotations

import itertools
import resource
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from ..shards.complex import Complex
from ..shards.errors import HoloshardError, StructureError
from ..shards.format.hdf5 import sync
from ..shards.make.writer import write_part
from ..shards.read.dataset import Dataset, open_dataset
from . import ledger
from .item import Item, Locator, Rejection
from .journal import Journal
from .read import archive

Process = Callable[[Item, Any], Complex | Rejection]
Expand = Callable[[Item, Any], list[Item] | Rejection]


@dataclass(frozen=True, slots=True)
class Job:
    """What all tasks of a run share.

    Attributes
    ----------
    out : the output folder, reachable by every worker
    run : the name of this run, which tells its receipts from those of a run that was killed
    process, options : reads one item
    expand : finds the items of a structure whose every ligand is one
    fingerprint : of the options and versions
    timeout : seconds an item may take
    isolated : True if the process may be ended for the sake of one item
    prepare : what a process does before its first item, so that no item's time pays for it
    """

    out: Path
    run: str
    process: Process
    expand: Expand | None
    options: Any
    fingerprint: str
    timeout: float
    isolated: bool = True
    prepare: Callable[[], None] | None = None

    @property
    def work(self) -> Path:
        """Where receipts and notes of this run lie."""
        return self.out / ledger.WORK / self.run


@dataclass(frozen=True, slots=True)
class Task:
    """Items in the source's order, and what an earlier run found of them."""

    number: int
    items: tuple[Item | Rejection, ...]
    prior: Mapping[str, ledger.Row] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a task: counts by reason ("" for kept), complexes of an earlier run, with a pK, cost."""

    number: int
    n_items: int
    counts: Mapping[str, int]
    reused: int
    labelled: int
    seconds: float
    peak_mib: float


@dataclass(frozen=True, slots=True)
class _Earlier:
    """A complex that lies in a part of an earlier run."""

    item: Item
    part: str


def run_task(job: Job, task: Task) -> Outcome:
    """Read the items, write the part and the receipt. Only a fault that is no item's own is raised."""
    start = time.perf_counter()
    if job.prepare is not None:
        job.prepare()
    rows: list[ledger.Row] = []
    found: list[Complex | _Earlier] = []
    reused = 0
    with Journal(job.work / f"{task.number:08d}.at", job.timeout, isolated=job.isolated) as journal:
        steps = itertools.count()
        sites = (_sites(job, task, item, steps, journal) for item in task.items)
        for item, verdict in itertools.chain.from_iterable(sites):
            row, complex_ = _settle(job, task, next(steps), item, verdict, journal)
            rows.append(row)
            if complex_ is not None:
                found.append(complex_)
            reused += isinstance(complex_, _Earlier)
        journal.between()
        name = _write(job, task, rows, found)
        labelled = n_labelled(job.out, name) if name else 0
        ledger.write_frame(ledger.frame(rows), job.work / f"{task.number:08d}.parquet")
    counts = Counter(row["reason"] for row in rows)
    return Outcome(
        task.number, len(task.items), dict(counts), reused, labelled, time.perf_counter() - start, _peak_mib()
    )


def _sites(
    job: Job, task: Task, item: Item | Rejection, steps: Iterator[int], journal: Journal
) -> Iterable[tuple[Item | Rejection, Rejection | None]]:
    """The item; or, if it stands for every ligand of its structure, one for each, or why there is none."""
    if isinstance(item, Rejection) or not item.sites:
        return [(item, None)]
    plain = replace(item, sites=False)
    earlier = _known_sites(job, task, item, plain)
    if earlier:
        return [(one, None) for one in earlier]
    death = journal.begin(next(steps))
    if death:
        return [(plain, Rejection(item.id, death.reason, death.message))]
    try:
        found = job.expand(item, job.options) if job.expand else [plain]
    except Exception as error:
        found = Rejection(item.id, "internal_error", f"{type(error).__name__}: {error}")
    return [(plain, found)] if isinstance(found, Rejection) else [(one, None) for one in found]


def _known_sites(job: Job, task: Task, item: Item, plain: Item) -> list[Item]:
    """The sites that an earlier run found, if the file and the options are what they were; else none."""
    prefix = f"{item.id}:"
    names = [id_.removeprefix(prefix) for id_ in task.prior if id_.startswith(prefix)]
    for assembly in dict.fromkeys((item.assembly, "")):  # "" where the file lists no assembly
        found = [replace(site_item(item, name), assembly=assembly) for name in names] or [plain]
        digests = [ledger.item_digest(job.fingerprint, one) for one in found]
        pairs = zip(found, digests, strict=True)
        if all(_reusable(job, task.prior.get(one.id), one, digest) for one, digest in pairs):
            return found
    return []


def site_item(item: Item, residue: str) -> Item:
    """The item of one ligand of a structure."""
    return replace(item, id=f"{item.id}:{residue}", residue=residue, sites=False)


def _settle(
    job: Job, task: Task, index: int, item: Item | Rejection, verdict: Rejection | None, journal: Journal
) -> tuple[ledger.Row, Complex | _Earlier | None]:
    if isinstance(item, Rejection):
        return _refused(item, _blank_row(item.id, job.fingerprint)), None
    digest = ledger.item_digest(job.fingerprint, item)
    earlier = _reusable(job, task.prior.get(item.id), item, digest)
    if earlier is not None:
        return earlier, _Earlier(item, earlier["part"]) if earlier["part"] else None
    row = _blank_row(item.id, digest, item.source)
    start = time.perf_counter()
    death = None if verdict else journal.begin(index)
    if death:
        verdict = Rejection(item.id, death.reason, death.message)
    result = verdict or _read(job, item)
    row["seconds"] = round(time.perf_counter() - start, 6)
    _note_files(row, item)
    if isinstance(result, Rejection):
        return _refused(result, row), None
    row["repairs"] = list(result.text.get("repairs", ()))
    return row, result


def _read(job: Job, item: Item) -> Complex | Rejection:
    try:
        result = job.process(item, job.options)
    except Exception as error:
        return Rejection(item.id, "internal_error", f"{type(error).__name__}: {error}")
    return result


def _blank_row(id_: str, digest: str, source: str = "") -> ledger.Row:
    empty: dict[str, Any] = {"repairs": [], "files": [], "sha256": [], "stamps": []}
    texts = {"reason": "", "message": "", "part": "", "content": ""}
    return {"id": id_, "status": "kept", "source": source, "seconds": 0.0, "digest": digest, **texts, **empty}


def _refused(rejection: Rejection, row: ledger.Row) -> ledger.Row:
    message = " ".join(rejection.message.split())
    return {**row, "status": "refused", "reason": rejection.reason, "message": message}


def _note_files(row: ledger.Row, item: Item) -> None:
    for locator in ledger.locators(item):
        row["files"].append(str(locator))
        row["stamps"].append(archive.stamp(locator))
        row["sha256"].append(_digest(locator))
    row["content"] = ledger.content_key(item, row["sha256"])


def _digest(locator: Locator) -> str:
    try:
        return archive.digest(locator)
    except StructureError:
        return ""


def _reusable(job: Job, prior: ledger.Row | None, item: Item, digest: str) -> ledger.Row | None:
    """The row of an earlier run, if options, source and content of the files are what they were."""
    if prior is None or prior["digest"] != digest or prior["reason"] in ledger.ACCIDENTS:
        return None
    if prior["part"] and not (job.out / ledger.PARTS / prior["part"]).is_file():
        return None
    row = {**prior, "files": [], "stamps": [], "sha256": []}
    known = zip(prior["stamps"], prior["sha256"], strict=True)
    for locator, (stamp, sha256) in zip(ledger.locators(item), known, strict=True):
        now = archive.stamp(locator)
        if now != stamp and (not sha256 or _digest(locator) != sha256):
            return None
        row["files"].append(str(locator))
        row["stamps"].append(now)
        row["sha256"].append(sha256)
    return row


def _write(job: Job, task: Task, rows: list[ledger.Row], found: list[Complex | _Earlier]) -> str:
    """Write the part, unless an earlier one is the same, and name it in the rows. Returns the name."""
    name = _same_part(job, found)
    if found and not name:
        complexes = (_fetch(job, one) if isinstance(one, _Earlier) else one for one in found)
        name = place_part(job.work / f"{task.number:08d}.h5", job.out, complexes)
    for row in rows:
        row["part"] = name if row["status"] == "kept" else ""
    return name


def n_labelled(out: Path, part: str) -> int:
    """Complexes of a part that have a pK."""
    dataset, _ = _part(out / ledger.PARTS / part)
    return int(np.isfinite(dataset.column("pk")).sum())


def place_part(temporary: Path, out: Path, complexes: Iterable[Complex]) -> str:
    """Write a part and move it to ``out/parts``, named by the hash of its bytes. Returns the name."""
    info = write_part(temporary, complexes)
    name = f"part-{info.sha256[:24]}.h5"
    (out / ledger.PARTS).mkdir(exist_ok=True)
    temporary.replace(out / ledger.PARTS / name)
    sync(out / ledger.PARTS)
    return name


def _same_part(job: Job, found: list[Complex | _Earlier]) -> str:
    """The earlier part that holds these complexes, in this order, and no others; "" if there is none."""
    earlier = [one for one in found if isinstance(one, _Earlier)]
    names = {one.part for one in earlier}
    if len(earlier) != len(found) or len(names) != 1:
        return ""
    (name,) = names
    try:
        _, places = _part(job.out / ledger.PARTS / name)
        n_labelled(job.out, name)
    except (HoloshardError, OSError):
        return ""
    return name if list(places) == [one.item.id for one in earlier] else ""


def _fetch(job: Job, earlier: _Earlier) -> Complex:
    """A complex from an earlier part; read anew from the source if the part is damaged."""
    try:
        dataset, places = _part(job.out / ledger.PARTS / earlier.part)
        return dataset[places[earlier.item.id]]
    except (HoloshardError, KeyError, OSError):
        result = job.process(earlier.item, job.options)
        if isinstance(result, Rejection):
            raise
        return result


@lru_cache(maxsize=4)
def _part(path: Path) -> tuple[Dataset, dict[str, int]]:
    dataset = open_dataset(path)
    return dataset, {id_: place for place, id_ in enumerate(dataset.ids())}


def _peak_mib() -> float:
    """Largest resident size of this process so far; Linux counts in KiB, macOS in bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1 << 20 if sys.platform == "darwin" else 1 << 10)
