"""The Zarr v3 container: the same columns, one Zarr shard file a column, holding the same chunk bytes.

Written here byte by byte from the Zarr v3 specification (core 3.0, ``sharding_indexed`` 1.0), so that chunks
need no encoding again: a shard file is the chunks one after the other and then the index, for each chunk
its offset and size as uint64, and the index's crc32c.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np
from numpy.typing import NDArray

from ..errors import FormatError, MissingExtraError
from .codec import Codec
from .container import ShardHeader, Span, parse_header
from .layout import Column
from .regular import regular
from .table import ARRAYS, BlockTable, Places, place, table_from_arrays

MAX_METADATA_BYTES: Final = 1 << 24
BUFFER: Final = 1 << 16  # bytes a column file collects before it writes


@dataclass(frozen=True, slots=True)
class ZarrContainer:
    """See the module's docstring."""

    name: str = "zarr"
    suffix: str = ".zarr"

    def write(
        self, path: Path, header: ShardHeader, places: Places, blocks: Iterable[memoryview]
    ) -> BlockTable:
        """Write a shard; see Container.write."""
        path.mkdir()
        _write_json(
            path / "zarr.json", _group({"format": "holoshard", "header": json.loads(header.to_json())})
        )
        for group in sorted({c.field.axis for c in header.layout.columns}):
            (path / group).mkdir()
            _write_json(path / group / "zarr.json", _group({}))
        n_chunks = places.n_chunks.sum(axis=0)
        for column, n in zip(header.layout.columns, n_chunks.tolist(), strict=True):
            data = path / data_file(column)
            data.parent.mkdir(parents=True)
            _write_json(path / column.field.path / "zarr.json", _array(column, n))
        _write_columns(path, places, blocks)
        table = {**places.table.arrays(), "offset": np.zeros(len(places.table), np.int64)}
        (path / "blocks").mkdir()
        _write_json(path / "blocks" / "zarr.json", _group({}))
        for name, array in table.items():
            _write_plain(path / "blocks" / name, array)
        return table_from_arrays(table)

    def open(self, path: Path) -> tuple[ShardHeader, Places]:
        """Header and block table of a shard folder."""
        attributes = _read_json(path / "zarr.json").get("attributes", {})
        header = parse_header(json.dumps(attributes.get("header")), str(path))
        table = table_from_arrays({name: _read_plain(path / "blocks" / name) for name in ARRAYS})
        places = place(header.layout, table)
        for i, column in enumerate(header.layout.columns):
            check_column_file(path / data_file(column), places, i)
        return header, places

    def spans(self, path: str, places: Places, block: int, columns: tuple[int, ...]) -> list[Span]:
        """One range a column."""
        offset, size = places.in_column[block].tolist(), places.size[block].tolist()
        return [
            Span(os.path.join(path, data_file(places.layout.columns[i])), offset[i], size[i], (i,))
            for i in columns
        ]


ZARR: Final = ZarrContainer()


def data_file(column: Column) -> str:
    """The file of a column's chunks, relative to the shard."""
    return "/".join([column.field.path, "c", "0", *("0" for _ in column.field.shape)])


def check_column_file(path: Path, places: Places, i: int) -> None:
    """FormatError if a column's file has not the size that its chunks and index need."""
    expected = int(places.size[:, i].sum()) + 16 * int(places.n_chunks[:, i].sum()) + 4
    try:
        found = path.stat().st_size
    except FileNotFoundError as error:
        raise FormatError(f"{path} is missing from the shard; copy it again") from error
    if found != expected:
        raise FormatError(f"{path} has {found} bytes, its block table needs {expected}; copy it again")


def _crc32c(data: bytes) -> int:
    try:
        import google_crc32c
    except ModuleNotFoundError as error:
        raise MissingExtraError("google_crc32c", "zarr") from error
    return int(google_crc32c.value(data))


def _write_columns(path: Path, places: Places, blocks: Iterable[memoryview]) -> None:
    columns = places.layout.columns
    with ExitStack() as stack:
        files: list[BinaryIO] = [
            stack.enter_context((path / data_file(c)).open("wb", buffering=BUFFER)) for c in columns
        ]
        for block, data in enumerate(blocks):
            at = places.in_block[block].tolist()
            for i, file in enumerate(files):
                file.write(data[at[i] : at[i] + int(places.size[block, i])])
        for i, file in enumerate(files):
            sizes = np.concatenate(list(_sizes(places, i)))
            index = np.stack([np.cumsum(sizes) - sizes, sizes], axis=1).astype("<u8").tobytes()
            file.write(index + _crc32c(index).to_bytes(4, "little"))
            file.flush()
            os.fsync(file.fileno())


def _sizes(places: Places, i: int) -> Iterator[NDArray[np.int64]]:
    for block in range(len(places.table)):
        yield places.chunk_sizes(block, i).astype(np.int64)
    yield np.zeros(0, np.int64)


def _array(column: Column, n_chunks: int) -> dict[str, Any]:
    field = column.field
    rows = n_chunks * column.chunk_rows
    sharding = {
        "chunk_shape": list(column.chunk_shape),
        "codecs": _codecs(column, column.codec),
        "index_codecs": [_bytes(8), {"name": "crc32c"}],
        "index_location": "end",
    }
    attributes = {k: v for k, v in (("unit", field.unit), ("per_unit", field.per_unit)) if v}
    return _node(
        [rows, *field.shape], [max(rows, 1), *field.shape], np.dtype(field.dtype),
        [{"name": "sharding_indexed", "configuration": sharding}], attributes,
    )  # fmt: skip


def _codecs(column: Column, codec: Codec) -> list[dict[str, Any]]:
    width = np.dtype(column.field.dtype).itemsize
    found = [_bytes(width)]
    if codec.kind == "blosc":
        found.append({"name": "blosc", "configuration": {
            "typesize": width, "cname": codec.cname, "clevel": codec.level, "shuffle": "shuffle",
            "blocksize": 0,
        }})  # fmt: skip
    elif codec.kind == "gzip":
        if width > 1:
            found.append({"name": "numcodecs.shuffle", "configuration": {"elementsize": width}})
        found.append({"name": "numcodecs.zlib", "configuration": {"level": codec.level}})
    return found


def _bytes(width: int) -> dict[str, Any]:
    return {"name": "bytes", "configuration": {"endian": "little"}} if width > 1 else {"name": "bytes"}


def _group(attributes: dict[str, Any]) -> dict[str, Any]:
    return {"zarr_format": 3, "node_type": "group", "attributes": attributes}


def _node(
    shape: list[int],
    chunk: list[int],
    dtype: np.dtype[Any],
    codecs: list[dict[str, Any]],
    attributes: dict[str, Any],
) -> dict[str, Any]:
    return {
        "zarr_format": 3,
        "node_type": "array",
        "shape": shape,
        "data_type": dtype.name,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": chunk}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": 0,
        "codecs": codecs,
        "attributes": attributes,
    }


def _write_plain(path: Path, array: NDArray[Any]) -> None:
    """A small array as one chunk without compression."""
    shape = [max(1, n) for n in array.shape]
    file = path / "/".join(["c", *("0" for _ in shape)])
    file.parent.mkdir(parents=True)
    _write_json(
        path / "zarr.json", _node(list(array.shape), shape, array.dtype, [_bytes(array.itemsize)], {})
    )
    if array.size:
        file.write_bytes(array.tobytes())


def _read_plain(path: Path) -> NDArray[Any]:
    data = _read_json(path / "zarr.json")
    try:
        shape, dtype = (
            tuple(int(n) for n in data["shape"]),
            np.dtype(str(data["data_type"])).newbyteorder("<"),
        )
        size = int(np.prod(shape, dtype=object)) * dtype.itemsize
        file = path / "/".join(["c", *("0" for _ in shape)])
        raw = regular(file).read_bytes() if size else b""
        if len(raw) != size or dtype.kind not in "iu":
            raise FormatError(
                f"{file} has {len(raw)} bytes, its shape {shape} of {dtype} needs {size}; copy it again"
            )
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise FormatError(f"{path} is not a readable block table: {error}") from error
    return np.frombuffer(raw, dtype).reshape(shape)


def _write_json(path: Path, data: dict[str, Any]) -> None:
    path.write_text(json.dumps(data, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def _read_json(path: Path) -> dict[str, Any]:
    try:
        if regular(path).stat().st_size > MAX_METADATA_BYTES:
            raise FormatError(f"{path} is too large to be Zarr metadata")
        data = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise FormatError(f"{path} is not readable as Zarr metadata: {error}") from error
    if not isinstance(data, dict) or not isinstance(data.get("attributes", {}), dict):
        raise FormatError(f"{path} is not Zarr metadata")
    return data
