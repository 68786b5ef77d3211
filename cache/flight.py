"""One fetch for all threads that want the same bytes at the same time."""

from __future__ import annotations

import os
import threading
from concurrent.futures import Future
from weakref import WeakSet

from .tier import Data, Load

_ALIVE: WeakSet[Flights] = WeakSet()


class Flights:
    """Fetches under way, by name."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._flying: dict[str, Future[Data]] = {}
        _ALIVE.add(self)

    def join(self, name: str, work: Load) -> tuple[Data, bool]:
        """What ``work()`` gives, and whether this thread did it; others wait and share its end."""
        with self._lock:
            future = self._flying.get(name)
            leads = future is None
            if future is None:
                future = self._flying[name] = Future()
        if not leads:
            return future.result(), False
        try:
            data = work()
        except BaseException as error:
            self._land(name)
            future.set_exception(error)
            raise
        self._land(name)
        future.set_result(data)
        return data, True

    def _land(self, name: str) -> None:
        with self._lock:
            self._flying.pop(name, None)


def _after_fork() -> None:
    # The threads that were fetching are not in the child.
    for flights in _ALIVE:
        flights._lock, flights._flying = threading.Lock(), {}


os.register_at_fork(after_in_child=_after_fork)
