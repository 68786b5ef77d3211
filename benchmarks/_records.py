"""One record an atom instead of a column a field: what it costs to unpack and gather, and its size."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from holoshard.shards.complex import Field
from holoshard.shards.format.block import Block
from holoshard.shards.format.codec import Codec, Codecs, from_fixed
from holoshard.shards.read.ahead import ReadAhead
from holoshard.shards.read.batch import DEFAULT_FIELDS
from holoshard.shards.read.dataset import Dataset
from holoshard.shards.read.gather import Gather
from holoshard.shards.read.pool import Pool, Room

BLOCKS, BATCH = 16, 64
RECORD = "record"


def as_records(dataset: Dataset, repeats: int = 5) -> dict[str, float]:
    """Atoms as records beside atoms as columns, of the same blocks in memory: ratios of CPU time and bytes.

    Both are unpacked into a pool and gathered to the same padded batches. ``records_vs_columns`` is the rate
    with the fields as views into the records; ``records_split_vs_columns`` with each field in an array of
    its own, as columns come.
    """
    reader = ReadAhead(dataset.stream(threads=0), 0)
    blocks = [reader.decode(b) for b in range(min(BLOCKS, dataset.reader.n_blocks))]
    keys = [k for k in DEFAULT_FIELDS if blocks[0].fields[k].axis == "atom"]
    columns = [_only(b, {k: b.columns[k] for k in keys}) for b in blocks]
    dtype = np.dtype([(k, columns[0].columns[k].dtype, columns[0].columns[k].shape[1:]) for k in keys])
    records = [_only(b, {RECORD: _interleaved(b, keys, dtype)}) for b in columns]
    codecs = Codecs()
    packing = {k: codecs.of(blocks[0].fields[k], hot=True) for k in keys}
    by_column, column_bytes = _rate(columns, packing, lambda batch: None, repeats)
    packing = {RECORD: codecs.positions}
    by_record, record_bytes = _rate(records, packing, lambda b: _fields(b, dtype, split=False), repeats)
    split, _ = _rate(records, packing, lambda b: _fields(b, dtype, split=True), repeats)
    return {
        "records_vs_columns": by_column / by_record,
        "records_split_vs_columns": by_column / split,
        "records_bytes_vs_columns": record_bytes / column_bytes,
    }


def _only(block: Block, columns: dict[str, Any]) -> Block:
    fields = {k: block.fields.get(k, Field("atom", k, "")) for k in columns}
    fields = {k: replace(f, dtype=columns[k].dtype.str) for k, f in fields.items()}
    return replace(block, fields=fields, columns=columns)


def _interleaved(block: Block, keys: list[str], dtype: np.dtype[Any]) -> Any:
    found = np.empty(len(block.columns[keys[0]]), dtype)
    for key in keys:
        found[key] = block.columns[key]
    return found


def _rate(
    blocks: list[Block], packing: dict[str, Codec], finish: Callable[[Any], Any], repeats: int
) -> tuple[float, int]:
    """Least seconds of CPU to unpack the blocks and to gather their batches, and their bytes packed."""
    packed = [{k: packing[k].encode(c) for k, c in b.columns.items()} for b in blocks]
    ligand = Field("complex", "n_ligand_atoms", "<u2")
    room = Room.widest([Room(_rows(b), {**b.fields, "n_ligand_atoms": ligand}) for b in blocks])
    keys = list(packing)
    pool = Pool(room, len(blocks), [*keys, "n_ligand_atoms"])
    order = np.argsort(np.concatenate([b.counts["atom"] for b in blocks]), kind="stable")
    found = []
    for _ in range(repeats):
        start = time.process_time()
        for i, (block, chunks) in enumerate(zip(blocks, packed, strict=True)):
            regions = pool.regions(i)
            columns = {k: regions[k][: len(block.columns[k])] for k in keys}
            for k, column in columns.items():
                packing[k].decode(chunks[k], column)
            pool.land(i, replace(block, columns={**columns, "n_ligand_atoms": regions["n_ligand_atoms"]}))
        steps = np.split(order, range(BATCH, len(order), BATCH))
        gather = Gather(pool, steps, keys)
        for i in range(len(steps)):
            finish(gather.padded(i))
        found.append(time.process_time() - start)
    return min(found), sum(len(c) for chunks in packed for c in chunks.values())


def _rows(block: Block) -> dict[Any, int]:
    return {**{axis: int(c.sum()) for axis, c in block.counts.items()}, "complex": block.n_complexes}


def _fields(batch: dict[str, Any], dtype: np.dtype[Any], split: bool) -> dict[str, Any]:
    """The fields of a batch of records."""
    whole = batch[RECORD].view(dtype)
    found = {"position": from_fixed(whole["position"], 1000)}
    for key in dtype.names or ():
        if key != "position":
            found[key] = np.ascontiguousarray(whole[key]) if split else whole[key]
    return found
