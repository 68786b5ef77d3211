"""One shard in the making: blocks are packed at once and kept in a temporary file until it is written.

HDF5 can only be written with every block in one contiguous range if the number of chunks is known, and a
complex that comes late may need wider columns: then the blocks so far are packed again.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import IO, Final

import numpy as np

from ..complex import FIELDS, RAGGED_AXES, Field
from ..errors import FormatError
from ..format.block import Block
from ..format.chunks import COUNT_KEYS, pack_block, unpack_block
from ..format.codec import Codecs
from ..format.container import Container, ShardHeader
from ..format.layout import MAX_BLOCK_BYTES, Layout, chunk_rows_for, make_layout
from ..format.table import BlockTable, Places, crc32, place

IN_MEMORY: Final = 16 << 20  # bytes; a small part never touches the disk twice


@dataclass(frozen=True, slots=True)
class _Packed:
    """One packed block."""

    n_complexes: int
    rows: tuple[int, ...]
    crc32: int
    column_crc32: tuple[int, ...]
    chunk_sizes: tuple[int, ...]

    @property
    def length(self) -> int:
        return sum(self.chunk_sizes)


class ShardSpool:
    """Takes blocks of exactly ``block_size`` complexes (the last may be smaller); writes one shard."""

    def __init__(
        self,
        folder: Path,
        block_size: int,
        codecs: Codecs,
        fields: Mapping[str, Field] | None = None,
        threads: int = 1,
        in_memory: int = IN_MEMORY,
    ) -> None:
        self.in_memory = in_memory
        self.folder, self.block_size, self.codecs, self.fields = folder, block_size, codecs, fields or {}
        self.layout: Layout | None = None
        self._pool = ThreadPoolExecutor(threads, "holoshard-pack") if threads > 1 else None
        self._begin()

    def _begin(self) -> None:
        self._file: IO[bytes] = (  # closed by close()
            tempfile.SpooledTemporaryFile(self.in_memory, dir=str(self.folder))  # noqa: SIM115
            if self.in_memory
            else tempfile.TemporaryFile(dir=str(self.folder))  # noqa: SIM115
        )
        self._blocks: list[_Packed] = []
        self._padded = dict.fromkeys(RAGGED_AXES, 0)
        self.n_bytes = self.n_complexes = 0

    def append(self, block: Block) -> None:
        """Pack one raw block."""
        if self.layout is None:
            rows = {a: int(block.counts[a].sum()) for a in RAGGED_AXES}
            fields = {**block.fields, **self.fields}
            self.layout = make_layout(fields.values(), self.block_size, chunk_rows_for(rows), self.codecs)
        wider = self.layout.merged(block.fields, self.codecs)
        if wider is not self.layout:
            self._repack(wider)
        rows_of = tuple(int(block.counts[a].sum()) for a in RAGGED_AXES)
        size = float(self.layout.unpacked_bytes(np.array(rows_of)))
        if size > MAX_BLOCK_BYTES:
            raise FormatError(
                f"a block would unpack to {size:.0f} bytes; {MAX_BLOCK_BYTES} are allowed; "
                "use a smaller block_size"
            )
        packed = pack_block(block, self.layout, self._padded, self._pool)
        columns = [b"".join(chunks) for chunks in packed]
        data = b"".join(columns)
        sizes = tuple(len(chunk) for chunks in packed for chunk in chunks)
        self._blocks.append(
            _Packed(block.n_complexes, rows_of, crc32(data), tuple(map(crc32, columns)), sizes)
        )
        self._file.write(data)
        self.n_bytes += len(data)
        self.n_complexes += block.n_complexes
        chunk_rows = self.layout.chunk_rows
        for axis, n in zip(RAGGED_AXES, rows_of, strict=True):
            self._padded[axis] += max(1, -(-n // chunk_rows[axis])) * chunk_rows[axis]

    def table(self) -> BlockTable:
        """Block table so far, without offsets."""
        b = self._blocks
        n_columns = len(self.layout.columns) if self.layout else 0
        return BlockTable(
            n_complexes=np.array([x.n_complexes for x in b], np.uint32),
            rows=np.array([x.rows for x in b], np.int64).reshape(len(b), len(RAGGED_AXES)),
            offset=np.zeros(len(b), np.int64),
            length=np.array([x.length for x in b], np.int64),
            crc32=np.array([x.crc32 for x in b], np.uint32),
            column_crc32=np.array([x.column_crc32 for x in b], np.uint32).reshape(len(b), n_columns),
            chunk_size=np.array([s for x in b for s in x.chunk_sizes], np.uint32),
        )

    def blocks(self) -> Iterator[memoryview]:
        """Bytes of the packed blocks, in order."""
        self._file.seek(0)
        for block in self._blocks:
            yield memoryview(self._file.read(block.length))

    def write(self, path: Path, container: Container) -> tuple[ShardHeader, Places]:
        """Write the shard; the spool is then empty."""
        layout = self.layout = self.layout or self._empty_layout()
        header = ShardHeader(self.n_complexes, layout)
        places = place(layout, self.table())
        table = container.write(path, header, places, self.blocks())
        self._file.close()
        self._begin()
        return header, place(layout, table)

    def _empty_layout(self) -> Layout:
        rows = chunk_rows_for(dict.fromkeys(RAGGED_AXES, 0))
        return make_layout(FIELDS, self.block_size, rows, self.codecs)

    def unpacked(self) -> Iterator[Block]:
        """The blocks so far as they came, raw; the spool may begin anew meanwhile."""
        if self.layout is None:
            return
        places, file = place(self.layout, self.table()), self._file
        lengths = [b.length for b in self._blocks]
        keys, index = list(self.layout.fields), self.layout.index
        wanted = [index[k] for k in (*COUNT_KEYS, *keys)]
        file.seek(0)
        for number, length in enumerate(lengths):
            data = memoryview(file.read(length))
            at, size = places.in_block[number], places.size[number]
            pieces = {i: data[int(at[i]) : int(at[i] + size[i])] for i in wanted}
            yield unpack_block(pieces, places, number, keys, True, "temporary file")

    def _repack(self, wider: Layout) -> None:
        """Start again with a wider layout and the blocks so far."""
        old, blocks = self._file, self.unpacked()
        first = next(blocks, None)  # it has then looked at the layout and the table so far
        self.layout = wider
        self._begin()
        for block in () if first is None else chain([first], blocks):
            self.append(block)
        old.close()

    def close(self) -> None:
        """Drop what was not written."""
        self._file.close()
        if self._pool:
            self._pool.shutdown()
