"""Memory that is used again. Fresh pages cost more than what is written into them: the kernel zeroes each."""

from __future__ import annotations

import math
from collections import deque
from typing import Any, Final

import numpy as np
from numpy.typing import DTypeLike, NDArray

SMALL: Final = 1 << 16  # bytes: for less, the allocator has memory at hand that was used before
STEP: Final = 1 << 16  # sizes are rounded up to it, so that they are more often alike
KEPT: Final = 8  # buffers that wait for use


class Memory:
    """Arrays whose memory comes back when nobody looks at them any more.

    An array holds on to its lease as its ``base``, and so does every view of it, in numpy or torch: only
    when the last of them is gone is the memory given to another array. Safe in threads.
    """

    def __init__(self) -> None:
        self._free: deque[NDArray[np.uint8]] = deque()

    def empty(self, shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
        """An array of any content, like ``np.empty``."""
        dtype = np.dtype(dtype)
        n_bytes = dtype.itemsize * math.prod(shape)
        if n_bytes < SMALL:
            return np.empty(shape, dtype)
        return np.asarray(_Lease(self, self._take(n_bytes)))[:n_bytes].view(dtype).reshape(shape)

    # No lock: a collector may call these in any thread at any moment, and a deque's ends need none.

    def _take(self, n_bytes: int) -> NDArray[np.uint8]:
        for _ in range(len(self._free)):
            try:
                buffer = self._free.pop()  # the last one used is most likely in a core's cache
            except IndexError:
                break
            if n_bytes <= len(buffer) <= 2 * n_bytes:
                return buffer
            if not n_bytes // 4 <= len(buffer) < n_bytes:  # what is outgrown goes
                self._free.appendleft(buffer)
        return np.empty(-(-(n_bytes + n_bytes // 16) // STEP) * STEP, np.uint8)

    def _give(self, buffer: NDArray[np.uint8], kept: int = KEPT) -> None:
        self._free.append(buffer)
        if len(self._free) > kept:
            self._free.popleft()

    def __reduce__(self) -> tuple[type[Memory], tuple[()]]:
        return Memory, ()


class _Lease:
    """Owner of an array's memory: numpy reads ``__array_interface__`` and keeps the owner as ``base``."""

    __slots__ = ("__array_interface__", "_buffer", "_memory")

    def __init__(self, memory: Memory, buffer: NDArray[np.uint8]) -> None:
        self._memory, self._buffer = memory, buffer
        self.__array_interface__ = buffer.__array_interface__

    def __del__(self) -> None:
        self._memory._give(self._buffer)
