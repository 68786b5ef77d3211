"""How long a window may be, so that a stream stays within a number of bytes."""

from __future__ import annotations

from typing import Final

from ..errors import UsageError
from .ahead import AHEAD

# Memory is taken in steps a little larger than asked for, so that it fits the next window as well.
SLACK: Final = 1.15
SCRATCH: Final = 2.0  # a block that is being read: packed, and columns that are not kept


def window_within(
    memory: int, *, block_bytes: int, block_size: int, batch_bytes: int, batch_size: int, threads: int
) -> int:
    """Complexes of the longest window whose stream holds at most ``memory`` bytes.

    Two windows are held at once. A window of W complexes touches at most 2 W / block_size + 2 blocks, for
    each of its at most W / (2 block_size) lanes is cut at both ends. On top come the blocks that threads are
    reading, and the batches that wait: one is being gathered in each thread.

    Parameters
    ----------
    block_bytes : of the largest block, unpacked
    batch_bytes : of the largest batch

    Raises
    ------
    UsageError
        Not even a window of one batch fits.
    """
    ahead = AHEAD if threads else 1
    besides = (threads + 1) * SCRATCH * block_bytes + SLACK * (ahead + threads + 2) * batch_bytes
    a_block = 2 * SLACK * block_bytes
    blocks = (memory - besides) / a_block
    window = int((blocks - 2) * block_size / 2) // batch_size * batch_size
    if window < batch_size:
        least = besides + a_block * (2 + 2 * batch_size / block_size)
        raise UsageError(
            f"memory={memory} bytes hold no window of batches of {batch_size}; at least {int(least) + 1} are "
            f"needed here, less with fewer threads (now {threads}) or fields"
        )
    return window
