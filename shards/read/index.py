"""The file index.h5 of a data set: a row a complex, and the block tables of all shards."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import h5py
import numpy as np
from numpy.typing import NDArray

from ..complex import RAGGED_AXES
from ..errors import FormatError
from ..format.container import check_version
from ..format.hdf5 import open_file, read_array, read_attribute
from ..format.manifest import Manifest
from ..format.table import ARRAYS, BlockTable, table_from_arrays

WIDTHS: Final = {"rows": len(RAGGED_AXES)}  # numbers a block; others have one


@dataclass(frozen=True, slots=True)
class IndexFile:
    """Opened for each call and closed again, without locks: nothing is kept across threads or forks."""

    path: Path
    manifest: Manifest

    @contextmanager
    def _open(self) -> Iterator[h5py.File]:
        with open_file(self.path) as file:
            if "version" in file.attrs:
                version = read_attribute(file, "version", self.path).decode(errors="replace")
                check_version(version, str(self.path))
            yield file

    def column(self, name: str) -> NDArray[Any]:
        """One value a complex, (n_complexes, ...)."""
        with self._open() as file:
            array = read_array(file, f"index/{name}", self.manifest.index_bytes)
        if len(array) != self.manifest.n_complexes:
            n = self.manifest.n_complexes
            raise FormatError(f"{self.path}: {name} has {len(array)} rows, the manifest says {n}")
        return array

    def tables(self) -> Tables:
        """Block tables of all shards."""
        shards, size = self.manifest.shards, self.manifest.block_size
        n_blocks = np.array([-(-s.n_complexes // size) for s in shards], np.int64)
        n_columns = np.array([len(self.manifest.layouts[s.layout].columns) for s in shards], np.int64)
        n_bytes = self.manifest.index_bytes
        with self._open() as file:
            n_chunks = read_array(file, "blocks/shard_chunks", n_bytes)
            if n_chunks.shape != n_blocks.shape or n_chunks.dtype.kind != "i" or (n_chunks < 0).any():
                raise FormatError(f"{self.path}: blocks/shard_chunks has not one number a shard")
            arrays = {name: read_array(file, f"blocks/{name}", n_bytes) for name in ARRAYS}
        counts = {"column_crc32": n_blocks * n_columns, "chunk_size": n_chunks}
        ends = {
            name: np.cumsum([0, *counts.get(name, n_blocks * WIDTHS.get(name, 1)).tolist()])
            for name in ARRAYS
        }
        for name, array in arrays.items():
            if array.shape != (ends[name][-1],):
                last = int(np.searchsorted(ends[name], array.size, side="right")) - 1
                raise FormatError(
                    f"{self.path}: blocks/{name} ends before shard {shards[last].name}"
                    if array.ndim == 1 and last < len(shards)
                    else f"{self.path}: blocks/{name} has not the size that the manifest's shards need"
                )
        return Tables(arrays, ends)


@dataclass(frozen=True, slots=True)
class Tables:
    """The block tables of all shards, one after the other, flat.

    Attributes
    ----------
    arrays : name -> numbers
    ends : name -> where each shard's numbers begin, and the last ones end
    """

    arrays: Mapping[str, NDArray[Any]]
    ends: Mapping[str, NDArray[np.int64]]

    def __getitem__(self, shard: int) -> BlockTable:
        """That of one shard."""
        parts = {n: a[self.ends[n][shard] : self.ends[n][shard + 1]] for n, a in self.arrays.items()}
        n_blocks = len(parts["n_complexes"])
        for name in ("rows", "column_crc32"):
            parts[name] = parts[name].reshape(n_blocks, -1)
        return table_from_arrays(parts)

    @property
    def rows(self) -> NDArray[Any]:
        """Rows of the ragged axes, (all blocks, 4)."""
        return self.arrays["rows"].reshape(-1, len(RAGGED_AXES))
