"""Reading ahead along a known order, so that a reader finds its bytes where it asks for them.

A stream reads the blocks of its next window only, in a few threads. A prefetcher looks as far as its
memory allows, with as many requests in flight as the source's latency needs, across the ends of epochs.
It never guesses: it fetches what it was told, in that order, and what it was not told is fetched when it
is asked for.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Final
from weakref import finalize

from .errors import SettingError
from .tier import Data, Key, Range
from .tiered import TieredCache
from .warm import MERGE_MOST

log = logging.getLogger("holoshard")

READERS: Final = 8
MAX_BYTES: Final = 256 << 20
MERGE_BYTES: Final = 4 << 20  # of neighbours that are fetched in one request
SLACK: Final = 256  # requests that a reader may be late with something before it is taken for skipped
SMOOTHING: Final = 0.1  # of the moving means of latency and of the time between requests
STOP_S: Final = 1.0  # to wait for reads in flight when closing


@dataclass(slots=True)
class _Item:
    """Something fetched ahead."""

    key: Key
    number: int  # of its request in the order
    size: int  # bytes it may hold: none if it is not needed
    done: Future[Data | None] = field(default_factory=Future)


@dataclass(slots=True)
class Ahead:
    """What a prefetcher has done.

    Attributes
    ----------
    requests : by the reader
    ready, late, unforetold : of these: found ready, still in flight, not fetched ahead
    skipped : fetched or foretold, and not asked for in time
    wait_s : seconds that the reader's threads waited, summed
    latency_s, interval_s : moving means: of a fetch, and between two requests
    depth : requests ahead that these ask for
    """

    requests: int = 0
    ready: int = 0
    late: int = 0
    unforetold: int = 0
    skipped: int = 0
    wait_s: float = 0.0
    latency_s: float = 0.0
    interval_s: float = 0.0
    depth: int = 0


class Prefetcher:
    """A cache that reads ahead; called like the cache, from many threads. Use it as a context manager.

    Ranges that follow each other in the order and in a file are fetched together. An error in a fetch
    comes out where its bytes are asked for. A forked child reads without looking ahead.

    Parameters
    ----------
    cache : what to read through: its tiers are warmed
    future : ranges in the order in which they will be asked for; may be endless, is read as needed
    readers : threads that fetch
    max_bytes : held at most for the reader (one range may be larger)
    max_depth : ranges ahead at most
    needless : says of an entry of the cache that the reader will do without it, for now
    """

    def __init__(
        self,
        cache: TieredCache,
        future: Iterable[Range],
        *,
        readers: int = READERS,
        max_bytes: int = MAX_BYTES,
        max_depth: int = 1024,
        needless: Callable[[Key], bool] = lambda key: False,
    ) -> None:
        if readers < 1 or max_bytes < 0 or max_depth < 1:
            raise SettingError("a prefetcher needs a reader, room for a range, and a depth of 1 or more")
        self.cache = cache
        self._plan = _Plan(cache, iter(future), max_bytes, readers, max(max_depth, readers), needless)
        self._pid = os.getpid()
        self._threads = [
            threading.Thread(target=_read, args=(self._plan,), name=f"holoshard-ahead-{i}", daemon=True)
            for i in range(readers)
        ]
        for thread in self._threads:
            thread.start()
        self._finish = finalize(self, self._plan.stop)

    def __call__(self, path: str, offset: int, length: int) -> Data:
        """The bytes of a range; see TieredCache."""
        key = self.cache.key(path, offset, length)
        item = self._plan.claim(key) if os.getpid() == self._pid else None
        if item is None:
            return self.cache(path, offset, length)
        start = time.monotonic()
        try:
            data = item.done.result()
        finally:
            self._plan.release(item, time.monotonic() - start)
        if data is None:  # taken for needless, and needed after all
            return self.cache(path, offset, length)
        if key.offset == offset and key.length == length:
            return data
        return memoryview(data)[offset - key.offset : offset - key.offset + length]

    def passed(self, path: str, offset: int, length: int) -> None:
        """The reader did without a range when its turn came: go on as if it had been asked for."""
        if os.getpid() == self._pid:
            item = self._plan.claim(self.cache.key(path, offset, length), asked=False)
            if item is not None:
                self._plan.release(item, 0.0)

    @property
    def ahead(self) -> Ahead:
        """What has been done so far."""
        return self._plan.told

    def close(self) -> None:
        """Stop reading ahead; a read that hangs is left behind."""
        self._finish()
        end = time.monotonic() + STOP_S
        for thread in self._threads if os.getpid() == self._pid else ():
            thread.join(max(end - time.monotonic(), 0))

    def __enter__(self) -> Prefetcher:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Plan:
    """What is to be fetched, in flight, and held; everything under one lock."""

    def __init__(
        self, cache: TieredCache, future: Iterator[Range], max_bytes: int, readers: int, max_depth: int,
        needless: Callable[[Key], bool],
    ) -> None:  # fmt: skip
        self.cache, self.future, self.max_bytes = cache, future, max_bytes
        self.readers, self.max_depth, self.needless = readers, max_depth, needless
        self.changed = threading.Condition()
        self.stopped = False
        self.waiting: tuple[Key, str] | None = None  # the next of the future, if its time has not come
        self.held: OrderedDict[int, _Item] = OrderedDict()  # by number, in order
        self.by_name: dict[str, deque[_Item]] = {}
        self.early = Counter[str]()  # asked for before they were fetched ahead
        self.bytes = 0
        self.number = 0
        self.last_request = 0.0
        self.told = Ahead(depth=readers)

    # -- readers' side ------------------------------------------------------------------------------

    def take(self) -> tuple[str, list[_Item]]:
        """The next ranges to fetch and their file, when there is room for them; none at the end."""
        run, run_path = list[_Item](), ""
        with self.changed:
            while not self.stopped:
                following = self._following()
                if following is None:
                    break
                key, path = following
                room = not self.held or self.bytes + key.length <= self.max_bytes
                if run and not (path == run_path and room and self._joins(run, key)):
                    break
                if room and len(self.held) < self.told.depth:
                    item = self._begin(key, 0 if self.needless(key) else key.length)
                    if item.size:
                        run.append(item)
                        run_path = path
                    else:
                        item.done.set_result(None)
                        if run:
                            break
                elif run:
                    break
                else:
                    self.changed.wait()
        return run_path, run

    def _joins(self, run: list[_Item], key: Key) -> bool:
        """Whether a range of the same file is fetched with those before it, in one request.

        A reader takes no more than its part of the depth, so that all readers have something to do.
        """
        last = run[-1].key
        size = key.offset + key.length - run[0].key.offset
        most = min(self.told.depth // self.readers, MERGE_MOST)
        return key.offset == last.offset + last.length and size <= MERGE_BYTES and len(run) < most

    def _following(self) -> tuple[Key, str] | None:
        """The next of the future, still waiting; None at the end."""
        if self.waiting is not None and self.early[self.waiting[0].name]:
            # the reader asked for it while it waited for room
            self.early[self.waiting[0].name] -= 1
            self.number += 1
            self.waiting = None
        if self.waiting is None:
            self.waiting = self._next()
        return self.waiting

    def _begin(self, key: Key, size: int) -> _Item:
        self.waiting = None
        item = _Item(key, self.number, size)
        self.number += 1
        self.held[item.number] = item
        self.by_name.setdefault(key.name, deque()).append(item)
        self.bytes += size
        return item

    def _next(self) -> tuple[Key, str] | None:
        """The next of the future that the reader has not asked for already."""
        try:
            for path, offset, length in self.future:
                key = self.cache.key(path, offset, length)
                if self.early[key.name] == 0:
                    return key, path
                self.early[key.name] -= 1
                self.number += 1
        except Exception:  # the reader goes on, and meets the cause itself if it lies in the data
            log.warning("the order of reading could not be foretold; going on without it", exc_info=True)
            self.stopped = True
        return None

    def took(self, seconds: float) -> None:
        """A fetch ended."""
        with self.changed:
            self.told.latency_s += SMOOTHING * (seconds - self.told.latency_s)

    # -- the reader's side --------------------------------------------------------------------------

    def claim(self, key: Key, asked: bool = True) -> _Item | None:
        """What was fetched ahead for a request; it stays counted until its release."""
        with self.changed:
            told, now = self.told, time.monotonic()
            if not asked:
                return self._pass_by(key)
            told.requests += 1
            if self.last_request:
                told.interval_s += SMOOTHING * (now - self.last_request - told.interval_s)
            self.last_request = now
            items = self.by_name.get(key.name)
            if not items:
                told.unforetold += 1
                if not self.stopped:
                    self.early[key.name] += 1
                self._deepen(2)
                return None
            item = items.popleft()
            if not items:
                del self.by_name[key.name]
            ready = item.done.done()
            told.ready += ready
            told.late += not ready
            self._deepen(1 if ready else 2)
            self._drop_skipped(item.number)
            return item

    def _pass_by(self, key: Key) -> _Item | None:
        items = self.by_name.get(key.name)
        if items:
            item = items.popleft()
            if not items:
                del self.by_name[key.name]
            return item
        if not self.stopped:
            self.early[key.name] += 1
            self.changed.notify_all()
        return None

    def release(self, item: _Item, waited_s: float) -> None:
        """The reader has it."""
        with self.changed:
            self.told.wait_s += waited_s
            self._forget(item)
            self.changed.notify_all()

    def _deepen(self, factor: int) -> None:
        """As many ahead as come in the time of one fetch (Little 1961, doi:10.1287/opre.9.3.383), doubled
        for its variance; twice as many as now if that was not enough."""
        told = self.told
        needed = 2 * told.latency_s / max(told.interval_s, 1e-6) + self.readers
        wanted = max(needed, told.depth * factor if factor > 1 else told.depth * 0.99)
        told.depth = int(min(max(wanted, self.readers), self.max_depth))
        self.changed.notify_all()

    def _drop_skipped(self, number: int) -> None:
        """Let go what the reader went past long ago."""
        while self.held:
            first, item = next(iter(self.held.items()))
            if first >= number - SLACK or not item.done.done():
                return
            items = self.by_name.get(item.key.name)
            if items is not None and item in items:
                items.remove(item)
                if not items:
                    del self.by_name[item.key.name]
                self.told.skipped += 1
            self._forget(item)

    def _forget(self, item: _Item) -> None:
        if self.held.pop(item.number, None) is not None:
            self.bytes -= item.size

    def stop(self) -> None:
        """Fetch no more."""
        with self.changed:
            self.stopped = True
            for items in self.by_name.values():
                for item in items:
                    if not item.done.done() and item.done.cancel():
                        self._forget(item)
            self.by_name.clear()
            self.changed.notify_all()


def _read(plan: _Plan) -> None:
    """Fetch ahead until there is no more; one thread."""
    while (taken := plan.take())[1]:
        path, run = taken
        start = time.monotonic()
        try:
            entries = [(path, item.key.offset, item.key.length) for item in run]
            found = plan.cache.run(path, entries)
        except BaseException as error:
            if len(run) == 1:  # it goes to whoever asks for these bytes
                _end(run[0], error=error)
            else:
                _read_each(plan, path, run)
        else:
            plan.took(time.monotonic() - start)
            for item, data in zip(run, found, strict=True):
                _end(item, data)


def _read_each(plan: _Plan, path: str, run: list[_Item]) -> None:
    """Fetch one by one what failed together: whoever asks for sound bytes gets them."""
    for item in run:
        try:
            _end(item, plan.cache(path, item.key.offset, item.key.length))
        except BaseException as error:
            _end(item, error=error)


def _end(item: _Item, data: Data = b"", error: BaseException | None = None) -> None:
    if item.done.set_running_or_notify_cancel():
        if error is None:
            item.done.set_result(data)
        else:
            item.done.set_exception(error)
