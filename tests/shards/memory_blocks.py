"""Decoded blocks in memory, to test what comes after reading without a file."""

from __future__ import annotations

import numpy as np
from random_complexes import random_complexes

from holoshard.shards.format.block import Block
from holoshard.shards.format.codec import from_fixed
from holoshard.shards.format.records import stack
from holoshard.shards.read.pool import Room


class MemoryBlocks:
    """n random complexes in blocks of ``block_size``; counts what is read, and can fail."""

    def __init__(self, n, block_size=8, seed=0, broken=None, **options):
        self.complexes = list(random_complexes(n, seed, **options))
        whole = stack(self.complexes)
        self.first_complex = np.arange(0, n, block_size)
        self.blocks = [whole.slice(i, min(i + block_size, n)) for i in range(0, n, block_size)]
        self.widest = Room.widest([Room.of(b) for b in self.blocks])
        self.lengths = whole.counts["atom"]
        self.rows = np.arange(n)
        self.reads, self.expected, self.broken = [], [], broken

    def expect(self, block, keys):
        self.expected.append(block)

    def room(self, keys):
        return self.widest

    def read(self, block, keys=None, raw=False, fetch=None, out=None):
        if block == self.broken:
            raise OSError("unplugged")
        self.reads.append(block)
        whole = self.blocks[block]
        keys = list(whole.columns) if keys is None else keys
        columns = {k: whole.columns[k] for k in keys}
        if not raw:
            columns = {
                k: from_fixed(c, whole.fields[k].per_unit) if whole.fields[k].per_unit else c
                for k, c in columns.items()
            }
        return Block.of(whole.fields, columns, whole.counts)
