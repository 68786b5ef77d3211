"""Blocks of a data set as arrays: byte ranges fetched, checksums verified, columns unpacked.

No HDF5 library, no lock and no Python per complex: this is the hot path.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..complex import RAGGED_AXES, Axis
from ..errors import FormatError, UsageError
from ..format.block import Block, blank, ragged_rows
from ..format.chunks import COUNT_KEYS, EMPTY, check_pieces, unpack_block
from ..format.codec import from_fixed
from ..format.container import Span
from ..format.table import Places, check_rows
from .fetch import Fetch, Pread
from .pool import Room
from .source import Source, open_source

__all__ = ["Block", "BlockReader", "Fetch", "Pread", "ragged_rows"]

TABLE_DTYPE = np.dtype([
    ("shard", "<i8"), ("offset", "<i8"), ("length", "<i8"), ("crc32", "<u4"), ("n_complexes", "<i8"),
    ("first_complex", "<i8"),
])  # fmt: skip


class BlockReader:
    """Reads the blocks of a data set; safe in threads, after a fork, and picklable.

    Attributes
    ----------
    shard : (n_blocks,) int64, shard of each block
    block_complexes : (n_blocks,) int64, complexes of each block
    first_complex : (n_blocks,) int64, row in the data set of each block's first complex

    Parameters
    ----------
    source : an opened data set, or its path
    fetch : where bytes come from; the local file system if not given
    verify : check the checksum of every column that is read
    """

    def __init__(self, source: Source | Path | str, fetch: Fetch | None = None, verify: bool = True) -> None:
        self.source = source if isinstance(source, Source) else open_source(Path(source))
        self.fetch: Fetch = fetch or Pread()
        self.verify = verify
        self._container = self.source.container
        manifest = self.source.manifest
        size = manifest.block_size
        self._where = [self.source.where(i) for i in range(len(manifest.shards))]
        per_shard = np.array([-(-s.n_complexes // size) for s in manifest.shards], np.int64)
        self._first_block = np.concatenate([[0], np.cumsum(per_shard)]).astype(np.int64)
        self.shard: NDArray[np.int64] = np.repeat(np.arange(len(per_shard)), per_shard)
        self.block_complexes = np.full(len(self.shard), size, np.int64)
        for i, info in enumerate(manifest.shards):
            self.block_complexes[self._first_block[i + 1] - 1] = info.n_complexes - (per_shard[i] - 1) * size
        self.first_complex: NDArray[np.int64] = np.cumsum(self.block_complexes) - self.block_complexes

    @property
    def n_blocks(self) -> int:
        """Blocks of all shards."""
        return len(self.shard)

    @property
    def n_complexes(self) -> int:
        """Complexes of all blocks."""
        return self.source.manifest.n_complexes

    @property
    def block_size(self) -> int:
        """Complexes of a block; the last of a shard may have fewer."""
        return self.source.manifest.block_size

    @cached_property
    def table(self) -> NDArray[Any]:
        """One record a block: shard, offset, length, crc32, n_complexes, first_complex."""
        table = np.zeros(self.n_blocks, TABLE_DTYPE)
        table["shard"], table["n_complexes"] = self.shard, self.block_complexes
        table["first_complex"] = self.first_complex
        for i in range(len(self.source.manifest.shards)):
            rows, places = slice(self._first_block[i], self._first_block[i + 1]), self.source.places(i)
            for name in ("offset", "length", "crc32"):
                table[name][rows] = getattr(places.table, name)
        return table

    def locate(self, row: int) -> tuple[int, int]:
        """Block of a row of the data set, and its row there."""
        block = int(np.searchsorted(self.first_complex, row, side="right")) - 1
        return block, row - int(self.first_complex[block])

    def name(self, block: int) -> str:
        """Shard and place of a block, for messages."""
        shard = int(self.shard[block])
        return f"{self._where[shard]}, block {block - int(self._first_block[shard])}"

    def places(self, block: int) -> tuple[Places, int]:
        """Table of the block's shard, and the block's row in it."""
        if not 0 <= block < self.n_blocks:
            raise UsageError(f"block {block} of {self.n_blocks}")
        shard = int(self.shard[block])
        return self.source.places(shard), block - int(self._first_block[shard])

    def spans(self, block: int, keys: Sequence[str] | None = None) -> list[Span]:
        """The ranges that :meth:`read` fetches for these fields (None: all columns)."""
        places, row = self.places(block)
        return self._spans(block, places, row, self._columns(places, keys))

    def _spans(self, block: int, places: Places, row: int, columns: tuple[int, ...]) -> list[Span]:
        return self._container.spans(self._where[self.shard[block]], places, row, columns)

    def read(
        self,
        block: int,
        keys: Sequence[str] | None = None,
        raw: bool = False,
        fetch: Fetch | None = None,
        out: Mapping[str, NDArray[Any]] = EMPTY,
    ) -> Block:
        """One block with the fields ``keys`` (None: all); ``raw`` leaves fixed-point fields as integers.

        ``out`` has arrays to unpack into, as :meth:`room` says; a column that does not fit is made anew.

        Raises ChecksumError or FormatError if the bytes are not those that were written. A field that
        this shard lacks and others have is blank: zeros, or NaN.
        """
        fields = self.source.manifest.fields
        keys = list(fields) if keys is None else keys
        unknown = [k for k in keys if k not in fields]
        if unknown:
            raise UsageError(f"no field {unknown[0]!r} in this data set; it has: {', '.join(sorted(fields))}")
        places, row = self.places(block)
        where = self.name(block)
        pieces = self._pieces(block, places, row, keys, fetch or self.fetch, where)
        present = [k for k in keys if k in places.layout.index]
        found = unpack_block(pieces, places, row, present, raw, where, out)
        return found if len(present) == len(keys) else self._fill(found, keys, raw)

    def expect(self, block: int, keys: Sequence[str]) -> None:
        """Say that these fields of a block will be read soon, where that is of use."""
        if isinstance(self.fetch, Pread):
            for span in self.spans(block, keys):
                self.fetch.expect(span.path, span.offset, span.length)

    def room(self, keys: Sequence[str]) -> Room:
        """What :meth:`read` unpacks these fields of the largest block to, if they stay raw."""
        fields, manifest = self.source.manifest.fields, self.source.manifest
        all_rows, of = self.source.rows(), np.array([s.layout for s in manifest.shards], np.int64)[self.shard]
        rooms = []
        for number, layout in enumerate(manifest.layouts):
            mine = all_rows[of == number]
            if not len(mine):
                continue
            check_rows(layout, mine)
            rows: dict[Axis, int] = {"complex": layout.block_size}
            for axis, n in zip(RAGGED_AXES, mine.max(axis=0).tolist(), strict=True):
                chunk = layout.chunk_rows.get(axis, 1)
                rows[axis] = max(1, -(-n // chunk)) * chunk
            rooms.append(Room(rows, {key: layout.fields.get(key, fields[key]) for key in keys}))
        nothing: dict[Axis, int] = dict.fromkeys(("complex", *RAGGED_AXES), 0)
        return Room.widest(rooms or [Room(nothing, {key: fields[key] for key in keys})])

    def read_bytes(self, block: int, fetch: Fetch | None = None) -> bytes:
        """All chunk bytes of a block in the order of the layout; the same in every container."""
        fetch = fetch or self.fetch
        return b"".join(bytes(fetch(s.path, s.offset, s.length)) for s in self.spans(block))

    def _columns(self, places: Places, keys: Sequence[str] | None) -> tuple[int, ...]:
        index = places.layout.index
        if keys is None:
            return tuple(range(len(index)))
        return tuple(sorted({index[k] for k in (*COUNT_KEYS, *keys) if k in index}))

    def _pieces(
        self, block: int, places: Places, row: int, keys: Sequence[str], fetch: Fetch, where: str
    ) -> dict[int, memoryview]:
        wanted = self._columns(places, keys)
        pieces: dict[int, memoryview] = {}
        sizes = places.size[row].tolist()
        for span in self._spans(block, places, row, wanted):
            data = memoryview(fetch(span.path, span.offset, span.length))
            if len(data) != span.length:
                raise FormatError(
                    f"{where}: read {len(data)} bytes at {span.offset}, expected {span.length}: "
                    "the file was cut short; copy it again"
                )
            offset = 0
            for i in span.columns:
                if i in wanted:
                    pieces[i] = data[offset : offset + sizes[i]]
                offset += sizes[i]
        if self.verify:
            check_pieces(pieces, places, row, where)
        return pieces

    def _fill(self, block: Block, keys: Sequence[str], raw: bool) -> Block:
        fields, columns = dict(block.fields), dict(block.columns)
        for key in keys:
            if key not in columns:
                field = fields[key] = self.source.manifest.fields[key]
                rows = block.n_complexes if field.axis == "complex" else int(block.counts[field.axis].sum())
                array = blank(field, rows)
                columns[key] = from_fixed(array, field.per_unit) if field.per_unit and not raw else array
        return Block(fields, columns, block.counts, block.starts, block.n_complexes)
