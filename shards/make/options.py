"""Numbers that make no sense as an option are refused before any work is done."""

from __future__ import annotations

from typing import Final

from ..errors import UsageError
from ..format.layout import MAX_BLOCK_SIZE

MAX_THREADS: Final = 1024
MAX_BYTES: Final = 1 << 50


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
