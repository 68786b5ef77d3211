"""Whole shards into the tiers, in the background of a cold start: large reads while the first steps run.

Blocks are wanted in random order, yet cold files give their bytes fastest from end to end. The processes
of a node share the work, a shard each at a time; whoever asks for a block that is being read waits for
that read instead of making its own.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from hashlib import blake2b
from typing import Final

from .account import flight_lock
from .disk import DiskTier
from .errors import SettingError
from .tier import Range
from .tiered import TieredCache
from .warm import warm

log = logging.getLogger("holoshard")
PAUSE_S: Final = 0.2  # before looking again at a shard that another process reads
STOP_S: Final = 5.0  # to wait for reads in flight when closing


class WholeShards:
    """Reads the shards of a data set into the tiers of a cache. Use it as a context manager.

    It ends when all is read, when the tiers are full, or with an error, which it only tells: whoever needs
    those bytes meets it, too.

    Parameters
    ----------
    cache : with the extents of a data set
    split : only the shards of this split
    threads : reads at the same time
    """

    def __init__(self, cache: TieredCache, split: str | None = None, threads: int = 2) -> None:
        if cache.extents is None:
            raise SettingError("whole shards are read by the extents of a data set; this cache has none")
        self.cache, self.threads = cache, threads
        self.counts = {"read": 0, "read_bytes": 0}
        self._shards: dict[str, list[Range]] = {}
        for range_ in cache.extents.ranges(split):
            self._shards.setdefault(range_[0], []).append(range_)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._fill, name="holoshard-whole", daemon=True)
        self._thread.start()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until it has ended; False if that takes longer."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def close(self) -> None:
        """Read no more."""
        self._stopped.set()
        self._thread.join(STOP_S)

    def __enter__(self) -> WholeShards:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _fill(self) -> None:
        todo = deque(self._shards.items())
        try:
            while todo and not self._stopped.is_set():
                path, ranges = todo.popleft()
                with self._alone(path) as mine:
                    if not mine:
                        todo.append((path, ranges))
                        self._stopped.wait(PAUSE_S)
                        continue
                    found = warm(self.cache, self._until_stopped(ranges), threads=self.threads)
                self.counts["read"] += found["read"]
                self.counts["read_bytes"] += found["read_bytes"]
                if found["refused"]:
                    return
        except Exception as error:
            log.warning("reading whole shards ahead of time ended: %s", error)

    def _alone(self, path: str) -> AbstractContextManager[bool]:
        """True for one process of the node at a time, if a tier is shared by them."""
        account = next((t.account() for t in self.cache.tiers if isinstance(t, DiskTier)), None)
        if account is None:
            return nullcontext(True)
        name = blake2b(f"{self.cache.dataset}\0whole\0{path}".encode(), digest_size=16).hexdigest()
        return account.locks.hold(flight_lock(name), 0.0)

    def _until_stopped(self, ranges: list[Range]) -> Iterator[Range]:
        for range_ in ranges:
            if self._stopped.is_set():
                return
            yield range_
