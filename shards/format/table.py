"""Where the chunks of a shard's blocks are, and their checksums."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..complex import RAGGED_AXES, Axis
from ..errors import FormatError
from .layout import MAX_BLOCK_BYTES, Layout

try:  # the same checksum, several times faster
    from isal.isal_zlib import crc32 as _crc32
except ImportError:
    _crc32 = zlib.crc32

ARRAYS: Final = {
    "n_complexes": "<u4", "rows": "<i8", "offset": "<i8", "length": "<i8", "crc32": "<u4",
    "column_crc32": "<u4", "chunk_size": "<u4",
}  # fmt: skip


def crc32(data: bytes | memoryview) -> int:
    """CRC-32 as in zlib, PNG and gzip."""
    return int(_crc32(data))


@dataclass(frozen=True)
class BlockTable:
    """The blocks of one shard.

    Attributes
    ----------
    n_complexes : (n_blocks,) uint32
    rows : (n_blocks, 4) int64, rows on atom, bond, residue, text without padding
    offset : (n_blocks,) int64, first byte of the block in the HDF5 file; zeros in a Zarr shard
    length : (n_blocks,) int64, bytes of all its chunks
    crc32 : (n_blocks,) uint32, of all its chunks one after the other
    column_crc32 : (n_blocks, n_columns) uint32, of the chunks of one column
    chunk_size : (n_chunks,) uint32, bytes of each chunk; block, then column, then chunk
    """

    n_complexes: NDArray[np.uint32]
    rows: NDArray[np.int64]
    offset: NDArray[np.int64]
    length: NDArray[np.int64]
    crc32: NDArray[np.uint32]
    column_crc32: NDArray[np.uint32]
    chunk_size: NDArray[np.uint32]

    def __len__(self) -> int:
        return len(self.n_complexes)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Name -> array, with the dtypes on disk."""
        return {name: getattr(self, name).astype(dtype, copy=False) for name, dtype in ARRAYS.items()}

    def content(self) -> str:
        """sha256 of all but the offsets: the same in every container."""
        digest = hashlib.sha256()
        for name, array in self.arrays().items():
            if name != "offset":
                digest.update(array.tobytes())
        return digest.hexdigest()

    @cached_property
    def _chunk_ends(self) -> NDArray[np.int64]:
        return np.concatenate([[0], np.cumsum(self.chunk_size, dtype=np.int64)])


@dataclass(frozen=True)
class Places:
    """A table joined with its layout: sizes and offsets of every column of every block.

    Attributes
    ----------
    n_chunks : (n_blocks, n_columns) chunks of each column
    first_chunk : (n_blocks, n_columns) row in ``table.chunk_size``
    size : (n_blocks, n_columns) bytes of each column
    """

    layout: Layout
    table: BlockTable
    n_chunks: NDArray[np.int64]
    first_chunk: NDArray[np.int64]
    size: NDArray[np.int64]

    @cached_property
    def in_block(self) -> NDArray[np.int64]:
        """Offset of each column in its block, (n_blocks, n_columns)."""
        return np.cumsum(self.size, axis=1) - self.size

    @cached_property
    def in_column(self) -> NDArray[np.int64]:
        """Offset of each block in its column's Zarr shard, (n_blocks, n_columns)."""
        return np.cumsum(self.size, axis=0) - self.size

    def padded(self, block: int) -> dict[Axis, int]:
        """Rows, padding included, that the blocks before take on each ragged axis."""
        first = [next(i for i, c in enumerate(self.layout.columns) if c.field.axis == a) for a in RAGGED_AXES]
        rows = self.layout.chunk_rows
        return {
            a: int(self.n_chunks[:block, i].sum()) * rows[a] for a, i in zip(RAGGED_AXES, first, strict=True)
        }

    def chunk_sizes(self, block: int, column: int) -> NDArray[np.uint32]:
        """Bytes of each chunk of one column of one block."""
        first = self.first_chunk[block, column]
        return self.table.chunk_size[first : first + self.n_chunks[block, column]]


def place(layout: Layout, table: BlockTable, n_bytes: int | None = None) -> Places:
    """Join a table with its layout. Everything is checked; ``n_bytes`` is the size of the HDF5 file.

    Raises FormatError on any size or offset that cannot be true.
    """
    _check_shapes(layout, table)
    n_chunks = layout.n_chunks(table.rows)
    if int(n_chunks.sum()) != len(table.chunk_size):
        raise FormatError(
            f"the block table has {len(table.chunk_size)} chunks, its rows need {n_chunks.sum()}"
        )
    flat = n_chunks.reshape(-1)
    first = np.cumsum(flat) - flat
    ends = table._chunk_ends
    size = (ends[first + flat] - ends[first]).reshape(n_chunks.shape)
    if not np.array_equal(size.sum(axis=1), table.length):
        raise FormatError("the block table's lengths are not the sums of its chunk sizes")
    if table.chunk_size.min(initial=1) < 1:
        raise FormatError("the block table has an empty chunk")
    if n_bytes is not None and ((table.offset < 0).any() or (table.offset > n_bytes - table.length).any()):
        raise FormatError(
            f"the block table points beyond the end of its file of {n_bytes} bytes, which was cut short"
        )
    return Places(layout, table, n_chunks, first.reshape(n_chunks.shape), size)


def _check_shapes(layout: Layout, table: BlockTable) -> None:
    n = len(table)
    shapes = {
        "n_complexes": (n,), "rows": (n, len(RAGGED_AXES)), "offset": (n,), "length": (n,), "crc32": (n,),
        "column_crc32": (n, len(layout.columns)), "chunk_size": (len(table.chunk_size),),
    }  # fmt: skip
    for name, shape in shapes.items():
        if getattr(table, name).shape != shape:
            found = getattr(table, name).shape
            raise FormatError(f"the block table's {name} has shape {found}, expected {shape}")
    full = table.n_complexes[:-1] == layout.block_size
    if not full.all() or (n and not 1 <= table.n_complexes[-1] <= layout.block_size):
        raise FormatError(f"a block other than the last has not {layout.block_size} complexes")
    check_rows(layout, table.rows)


def check_rows(layout: Layout, rows: NDArray[Any]) -> None:
    """FormatError if blocks of so many rows, (n_blocks, 4), cannot be or would take too much memory."""
    if rows.min(initial=0) < 0 or rows.max(initial=0) > MAX_BLOCK_BYTES:
        raise FormatError("the block table has an impossible number of rows")
    largest = layout.unpacked_bytes(rows).max(initial=0)
    if largest > MAX_BLOCK_BYTES:
        raise FormatError(f"a block unpacks to {largest:.0f} bytes; {MAX_BLOCK_BYTES} are allowed")


def table_from_arrays(arrays: Mapping[str, NDArray[Any]]) -> BlockTable:
    """A table from arrays as read from a file; FormatError if one is missing or not of integers."""
    found = {}
    for name, dtype in ARRAYS.items():
        if name not in arrays:
            raise FormatError(f"the block table lacks {name}")
        if arrays[name].dtype.kind not in "iu":
            raise FormatError(f"the block table's {name} is {arrays[name].dtype}, expected {dtype}")
        found[name] = np.ascontiguousarray(arrays[name].astype(dtype))
    return BlockTable(**found)
