"""Blocks to chunk bytes and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..complex import RAGGED_AXES, Axis, Field
from ..errors import ChecksumError, FormatError
from .block import Block, blank
from .codec import from_fixed
from .layout import COUNTS, STARTS, Column, Layout
from .table import Places, crc32

EMPTY: Final[Mapping[str, NDArray[Any]]] = {}
COUNT_KEYS: Final = tuple(f.key for f in COUNTS)
START_AXES: Final[Mapping[str, Axis]] = {f.key: a for f, a in zip(STARTS, RAGGED_AXES, strict=True)}
COUNT_AXES: Final[Mapping[str, Axis]] = {f.key: a for f, a in zip(COUNTS, RAGGED_AXES, strict=True)}


def pack_block(
    block: Block, layout: Layout, padded: Mapping[Axis, int], pool: Executor | None = None
) -> list[list[bytes]]:
    """Chunks of each column of the layout.

    ``padded`` says how many rows, padding included, the blocks before this one take on each ragged
    axis: where this block starts in the flat arrays of the file. ``pool`` packs columns side by side.
    """
    arrays = []
    for column in layout.columns:
        key, field = column.field.key, column.field
        if key in COUNT_AXES:
            array: NDArray[Any] = block.counts[COUNT_AXES[key]]
        elif key in START_AXES:
            array = block.starts[START_AXES[key]] + padded[START_AXES[key]]
        elif key in block.columns:
            array = block.columns[key]
        else:
            rows = block.n_complexes if field.axis == "complex" else int(block.counts[field.axis].sum())
            array = blank(field, rows)
        arrays.append(array)
    return list((pool.map if pool else map)(_pack_column, arrays, layout.columns))


def _pack_column(array: NDArray[Any], column: Column) -> list[bytes]:
    n = max(1, -(-len(array) // column.chunk_rows))
    chunks = []
    for i in range(n):
        part = array[i * column.chunk_rows : (i + 1) * column.chunk_rows]
        if len(part) == column.chunk_rows:
            chunk = np.ascontiguousarray(part, column.field.dtype)
        else:
            chunk = np.zeros(column.chunk_shape, column.field.dtype)
            chunk[: len(part)] = part
        chunks.append(column.codec.encode(chunk))
    return chunks


def unpack_block(
    pieces: Mapping[int, memoryview],
    places: Places,
    block: int,
    keys: Sequence[str],
    raw: bool,
    where: str,
    out: Mapping[str, NDArray[Any]] = EMPTY,
) -> Block:
    """A block from the packed bytes of its columns (by place in the layout), checked.

    ``keys`` are fields of the layout; the counts must be among the pieces. ``out`` has arrays to unpack
    columns into, where their dtype fits and they have room for whole chunks.
    """
    layout = places.layout
    n = int(places.table.n_complexes[block])
    counts: dict[Axis, NDArray[np.int64]] = {}
    for a, (axis, key) in enumerate(zip(RAGGED_AXES, COUNT_KEYS, strict=True)):
        column = _unpack_column(pieces, places, block, layout.index[key], n, where)
        counts[axis] = column.astype(np.int64)
        if counts[axis].sum() != places.table.rows[block, a]:
            raise FormatError(f"{where}: {key} sums to {counts[axis].sum()} rows, the table says "
                              f"{places.table.rows[block, a]}")  # fmt: skip
    fields: dict[str, Field] = {}
    columns: dict[str, NDArray[Any]] = {}
    for key in keys:
        i = layout.index[key]
        field = fields[key] = layout.columns[i].field
        rows = n if field.axis == "complex" else int(places.table.rows[block, RAGGED_AXES.index(field.axis)])
        column = _unpack_column(pieces, places, block, i, rows, where, out.get(key))
        columns[key] = from_fixed(column, field.per_unit) if field.per_unit and not raw else column
    return Block.of(fields, columns, counts)


def check_pieces(pieces: Mapping[int, memoryview], places: Places, block: int, where: str) -> None:
    """ChecksumError if a column's bytes are not those that were written."""
    expected, sizes = places.table.column_crc32[block].tolist(), places.size[block].tolist()
    for i, piece in pieces.items():
        if len(piece) != sizes[i]:
            raise FormatError(
                f"{where}: read {len(piece)} bytes of {places.layout.columns[i].field.path}, expected "
                f"{sizes[i]}: the file was cut short"
            )
        found = crc32(piece)
        if found != expected[i]:
            raise ChecksumError(
                f"{where}: {places.layout.columns[i].field.path} has checksum {found:08x}, expected "
                f"{expected[i]:08x}; run holoshard verify, and repair or copy the shard again"
            )


def _unpack_column(
    pieces: Mapping[int, memoryview],
    places: Places,
    block: int,
    i: int,
    rows: int,
    where: str,
    out: NDArray[Any] | None = None,
) -> NDArray[Any]:
    column, data = places.layout.columns[i], pieces[i]
    n = int(places.n_chunks[block, i])
    dtype, shape = np.dtype(column.field.dtype), (n * column.chunk_rows, *column.field.shape)
    if out is None or out.dtype != dtype or len(out) < shape[0] or out.shape[1:] != shape[1:]:
        out = np.empty(shape, dtype)
    try:
        if n == 1:
            column.codec.decode(data, out[: shape[0]])
            return out[:rows]
        offset = 0
        for j, size in enumerate(places.chunk_sizes(block, i).tolist()):
            chunk = out[j * column.chunk_rows : (j + 1) * column.chunk_rows]
            column.codec.decode(data[offset : offset + size], chunk)
            offset += size
    except FormatError as error:
        raise FormatError(f"{where}: {column.field.path}: {error}") from error
    return out[:rows]
