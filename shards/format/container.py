"""The seam between the shard format and the two containers that hold it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from ..complex import VOCABULARIES
from ..errors import FormatError, UsageError, VersionError
from .layout import Layout, layout_from_json
from .table import BlockTable, Places

FORMAT: Final = "holoshard"
VERSION: Final = (1, 0)  # a newer minor version may add fields that an older reader ignores
POSITION_SCALE: Final = 32.0  # angstrom; positions divided by it lie in [-1, 1], or a flag says not


@dataclass(frozen=True, slots=True)
class ShardHeader:
    """What a shard file says of itself."""

    n_complexes: int
    layout: Layout

    def to_json(self) -> str:
        """Canonical JSON, ASCII."""
        return json.dumps(
            {
                "format": FORMAT,
                "version": ".".join(map(str, VERSION)),
                "n_complexes": self.n_complexes,
                "block_size": self.layout.block_size,
                "position_scale": POSITION_SCALE,
                "vocabularies": VOCABULARIES,
                "columns": self.layout.to_json(),
            },
            sort_keys=True,
        )


@dataclass(frozen=True, slots=True)
class Span:
    """One byte range of one file, and the columns (places in the layout) it holds, in order."""

    path: str
    offset: int
    length: int
    columns: tuple[int, ...]


class Container(Protocol):
    """How a shard lies on disk. Chunk bytes are the same in every container."""

    @property
    def name(self) -> str:
        """As in the manifest."""

    @property
    def suffix(self) -> str:
        """Of a shard's name."""

    def write(
        self, path: Path, header: ShardHeader, places: Places, blocks: Iterable[memoryview]
    ) -> BlockTable:
        """Write a shard whose blocks' bytes come in order; returns the table with its final offsets.

        The same arguments give the same bytes. ``path`` must not exist.
        """

    def open(self, path: Path) -> tuple[ShardHeader, Places]:
        """Read header and block table, checked; FormatError or VersionError if it is not a shard."""

    def spans(self, path: str, places: Places, block: int, columns: tuple[int, ...]) -> list[Span]:
        """Byte ranges that hold ``columns`` (ascending) of one block."""


def container_named(name: str) -> Container:
    """The container ``hdf5`` or ``zarr``."""
    from . import hdf5, zarr

    known: dict[str, Container] = {"hdf5": hdf5.HDF5, "zarr": zarr.ZARR}
    if name not in known:
        raise UsageError(f"unknown container {name!r}; one of: {', '.join(known)}")
    return known[name]


def container_of(path: Path) -> Container:
    """The container of an existing shard: a folder is Zarr, a file HDF5."""
    return container_named("zarr" if path.is_dir() else "hdf5")


def check_version(found: Any, where: str) -> None:
    """Refuse what a newer major version wrote."""
    major = str(found).partition(".")[0]
    if not (str(found).isascii() and major.isdigit()):
        raise FormatError(f"{where}: version {found!r} is not readable; expected {VERSION[0]}.x")
    if int(major) > VERSION[0]:
        raise VersionError(
            f"{where} has format version {found}; this holoshard reads up to {VERSION[0]}.x: "
            "install a newer one (pip install -U holoshard)"
        )


def check_words(vocabularies: Mapping[str, Any]) -> None:
    """ValueError if a vocabulary is not the one known here, shorter or with more words at its end."""
    for name, words in vocabularies.items():
        known = VOCABULARIES.get(name, ())
        if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
            raise ValueError(f"its words for {name} are {words!r:.60}, expected a list of words")
        if any(a != b for a, b in zip(words, known, strict=False)):
            raise ValueError(f"its words for {name} are not those of this format")


def parse_header(text: str | bytes, where: str) -> ShardHeader:
    """Undo :meth:`ShardHeader.to_json`; unknown keys are ignored."""
    try:
        data: Mapping[str, Any] = json.loads(text)
        if data["format"] != FORMAT:
            raise FormatError(f"{where} is not a holoshard shard: its format is {data['format']!r}")
        check_version(data["version"], where)
        n_complexes, block_size, columns = data["n_complexes"], data["block_size"], data["columns"]
        check_words(data["vocabularies"])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise FormatError(f"{where}: its header is not readable ({type(error).__name__}: {error})") from error
    if not isinstance(n_complexes, int) or n_complexes < 0 or not isinstance(columns, list):
        raise FormatError(f"{where}: its header says {n_complexes!r} complexes")
    return ShardHeader(n_complexes, layout_from_json(block_size, columns))
