"""The frame around a data set's shards: its index and its manifest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..format.container import FORMAT, VERSION
from ..format.hdf5 import create, write_arrays
from ..format.manifest import Manifest, write_manifest
from ..format.table import ARRAYS, BlockTable
from .files import file_sha256, size_of


def write_index(path: Path, columns: Mapping[str, NDArray[Any]], tables: Sequence[BlockTable]) -> None:
    """Write index.h5: a row a complex, and the block tables of all shards."""
    with create(path) as file:
        file.attrs.create("format", np.bytes_(FORMAT))
        file.attrs.create("version", np.bytes_(".".join(map(str, VERSION))))
        write_arrays(file, "index", columns, compress=True)
        write_arrays(file, "blocks", joined_tables(tables), compress=True)


def write_frame(
    folder: Path, manifest: Manifest, columns: Mapping[str, NDArray[Any]], tables: Sequence[BlockTable]
) -> Manifest:
    """Write index and manifest into a folder of shards; the manifest returned knows the index."""
    index = folder / manifest.index_name
    write_index(index, columns, tables)
    manifest = replace(manifest, index_sha256=file_sha256(index), index_bytes=size_of(index))
    write_manifest(folder, manifest)
    return manifest


def joined_tables(tables: Sequence[BlockTable]) -> dict[str, NDArray[Any]]:
    """The block tables of all shards, one after the other, flat; and how many chunks each shard has."""
    joined: dict[str, NDArray[Any]] = {
        name: np.concatenate([t.arrays()[name].reshape(-1) for t in tables]) if tables else np.zeros(0, dtype)
        for name, dtype in ARRAYS.items()
    }
    return {**joined, "shard_chunks": np.array([len(t.chunk_size) for t in tables], np.int64)}
