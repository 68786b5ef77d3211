"""The complexes that every format is given: a data set's own, turned, shaken and repeated."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from holoshard.shards.format.block import Block, concatenate
from holoshard.shards.format.codec import from_fixed
from holoshard.shards.format.records import texts_of
from holoshard.shards.make.writer import DatasetWriter
from holoshard.shards.read.ahead import ReadAhead
from holoshard.shards.read.batch import DEFAULT_FIELDS, rotations
from holoshard.shards.read.dataset import Dataset, open_dataset

STRETCH = 4096


def source(data: Path | None, folder: Path) -> Dataset:
    """The data set given, or the embedded sample, ingested and packed."""
    if data is None:
        from holoshard.__main__ import main

        main(["sample", "--out", str(folder / "sample")])
        main(["ingest", str(folder / "sample"), "--out", str(folder / "parts")])
        main(["shard", str(folder / "parts"), "--out", str(folder / "packed")])
        data = folder / "packed"
    return open_dataset(data)


def copies(dataset: Dataset, n: int) -> Iterator[Block]:
    """Raw blocks of n complexes: the data set over and over, turned, shaken, and named anew."""
    whole = concatenate([dataset.reader.read(b, raw=True) for b in range(dataset.reader.n_blocks)])
    for begin in range(0, n, STRETCH):
        numbers = np.arange(begin, min(begin + STRETCH, n))
        block = whole.take(numbers % whole.n_complexes)
        turn = np.repeat(rotations(numbers, 0, 0), block.counts["atom"], axis=0)
        shake = np.random.default_rng(begin).normal(0, 100, (len(turn), 3))
        moved = np.einsum("ni,nij->nj", block.columns["position"], turn) + shake
        texts = [
            json.dumps({**t, "id": f"c{i:08d}"}).encode()
            for i, t in zip(numbers, texts_of(block), strict=True)
        ]
        columns = {
            **block.columns,
            "position": np.clip(np.rint(moved), -32767, 32767).astype(np.int16),
            "text_json": np.frombuffer(b"".join(texts), np.uint8),
        }
        yield Block.of(block.fields, columns, {**block.counts, "text": np.array([len(t) for t in texts])})


def samples(dataset: Dataset) -> Iterator[dict[str, Any]]:
    """Every complex as arrays of the default fields."""
    reader = ReadAhead(dataset.stream(threads=0), 0)
    for b in range(dataset.reader.n_blocks):
        block = reader.decode(b)
        for i in range(block.n_complexes):
            one = block.slice(i, i + 1)
            columns = {**one.columns, "position": from_fixed(one.columns["position"], 1000)}
            axes = {k: one.fields[k].axis for k in DEFAULT_FIELDS}
            yield {k: columns[k][0] if axes[k] == "complex" else columns[k] for k in DEFAULT_FIELDS}


def written(folder: Path, data: Path | None, n: int) -> Dataset:
    """The data set to measure: n complexes in ``folder``, made if they are not there."""
    out = folder / f"holoshard-{n}"
    if not out.exists():
        with DatasetWriter(out) as writer:
            writer.write("train", copies(source(data, folder), n))
            writer.finish()
    return open_dataset(out)
