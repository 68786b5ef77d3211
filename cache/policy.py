"""Who leaves when a tier is full.

With c = cache / data set and every block used once an epoch, no policy that fetches on demand hits more
than c of the requests; never evicting does so exactly (MinIO: Mohan et al., VLDB 2021,
doi:10.14778/3446095.3446100), and least recently used only c + (1 - c) ln(1 - c). Where some blocks are
used more than others the known future helps (Belady 1966, doi:10.1147/sj.52.0078).
"""

from __future__ import annotations

import heapq
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from .errors import SettingError
from .tier import Key

NEVER = 1 << 62  # a position after every other: not used again
SLACK = 256  # positions that a request may be late


class Policy(Protocol):
    """Keeps its books by the names of keys; a tier calls it under a lock."""

    evicts: bool
    """False if nobody ever leaves, so that a tier need not tell what it finds at the start."""

    def touch(self, name: str) -> None:
        """It was asked for."""

    def came(self, name: str) -> None:
        """It is kept from now on."""

    def left(self, name: str) -> None:
        """It is kept no longer."""

    def victims(self, incoming: str) -> Iterator[str]:
        """Those that may leave for ``incoming``, worst first. None: it stays out.

        The tier stops when it has room, and may find that some are gone already.
        """


class NeverEvict:
    """Who is in stays in: the best for uniform epochs, and the least work."""

    evicts = False

    def touch(self, name: str) -> None:
        """See Policy."""

    def came(self, name: str) -> None:
        """See Policy."""

    def left(self, name: str) -> None:
        """See Policy."""

    def victims(self, incoming: str) -> Iterator[str]:
        """Nobody."""
        return iter(())


class LRU:
    """The least recently used leaves; for comparison."""

    evicts = True

    def __init__(self) -> None:
        self._held: OrderedDict[str, None] = OrderedDict()

    def touch(self, name: str) -> None:
        """See Policy."""
        if name in self._held:
            self._held.move_to_end(name)

    def came(self, name: str) -> None:
        """See Policy."""
        self._held[name] = None
        self._held.move_to_end(name)

    def left(self, name: str) -> None:
        """See Policy."""
        self._held.pop(name, None)

    def victims(self, incoming: str) -> Iterator[str]:
        """The oldest first."""
        return iter([name for name in self._held if name != incoming])


class Clairvoyant:
    """Whoever is needed last leaves, or does not come in: Belady's rule, with the future given.

    Requests may come in another order than foretold (several readers): each takes the earliest place of
    its key that is left. A place that was not taken is past SLACK places later: another process had it.

    Parameters
    ----------
    future : keys in the order in which they will be asked for, of all processes that share the tier
    """

    evicts = True

    def __init__(self, future: Iterable[Key] = ()) -> None:
        self._uses: dict[str, deque[int]] = {}
        self._line = deque[tuple[int, str]]()  # all places that are left, in order
        self._position = 0
        self._held: set[str] = set()
        self._heap: list[tuple[int, str]] = []  # (-next use, name), with outdated entries among them
        self.extend(future)

    def extend(self, future: Iterable[Key]) -> None:
        """Tell what will be asked for after all that has been told."""
        for key in future:
            self._uses.setdefault(key.name, deque()).append(self._position)
            self._line.append((self._position, key.name))
            self._position += 1
        self._heap = [(-self._next(name), name) for name in self._held]
        heapq.heapify(self._heap)

    def _next(self, name: str) -> int:
        uses = self._uses.get(name)
        return uses[0] if uses else NEVER

    def touch(self, name: str) -> None:
        """See Policy."""
        if name in self._uses:
            position = self._take(name)
            while self._line and self._line[0][0] < position - SLACK:
                past, other = self._line.popleft()
                if self._next(other) == past:
                    self._take(other)
        elif name in self._held:
            heapq.heappush(self._heap, (-NEVER, name))

    def _take(self, name: str) -> int:
        """Use up the next place of a name."""
        uses = self._uses[name]
        position = uses.popleft()
        if not uses:
            del self._uses[name]
        if name in self._held:
            heapq.heappush(self._heap, (-self._next(name), name))
        return position

    def came(self, name: str) -> None:
        """See Policy."""
        self._held.add(name)
        heapq.heappush(self._heap, (-self._next(name), name))

    def left(self, name: str) -> None:
        """See Policy."""
        self._held.discard(name)

    def victims(self, incoming: str) -> Iterator[str]:
        """Those needed after ``incoming``, the latest first."""
        mine = self._next(incoming)
        if mine == NEVER:  # never needed again: no one leaves for it
            return
        taken: list[tuple[int, str]] = []
        named = set[str]()
        try:
            while self._heap and -self._heap[0][0] > mine:
                entry = heapq.heappop(self._heap)
                name = entry[1]
                if name not in self._held or -entry[0] != self._next(name) or name in named:
                    continue
                taken.append(entry)
                named.add(name)
                if name != incoming:
                    yield name
        finally:
            for entry in taken:
                if entry[1] in self._held:
                    heapq.heappush(self._heap, entry)


POLICIES: dict[str, Callable[[], Policy]] = {"never": NeverEvict, "lru": LRU, "clairvoyant": Clairvoyant}


def policy_named(name: str) -> Policy:
    """A new policy: never, lru, or clairvoyant (tell it the future with ``extend``)."""
    if name not in POLICIES:
        raise SettingError(f"no policy {name!r}; there are: {', '.join(POLICIES)}")
    return POLICIES[name]()
