"""A data set on disk, opened: the manifest, the index, and each shard's block table when it is needed."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from ..errors import FormatError, UsageError
from ..format.container import Container, container_named, container_of
from ..format.hdf5 import open_file, read_arrays
from ..format.manifest import INDEX, Manifest, ShardInfo, read_manifest
from ..format.table import ARRAYS, Places, place, table_from_arrays


@dataclass
class Source:
    """Where shards lie and how they are laid out; picklable, tables are read once a process.

    Attributes
    ----------
    root : folder of the shards
    manifest : of the data set; for a single shard file one is made from its header
    """

    root: Path
    manifest: Manifest
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

    def places(self, shard: int) -> Places:
        """Block table of a shard, checked against the manifest."""
        found = self._places.get(shard)
        if found is None:
            with self._lock:
                found = self._places.get(shard) or self._read_places(shard)
                self._places[shard] = found
        return found

    def index(self, *names: str) -> dict[str, NDArray[Any]]:
        """Columns of the index, by name."""
        path = self.root / INDEX
        n = self.manifest.n_complexes
        with open_file(path) as file:
            arrays = read_arrays(file, "index", list(names), max(self.manifest.index_bytes, 512 * n))
        for name, array in arrays.items():
            if len(array) != n:
                raise FormatError(f"{path}: {name} has {len(array)} rows, the manifest says {n}")
        return arrays

    def _read_places(self, shard: int) -> Places:
        info = self.manifest.shards[shard]
        path = self.path(shard)
        if self.has_index:
            layout = self.manifest.layouts[info.layout]
            with open_file(self.root / INDEX) as file:
                arrays = read_arrays(file, f"shards/{shard:05d}", list(ARRAYS), self.manifest.index_bytes)
            places = place(layout, table_from_arrays(arrays), info.n_bytes)
        else:
            _, places = self.container.open(path)
        if places.table.n_complexes.sum() != info.n_complexes:
            raise FormatError(f"{path}: its blocks hold {places.table.n_complexes.sum()} complexes, the manifest says "
                              f"{info.n_complexes}")  # fmt: skip
        return places

    def __getstate__(self) -> dict[str, Any]:
        return {"root": self.root, "manifest": self.manifest}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]


def open_source(path: Path) -> Source:
    """A data set folder, or one shard or part file alone."""
    if not path.exists():
        raise UsageError(f"{path} does not exist; give the folder of a data set or one shard file")
    if path.is_dir() and not (path / "zarr.json").exists():
        source = Source(path, read_manifest(path))
        _check_sizes(source)
        return source
    container = container_of(path)
    header, places = container.open(path)
    if header.n_complexes != places.table.n_complexes.sum():
        raise FormatError(f"{path}: its header says {header.n_complexes} complexes, its blocks hold "
                          f"{places.table.n_complexes.sum()}")  # fmt: skip
    info = ShardInfo(path.name, "all", header.n_complexes, path.stat().st_size, "", places.table.content())
    shards = (info,) if header.n_complexes else ()
    return Source(path.parent, Manifest(container.name, shards, (header.layout,)), {0: places})


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
            raise FormatError(f"{source.path(i)} has {size} bytes, the manifest says {info.n_bytes}; copy it again")
