"""A data set on disk, opened: the manifest, the index, and each shard's block table when it is needed."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..complex import RAGGED_AXES
from ..errors import FormatError, UsageError
from ..format.container import Container, container_named, container_of
from ..format.manifest import MANIFEST, Manifest, ShardInfo, is_manifest, read_manifest
from ..format.table import Places, place
from .index import IndexFile, Tables


@dataclass
class Source:
    """Where shards lie and how they are laid out; picklable, tables are read once a process.

    Attributes
    ----------
    root : folder of the shards, or of the index alone if the shards are at ``address``
    manifest : of the data set; for a single shard file one is made from its header
    """

    root: Path
    manifest: Manifest
    address: str = ""
    _places: dict[int, Places] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def container(self) -> Container:
        """How the shards are stored."""
        return container_named(self.manifest.container)

    @property
    def has_index(self) -> bool:
        """False for a single shard file."""
        return bool(self.manifest.index_sha256)

    def path(self, shard: int) -> Path:
        """Path of a shard."""
        return self.root / self.manifest.shards[shard].name

    def where(self, shard: int) -> str:
        """Path or address of a shard, as a Fetch takes it."""
        name = self.manifest.shards[shard].name
        return f"{self.address}/{name}" if self.address else str(self.root / name)

    def places(self, shard: int) -> Places:
        """Block table of a shard, checked against the manifest."""
        found = self._places.get(shard)
        if found is None:
            with self._lock:
                found = self._places.get(shard) or self._read_places(shard)
                self._places[shard] = found
        return found

    def index(self, name: str) -> NDArray[Any]:
        """A column of the index."""
        return self._index.column(name)

    @property
    def _index(self) -> IndexFile:
        return IndexFile(self.root / self.manifest.index_name, self.manifest)

    def rows(self) -> NDArray[Any]:
        """Rows of the ragged axes of all blocks, as the tables say, (n_blocks, 4)."""
        if self.has_index:
            return self._tables.rows
        tables = [self.places(i).table.rows for i in range(len(self.manifest.shards))]
        return np.concatenate([np.zeros((0, len(RAGGED_AXES)), np.int64), *tables])

    @cached_property
    def _tables(self) -> Tables:
        # All at once: they take a tenth of what an order of all complexes takes, and each alone would be as
        # many small reads.
        return self._index.tables()

    def _read_places(self, shard: int) -> Places:
        info = self.manifest.shards[shard]
        path = self.path(shard)
        if self.has_index:
            places = place(self.manifest.layouts[info.layout], self._tables[shard], self._limit(info))
        else:
            _, places = self.container.open(path)
        if places.table.n_complexes.sum() != info.n_complexes:
            raise FormatError(
                f"{path}: its blocks hold {places.table.n_complexes.sum()} complexes, "
                f"the manifest says {info.n_complexes}"
            )
        return places

    def _limit(self, info: ShardInfo) -> int | None:
        return info.n_bytes if self.manifest.container == "hdf5" else None

    def __getstate__(self) -> dict[str, Any]:
        return {"root": self.root, "manifest": self.manifest, "address": self.address}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]


def open_source(path: Path, check_sizes: bool = True) -> Source:
    """A data set folder, an earlier generation of it by its manifest's file, or one shard or part alone.

    ``check_sizes`` looks whether every shard is there with the size that the manifest says.
    """
    if not path.exists():
        raise UsageError(f"{path} does not exist; give the folder of a data set or one shard file")
    if is_manifest(path) or (path.is_dir() and not (path / "zarr.json").exists()):
        folder, name = (path, MANIFEST) if path.is_dir() else (path.parent, path.name)
        _no_parts(folder)
        source = Source(folder, read_manifest(folder, name))
        if check_sizes:
            _check_sizes(source)
        return source
    container = container_of(path)
    header, places = container.open(path)
    if header.n_complexes != places.table.n_complexes.sum():
        raise FormatError(f"{path}: its header says {header.n_complexes} complexes, its blocks hold "
                          f"{places.table.n_complexes.sum()}")  # fmt: skip
    info = ShardInfo(path.name, "all", header.n_complexes, path.stat().st_size, "", places.table.content())
    shards = (info,) if header.n_complexes else ()
    return Source(path.parent, Manifest(container.name, shards, (header.layout,)), _places={0: places})


def _no_parts(folder: Path) -> None:
    """UsageError that says what to do with the output of an ingest."""
    if (folder / MANIFEST).exists():
        return
    for inside in (folder / "parts", folder):
        parts = sorted(p.name for p in inside.glob("*.h5")) if inside.is_dir() else []
        if parts:
            raise UsageError(
                f"{inside} holds {len(parts)} parts and no data set: name one of them, such as "
                f"{inside / parts[0]}, or make a data set: holoshard shard {folder} --out DIR"
            )


def _check_sizes(source: Source) -> None:
    """A shard that is missing or was cut short is found when the data set is opened."""
    if source.manifest.container != "hdf5":
        return
    for i, info in enumerate(source.manifest.shards):
        try:
            size = source.path(i).stat().st_size
        except FileNotFoundError as error:
            raise FormatError(f"{source.path(i)} is missing from the data set; copy it again") from error
        if size != info.n_bytes:
            expected = f"the manifest says {info.n_bytes}; copy it again"
            raise FormatError(f"{source.path(i)} has {size} bytes, {expected}")
