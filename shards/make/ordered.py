"""Work in threads whose results come in the order in which it was asked for."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import Any, TypeVar

T = TypeVar("T")
R = TypeVar("R")


def in_order(pool: ThreadPoolExecutor, do: Callable[[T], R], items: Iterable[T], ahead: int) -> Iterator[R]:
    """Results in the order of the items, of which only a few are at work or wait at any time."""
    rest = iter(items)
    waiting = deque(pool.submit(do, item) for item in islice(rest, ahead + 1))
    while waiting:
        result = waiting.popleft().result()
        waiting.extend(pool.submit(do, item) for item in islice(rest, 1))
        yield result


def one_ahead(items: Iterator[T]) -> Iterator[T]:
    """The items, the next of which a thread makes while one is in use."""
    nothing = object()
    with ThreadPoolExecutor(1, "holoshard-ahead") as pool:
        coming: Future[Any] = pool.submit(next, items, nothing)
        while (item := coming.result()) is not nothing:
            coming = pool.submit(next, items, nothing)
            yield item
