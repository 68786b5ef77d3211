"""Which node reads which part of the data: the one that holds most of it.

With ``shuffle = "local"`` a part of the batch has the same blocks in every epoch, and what a node read it
has cached. After a restart ranks may sit on other nodes, or there are more nodes or fewer: then the parts
are dealt by what the nodes' tiers hold.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from ..shards.read.ahead import stored_fields
from .data import Share

if TYPE_CHECKING:
    from ..cache.tiered import TieredCache
    from ..shards.read.stream import Stream
    from .parallel.mesh import World


@dataclass(frozen=True, slots=True)
class Part:
    """A share of the batch; see Share."""

    data_rank: int
    data_size: int


def parts_of(world: World) -> list[list[int]] | None:
    """The parts that each node serves, node after node; None if nodes share some, or differ in number."""
    each, tensor = world.local_size, world.sizes["tensor"]
    nodes = [range(first, min(first + each, world.size)) for first in range(0, world.size, each)]
    parts = [sorted({rank // tensor % world.data_size for rank in node}) for node in nodes]
    k = len(parts[0])
    return parts if parts == [list(range(n * k, (n + 1) * k)) for n in range(len(parts))] else None


def place(world: World, stream: Stream, cache: TieredCache) -> Share:
    """The part of this process. Every process must call it, with the stream of its own rank.

    Parameters
    ----------
    stream : of any epoch, with a local shuffle
    cache : its tiers tell what this node holds
    """
    sizes = world.gather(torch.tensor([world.local_size], device=world.device))
    # A topology arranges processes by racks, not by ranks.
    even = len(set(sizes.tolist())) == 1 and world.topology is None
    parts = parts_of(world) if even else None
    if parts is None or len(parts) < 2:
        return world
    k, node = len(parts[0]), world.data_rank // len(parts[0])
    held = torch.zeros(len(parts), len(parts), dtype=torch.float64, device=world.device)
    if world.data_rank == parts[node][0]:  # one process of the node looks
        for slot in range(len(parts)):
            held[node, slot] = held_bytes(stream, cache, slot, len(parts))
    slot = deal(world.sum(held).cpu().numpy())[node]
    return Part(slot * k + world.data_rank - node * k, world.data_size)


def held_bytes(stream: Stream, cache: TieredCache, slot: int, slots: int) -> int:
    """Bytes of the blocks of one of so many equal parts that the tiers hold."""
    rows = stream.order.part(slot, slots)
    blocks = np.unique(np.searchsorted(stream.blocks.first_complex, rows, side="right") - 1)
    stored = stored_fields(stream.keys, stream.options.max_atoms)
    spans = (span for block in blocks.tolist() for span in stream.blocks.spans(block, stored))
    keys = (cache.key(span.path, span.offset, span.length) for span in spans)
    return sum(key.length for key in keys if cache.holds(key))


def deal(held: NDArray[np.float64]) -> list[int]:
    """A slot for each node: most bytes first, then swaps of two while they help.

    Where nothing is held a node takes its own number.
    """
    n = len(held)
    pairs = [(-float(held[i, j]), i != j, i, j) for i in range(n) for j in range(n)]
    slots, taken = dict[int, int](), set[int]()
    for _, _, node, slot in sorted(pairs):
        if node not in slots and slot not in taken:
            slots[node] = slot
            taken.add(slot)
    found, better = [slots[i] for i in range(n)], True
    while better:
        better = False
        for i, j in itertools.combinations(range(n), 2):
            a, b = found[i], found[j]
            if held[i, b] + held[j, a] > held[i, a] + held[j, b]:
                found[i], found[j], better = b, a, True
    return found
