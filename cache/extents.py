"""Where the blocks of a data set lie: read from its manifest and index as shards/FORMAT.md describes them.

Knowing whole blocks, a cache keeps one entry a block whatever columns a reader asks for, checks what it
fetches against the block's own checksum, and can be filled before anyone reads. A Zarr shard has each column
in a file of its own: there an entry is one column of a block, with a checksum, too.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from .errors import SettingError, SourceError
from .source import Source

AXES: Final = ("atom", "bond", "residue", "text")  # columns of blocks/rows
MAX_MANIFEST_BYTES: Final = 1 << 26
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Extents:
    """Blocks of the files of a data set.

    Attributes
    ----------
    dataset : fingerprint of the content
    root : folder or address of the files
    files : name -> (n_blocks, 3) int64, ascending: offset, length, crc32 of each entry
    splits : name -> split
    """

    dataset: str
    root: str
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
                    yield f"{self.root}/{name}", offset, length


def read_extents(folder: str | Path, source: Source | None = None) -> Extents:
    """The blocks of a data set folder or address, or of one HDF5 part or shard file.

    ``source`` reads an address.

    Raises
    ------
    SettingError : there is no data set, or it is not readable
    SourceError : a server does not give it
    """
    root = str(folder).rstrip("/")
    try:
        if source is None:
            if Path(folder).is_file():
                return _of_file(Path(folder))
            manifest = json.loads((Path(root) / "manifest.json").read_bytes())
            index: Any = Path(root) / _index_name(manifest)
        else:
            manifest = json.loads(bytes(source(f"{root}/manifest.json", 0, MAX_MANIFEST_BYTES)))
            index = io.BytesIO(
                bytes(source(f"{root}/{_index_name(manifest)}", 0, int(manifest["index"]["n_bytes"])))
            )
        shards = [(_plain(s["name"]), str(s["split"]), -(-int(s["n_complexes"]) // manifest["block_size"]))
                  for s in manifest["shards"]]  # fmt: skip
        table = _table(index)
        ends = np.cumsum([n for _, _, n in shards], dtype=np.int64)
        if len(table) != (ends[-1] if len(ends) else 0):
            raise ValueError(f"the index has {len(table)} blocks, the manifest says {ends[-1:].tolist()}")
        parts = np.split(table, ends[:-1])
        files = {name: part for (name, _, _), part in zip(shards, parts, strict=True)}
        splits = {name: s for name, s, _ in shards}
        if manifest["container"] == "zarr":
            files = _columns(manifest, index, [len(part) for part in parts])
            splits = {name: splits[name.partition("/")[0]] for name in files}
        return Extents(str(manifest["fingerprint"]), root, files, splits)
    except FileNotFoundError as error:
        raise SettingError(f"{folder} is not a data set: {error.filename} is missing") from error
    except SourceError:
        raise
    except (ValueError, KeyError, TypeError, OSError) as error:
        raise SettingError(
            f"{folder} is not a readable data set ({type(error).__name__}: {error})"
        ) from error


def _of_file(path: Path) -> Extents:
    """A single file has no fingerprint: it is told by its place, size and time."""
    info = path.stat()
    dataset = f"{path.resolve()} {info.st_size} {info.st_mtime_ns}"
    return Extents(dataset, str(path.parent), {path.name: _table(path)}, {path.name: "all"})


def _table(file: Any) -> Ints:
    table = np.stack(_arrays(file, "offset", "length", "crc32"), axis=1)
    if (table[:, :2] < 0).any():
        raise ValueError("a block has a negative place")
    return table


def _arrays(where: Any, *names: str) -> list[Ints]:
    """Arrays of the block table, in a file or in the bytes of one."""
    import h5py

    with h5py.File(where, "r", **({} if isinstance(where, io.BytesIO) else {"locking": False})) as file:
        return [np.asarray(file[f"blocks/{name}"][:]).astype(np.int64) for name in names]


def _columns(manifest: Any, index: Any, n_blocks: list[int]) -> dict[str, Ints]:
    """Entries of a data set in Zarr: a column's file holds its chunks of block after block."""
    rows, size, crc = _arrays(index, "rows", "chunk_size", "column_crc32")
    rows = rows.reshape(-1, len(AXES))
    if (size < 0).any():
        raise ValueError("a chunk has a negative size")
    files: dict[str, Ints] = {}
    block = chunk = at = 0
    for shard, n in zip(manifest["shards"], n_blocks, strict=True):
        columns = manifest["layouts"][shard["layout"]]["columns"]
        mine = rows[block : block + n]
        counts = [
            mine[:, AXES.index(c["axis"])] if c["axis"] in AXES else np.ones(n, np.int64) for c in columns
        ]
        chunks = np.stack([np.maximum(1, -(-rows_ // int(c["chunk_rows"])))
                           for rows_, c in zip(counts, columns, strict=True)], axis=1)  # fmt: skip
        starts = chunk + np.concatenate([[0], np.cumsum(chunks)])
        sums = np.concatenate([[0], np.cumsum(size)])
        length = np.diff(sums[starts]).reshape(n, len(columns))
        checks = crc[at : at + n * len(columns)].reshape(n, len(columns))
        for i, column in enumerate(columns):
            path = [
                shard["name"],
                column["axis"],
                _plain(column["name"]),
                "c",
                "0",
                *("0" for _ in column["shape"]),
            ]
            offset = np.cumsum(length[:, i]) - length[:, i]
            files["/".join(path)] = np.stack([offset, length[:, i], checks[:, i]], axis=1)
        block, chunk, at = block + n, int(starts[-1]), at + n * len(columns)
    if chunk != len(size) or at != len(crc):
        raise ValueError(f"index.h5 has {len(size)} chunks, the layouts need {chunk}")
    return files


def _index_name(manifest: Any) -> str:
    """A data set that was appended to has an index of another name."""
    return _plain(manifest.get("index", {}).get("name", "index.h5"))


def _plain(name: Any) -> str:
    if not isinstance(name, str) or os.path.basename(name) != name or name in ("", ".", ".."):
        raise ValueError(f"the file name {name!r} leaves the folder")
    return name
