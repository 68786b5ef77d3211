"""The decoded blocks that were used last, for complexes one by one."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..format.block import Block
from .blocks import BlockReader
from .memory import Memory
from .pool import ALIGNMENT, round_up


class BlockCache:
    """The blocks that were used last, decoded, up to a number of bytes.

    A block is unpacked into the memory of one that has left: fresh pages would take longer than unpacking.
    """

    def __init__(self, reader: BlockReader, max_bytes: int) -> None:
        self.reader, self.max_bytes = reader, max_bytes
        self._clear()

    def _clear(self) -> None:
        self._lock, self._memory, self._n_bytes = threading.Lock(), Memory(), 0
        self._blocks: OrderedDict[int, tuple[Block, int]] = OrderedDict()

    def get(self, number: int) -> Block:
        """A block with all its fields, raw: smaller, and a complex takes little of it."""
        with self._lock:
            if number in self._blocks:
                self._blocks.move_to_end(number)
                return self._blocks[number][0]
        arrays, n_bytes = self._room(number)
        block = self.reader.read(number, raw=True, out=arrays)
        with self._lock:
            if number not in self._blocks:
                self._blocks[number] = block, n_bytes
                self._n_bytes += n_bytes
            while self._n_bytes > self.max_bytes and len(self._blocks) > 1:
                self._n_bytes -= self._blocks.popitem(last=False)[1][1]
        return block

    def _room(self, number: int) -> tuple[dict[str, NDArray[Any]], int]:
        """Arrays for the chunks of a block's columns, side by side, and their bytes."""
        places, row = self.reader.places(number)
        layout, chunks = places.layout, places.n_chunks[row].tolist()
        columns = [(key, layout.columns[i], chunks[i]) for key in layout.fields for i in [layout.index[key]]]
        sizes = [round_up(n * column.chunk_bytes, ALIGNMENT) for _, column, n in columns]
        buffer = self._memory.empty((sum(sizes),), np.uint8)
        arrays, begin = {}, 0
        for (key, column, n), size in zip(columns, sizes, strict=True):
            flat = buffer[begin : begin + n * column.chunk_bytes].view(column.field.dtype)
            arrays[key] = flat.reshape(-1, *column.field.shape)
            begin += size
        return arrays, begin

    def __getstate__(self) -> dict[str, Any]:
        return {"reader": self.reader, "max_bytes": self.max_bytes}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]
