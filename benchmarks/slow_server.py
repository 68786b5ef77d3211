"""A parallel file system that many clients share: a model of one, or one that is mounted."""

from __future__ import annotations

import math
import os
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Server:
    """What a parallel file system costs its clients, in a process.

    Attributes
    ----------
    meta, reads : operations so far
    """

    open_s: float = 0.001
    read_s: float = 0.001
    bytes_per_s: float = 500e6
    meta: int = 0
    reads: int = 0
    free_at: float = 0.0
    mds: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(2))
    oss: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(16))
    lock: threading.Lock = field(default_factory=threading.Lock)

    def opened(self) -> None:
        """A lookup and an open."""
        for _ in range(2):
            with self.mds:
                time.sleep(self.open_s)
        with self.lock:
            self.meta += 2

    def read(self, length: int) -> None:
        """Requests of at most 1 MiB."""
        for _ in range(max(1, math.ceil(length / (1 << 20)))):
            with self.oss:
                time.sleep(self.read_s)
            with self.lock:
                self.reads += 1
        with self.lock:
            self.free_at = max(self.free_at, time.perf_counter()) + length / self.bytes_per_s
            rest = self.free_at - time.perf_counter()
        time.sleep(max(rest, 0))

    def counts(self) -> tuple[int, int]:
        """Metadata and read operations."""
        return self.meta, self.reads


class Mounted(Server):
    """A slow file system that is mounted: it makes us wait itself, and counts in an extended attribute."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path

    def opened(self) -> None:
        """Nothing to add."""

    def read(self, length: int) -> None:
        """Nothing to add."""

    def counts(self) -> tuple[int, int]:
        """Metadata and read operations."""
        words = dict(w.split("=") for w in os.getxattr(self.path, "user.slowfs").decode().split())
        return int(words["meta"]), int(words["read"])
