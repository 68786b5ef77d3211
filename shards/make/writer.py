"""Parts and data sets: written whole or not at all, and byte-identical for the same input."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from ..complex import Complex, Field
from ..errors import FormatError, NothingKeptError, UsageError
from ..format.block import Block, concatenate
from ..format.codec import Codecs, codecs_named
from ..format.container import container_named
from ..format.hdf5 import sync
from ..format.history import check_history
from ..format.layout import BLOCK_SIZE, Layout
from ..format.manifest import Manifest, ShardInfo, index_name
from ..format.records import stack
from ..format.table import BlockTable
from ..read.source import Source, open_source
from .check import check
from .convert import index_arrays
from .files import file_sha256, size_of
from .finish import write_frame
from .generations import STAGE, commit
from .index import IndexColumns
from .owner import beside, release
from .spool import ShardSpool
from .staging import begin, claimed, finish

SHARD_BYTES: Final = 256 << 20


@dataclass(frozen=True, slots=True)
class PartInfo:
    """A part that was written."""

    path: Path
    n_complexes: int
    n_bytes: int
    sha256: str


def write_part(
    path: Path, complexes: Iterable[Complex], *, block_size: int = BLOCK_SIZE, codecs: Codecs | None = None
) -> PartInfo:
    """Write complexes as one HDF5 shard file, atomically; an older file of that name is replaced, and
    what killed runs left of it removed.

    Every complex is checked (FormatError). The same complexes give the same bytes. Memory: one block
    of complexes and up to 16 MiB of packed ones.
    """
    path = Path(path)
    with (
        beside(path) as temporary,
        closing(ShardSpool(path.parent, block_size, codecs or Codecs())) as spool,
    ):
        seen: set[str] = set()
        for group in _groups(complexes, block_size):
            for c in group:
                check(c)
                if c.id in seen:
                    raise FormatError(f"complex {c.id!r} comes twice; ids are unique in a part")
                seen.add(c.id)
            spool.append(stack(group))
        spool.write(temporary, container_named("hdf5"))
        info = PartInfo(path, len(seen), size_of(temporary), file_sha256(temporary))
        os.replace(temporary, path)
        sync(path.parent)
        return info


class DatasetWriter:
    """Writes a data set folder; nothing is at ``out`` until :meth:`finish` has everything on disk.

    Parameters
    ----------
    out : folder to make. An existing data set there is replaced when the new one is complete; a folder
        with anything else in it is refused
    container : hdf5 or zarr
    block_size : complexes a block
    shard_bytes : a shard is closed when its blocks have so many bytes
    codec : blosc, blosc-lz4, blosc-zstd, gzip or none
    fields : key -> field of all blocks to come, if known; spares packing a shard twice when a later
        block has a wider or an additional column
    making : plain data for the manifest: seed, split method and so on; see format/history.py
    extend : ``out`` is a data set that gets a further generation; container and block size are its own,
        splits that it has get more shards, and none of its files is written again
    threads : that pack columns; the bytes do not depend on it
    """

    def __init__(
        self,
        out: Path,
        *,
        container: str = "hdf5",
        block_size: int = BLOCK_SIZE,
        shard_bytes: int = SHARD_BYTES,
        codec: str = "blosc",
        fields: Mapping[str, Field] | None = None,
        making: Mapping[str, Any] | None = None,
        extend: bool = False,
        threads: int | None = None,
    ) -> None:
        self.out, self.container = Path(out), container_named(container)
        self.block_size, self.shard_bytes, self.codecs = block_size, shard_bytes, codecs_named(codec)
        self.fields, self.making = fields, dict(making or {})
        check_history(self.making, "the call")
        self.threads = threads or os.cpu_count() or 1
        self._old = open_source(self.out) if extend else None
        self.folder = self.out / f"{STAGE}{os.getpid()}" if extend else begin(self.out)
        self._shards: list[ShardInfo] = []
        self._tables: list[BlockTable] = []
        self._layouts: list[Layout] = []
        self._index = IndexColumns()
        self._typical: Layout | None = None  # cut for a full block, so it fits the next shard too
        self._written: set[str] = set()
        if self._old is not None:
            self._extend(self._old)

    def __enter__(self) -> DatasetWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        release(self.folder)

    def write(self, split: str, blocks: Iterable[Block]) -> None:
        """Write raw blocks of any size as shards ``<split>-00000`` and on; once for each split."""
        if not split.isidentifier() or split in self._written:
            raise UsageError(f"split {split!r} was written before, or is not letters, digits and underscores")
        self._written.add(split)
        spool = ShardSpool(self.folder, self.block_size, self.codecs, self.fields, self.threads)
        spool.layout = self._typical
        number = sum(s.split == split for s in self._shards)
        try:
            for block in recut(blocks, self.block_size):
                spool.append(block)
                self._index.append(block)
                if spool.n_bytes >= self.shard_bytes:
                    self._close(spool, split, number)
                    number += 1
            if spool.n_complexes:
                self._close(spool, split, number)
        finally:
            spool.close()

    def finish(self) -> Manifest:
        """Write index and manifest, and move the folder into place."""
        if not self._shards:
            raise NothingKeptError("a data set needs at least one complex; none was given")
        self._index.check_unique()
        manifest = Manifest(
            self.container.name, tuple(self._shards), tuple(self._layouts),
            making=self.making, statistics=self._index.statistics(self._shards),
        )  # fmt: skip
        columns = self._index.arrays(self._shards, self.block_size)
        if self._old is not None:
            before = self._old.manifest
            number = before.generation + 1
            manifest = replace(
                manifest, generation=number, parent=before.fingerprint, index_name=index_name(number)
            )
            manifest = write_frame(self.folder, manifest, columns, self._tables)
            commit(self.folder, self.out, before.generation)
        else:
            manifest = write_frame(self.folder, manifest, columns, self._tables)
            finish(self.folder, self.out)
        return manifest

    def _extend(self, old: Source) -> None:
        """Take over the shards of a data set as they are."""
        manifest = old.manifest
        if not old.has_index:
            raise UsageError(f"{old.root} has no index; only a data set folder can be extended")
        claimed(self.folder)
        self.container, self.block_size = old.container, manifest.block_size
        self.making = {**manifest.making, **self.making}
        self._shards, self._layouts = list(manifest.shards), list(manifest.layouts)
        self._tables = [old.places(i).table for i in range(len(manifest.shards))]
        self._index.load(index_arrays(old), manifest.statistics)

    def _close(self, spool: ShardSpool, split: str, number: int) -> None:
        path = self.folder / f"{split}-{number:05d}{self.container.suffix}"
        header, places = spool.write(path, self.container)
        if header.n_complexes >= self.block_size:
            self._typical = header.layout
        if header.layout not in self._layouts:
            self._layouts.append(header.layout)
        info = ShardInfo(
            path.name, split, header.n_complexes, size_of(path), file_sha256(path), places.table.content(),
            self._layouts.index(header.layout),
        )  # fmt: skip
        self._shards.append(info)
        self._tables.append(places.table)


def recut(blocks: Iterable[Block], size: int) -> Iterator[Block]:
    """The same complexes in blocks of exactly ``size``; the last may be smaller."""
    held: list[Block] = []
    n = 0
    for block in blocks:
        held.append(block)
        n += block.n_complexes
        if n < size:
            continue
        joined = concatenate(held)
        whole = n - n % size
        for start in range(0, whole, size):
            yield joined.slice(start, start + size)
        held, n = ([joined.slice(whole, n)] if n > whole else []), n - whole
    if n:
        yield concatenate(held)


def _groups(complexes: Iterable[Complex], size: int) -> Iterator[list[Complex]]:
    group: list[Complex] = []
    for c in complexes:
        group.append(c)
        if len(group) == size:
            yield group
            group = []
    if group:
        yield group
