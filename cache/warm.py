"""Filling tiers before anyone reads: neighbouring blocks come in one large read, as a cold file likes it."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Final

from .tier import Range, format_size
from .tiered import TieredCache

log = logging.getLogger("holoshard")

MERGE_BYTES: Final = 16 << 20
MERGE_MOST: Final = 24  # entries of a run: their loads are nested
THREADS: Final = 4
INTERVAL_S: Final = 10.0  # between lines of progress


def merged(ranges: Iterable[Range], most: int) -> Iterator[list[Range]]:
    """Runs of ranges that follow each other in one file, at most 24, of ``most`` bytes (or one range)."""
    run: list[Range] = []
    size = 0
    for path, offset, length in ranges:
        joins = run and run[-1][0] == path and run[-1][1] + run[-1][2] == offset
        if run and not (joins and size + length <= most and len(run) < MERGE_MOST):
            yield run
            run, size = [], 0
        run.append((path, offset, length))
        size += length
    if run:
        yield run


def warm(
    cache: TieredCache,
    ranges: Iterable[Range],
    *,
    threads: int = THREADS,
    merge_bytes: int = MERGE_BYTES,
) -> dict[str, int]:
    """Read ranges into the tiers of a cache.

    Parameters
    ----------
    ranges : path, offset, length; what is held already is not read
    threads : that read at the same time; each holds ``merge_bytes``

    Returns
    -------
    how many blocks and bytes were there already (``held``), ``read``, and found no room (``refused``)

    Raises
    ------
    SourceError : the first range that cannot be read
    """
    counts = {"held": 0, "read": 0, "read_bytes": 0, "refused": 0}
    lock = threading.Lock()
    said = time.monotonic()

    def missing() -> Iterator[Range]:
        for range_ in ranges:
            if cache.holds(cache.key(*range_)):
                counts["held"] += 1
            else:
                yield range_

    def read(run: list[Range]) -> None:
        cache.run(run[0][0], run)
        kept = sum(cache.holds(cache.key(*range_)) for range_ in run)
        with lock:
            counts["read"] += len(run)
            counts["read_bytes"] += sum(length for _, _, length in run)
            counts["refused"] += len(run) - kept

    with ThreadPoolExecutor(threads, "holoshard-warm") as pool:
        flying: set[Future[None]] = set()
        try:
            for run in merged(missing(), merge_bytes):
                flying.add(pool.submit(read, run))
                if len(flying) > threads:
                    done, flying = wait(flying, return_when=FIRST_COMPLETED)
                    for future in done:
                        future.result()
                if time.monotonic() - said > INTERVAL_S:
                    said = time.monotonic()
                    log.info("warmed %s in %d blocks", format_size(counts["read_bytes"]), counts["read"])
            for future in flying:
                future.result()
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise
    return counts
