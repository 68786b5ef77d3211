"""The decoded blocks that were used last, for complexes one by one."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Any

from ..format.block import Block
from .blocks import BlockReader


class BlockCache:
    """The blocks that were used last, decoded, up to a number of bytes."""

    def __init__(self, reader: BlockReader, max_bytes: int) -> None:
        self.reader, self.max_bytes = reader, max_bytes
        self._clear()

    def _clear(self) -> None:
        self._lock, self._n_bytes = threading.Lock(), 0
        self._blocks: OrderedDict[int, Block] = OrderedDict()

    def get(self, number: int) -> Block:
        """A block with all its fields, raw: smaller, and a complex takes little of it."""
        with self._lock:
            if number in self._blocks:
                self._blocks.move_to_end(number)
                return self._blocks[number]
        block = self.reader.read(number, raw=True)
        with self._lock:
            if number not in self._blocks:
                self._blocks[number] = block
                self._n_bytes += _size(block)
            while self._n_bytes > self.max_bytes and len(self._blocks) > 1:
                self._n_bytes -= _size(self._blocks.popitem(last=False)[1])
        return block

    def __getstate__(self) -> dict[str, Any]:
        return {"reader": self.reader, "max_bytes": self.max_bytes}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]


def _size(block: Block) -> int:
    return sum(a.nbytes for a in block.columns.values())
