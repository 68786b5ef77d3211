"""The HDF5 container: one plain file, each block one contiguous byte range of it.

Chunks are written with ``write_direct_chunk`` in the order of the blocks. HDF5 puts its own structures
into one reserved region at the start (``meta_block_size``), so that nothing comes between two chunks;
this is checked after writing, and the true offsets go into the block table. Needs HDF5 1.10 to read.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import h5py
import numpy as np
from numpy.typing import NDArray

from ..errors import FormatError, WriteError
from .blosc_filter import BLOSC_FILTER, blosc_named
from .codec import Codec
from .container import ShardHeader, Span, parse_header
from .layout import Column
from .regular import regular
from .table import ARRAYS, BlockTable, Places, place, table_from_arrays

MAX_PACKING: Final = 1000  # deflate packs zeros a thousandfold
BLOSC_COMPRESSORS: Final = {"lz4": 1, "lz4hc": 2, "zlib": 4, "zstd": 5}


@dataclass(frozen=True, slots=True)
class HDF5Container:
    """See the module's docstring."""

    name: str = "hdf5"
    suffix: str = ".h5"

    def write(
        self, path: Path, header: ShardHeader, places: Places, blocks: Iterable[memoryview]
    ) -> BlockTable:
        """Write a shard; see Container.write."""
        chunks = len(places.table.chunk_size)
        # 24 bytes a chunk in the index of a dataset with filters, and object headers; a file of
        # which this is not true would fail the check of offsets below.
        reserved = 16384 + 2048 * len(header.layout.columns) + 28 * chunks + 8 * places.n_chunks.size
        with blosc_named(), create(path, reserved) as file:
            file.attrs.create("format", np.bytes_("holoshard"))
            file.attrs.create("header", np.bytes_(header.to_json()))
            totals = places.n_chunks.sum(axis=0).tolist()
            datasets = [_create(file, c, n) for c, n in zip(header.layout.columns, totals, strict=True)]
            _write_chunks(datasets, places, blocks)
            table = replace(places.table, offset=_block_offsets(datasets, places, path))
            write_arrays(file, "blocks", table.arrays())
        return table

    def open(self, path: Path) -> tuple[ShardHeader, Places]:
        """Header and block table of a shard file."""
        n_bytes = path.stat().st_size
        with open_file(path) as file:
            header = parse_header(read_attribute(file, "header", path), str(path))
            table = table_from_arrays({name: read_array(file, f"blocks/{name}", n_bytes) for name in ARRAYS})
        return header, place(header.layout, table, n_bytes)

    def spans(self, path: str, places: Places, block: int, columns: tuple[int, ...]) -> list[Span]:
        """One range, from the first to the last of the columns."""
        first, last = columns[0], columns[-1]
        start = int(places.in_block[block, first])
        stop = int(places.in_block[block, last] + places.size[block, last])
        offset = int(places.table.offset[block]) + start
        return [Span(path, offset, stop - start, tuple(range(first, last + 1)))]


HDF5: Final = HDF5Container()


@contextmanager
def create(path: Path, reserved: int = 2048) -> Iterator[h5py.File]:
    """A new HDF5 file with ``reserved`` bytes for its structures, no times, no locks; synced on exit."""
    access = h5py.h5p.create(h5py.h5p.FILE_ACCESS)
    access.set_libver_bounds(h5py.h5f.LIBVER_V110, h5py.h5f.LIBVER_V110)
    access.set_meta_block_size(reserved)
    access.set_file_locking(False, True)
    creation = h5py.h5p.create(h5py.h5p.FILE_CREATE)
    creation.set_obj_track_times(False)
    try:
        with h5py.File(h5py.h5f.create(os.fsencode(path), h5py.h5f.ACC_EXCL, creation, access)) as file:
            yield file
    except (OSError, RuntimeError) as error:  # HDF5 knows of a full disk only by a line of its own
        found = re.search(r"errno = (\d+)", str(error))
        if found is None:
            raise
        raise WriteError(f"{path} cannot be written: {os.strerror(int(found[1]))}") from error
    sync(path)


def sync(path: Path) -> None:
    """Flush a file or folder to the disk."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


@contextmanager
def open_file(path: Path) -> Iterator[h5py.File]:
    """An HDF5 file to read, without locks; what HDF5 cannot read is a FormatError."""
    try:
        with h5py.File(regular(path), "r", locking=False) as file:
            yield file
    except (OSError, KeyError, RuntimeError, ValueError) as error:
        if isinstance(error, FileNotFoundError):
            raise
        raise FormatError(f"{path} is not readable as HDF5: {error}") from error


def read_attribute(file: h5py.File, name: str, path: Path) -> bytes:
    """A string attribute of the root."""
    value = file.attrs.get(name)
    if not isinstance(value, bytes | str):
        raise FormatError(f"{path} is not a holoshard shard: it has no attribute {name!r}")
    return value.encode() if isinstance(value, str) else value


def read_array(file: h5py.File, path: str, n_bytes: int, rows: slice = slice(None)) -> NDArray[Any]:
    """A small array, or some rows of it. It may not lie outside the file, nor claim what cannot be in it.

    ``n_bytes`` is the size of the file; an array of more than a thousand times that is refused.
    """
    if not isinstance(file.get(path, getlink=True) if path in file else None, h5py.HardLink):
        raise FormatError(f"{file.filename} lacks the array {path}")
    dataset = file[path]
    if not isinstance(dataset, h5py.Dataset) or dataset.external or dataset.is_virtual:
        raise FormatError(f"{file.filename}: {path} is not an array of this file")
    if dataset.nbytes > MAX_PACKING * n_bytes:
        raise FormatError(f"{file.filename}: {path} claims {dataset.nbytes} bytes in a file of {n_bytes}")
    found: NDArray[Any] = np.asarray(dataset[rows])
    return found


def write_arrays(
    file: h5py.File, group: str, arrays: Mapping[str, NDArray[Any]], compress: bool = False
) -> None:
    """Small arrays into a group, by name; ``compress`` also puts a checksum on each of their chunks."""
    # h5py's own setting of track_order would otherwise be written into the file.
    target = file[group] if group in file else file.create_group(group, track_order=False)
    for name, array in sorted(arrays.items()):
        options: dict[str, Any] = {}
        if compress and array.size:
            chunks = (min(len(array), 1 << 16), *array.shape[1:])
            options = {"chunks": chunks, "compression": "gzip", "compression_opts": 4, "shuffle": True,
                       "fletcher32": True}  # fmt: skip
        target.create_dataset(name, data=array, track_times=False, track_order=False, **options)


def _create(file: h5py.File, column: Column, n_chunks: int) -> h5py.Dataset:
    creation = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    creation.set_obj_track_times(False)
    if n_chunks:  # a part without complexes has no chunk that its dimensions could hold
        creation.set_chunk(column.chunk_shape)
        creation.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
        _set_filters(creation, column, column.codec)
    links = h5py.h5p.create(h5py.h5p.LINK_CREATE)
    links.set_create_intermediate_group(True)
    space = h5py.h5s.create_simple((n_chunks * column.chunk_rows, *column.field.shape))
    kind = h5py.h5t.py_create(np.dtype(column.field.dtype))
    name = column.field.path.encode()
    dataset = h5py.Dataset(h5py.h5d.create(file.id, name, kind, space, creation, links))
    if column.field.unit:
        dataset.attrs.create("unit", np.bytes_(column.field.unit))
    if column.field.per_unit:
        dataset.attrs.create("per_unit", np.int32(column.field.per_unit))
    return dataset


def _set_filters(creation: Any, column: Column, codec: Codec) -> None:
    width = np.dtype(column.field.dtype).itemsize
    if codec.kind == "blosc":
        # Optional: files can then be written where HDF5 itself has no Blosc filter.
        values = (2, 2, width, column.chunk_bytes, codec.level, 1, BLOSC_COMPRESSORS[codec.cname])
        creation.set_filter(BLOSC_FILTER, h5py.h5z.FLAG_OPTIONAL, values)
    elif codec.kind == "gzip":
        if width > 1:
            creation.set_shuffle()
        creation.set_deflate(codec.level)


def _write_chunks(datasets: list[h5py.Dataset], places: Places, blocks: Iterable[memoryview]) -> None:
    row = [0] * len(datasets)
    for block, data in enumerate(blocks):
        offset = 0
        for i, dataset in enumerate(datasets):
            tail = (0,) * len(places.layout.columns[i].field.shape)
            for size in places.chunk_sizes(block, i).tolist():
                dataset.id.write_direct_chunk((row[i], *tail), data[offset : offset + size])
                offset += size
                row[i] += places.layout.columns[i].chunk_rows


def _block_offsets(datasets: list[h5py.Dataset], places: Places, path: Path) -> NDArray[np.int64]:
    """Offsets of the blocks, after checking that every chunk lies where the table will say."""
    found: list[NDArray[np.int64]] = []
    for dataset in datasets if len(places.table) else []:
        places_of: list[int] = []
        dataset.id.chunk_iter(lambda info, to=places_of: to.append(info.byte_offset))
        found.append(np.array(places_of, np.int64))
    ends = np.cumsum(places.n_chunks, axis=0)
    offsets = found[0][ends[:, 0] - places.n_chunks[:, 0]] if len(ends) else np.zeros(0, np.int64)
    for i, at in enumerate(found):
        sizes = [places.chunk_sizes(b, i).astype(np.int64) for b in range(len(ends))]
        expected = [offsets[b] + places.in_block[b, i] + np.cumsum(s) - s for b, s in enumerate(sizes)]
        if not np.array_equal(at, np.concatenate([*expected, np.zeros(0, np.int64)])):
            raise FormatError(f"{path}: this HDF5 library scattered the chunks of {datasets[i].name}; "
                              "please report its version")  # fmt: skip
    return offsets
