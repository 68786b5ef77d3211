"""The blocks of a window and the next side by side in memory: :mod:`.gather` makes batches of them.

A :class:`Pool` is cut into regions, each with room for the largest block: a block is unpacked into a free one
and stays there until no window needs it, so nothing is copied to lay blocks end to end, nor from one window
to the next. A complex is a *slot*, counted through all regions.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..complex import Axis, Field
from ..format.block import Block, dtype_name
from .memory import Memory

Array = NDArray[Any]
Rows = NDArray[np.int64]

ALIGNMENT: Final = 64  # rows: regions begin at cache lines, whatever the size of a row


@dataclass(frozen=True, slots=True)
class Room:
    """What a block takes once it is unpacked.

    Attributes
    ----------
    rows : axis -> rows, with the padding that its chunks unpack to
    fields : key -> field; ``dtype`` is that of the unpacked array
    """

    rows: Mapping[Axis, int]
    fields: Mapping[str, Field]

    @classmethod
    def of(cls, block: Block) -> Room:
        """Room for a block that is there."""
        rows: dict[Axis, int] = {axis: int(c.sum()) for axis, c in block.counts.items()}
        fields = {k: replace(block.fields[k], dtype=dtype_name(c.dtype)) for k, c in block.columns.items()}
        return cls({**rows, "complex": block.n_complexes}, fields)

    @classmethod
    def widest(cls, rooms: Sequence[Room]) -> Room:
        """Room for a block of any of these."""
        rows: dict[Axis, int] = {a: max(room.rows[a] for room in rooms) for a in rooms[0].rows}
        fields = {}
        for key, field in rooms[0].fields.items():
            dtype = np.result_type(*{room.fields[key].dtype for room in rooms})
            fields[key] = replace(field, dtype=dtype_name(dtype))
        return cls(rows, fields)


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """Columns of one axis whose rows are of one size, one after the other.

    Attributes
    ----------
    rows : opaque rows of all of them
    row : dtype of an opaque row
    first : (keys,), where in ``rows`` each column begins
    """

    axis: Axis
    keys: tuple[str, ...]
    rows: Array
    row: np.dtype[np.void]
    first: Rows

    def of(self, keys: Collection[str]) -> Columns | None:
        """Those of some keys; None if there are none, or if they have one row a complex."""
        chosen = [i for i, key in enumerate(self.keys) if key in keys]
        if self.axis == "complex" or not chosen:
            return None
        return replace(self, keys=tuple(self.keys[i] for i in chosen), first=self.first[chosen])


class Pool:
    """Columns of several blocks. It is filled block by block, from any thread, with :meth:`land`.

    Parameters
    ----------
    room : of the largest block
    n : regions, each for one block
    keys : columns to hold
    multiple : widths of padded batches are rounded up to it
    memory : to take the columns from

    Attributes
    ----------
    size : slots of a region
    free : regions that hold nothing; the owner takes and gives them back
    """

    def __init__(
        self, room: Room, n: int, keys: Sequence[str], multiple: int = 1, memory: Memory | None = None
    ) -> None:
        self.size = room.rows["complex"]
        self.free = list(range(n))[::-1]
        self.fields = {key: room.fields[key] for key in keys}
        self.axes: dict[str, Axis] = {key: field.axis for key, field in self.fields.items()}
        self._rows = {axis: round_up(room.rows[axis], ALIGNMENT) for axis in self.axes.values()}
        self._rows["complex"] = self.size
        self.counts: dict[Axis, Rows] = {a: np.zeros(n * self.size, np.int64) for a in self._rows}
        self.starts: dict[Axis, Rows] = {a: np.zeros(n * self.size, np.int64) for a in self._rows}
        self._held = [0] * n  # complexes in each region
        self.memory = memory or Memory()
        alike: dict[tuple[Axis, int], list[str]] = {}
        for key, field in self.fields.items():
            alike.setdefault((field.axis, field_bytes(field)), []).append(key)
        # The last run may reach as far again as the longest complex.
        rows = {a: n * r + round_up(r + multiple, ALIGNMENT) for a, r in self._rows.items()}
        sizes = [round_up(row * len(names) * rows[a], ALIGNMENT) for (a, row), names in alike.items()]
        self.buffer = self.memory.empty((sum(sizes),), np.uint8)
        self.parts: list[Columns] = []
        self.columns: dict[str, Array] = {}
        begin = 0
        for ((axis, row), names), size in zip(alike.items(), sizes, strict=True):
            opaque: np.dtype[np.void] = np.dtype((np.void, row))
            data = self.buffer[begin : begin + row * len(names) * rows[axis]].view(opaque)
            self.parts.append(Columns(axis, tuple(names), data, opaque, np.arange(len(names)) * rows[axis]))
            for key, column in zip(names, data.reshape(len(names), -1), strict=True):
                self.columns[key] = column.view(self.fields[key].dtype).reshape(-1, *self.fields[key].shape)
            begin += size

    def regions(self, i: int) -> dict[str, Array]:
        """Arrays of region i, for a reader to unpack into."""
        return {
            key: self.columns[key][i * self._rows[a] : (i + 1) * self._rows[a]]
            for key, a in self.axes.items()
        }

    def land(self, i: int, block: Block) -> None:
        """Take a block into region i: what was not unpacked into it is copied there."""
        for key, region in self.regions(i).items():
            column = block.columns[key]
            if not np.may_share_memory(column, region):
                region[: len(column)] = column
        slots = slice(i * self.size, i * self.size + block.n_complexes)
        for axis, rows in self._rows.items():
            if axis != "complex":
                self.starts[axis][slots] = i * rows + block.starts[axis]
                self.counts[axis][slots] = block.counts[axis]
        self._held[i] = block.n_complexes

    def block(self, i: int) -> Block:
        """The block in region i, as views."""
        n = self._held[i]
        slots = slice(i * self.size, i * self.size + n)
        counts: dict[Axis, Rows] = {a: c[slots] for a, c in self.counts.items() if a != "complex"}
        rows: dict[Axis, int] = {"complex": n, **{a: int(c.sum()) for a, c in counts.items()}}
        columns = {key: region[: rows[self.axes[key]]] for key, region in self.regions(i).items()}
        starts: dict[Axis, Rows] = {axis: np.cumsum(c) - c for axis, c in counts.items()}
        return Block(self.fields, columns, counts, starts, n)


def round_up(n: int, multiple: int) -> int:
    """Least multiple that is not below n."""
    return -(-n // multiple) * multiple


def field_bytes(field: Field) -> int:
    """Bytes of one row as stored."""
    return int(np.dtype(field.dtype).itemsize * math.prod(field.shape))
