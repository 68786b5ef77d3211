"""Exchange that sums within a rack before anything crosses to another.

With k members in each rack: a reduce-scatter leaves each the rack's sum of one k-th of the vector, its peers
in the other racks exchange that piece (exactly, or packed), an all-gather puts the vector together again.
What crosses a rack's border is then the vector once for the whole rack, not once for each of its members.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from .compressor import Compressor
from .exchange import Exchange
from .replicas import GroupReplicas, Replicas


class TwoLevelReplicas(GroupReplicas):
    """Replicas in racks of equal size.

    Parameters
    ----------
    group : all replicas
    rack : those of this rack
    across : one of each rack, in the same place as this
    """

    def __init__(self, group: dist.ProcessGroup, rack: dist.ProcessGroup, across: dist.ProcessGroup) -> None:
        super().__init__(group)
        self.rack, self.across = GroupReplicas(rack), GroupReplicas(across)

    def sum(self, values: Tensor) -> None:
        """Sum over all replicas, in place."""
        piece = self.rack_sum(values)
        self.across.sum(piece)
        values.copy_(self.rack.collect(piece).view(-1)[: values.numel()].view_as(values))

    def rack_sum(self, values: Tensor) -> Tensor:
        """This member's piece, (n / k rounded up,), of the sum over its rack."""
        k, n = self.rack.size, values.numel()
        padded = torch.nn.functional.pad(values.reshape(-1), (0, -n % k))
        piece = padded.new_empty(padded.numel() // k)
        dist.reduce_scatter_single(piece, padded, group=self.rack.group)
        return piece


class TwoLevelExchange:
    """As :class:`.exchange.Exchange`: exact within a rack, packed across racks.

    Each member packs one k-th of the vector, so its error buffers are that much smaller, too.
    """

    def __init__(
        self, sizes: Sequence[int], replicas: TwoLevelReplicas, compressor: Compressor, *, feedback: bool,
        stream: int = 0, device: torch.device | str = "cpu",
    ) -> None:  # fmt: skip
        self.n, self.replicas = sum(sizes), replicas
        piece = -(-self.n // replicas.rack.size)
        self.across = Exchange(
            pieces_of(sizes, piece, replicas.rack.rank),
            replicas.across,
            compressor,
            feedback=feedback,
            stream=stream,
            device=device,
        )
        self.errors = self.across.errors

    def mean(self, values: Tensor, step: int) -> Tensor:
        """The mean of (n,) float32 over all replicas."""
        piece = self.replicas.rack_sum(values).div_(self.replicas.rack.size)
        return self.replicas.rack.collect(self.across.mean(piece, step)).view(-1)[: self.n]


def pieces_of(sizes: Sequence[int], piece: int, k: int) -> list[int]:
    """Parts, and what is left, in the k-th piece of a vector of parts of these sizes."""
    edges = [k * piece, *(e for e in itertools.accumulate(sizes) if k * piece < e < (k + 1) * piece)]
    return [b - a for a, b in itertools.pairwise([*edges, (k + 1) * piece])]


def make_exchange(
    sizes: Sequence[int], replicas: Replicas, compressor: Compressor, *, feedback: bool, stream: int,
    device: torch.device | str,
) -> Exchange | TwoLevelExchange:  # fmt: skip
    """The exchange that suits the replicas."""
    if isinstance(replicas, TwoLevelReplicas):
        return TwoLevelExchange(sizes, replicas, compressor, feedback=feedback, stream=stream, device=device)
    return Exchange(sizes, replicas, compressor, feedback=feedback, stream=stream, device=device)


def two_level(group: dist.ProcessGroup, racks: list[list[int]], rank: int) -> TwoLevelReplicas | None:
    """Replicas of `group` whose ranks sit in `racks`, all of one size; None in a process that sits in none.

    Every process must call it.
    """
    mine: dict[str, Any] = {}
    for name, sets in (("rack", racks), ("across", list(zip(*racks, strict=True)))):
        for ranks in sets:
            made = dist.new_group(list(ranks))
            if rank in ranks:
                mine[name] = made
    return TwoLevelReplicas(group, mine["rack"], mine["across"]) if mine else None
