"""From one container to the other without packing anything again, and back to the same bytes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from ..console import Progress, progress
from ..errors import ChecksumError, UsageError
from ..format.container import Container, ShardHeader, container_named
from ..format.hdf5 import open_file, read_array
from ..format.manifest import Manifest
from ..format.table import BlockTable, crc32
from ..read.blocks import BlockReader
from ..read.source import Source, open_source
from .files import file_sha256, size_of
from .finish import write_frame
from .owner import beside, said_of
from .staging import clear, staged


def convert(source: Path, out: Path, container: str | None = None) -> Manifest:
    """Copy a data set, or one shard, into another container; chunk bytes are copied as they are.

    ``container`` is that of ``out``; if not given, the other one than the source's. Converting back gives
    files that are identical byte for byte. Every block's checksum is verified on the way. Nothing is
    replaced: UsageError if ``out`` is there already, and is not an empty folder.
    """
    reader = BlockReader(open_source(Path(source)))
    here = reader.source.manifest.container
    to = container_named(container or ("zarr" if here == "hdf5" else "hdf5"))
    with progress("convert", reader.n_blocks, "blocks") as bar:
        if not reader.source.has_index:
            return _convert_file(reader, Path(out), to, bar)
        return _convert_folder(reader, Path(out), to, bar)


def _convert_folder(reader: BlockReader, out: Path, to: Container, bar: Progress) -> Manifest:
    old = reader.source.manifest
    if out.exists() and out.samefile(reader.source.root):
        raise UsageError(f"{out} is the data set itself; choose another folder")
    clear(out)  # may bring back what a killed run had moved aside
    if out.is_file() or (out.is_dir() and any(out.iterdir())):
        raise UsageError(f"{out} exists; choose another folder")
    shards, tables = [], []
    with staged(out) as folder:
        for i, info in enumerate(old.shards):
            path = folder / (Path(info.name).stem + to.suffix)
            tables.append(write_shard(reader, i, path, to, bar))
            shards.append(replace(info, name=path.name, n_bytes=size_of(path), sha256=file_sha256(path)))
        manifest = replace(old, container=to.name, shards=tuple(shards))
        return write_frame(folder, manifest, index_arrays(reader.source), tables)


def _convert_file(reader: BlockReader, out: Path, to: Container, bar: Progress) -> Manifest:
    if os.path.lexists(out):
        raise UsageError(f"{out} exists; choose another name, or remove it")
    if out.suffix != to.suffix:
        raise UsageError(f"{out} is to be a {to.name} shard: its name must end in {to.suffix}; or name "
                         "the other --container")  # fmt: skip
    with beside(out) as temporary, said_of(out):
        write_shard(reader, 0, temporary, to, bar)
        os.rename(temporary, out)
    return open_source(out).manifest


def write_shard(
    reader: BlockReader, shard: int, path: Path, to: Container, bar: Progress | None = None
) -> BlockTable:
    """Write one shard of a data set again; returns its block table with the offsets in the new file."""
    info = reader.source.manifest.shards[shard]
    places = reader.source.places(shard)
    header = ShardHeader(info.n_complexes, places.layout)
    return to.write(path, header, places, _checked_bytes(reader, shard, bar))


def _checked_bytes(reader: BlockReader, shard: int, bar: Progress | None) -> Iterator[memoryview]:
    for block in (reader.shard == shard).nonzero()[0].tolist():
        places, row = reader.places(block)
        data = reader.read_bytes(block)
        if crc32(data) != places.table.crc32[row]:
            raise ChecksumError(f"{reader.name(block)}: its checksum is wrong; run holoshard verify")
        yield memoryview(data)
        if bar:
            bar.advance()


def index_arrays(source: Source) -> dict[str, NDArray[Any]]:
    """All columns of a data set's index."""
    with open_file(source.root / source.manifest.index_name) as file:
        names = sorted(file["index"])
        return {name: read_array(file, f"index/{name}", source.manifest.index_bytes) for name in names}
