"""A tier: a place for bytes under keys. Tiers stack, and each asks the next slower one for what it lacks."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from hashlib import blake2b
from typing import Protocol

from .errors import SettingError

Data = bytes | memoryview
Load = Callable[[], Data]
Range = tuple[str, int, int]  # path, offset, length
UNKNOWN = -1  # length of what is not a range of a file

UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
         "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "TIB": 1 << 40}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Key:
    """One range of one file of one data set.

    Attributes
    ----------
    dataset : fingerprint of the content, so that a changed data set never serves stale bytes
    path : of the file inside the data set
    offset, length : of the range, bytes; a length of UNKNOWN is known only once the bytes are there
    name : 32 hexadecimal digits, different for every key
    """

    dataset: str
    path: str
    offset: int
    length: int
    name: str = field(init=False, compare=False)

    def __post_init__(self) -> None:
        text = f"{self.dataset}\0{self.path}\0{self.offset}\0{self.length}"
        object.__setattr__(self, "name", blake2b(os.fsencode(text), digest_size=16).hexdigest())

    def __str__(self) -> str:
        return f"{self.path}, {self.length} bytes at {self.offset}"


@dataclass(slots=True)
class Counters:
    """What a tier has done in this process; bytes of data, seconds of waiting."""

    hits: int = 0
    misses: int = 0
    hit_bytes: int = 0
    miss_bytes: int = 0
    fills: int = 0
    fill_bytes: int = 0
    refused: int = 0
    evictions: int = 0
    damaged: int = 0
    failures: int = 0
    wait_s: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    def hit(self, size: int) -> None:
        """Count a hit of so many bytes."""
        with self._lock:
            self.hits += 1
            self.hit_bytes += size

    def add(self, **amounts: float) -> None:
        """Count; safe in threads."""
        with self._lock:
            for name, amount in amounts.items():
                setattr(self, name, getattr(self, name) + amount)

    def as_dict(self) -> dict[str, float]:
        """Names and numbers."""
        return {f.name: getattr(self, f.name) for f in fields(self) if not f.name.startswith("_")}


class Tier(Protocol):
    """A place for bytes under keys, with a capacity; called from many threads.

    A tier of your own needs these members and nothing else. It may refuse to keep anything, at any time.
    """

    name: str
    capacity: int
    counters: Counters

    def load(self, key: Key, fetch: Load) -> Data:
        """The bytes of ``key``: those kept, or those of ``fetch()``, which it may then keep.

        Calls ``fetch`` at most once, also when several threads ask at the same time; what it raises
        goes to all of them, and nothing is kept. ``fetch`` may load other keys, inside this call.
        """

    def holds(self, key: Key) -> bool:
        """Whether a load would not fetch, as far as can be told without reading."""

    def used(self) -> int:
        """Bytes of the capacity that are taken."""

    def close(self) -> None:
        """Give back what the process holds open; a later load may open it again."""


def parse_size(text: str | int) -> int:
    """Bytes of a size such as ``256GiB``, ``1.5 TB`` or ``4096``."""
    if isinstance(text, int):
        return text
    number = text.strip().rstrip("BbiIKkMmGgTt").strip()
    unit = text.strip()[len(number) :].strip().upper()
    try:
        size = int(float(number) * UNITS[unit])
    except (ValueError, KeyError, OverflowError):
        raise SettingError(f"{text!r} is not a size; write it as 256GiB, 1.5TB or in bytes") from None
    if size < 0:
        raise SettingError(f"a size is not negative; found {text!r}")
    return size


def format_size(size: float) -> str:
    """A size for people, in binary units."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(size) < 1024:
            return f"{size:.0f} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"
