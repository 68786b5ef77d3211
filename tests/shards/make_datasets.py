"""Small data sets for the tests of this room."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from holoshard.shards.complex import Complex
from holoshard.shards.format.manifest import Manifest
from holoshard.shards.format.records import stack
from holoshard.shards.make.writer import DatasetWriter


def write_dataset(out: Path, complexes: list[Complex], **options: Any) -> Manifest:
    """Three quarters to train, the rest to test, from blocks of an odd size."""
    cut = len(complexes) * 3 // 4
    with DatasetWriter(out, **{"block_size": 16, "shard_bytes": 60_000, **options}) as writer:
        for split, part in (("train", complexes[:cut]), ("test", complexes[cut:])):
            writer.write(split, (stack(part[i : i + 23]) for i in range(0, len(part), 23)))
        return writer.finish()
