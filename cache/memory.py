"""A tier in the memory of one process."""

from __future__ import annotations

import os
import threading
import time
from typing import Any
from weakref import WeakSet

from .errors import SettingError
from .flight import Flights
from .policy import NeverEvict, Policy
from .tier import Counters, Data, Key, Load

_ALIVE: WeakSet[MemoryTier] = WeakSet()


class MemoryTier:
    """Bytes in the memory of this process, for all its threads. See Tier.

    A fork begins with what its parent held; a pickled copy begins empty.

    Parameters
    ----------
    capacity : most bytes of data held at once
    policy : who leaves when it is full
    """

    def __init__(self, capacity: int, policy: Policy | None = None, name: str = "memory") -> None:
        if capacity < 0:
            raise SettingError(f"a capacity is not negative; found {capacity}")
        self.name, self.capacity, self.policy = name, capacity, policy or NeverEvict()
        self.counters = Counters()
        self._held: dict[str, Data] = {}
        self._used = 0
        self._lock = threading.Lock()
        self._flights = Flights()
        _ALIVE.add(self)

    def load(self, key: Key, fetch: Load) -> Data:
        """See Tier."""
        data = self._get(key.name)
        if data is None:
            start = time.monotonic()
            data, led = self._flights.join(key.name, lambda: self._fill(key, fetch))
            if not led:  # another thread's fetch served this one, too
                self.counters.add(hits=1, hit_bytes=len(data), wait_s=time.monotonic() - start)
        return data

    def holds(self, key: Key) -> bool:
        """See Tier."""
        return key.name in self._held

    def used(self) -> int:
        """See Tier."""
        return self._used

    def close(self) -> None:
        """Forget everything."""
        with self._lock:
            for name in self._held:
                self.policy.left(name)
            self._held, self._used = {}, 0

    def _get(self, name: str) -> Data | None:
        with self._lock:
            data = self._held.get(name)
            if data is not None:
                self.policy.touch(name)
        if data is not None:
            self.counters.hit(len(data))
        return data

    def _fill(self, key: Key, fetch: Load) -> Data:
        data = self._get(key.name)  # it may have landed since this thread looked
        if data is not None:
            return data
        data = fetch()
        with self._lock:
            self.policy.touch(key.name)
            gone = self._make_room(key.name, len(data))
            if gone is not None:
                self._held[key.name] = data
                self._used += len(data)
                self.policy.came(key.name)
        kept = gone is not None
        self.counters.add(misses=1, miss_bytes=len(data), fills=kept, fill_bytes=len(data) * kept,
                          refused=not kept, evictions=gone or 0)  # fmt: skip
        return data

    def _make_room(self, name: str, size: int) -> int | None:
        """How many left so that ``size`` bytes fit; None if they do not."""
        need = self._used + size - self.capacity
        if need <= 0:
            return 0
        chosen = []
        victims = self.policy.victims(name)
        for victim in victims if size <= self.capacity else ():
            if victim in self._held:
                chosen.append(victim)
                need -= len(self._held[victim])
                if need <= 0:
                    break
        if need <= 0:
            for victim in chosen:
                self._used -= len(self._held.pop(victim))
                self.policy.left(victim)
        del victims  # closes the policy's books on those that stay
        return len(chosen) if need <= 0 else None

    def __getstate__(self) -> dict[str, Any]:
        return {"capacity": self.capacity, "policy": self.policy, "name": self.name}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]


def _after_fork() -> None:
    for tier in _ALIVE:
        tier._lock = threading.Lock()
        tier.counters._lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)
