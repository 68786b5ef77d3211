"""What the parts hold: which complexes, which of them twice, and the facts a split needs.

One pass over the parts keeps a few hundred bytes a complex, never the complexes.
"""

from __future__ import annotations

import hashlib
import logging
import os
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..complex import FIELDS
from ..console import Progress
from ..errors import FormatError, UsageError
from ..format.block import Block
from ..format.manifest import MANIFEST, read_manifest
from ..format.records import texts_of
from ..format.regular import regular
from ..read.blocks import BlockReader, Pread
from ..read.dataset import Dataset, open_dataset
from .ordered import in_order
from .rule import Facts

T = TypeVar("T")

log = logging.getLogger("holoshard")

# Columns whose dtype on disk may differ from part to part: hashed wide, so that equal is equal.
_MAY_WIDEN: Final = frozenset(f.key for f in FIELDS if f.per_unit)
_FIXED: Final = frozenset(f.key for f in FIELDS) - _MAY_WIDEN


def _integers() -> array[int]:
    return array("q")


@dataclass(slots=True)
class Survey:
    """All complexes of some parts, duplicates included, in no particular order.

    Attributes
    ----------
    ids, scaffolds, ligands, sequences, smiles : text of each complex
    deposited : yyyymmdd of each
    columns : chosen columns of the label table by name, "" where a complex has none
    digests : 16-byte hash of everything but the text of each
    part, row : where each lies
    nbytes : unpacked size of each
    column_names : every column that any complex has
    """

    ids: list[str] = field(default_factory=list)
    scaffolds: list[str] = field(default_factory=list)
    ligands: list[str] = field(default_factory=list)
    sequences: list[str] = field(default_factory=list)
    smiles: list[str] = field(default_factory=list)
    deposited: array[int] = field(default_factory=_integers)
    columns: dict[str, list[str]] = field(default_factory=dict)
    digests: list[bytes] = field(default_factory=list)
    part: array[int] = field(default_factory=_integers)
    row: array[int] = field(default_factory=_integers)
    nbytes: int = 0
    column_names: set[str] = field(default_factory=set)

    def __len__(self) -> int:
        return len(self.ids)

    def facts(self, chosen: Sequence[int]) -> Facts:
        """Return the facts of the chosen complexes, in their order."""

        def pick(values: Sequence[T]) -> list[T]:
            return [values[i] for i in chosen]

        return Facts(
            pick(self.ids), pick(self.scaffolds), pick(self.ligands), pick(self.sequences),
            pick(self.smiles),
            np.array(pick(self.deposited), np.int32),
            {name: pick(values) for name, values in self.columns.items()},
            tuple(sorted(self.column_names)),
        )  # fmt: skip


def part_files(paths: Iterable[Path]) -> list[Path]:
    """Shard files behind paths: files, folders with files, folders of ingest, data sets. Each once."""
    files = dict[Path, None]()
    for path in paths:
        files |= dict.fromkeys(f.resolve() for f in _files_of(Path(path)))
    return list(files)


def _files_of(path: Path) -> list[Path]:
    try:
        regular(path)
    except FormatError as error:
        raise UsageError(str(error)) from error
    if not path.exists():
        raise UsageError(f"{path} does not exist; expected a part, or the --out folder of holoshard ingest")
    if path.suffix in (".h5", ".zarr"):
        return [path]
    if path.is_dir():
        if (path / MANIFEST).exists():
            return [path / shard.name for shard in read_manifest(path).shards]
        inside = path / "parts" if (path / "parts").is_dir() else path
        found = sorted(f for f in inside.iterdir() if f.suffix in (".h5", ".zarr"))
        if found:
            return found
        raise UsageError(f"{inside} holds no part (*.h5); run holoshard ingest with --out {path} first")
    raise UsageError(f"{path} is not a part: expected a .h5 or .zarr file, or a folder with such files")


def open_parts(paths: Iterable[Path]) -> list[Dataset]:
    """The parts behind paths. They share what reads files: few files and buffers are open for any number."""
    fetch = Pread()
    return [open_dataset(path, fetch) for path in part_files(paths)]


def survey(
    readers: Sequence[BlockReader], columns: Sequence[str], progress: Progress, threads: int | None = None
) -> Survey:
    """Look at every complex of the parts once; keep the named columns of the label table."""
    found = Survey(columns={name: [] for name in columns})
    seen = dict[str, str]()  # one copy of each text, since many complexes share a protein

    def look(place: tuple[int, int]) -> tuple[Block, list[bytes]]:
        block = readers[place[0]].read(place[1], raw=True)
        return block, list(digests(block))

    threads = threads or os.cpu_count() or 1
    places = [(number, index) for number, reader in enumerate(readers) for index in range(reader.n_blocks)]
    with ThreadPoolExecutor(threads, "holoshard-survey") as pool:
        looked = in_order(pool, look, places, threads)
        for (number, index), (block, hashed) in zip(places, looked, strict=True):
            first = int(readers[number].first_complex[index])
            for text in texts_of(block):
                _note(found, text, seen)
            found.deposited.extend(block.columns["deposited"].tolist())
            found.digests += hashed
            found.part.extend([number] * block.n_complexes)
            found.row.extend(range(first, first + block.n_complexes))
            found.nbytes += sum(c.nbytes for c in block.columns.values())
            progress.advance(block.n_complexes)
    return found


def _note(found: Survey, text: Mapping[str, Any], seen: dict[str, str]) -> None:
    """Add what a complex's text says."""
    sequences = text.get("sequences")
    chains = sorted(map(str, sequences.values())) if isinstance(sequences, dict) else []
    joined = "/".join(s for s in chains if s)
    own = text.get("columns")
    own = own if isinstance(own, dict) else {}
    found.ids.append(str(text["id"]))
    found.scaffolds.append(_shared(seen, text.get("scaffold", "")))
    found.ligands.append(_shared(seen, text.get("inchikey") or text.get("smiles") or ""))
    found.sequences.append(_shared(seen, joined))
    found.smiles.append(_shared(seen, text.get("smiles", "")))
    for name, values in found.columns.items():
        values.append(_shared(seen, own.get(name, "")))
    found.column_names.update(own)


def _shared(seen: dict[str, str], value: object) -> str:
    text = "" if value is None else str(value).strip()
    return seen.setdefault(text, text)


def digests(block: Block) -> Iterator[bytes]:
    """Hash all numbers of each complex of a raw block, whatever width they are stored in."""
    parts = []
    for key in sorted(block.columns):
        axis = block.fields[key].axis
        if axis == "text":
            continue
        column = np.ascontiguousarray(block.columns[key])
        if key not in _FIXED:
            column = column.astype("<f8" if column.dtype.kind == "f" else "<i8")
        ends = np.arange(1, block.n_complexes + 1) if axis == "complex" else np.cumsum(block.counts[axis])
        width = column.nbytes // max(len(column), 1)
        parts.append((key.encode(), column.reshape(-1).view(np.uint8).data, (ends * width).tolist()))
    for i in range(block.n_complexes):
        digest = hashlib.blake2b(digest_size=16)
        for name, data, ends in parts:
            begin = ends[i - 1] if i else 0
            digest.update(b"%s %d " % (name, ends[i] - begin))
            digest.update(data[begin : ends[i]])
        yield digest.digest()


def distinct(found: Survey, before: Survey | None = None) -> tuple[NDArray[np.int64], dict[str, int]]:
    """Choose one of each complex, and count what is left aside; what there was ``before`` has its place.

    Of complexes with one id the one of smallest digest stays, of those with one content the one of
    smallest id: neither depends on how they were cut into parts.

    Returns
    -------
    indices into the survey in the order of their ids, and counts: ``same_id`` (the same complex again),
    ``id_conflicts`` (another complex under an id already taken), ``same_content`` (under another id)
    """
    order = sorted(range(len(found)), key=lambda i: (found.ids[i], found.digests[i]))
    counts = {"same_id": 0, "id_conflicts": 0, "same_content": 0}
    chosen, contents = list[int](), set[bytes](before.digests if before else ())
    known = dict(zip(before.ids, before.digests, strict=True)) if before else {}
    last: int | None = None
    for i in order:
        if found.ids[i] in known:
            counts["same_id" if known[found.ids[i]] == found.digests[i] else "id_conflicts"] += 1
            continue
        if last is not None and found.ids[i] == found.ids[last]:
            counts["same_id" if found.digests[i] == found.digests[last] else "id_conflicts"] += 1
            continue
        last = i
        if found.digests[i] in contents:
            counts["same_content"] += 1
            continue
        contents.add(found.digests[i])
        chosen.append(i)
    if counts["id_conflicts"]:
        log.warning("%d complexes left aside: their id belongs to another complex", counts["id_conflicts"])
    return np.array(chosen, np.int64), counts
