"""Where bytes come from when no tier has them: any callable with these arguments, tried again if need be."""

from __future__ import annotations

import errno
import logging
import os
import threading
import time
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any, Final, Protocol
from weakref import WeakSet

from .errors import SourceError
from .tier import Data

log = logging.getLogger("holoshard")
_ALIVE: WeakSet[PosixSource] = WeakSet()
_PATIENT: WeakSet[Patient] = WeakSet()

MAX_OPEN: Final = 256  # on a parallel file system each open is a call to the metadata server
ATTEMPTS: Final = 5
FIRST_PAUSE_S: Final = 0.1  # doubled after each attempt: 1.5 s in all
LONGEST_PAUSE_S: Final = 30.0  # where a server says how long to wait
# What a busy or restarting server of a network file system answers, and it does not mean the bytes are gone.
TRANSIENT: Final = frozenset({
    errno.EIO, errno.ESTALE, errno.EAGAIN, errno.EINTR, errno.ETIMEDOUT, errno.ECONNRESET, errno.ENOTCONN,
    errno.ECONNREFUSED, errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.ESHUTDOWN, errno.EREMOTEIO, errno.EBUSY,
    errno.ECONNABORTED, errno.EPIPE,
})  # fmt: skip


class Source(Protocol):
    """Returns ``length`` bytes of the file ``path`` from ``offset``; called from many threads."""

    def __call__(self, path: str, offset: int, length: int) -> Data:
        """Fewer bytes come back only if the file ends."""


class PosixSource:
    """Files of a mounted file system; the last 256 stay open, except after an error."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: OrderedDict[str, _File] = OrderedDict()
        _ALIVE.add(self)

    def __call__(self, path: str, offset: int, length: int) -> bytes:
        """See Source."""
        file = self._take(path)
        try:
            parts, got = [os.pread(file.fd, length, offset)], 0
            while parts[-1] and (got := got + len(parts[-1])) < length:
                parts.append(os.pread(file.fd, length - got, offset + got))
            return parts[0] if len(parts) == 1 else b"".join(parts)
        except OSError:
            file.stale = True  # ESTALE does not end until the file is opened anew
            raise
        finally:
            self._give(path, file)

    def _take(self, path: str) -> _File:
        with self._lock:
            file = self._open.get(path)
            if file is not None:
                self._open.move_to_end(path)
                file.readers += 1
                return file
        file = _File(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
        with self._lock:
            if path in self._open:  # another thread was faster
                os.close(file.fd)
                file = self._open[path]
            self._open[path] = file
            file.readers += 1
            idle = (p for p, f in self._open.items() if f.readers == 0)
            if len(self._open) > MAX_OPEN and (oldest := next(idle, None)) is not None:
                os.close(self._open.pop(oldest).fd)
            return file

    def _give(self, path: str, file: _File) -> None:
        with self._lock:
            file.readers -= 1
            if file.stale:
                if self._open.get(path) is file:
                    del self._open[path]
                if file.readers == 0 and file.fd >= 0:
                    os.close(file.fd)
                    file.fd = -1

    def close(self) -> None:
        """Close every file that no thread is reading."""
        with self._lock:
            for path in [p for p, f in self._open.items() if f.readers == 0]:
                os.close(self._open.pop(path).fd)

    def __del__(self) -> None:
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        return {}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__()  # type: ignore[misc]


@dataclass(slots=True, eq=False)
class _File:
    fd: int
    readers: int = 0
    stale: bool = False


@dataclass(slots=True, weakref_slot=True, eq=False)
class Patient:
    """A source that is tried again after transient errors; counts what it does.

    Attributes
    ----------
    fetches, fetched_bytes, retries : how many, over all threads
    seconds : spent in fetching, summed over threads
    """

    source: Source
    attempts: int = ATTEMPTS
    pause_s: float = FIRST_PAUSE_S
    fetches: int = 0
    fetched_bytes: int = 0
    retries: int = 0
    seconds: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def __post_init__(self) -> None:
        _PATIENT.add(self)

    def __call__(self, path: str, offset: int, length: int) -> Data:
        """See Source.

        Raises
        ------
        SourceError : an operating system error that lasted, or that waiting does not mend; errors of the
            source that are none of the operating system's pass unchanged
        """
        start, tried = time.monotonic(), list[str]()
        while True:
            try:
                data = self.source(path, offset, length)
                break
            except OSError as error:
                tried.append(f"{type(error).__name__}: {error.strerror or error}")
                if len(tried) >= self.attempts or not _passes(error):
                    raise self._failure(path, offset, length, tried, error, start) from error
                asked = min(getattr(error, "retry_after", 0.0), LONGEST_PAUSE_S)
            time.sleep(max(self.pause_s * 2 ** (len(tried) - 1), asked))
        with self._lock:
            self.fetches += 1
            self.fetched_bytes += len(data)
            self.retries += len(tried)
            self.seconds += time.monotonic() - start
        return data

    def _failure(self, path: str, offset: int, length: int, tried: list[str], error: OSError,
                 start: float) -> SourceError:  # fmt: skip
        times = tried[0]
        if len(tried) > 1:
            told = ", ".join(dict.fromkeys(tried))
            times = f"tried {len(tried)} times in {time.monotonic() - start:.1f} s: {told}"
        missing = error.errno == errno.ENOENT
        advice = "copy the file again" if missing else "see whether its file system or server is well"
        failure = SourceError(f"{path}, {length} bytes at {offset}: {times}; {advice}")
        failure.errno = error.errno
        return failure

    def as_dict(self) -> dict[str, float]:
        """Names and numbers."""
        return {"fetches": self.fetches, "fetched_bytes": self.fetched_bytes, "retries": self.retries,
                "seconds": self.seconds}  # fmt: skip

    def __getstate__(self) -> dict[str, Any]:
        return {"source": self.source, "attempts": self.attempts, "pause_s": self.pause_s}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]


def _passes(error: OSError) -> bool:
    return error.errno in TRANSIENT or isinstance(error, ConnectionError | TimeoutError)


def _after_fork() -> None:
    for source in _ALIVE:  # another thread of the parent may have held the lock, or been reading
        source._lock = threading.Lock()
        for file in source._open.values():
            file.readers = 0
    for patient in _PATIENT:
        patient._lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)
