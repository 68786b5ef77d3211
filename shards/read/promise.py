"""What is being made, in a thread or at once."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, Protocol, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R", covariant=True)


class Promise(Protocol[R]):
    """A :class:`concurrent.futures.Future`, or what is done already."""

    def result(self) -> R:
        """Wait for it; raises what went wrong."""

    def exception(self) -> BaseException | None:
        """Wait for it; returns what went wrong."""


class _Done(Promise[R]):
    """Work that was done at once. The lock of a future would cost as much as some of it."""

    __slots__ = ("_error", "_value")

    def __init__(self, value: R | None, error: Exception | None = None) -> None:
        self._value, self._error = value, error

    def result(self) -> R:
        if self._error is not None:
            raise self._error
        return self._value  # type: ignore[return-value]

    def exception(self) -> BaseException | None:
        return self._error


def promise(
    threads: ThreadPoolExecutor | None, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs
) -> Promise[T]:
    """Do some work in a thread, or now if there are none; what it raises comes out of the promise."""
    if threads is not None:
        return threads.submit(work, *args, **kwargs)
    try:
        return _Done(work(*args, **kwargs))
    except Exception as error:
        return _Done(None, error)
