"""What a data set says of itself: one small JSON file that names its shards, columns and splits."""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any, Final

from ..complex import VOCABULARIES, Field
from ..errors import FormatError
from .block import widest
from .container import FORMAT, POSITION_SCALE, VERSION, check_version, check_words
from .history import check_history
from .layout import Layout, layout_from_json
from .regular import regular

MANIFEST: Final = "manifest.json"
INDEX: Final = "index.h5"
MAX_MANIFEST_BYTES: Final = 1 << 28


@dataclass(frozen=True, slots=True)
class ShardInfo:
    """One shard.

    Attributes
    ----------
    name : file or folder name beside the manifest
    split : all its complexes belong to this split
    n_complexes, n_bytes : how many, how large
    sha256 : of the file; of a Zarr folder see FORMAT.md
    content : sha256 of its block table without offsets: the same in every container
    layout : which of the manifest's layouts it has
    """

    name: str
    split: str
    n_complexes: int
    n_bytes: int
    sha256: str
    content: str
    layout: int = 0


@dataclass(frozen=True)
class Manifest:
    """A data set. ``shards`` are in the order of the rows of the data set.

    Attributes
    ----------
    container : hdf5 or zarr
    shards, layouts : see ShardInfo
    index_sha256, index_bytes : of the index, empty for a single shard file
    index_name : the index's file: index.h5, and index-N.h5 from generation 2 on
    generation : 1, and one more for each time that complexes were appended
    parent : fingerprint of the generation before; its manifest is kept as manifest.N.json
    making : how it was made: seed, split method and the like; plain data
    statistics : of the labels and sizes, per split; plain data
    position_scale : positions divided by it (angstrom) lie in [-1, 1], or a complex has Flag.OUT_OF_RANGE
    """

    container: str
    shards: tuple[ShardInfo, ...]
    layouts: tuple[Layout, ...]
    index_sha256: str = ""
    index_bytes: int = 0
    making: Mapping[str, Any] = field(default_factory=dict)
    statistics: Mapping[str, Any] = field(default_factory=dict)
    position_scale: float = POSITION_SCALE
    index_name: str = INDEX
    generation: int = 1
    parent: str = ""

    @property
    def block_size(self) -> int:
        """Complexes a block."""
        return self.layouts[0].block_size

    @cached_property
    def n_complexes(self) -> int:
        """Complexes of all shards."""
        return sum(s.n_complexes for s in self.shards)

    @cached_property
    def splits(self) -> dict[str, int]:
        """Split -> complexes, in the order of the shards."""
        found: dict[str, int] = {}
        for shard in self.shards:
            found[shard.split] = found.get(shard.split, 0) + shard.n_complexes
        return found

    @cached_property
    def fields(self) -> dict[str, Field]:
        """Key -> field, over all shards; of two widths the wider."""
        found: dict[str, Field] = {}
        for layout in self.layouts:
            for key, f in layout.fields.items():
                found[key] = widest(found[key], f) if key in found else f
        return found

    @cached_property
    def fingerprint(self) -> str:
        """sha256 of the content: the same data in the same order has the same, in every container."""
        told = [[s.split, s.n_complexes, s.content] for s in self.shards]
        return hashlib.sha256(json.dumps([self.block_size, told]).encode()).hexdigest()

    def to_json(self) -> str:
        """JSON text, for people too; the key ``checksum`` guards all others."""
        data = self._data()
        return json.dumps({**data, "checksum": _checksum(data)}, indent=1, allow_nan=False) + "\n"

    def _data(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "version": ".".join(map(str, VERSION)),
            "container": self.container,
            "block_size": self.block_size,
            "n_complexes": self.n_complexes,
            "position_scale": self.position_scale,
            "splits": self.splits,
            "fingerprint": self.fingerprint,
            "generation": self.generation,
            "parent": self.parent,
            "making": dict(self.making),
            "statistics": dict(self.statistics),
            "vocabularies": {name: list(words) for name, words in VOCABULARIES.items()},
            "index": {"name": self.index_name, "n_bytes": self.index_bytes, "sha256": self.index_sha256},
            "layouts": [{"columns": layout.to_json()} for layout in self.layouts],
            "shards": [{name: getattr(s, name) for name in ShardInfo.__slots__} for s in self.shards],
        }


def parse_manifest(text: str | bytes, where: str) -> Manifest:
    """Undo :meth:`Manifest.to_json`; unknown keys are ignored, everything used is checked."""
    try:
        data = json.loads(text)
        if data["format"] != FORMAT:
            raise FormatError(f"{where} is not a holoshard manifest: its format is {data['format']!r}")
        check_version(data["version"], where)
        told_checksum = data.pop("checksum")
        if told_checksum != _checksum(data):
            raise FormatError(f"{where} was edited or damaged: its checksum is wrong; copy it again")
        manifest = _from_json(data)
        told = data["fingerprint"], data["n_complexes"], data["splits"]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise FormatError(f"{where} is not a readable manifest ({type(error).__name__}: {error})") from error
    _check(manifest, where)
    if told != (manifest.fingerprint, manifest.n_complexes, manifest.splits):
        raise FormatError(
            f"{where} contradicts itself: fingerprint, n_complexes or splits are not those of its shards; "
            "it was edited or damaged"
        )
    return manifest


def _from_json(data: Mapping[str, Any]) -> Manifest:
    layouts = tuple(layout_from_json(data["block_size"], item["columns"]) for item in data["layouts"])
    shards = tuple(
        ShardInfo(
            _text(s["name"]), _text(s["split"]), _count(s["n_complexes"]), _count(s["n_bytes"]),
            _text(s["sha256"]), _text(s["content"]), _count(s["layout"]),
        )
        for s in data["shards"]
    )  # fmt: skip
    check_words(data.get("vocabularies", {}))
    index = data["index"]
    if not is_index(_text(index["name"])):
        raise ValueError(f"the index is called {index['name']!r}, expected {INDEX}")
    return Manifest(
        _text(data["container"]), shards, layouts, _text(index["sha256"]), _count(index["n_bytes"]),
        dict(data.get("making", {})), dict(data.get("statistics", {})), float(data["position_scale"]),
        index["name"], _count(data.get("generation", 1)), _text(data.get("parent", "")),
    )  # fmt: skip


def _checksum(data: Mapping[str, Any]) -> str:
    """sha256 of compact JSON with sorted keys."""
    text = json.dumps(data, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} should be text")
    return value


def _count(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 53:
        raise TypeError(f"{value!r} should be a number of things")
    return value


def _check(manifest: Manifest, where: str) -> None:
    check_history(manifest.making, where)
    if not manifest.layouts:
        raise FormatError(f"{where} describes no columns")
    if manifest.generation < 1 or not 0 < manifest.position_scale < math.inf:
        raise FormatError(f"{where}: generation {manifest.generation} or position_scale "
                          f"{manifest.position_scale} is out of range")  # fmt: skip
    if manifest.container not in ("hdf5", "zarr"):
        raise FormatError(f"{where}: container {manifest.container!r} is neither hdf5 nor zarr")
    if len({s.name for s in manifest.shards}) != len(manifest.shards):
        raise FormatError(f"{where} names a shard twice")
    for shard in manifest.shards:
        if (
            PurePosixPath(shard.name).name != shard.name
            or set(shard.name) & set("\\\0")
            or shard.name in ("", "..")
        ):
            raise FormatError(f"{where}: the shard name {shard.name!r} points outside the data set's folder")
        if not 0 <= shard.layout < len(manifest.layouts):
            n = len(manifest.layouts)
            raise FormatError(f"{where}: shard {shard.name} has layout {shard.layout} of {n}")
        # Each block has at least one byte a column, so a lie about sizes cannot make us allocate much.
        if math.ceil(shard.n_complexes / manifest.block_size) > shard.n_bytes or shard.n_complexes == 0:
            raise FormatError(f"{where}: shard {shard.name} cannot hold {shard.n_complexes} complexes in "
                              f"{shard.n_bytes} bytes")  # fmt: skip


def index_name(generation: int) -> str:
    """What the index of a generation is called."""
    return INDEX if generation == 1 else f"index-{generation}.h5"


def kept_manifest(generation: int) -> str:
    """What the manifest of a generation is called once there is a later one."""
    return f"manifest.{generation}.json"


def is_index(name: str) -> bool:
    """True for the name of an index, of any generation."""
    return re.fullmatch(r"index(-[0-9]{1,9})?\.h5", name) is not None


def is_shard(name: str) -> bool:
    """True for a name that a writer gives a shard: a split, a number, a container's suffix."""
    return re.fullmatch(r"[^\W\d]\w*-[0-9]{5,9}\.(h5|zarr)", name) is not None


def is_manifest(path: Path) -> bool:
    """True for the name of a manifest, of this generation or of one before."""
    return re.fullmatch(r"manifest(\.[0-9]{1,9})?\.json", path.name) is not None


def read_manifest(folder: Path, name: str = MANIFEST) -> Manifest:
    """The manifest of a data set folder, or of an earlier generation of it by name."""
    path = regular(folder / name)
    try:
        size = path.stat().st_size
        if size > MAX_MANIFEST_BYTES:
            raise FormatError(f"{path} has {size} bytes; more than {MAX_MANIFEST_BYTES} is refused")
        text = path.read_bytes()
    except FileNotFoundError as error:
        raise FormatError(
            f"{folder} is not a data set: it has no {name}; make one: holoshard shard"
        ) from error
    return parse_manifest(text, str(path))


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write manifest.json atomically; in a new folder."""
    path, temporary = folder / MANIFEST, folder / f".{MANIFEST}.{os.getpid()}"
    with temporary.open("w", encoding="utf-8") as file:
        file.write(manifest.to_json())
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
