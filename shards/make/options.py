"""Numbers that make no sense as an option are refused before any work is done."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from ..errors import UsageError
from ..format.layout import MAX_BLOCK_SIZE

MAX_THREADS: Final = 1024
MAX_BYTES: Final = 1 << 50
UNITS: Final = {
    "": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "KI": 1 << 10, "MI": 1 << 20, "GI": 1 << 30,
    "TI": 1 << 40,
}  # fmt: skip


def check_sizes(
    block_size: int | None = None,
    shard_bytes: int | None = None,
    memory: int | None = None,
    threads: int | None = None,
) -> None:
    """UsageError, naming the option, for a number out of its range; None is always right."""
    within("--block-size", block_size, MAX_BLOCK_SIZE)
    within("--shard-bytes", shard_bytes, MAX_BYTES)
    within("--memory", memory, MAX_BYTES)
    within("--threads", threads, MAX_THREADS)


def within(option: str, value: int | None, most: int) -> None:
    """UsageError unless the value is 1 to ``most``, or None."""
    if value is not None and not 1 <= value <= most:
        raise UsageError(f"{option} {value}: expected 1 to {most}")


def byte_size(_: Any, tokens: Sequence[Any]) -> int:
    """Bytes of an option such as ``256MiB``, ``1.5 GB`` or ``4096``; ValueError for another text."""
    text = str(tokens[0].value).strip()
    found = re.fullmatch(r"([0-9]*\.?[0-9]+)\s*([KMGT]?I?)B?", text.upper())
    if not found or found[2] not in UNITS:
        raise ValueError(f"{text!r} is no size; expected one such as 256MiB, 1.5GB or 4096.")
    return int(float(found[1]) * UNITS[found[2]])
