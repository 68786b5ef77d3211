"""Bytes of a range of a file: the seam where a cache or a remote store comes in."""

from __future__ import annotations

import os
import stat
import threading
import weakref
from typing import Any, Protocol

import numpy as np

from ..errors import FormatError
from .memory import Memory

_ALIVE: weakref.WeakSet[Pread] = weakref.WeakSet()
ADVICE = 1 << 19  # bytes: of a longer piece Linux may read ahead the beginning only
MAX_OPEN = 256  # files kept open; a data set of 256 MiB shards reaches it at 64 GiB


class Fetch(Protocol):
    """Returns ``length`` bytes of the file ``path`` from ``offset``; called from many threads."""

    def __call__(self, path: str, offset: int, length: int) -> bytes | memoryview:
        """Fewer bytes come back only if the file ends."""


class Pread:
    """Local files by ``os.pread``: no seek, no lock around reading, safe after a fork.

    Descriptors stay open: on a parallel file system each open is a call to the metadata server.
    """

    def __init__(self, max_open: int = MAX_OPEN) -> None:
        self.max_open = max_open
        self._lock = threading.Lock()
        self._memory = Memory()
        self._open: dict[str, list[int]] = {}  # path -> [descriptor, readers]
        _ALIVE.add(self)

    def __call__(self, path: str, offset: int, length: int) -> memoryview:
        """See Fetch."""
        entry = self._acquire(path)
        data, done = self._memory.empty((length,), np.uint8).data, 0
        try:
            while done < length:
                read = os.preadv(entry[0], [data[done:]], offset + done)
                if not read:
                    break
                done += read
            return data[:done]
        finally:
            with self._lock:
                entry[1] -= 1

    def expect(self, path: str, offset: int, length: int) -> None:
        """Let the kernel read a range in the background, so that a disk has more to do than one read."""
        if not hasattr(os, "posix_fadvise"):
            return
        try:
            entry = self._acquire(path)
        except FormatError:
            return  # reading it will say so
        try:
            for begin in range(offset, offset + length, ADVICE):
                size = min(ADVICE, offset + length - begin)
                os.posix_fadvise(entry[0], begin, size, os.POSIX_FADV_WILLNEED)
        except OSError:
            pass  # advice, no more
        finally:
            with self._lock:
                entry[1] -= 1

    def _acquire(self, path: str) -> list[int]:
        with self._lock:
            entry = self._open.get(path)
            if entry is None:
                entry = self._open[path] = [self._descriptor(path), 0]
                if len(self._open) > self.max_open:
                    self._evict()
            entry[1] += 1
            return entry

    @staticmethod
    def _descriptor(path: str) -> int:
        try:  # without O_NONBLOCK, opening a pipe would wait for somebody to write
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except FileNotFoundError as error:
            raise FormatError(f"{path} is missing from the data set; copy it again") from error
        except OSError as error:
            raise FormatError(f"{path} cannot be read: {error.strerror}") from error
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise FormatError(f"{path} is no regular file; copy the data set again")
        return descriptor

    def _evict(self) -> None:
        for path, (descriptor, readers) in list(self._open.items())[:-1]:
            if readers == 0:
                os.close(descriptor)
                del self._open[path]
                return

    def close(self) -> None:
        """Close every file that no thread is reading."""
        with self._lock:
            for path in [p for p, entry in self._open.items() if entry[1] == 0]:
                os.close(self._open.pop(path)[0])

    def __getstate__(self) -> dict[str, Any]:
        return {"max_open": self.max_open}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]

    def __del__(self) -> None:
        for descriptor, _ in self._open.values():
            os.close(descriptor)


def _after_fork() -> None:
    # A thread of the parent may have held a lock, or been reading, when the child was made.
    for fetch in _ALIVE:
        fetch._lock, fetch._memory = threading.Lock(), Memory()
        for entry in fetch._open.values():
            entry[1] = 0


os.register_at_fork(after_in_child=_after_fork)
