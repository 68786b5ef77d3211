"""Is every byte of a data set the one that was written, and does everything fit together?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from os import cpu_count
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..complex import VOCABULARIES, Axis
from ..console import progress
from ..errors import FormatError
from ..format.block import Block
from ..format.chunks import START_AXES, check_pieces, unpack_block
from ..format.manifest import MANIFEST
from ..format.records import texts_of
from ..format.table import Places, crc32
from ..read.blocks import BlockReader
from ..read.dataset import Dataset
from ..read.source import open_source
from .contradictions import contradictions
from .damage import Damage
from .files import file_sha256
from .index import IndexColumns, SingleValues, single_values
from .options import MAX_THREADS, within
from .survey import part_files

MAX_NAMED: Final = 20  # ids a message names


@dataclass(frozen=True, slots=True)
class Report:
    """What verification found."""

    path: Path
    n_complexes: int
    n_blocks: int
    damage: tuple[Damage, ...]

    @property
    def ok(self) -> bool:
        """True if nothing is damaged."""
        return not self.damage

    @property
    def damaged_ids(self) -> list[str]:
        """Complexes in damaged blocks."""
        return [i for d in self.damage for i in d.ids]

    def lines(self) -> list[str]:
        """The report for people."""
        lines = []
        for d in self.damage:
            ids = ", ".join(d.ids[:MAX_NAMED]) + (
                f" and {len(d.ids) - MAX_NAMED} more" if len(d.ids) > MAX_NAMED else ""
            )
            lines.append(f"{d.file}{'' if d.block is None else f', block {d.block}'}: {d.reason}"
                         + (f"; complexes: {ids}" if ids else ""))  # fmt: skip
        state = (
            "all as written" if self.ok else f"{len(self.damage)} damages, {len(self.damaged_ids)} complexes"
        )
        return [*lines, f"{self.path}: {self.n_complexes} complexes in {self.n_blocks} blocks, {state}"]


def verify(path: str | Path, threads: int | None = None) -> Report:
    """Check every checksum, size and offset, and that each record makes sense.

    A data set folder: also the sha256 of every file, so that any flipped bit is found. A folder of parts, or
    the --out folder of ingest: each of the parts.

    Raises
    ------
    UsageError : nothing is at ``path``
    FormatError : it cannot be opened at all, such as a damaged manifest
    """
    within("--threads", threads, MAX_THREADS)
    path = Path(path)
    if path.is_dir() and not any((path / name).exists() for name in (MANIFEST, "zarr.json")):
        reports = [verify(part, threads) for part in part_files([path])]
        return Report(
            path, sum(r.n_complexes for r in reports), sum(r.n_blocks for r in reports),
            tuple(d for r in reports for d in r.damage),
        )  # fmt: skip
    dataset = Dataset(BlockReader(open_source(Path(path), check_sizes=False)))
    reader = dataset.reader
    files = _file_jobs(dataset)
    damage: list[Damage] = []
    with ThreadPoolExecutor(threads or cpu_count() or 1) as pool, progress(
        "verify", reader.n_blocks + len(files), "blocks and files"
    ) as bar:  # fmt: skip
        of_files = [pool.submit(_check_file, dataset, *job) for job in files]
        of_blocks = [pool.submit(_check_block, reader, block) for block in range(reader.n_blocks)]
        told = IndexColumns()
        for number in range(len(of_files) + len(of_blocks)):
            job = of_files[number] if number < len(of_files) else of_blocks[number - len(of_files)]
            found = job.result()
            if isinstance(found, Damage):
                damage.append(found)
            elif found is not None and reader.source.has_index and not damage:
                told.add(found)
            bar.advance()
    if reader.source.has_index and not damage:
        damage += contradictions(dataset, told)
    named = _Names(dataset)
    damage = [named(d) for d in damage]
    return Report(Path(path), len(dataset), reader.n_blocks, tuple(damage))


def _file_jobs(dataset: Dataset) -> list[tuple[str, str, int | None]]:
    if not dataset.reader.source.has_index:
        return []
    manifest = dataset.manifest
    shards: list[tuple[str, str, int | None]] = [(s.name, s.sha256, i) for i, s in enumerate(manifest.shards)]
    return [(manifest.index_name, manifest.index_sha256, None), *shards]


def _check_file(dataset: Dataset, name: str, sha256: str, shard: int | None) -> Damage | None:
    source = dataset.reader.source
    path = source.root / name
    try:
        found = file_sha256(path)
        if found != sha256:
            return Damage(name, None, f"sha256 is {found[:16]}..., the manifest says {sha256[:16]}...")
        if shard is not None:
            header, places = source.container.open(path)
            info = source.manifest.shards[shard]
            if (
                header.layout != source.manifest.layouts[info.layout]
                or header.n_complexes != info.n_complexes
                or places.table.content() != info.content
                or not np.array_equal(places.table.offset, source.places(shard).table.offset)
            ):
                return Damage(name, None, "its header or block table is not that of the manifest")
    except FileNotFoundError:
        return Damage(name, None, "the file is missing")
    except (FormatError, OSError) as error:
        return Damage(name, None, str(error))
    return None


def _check_block(reader: BlockReader, number: int) -> Damage | SingleValues:
    shard = int(reader.shard[number])
    name = reader.source.manifest.shards[shard].name
    row = number - int(np.searchsorted(reader.shard, shard))
    try:
        places, row = reader.places(number)
        pieces = dict(_pieces(reader, number, places, row))
        check_pieces(pieces, places, row, reader.name(number))
        found = crc32(b"".join(pieces[i] for i in sorted(pieces)))
        if found != places.table.crc32[row]:
            reason = f"checksum is {found:08x}, expected {places.table.crc32[row]:08x}"
            return Damage(name, row, reason)
        block = unpack_block(pieces, places, row, list(places.layout.fields), True, reader.name(number))
        starts = unpack_block(pieces, places, row, list(START_AXES), True, reader.name(number)).columns
        for reason in (*faults(block), *wrong_starts(block, starts, places.padded(row))):
            return Damage(name, row, reason)
        return single_values(block)
    except (FormatError, OSError) as error:
        return Damage(name, row, str(error).removeprefix(f"{reader.name(number)}: "))


def _pieces(reader: BlockReader, number: int, places: Places, row: int) -> Iterator[tuple[int, memoryview]]:
    """Yield the bytes of each column of a block; too few where the file was cut short."""
    for span in reader.spans(number):
        data, at = memoryview(reader.fetch(span.path, span.offset, span.length)), 0
        for i in span.columns:
            yield i, data[at : at + int(places.size[row, i])]
            at += int(places.size[row, i])


def wrong_starts(
    block: Block, starts: Mapping[str, NDArray[Any]], padded: Mapping[Axis, int]
) -> Iterator[str]:
    """Starts in the flat arrays, which other readers go by, that are not where the rows are."""
    for key, axis in START_AXES.items():
        if not np.array_equal(starts[key], block.starts[axis] + padded[axis]):
            yield f"{key} does not say where the rows of its complexes begin"


def faults(block: Block) -> Iterator[str]:
    """What a decoded block's records break of the layout's rules: indices that point nowhere, texts."""
    column, counts = block.columns, block.counts
    n_ligand = column["n_ligand_atoms"].astype(np.int64)
    if ((n_ligand < 1) | (n_ligand > counts["atom"])).any():
        yield "n_ligand_atoms is not between 1 and the number of atoms"
    if (column["residue"] >= np.repeat(counts["residue"], counts["atom"])).any():
        yield "an atom belongs to a residue that is not there"
    bonds, n_atoms = column["bond_atoms"].astype(np.int64), np.repeat(counts["atom"], counts["bond"])
    if (bonds[:, 0] >= bonds[:, 1]).any() or (bonds[:, 1] >= n_atoms).any():
        yield "a bond joins atoms that are not there, or not in order"
    if not np.isfinite(column["centre"]).all():
        yield "a centre is not a finite number"
    for key, words in VOCABULARIES.items():
        if key in column and column[key].max(initial=0) >= len(words):
            yield f"{key} is {column[key].max()}; its vocabulary has {len(words)} words"
    try:
        texts_of(block)
    except FormatError as error:
        yield str(error)


class _Names:
    """Adds ids to damage, as far as they can still be read."""

    def __init__(self, dataset: Dataset) -> None:
        self.dataset = dataset
        self.ids: NDArray[Any] | None = None

    def __call__(self, damage: Damage) -> Damage:
        if damage.block is None:
            return damage
        reader = self.dataset.reader
        shard = next(i for i, s in enumerate(self.dataset.manifest.shards) if s.name == damage.file)
        block = int(np.searchsorted(reader.shard, shard)) + damage.block
        first = int(reader.first_complex[block])
        rows = range(first, first + int(reader.block_complexes[block]))
        return Damage(damage.file, damage.block, damage.reason, self._of(rows, block))

    def _of(self, rows: range, block: int) -> tuple[str, ...]:
        try:
            if not self.dataset.reader.source.has_index:
                return tuple(t["id"] for t in texts_of(self.dataset.reader.read(block, ["text_json"])))
            if self.ids is None:
                self.ids = self.dataset.column("id")
            return tuple(self.ids[i].decode(errors="replace") for i in rows)
        except FormatError:
            return tuple(f"row {i}" for i in rows)
