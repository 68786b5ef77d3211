"""Mend a damaged data set from parts, or another copy: only what is damaged is made anew.

A shard's bytes follow from its complexes and its place in the manifest, so a mended shard must have the
sha256 that the manifest says; if it does not, nothing is replaced.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from ..errors import FormatError, UsageError
from ..format.block import Block, concatenate
from ..format.chunks import pack_block
from ..format.container import ShardHeader
from ..format.manifest import MANIFEST, is_shard
from ..format.table import crc32
from ..read.blocks import BlockReader
from ..read.dataset import Dataset
from ..read.source import open_source
from .files import file_sha256, remove
from .generations import sweep
from .numbers import again
from .owner import beside, said_of
from .survey import open_parts
from .verify import Report, verify

HELD: Final = 64  # decoded blocks of the parts


@dataclass(frozen=True, slots=True)
class Mended:
    """What was written anew: shards, and how many of their blocks came from the parts."""

    shards: tuple[str, ...]
    n_blocks: int


def repair(path: str | Path, parts: Sequence[str | Path], report: Report | None = None) -> Mended:
    """Mend the data set at ``path``; ``report`` is what verify found, if it ran already.

    Each damaged block is packed again from the complexes with its ids in ``parts`` (part files, folders of
    them or of ingest, data sets). Raises UsageError if one of them is not there, FormatError if the result is
    not what was written at first. A damaged manifest or index cannot be mended: pack the parts again.
    """
    report = report or verify(path)
    dataset = Dataset(BlockReader(open_source(Path(path), check_sizes=False)))
    source = dataset.reader.source
    if not source.has_index:
        raise UsageError(f"{path} is a single shard; ingest makes parts again")
    if any(d.file in (source.manifest.index_name, MANIFEST) for d in report.damage):
        raise FormatError(
            f"{path}: {MANIFEST} or {source.manifest.index_name} is damaged, so nothing says what was where; "
            "run holoshard shard again"
        )
    library = _Library(open_parts(map(Path, parts)))
    sweep(source.root)
    names = sorted({d.file for d in report.damage})
    n_blocks = 0
    for name in names:
        shard = next(i for i, s in enumerate(source.manifest.shards) if s.name == name)
        blocks = {d.block for d in report.damage if d.file == name and d.block is not None}
        n_blocks += _mend(dataset, shard, blocks, library)
    return Mended(tuple(names), n_blocks)


def _mend(dataset: Dataset, shard: int, damaged: set[int], library: _Library) -> int:
    source = dataset.reader.source
    info, places = source.manifest.shards[shard], source.places(shard)
    path = source.path(shard)
    if not is_shard(info.name):  # it is about to be replaced
        raise FormatError(f"{path} has no shard's name, such as train-00000.h5; it is not replaced")
    remade = _Remade(dataset, shard, damaged, library)
    with beside(path) as temporary, said_of(path):
        source.container.write(temporary, ShardHeader(info.n_complexes, places.layout), places, remade)
        if file_sha256(temporary) != info.sha256:
            raise FormatError(
                f"{path}: what the parts give is not what was written at first; nothing was replaced"
            )
        if path.is_dir():
            remove(path)
        os.replace(temporary, path)
    return remade.n_blocks


class _Remade:
    """The bytes of a shard's blocks: good ones from the shard, damaged ones packed again."""

    def __init__(self, dataset: Dataset, shard: int, damaged: set[int], library: _Library) -> None:
        self.dataset, self.damaged, self.library = dataset, damaged, library
        self.reader = dataset.reader
        self.places = self.reader.source.places(shard)
        self.numbers = (self.reader.shard == shard).nonzero()[0].tolist()
        self.n_blocks = 0

    def __iter__(self) -> Iterator[memoryview]:
        for row, number in enumerate(self.numbers):
            data = None if row in self.damaged else self._stored(number, row)
            if data is None:
                data = self._packed(number, row)
                self.n_blocks += 1
            yield memoryview(data)

    def _stored(self, number: int, row: int) -> bytes | None:
        try:
            data = self.reader.read_bytes(number)
        except FormatError:
            return None  # the file is gone
        return data if crc32(data) == self.places.table.crc32[row] else None

    def _packed(self, number: int, row: int) -> bytes:
        first = int(self.reader.first_complex[number])
        rows = slice(first, first + int(self.reader.block_complexes[number]))
        ids = [i.decode() for i in self.dataset.column("id")[rows].tolist()]
        numbers = self.dataset.manifest.making.get("numbers", ())
        block = again(concatenate(self.library.find(ids)), numbers)
        chunks = pack_block(block, self.places.layout, self.places.padded(row))
        data = b"".join(chunk for column in chunks for chunk in column)
        if crc32(data) != self.places.table.crc32[row]:
            raise FormatError(
                f"{self.reader.name(number)}: the parts hold other data for {ids[0]!r} and the others of "
                "this block; use the parts it was made of"
            )
        return data


class _Library:
    """Complexes by id."""

    def __init__(self, datasets: list[Dataset]) -> None:
        self.datasets = datasets
        self.held: dict[tuple[int, int], Block] = {}
        self.place = {
            name: (d, row) for d, part in enumerate(datasets) for row, name in enumerate(part.ids())
        }

    def find(self, ids: list[str]) -> list[Block]:
        """One raw block a complex, in the order of the ids."""
        missing = [i for i in ids if i not in self.place]
        if missing:
            raise UsageError(
                f"{len(missing)} complexes of a damaged block are not in the parts, such as {missing[0]!r}; "
                "give all parts"
            )
        found = []
        for name in ids:
            d, row = self.place[name]
            block, at = self.datasets[d].reader.locate(row)
            found.append(self._block(d, block).take(np.array([at])))
        return found

    def _block(self, d: int, block: int) -> Block:
        if (d, block) not in self.held:
            if len(self.held) >= HELD:
                self.held.pop(next(iter(self.held)))
            self.held[d, block] = self.datasets[d].reader.read(block, raw=True)
        return self.held[d, block]
