"""MDS, the format of MosaicML Streaming, version 2: read with ``streaming.StreamingDataset(local=DIR)``.

Written from its description in streaming/base/format/mds: a shard is uint32 n, n + 1 uint32 offsets from the
file's start, a JSON header, then the samples; a sample is the uint32 sizes of its columns, sorted by name,
then their bytes. An array of a fixed dtype is one byte ``ndim << 2 | log2(bytes of a dimension)``, the
dimensions, the values. MDS has no arrays without elements: such a column is ``bytes`` with the values alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..complex import Field
from .records import Record

SHARD_BYTES: Final = 1 << 26


def write_mds(folder: Path, records: Iterable[Record], fields: Mapping[str, Field]) -> None:
    """Write shards and ``index.json`` into an empty folder."""
    encodings = {key: _encoding(f) for key, f in fields.items()} | {"json": "json"}
    names = sorted(encodings)
    head = {
        "version": 2, "format": "mds", "compression": None, "hashes": [], "size_limit": SHARD_BYTES,
        "column_names": names, "column_encodings": [encodings[n] for n in names],
        "column_sizes": [None] * len(names),
    }  # fmt: skip
    shards: list[dict[str, Any]] = []
    held: list[bytes] = []
    size = 0
    for record in records:
        columns = {k: _encode(a, encodings[k]) for k, a in record.arrays.items()} | {"json": record.json()}
        parts = [columns[name] for name in names]
        held.append(np.array([len(p) for p in parts], "<u4").tobytes() + b"".join(parts))
        size += len(held[-1])
        if size >= SHARD_BYTES:
            shards.append(_shard(folder, len(shards), held, head))
            held, size = [], 0
    if held:
        shards.append(_shard(folder, len(shards), held, head))
    (folder / "index.json").write_text(json.dumps({"version": 2, "shards": shards}, sort_keys=True))


def _encoding(field: Field) -> str:
    """Ragged columns may be empty, which an ``ndarray`` must not be: atoms never are."""
    return f"ndarray:{field.value_dtype.name}" if field.axis in ("atom", "complex") else "bytes"


def _encode(array: NDArray[Any], encoding: str) -> bytes:
    array = np.atleast_1d(array)
    data = array.tobytes()
    if encoding == "bytes":
        return data
    width = next(w for w in range(4) if max(array.shape) < 1 << 8 * (1 << w))
    return bytes([array.ndim << 2 | width]) + np.array(array.shape, f"<u{1 << width}").tobytes() + data


def _shard(folder: Path, number: int, samples: list[bytes], head: Mapping[str, Any]) -> dict[str, Any]:
    name = f"shard.{number:05d}.mds"
    text = json.dumps(head, sort_keys=True).encode()
    begin = 4 + 4 * (len(samples) + 1) + len(text)
    offsets = np.cumsum([begin, *map(len, samples)]).astype("<u4")
    data = np.array([len(samples)], "<u4").tobytes() + offsets.tobytes() + text + b"".join(samples)
    (folder / name).write_bytes(data)
    raw = {"basename": name, "bytes": len(data), "hashes": {}}
    return {**head, "raw_data": raw, "zip_data": None, "samples": len(samples)}
