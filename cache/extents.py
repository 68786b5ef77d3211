"""Where the blocks of a data set lie: read from its manifest and index as shards/FORMAT.md describes them.

Knowing whole blocks, a cache keeps one entry a block whatever columns a reader asks for, checks what it
fetches against the block's own checksum, and can be filled before anyone reads.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .errors import SettingError

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Extents:
    """Blocks of the files of a data set.

    Attributes
    ----------
    dataset : fingerprint of the content
    root : folder of the files
    files : name -> (n_blocks, 3) int64, ascending: offset, length, crc32 of each block
    splits : name -> split
    """

    dataset: str
    root: Path
    files: dict[str, Ints]
    splits: dict[str, str]

    @property
    def n_bytes(self) -> int:
        """Of all blocks."""
        return sum(int(blocks[:, 1].sum()) for blocks in self.files.values())

    def around(self, name: str, offset: int, length: int) -> tuple[int, int, int] | None:
        """Offset, length and crc32 of the block that a range lies in; None if it lies in none."""
        blocks = self.files.get(name)
        if blocks is None or not len(blocks):
            return None
        row = int(np.searchsorted(blocks[:, 0], offset, side="right")) - 1
        start, size, crc = blocks[max(row, 0)].tolist()
        return (start, size, crc) if start <= offset and offset + length <= start + size else None

    def ranges(self, split: str | None = None) -> Iterator[tuple[str, int, int]]:
        """Path, offset and length of each block, in the order of the files."""
        for name, blocks in self.files.items():
            if split is None or self.splits[name] == split:
                for offset, length in blocks[:, :2].tolist():
                    yield str(self.root / name), offset, length


def read_extents(folder: str | Path) -> Extents:
    """The blocks of a data set folder, or of one HDF5 part or shard file.

    A data set in Zarr has its columns in files of their own: no extents, so entries are ranges as asked.

    Raises
    ------
    SettingError : there is no data set, or it is not readable
    """
    folder = Path(folder)
    try:
        if folder.is_file():
            return _of_file(folder)
        manifest = json.loads((folder / "manifest.json").read_bytes())
        shards = [(_plain(s["name"]), str(s["split"]), -(-int(s["n_complexes"]) // manifest["block_size"]))
                  for s in manifest["shards"]]  # fmt: skip
        if manifest["container"] != "hdf5":
            return Extents(str(manifest["fingerprint"]), folder, {}, {})
        table = _table(folder / "index.h5")
        ends = np.cumsum([n for _, _, n in shards], dtype=np.int64)
        if len(table) != (ends[-1] if len(ends) else 0):
            raise ValueError(f"index.h5 has {len(table)} blocks, the manifest says {ends[-1:].tolist()}")
        parts = np.split(table, ends[:-1])
        files = {name: part for (name, _, _), part in zip(shards, parts, strict=True)}
        return Extents(str(manifest["fingerprint"]), folder, files, {name: s for name, s, _ in shards})
    except FileNotFoundError as error:
        raise SettingError(f"{folder} is not a data set: {error.filename} is missing") from error
    except (ValueError, KeyError, TypeError, OSError) as error:
        raise SettingError(
            f"{folder} is not a readable data set ({type(error).__name__}: {error})"
        ) from error


def _of_file(path: Path) -> Extents:
    """A single file has no fingerprint: it is told by its place, size and time."""
    info = path.stat()
    dataset = f"{path.resolve()} {info.st_size} {info.st_mtime_ns}"
    return Extents(dataset, path.parent, {path.name: _table(path)}, {path.name: "all"})


def _table(path: Path) -> Ints:
    import h5py

    with h5py.File(path, "r", locking=False) as file:
        columns: list[Any] = [file[f"blocks/{name}"][:] for name in ("offset", "length", "crc32")]
    table = np.stack([np.asarray(c).astype(np.int64) for c in columns], axis=1)
    if (table[:, :2] < 0).any():
        raise ValueError("a block has a negative place")
    return table


def _plain(name: Any) -> str:
    if not isinstance(name, str) or os.path.basename(name) != name or name in ("", ".", ".."):
        raise ValueError(f"the file name {name!r} leaves the folder")
    return name
