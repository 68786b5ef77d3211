"""The mean of a vector over replicas, in packed bytes, in two phases.

Each replica serves one chunk of the vector: first all send it their packed chunks (all-to-all), then it
packs the mean of them and sends it to all (all-gather). What packing lost is added to what is packed next
time, at the sender and at the server (error feedback; 1-bit Adam, doi:10.48550/arXiv.2102.02888). Every
replica unpacks the same bytes, so all get bit for bit the same mean.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Sequence

import torch
from torch import Tensor

from .compressor import Compressor
from .replicas import Replicas


class Exchange:
    """One vector's way between replicas, and the errors it left behind.

    Parameters
    ----------
    sizes : values of the vector's parts, one after the other. No two parts share a block, and so a scale:
        each is filled up to whole blocks with zeros
    replicas : who takes part
    feedback : keep errors: one float32 copy of the vector, and of the chunk that is served here
    stream : number of this exchange among those of a process, for its random numbers

    Attributes
    ----------
    errors : {"sent": (size * chunk,), "served": (chunk,)} float32; empty without feedback
    """

    def __init__(
        self, sizes: Sequence[int], replicas: Replicas, compressor: Compressor, *, feedback: bool,
        stream: int = 0, device: torch.device | str = "cpu",
    ) -> None:  # fmt: skip
        self.sizes, self.replicas, self.compressor, self.stream = list(sizes), replicas, compressor, stream
        self.room = [-(-n // compressor.block) * compressor.block for n in sizes]
        blocks = sum(self.room) // compressor.block
        self.chunk = max(1, -(-blocks // replicas.size)) * compressor.block
        padded = replicas.size * self.chunk
        starts = [0, *itertools.accumulate(self.room)]
        gaps = [(start + n, stop) for n, (start, stop) in zip(sizes, itertools.pairwise(starts), strict=True)]
        gaps.append((starts[-1], padded))
        first = replicas.rank * self.chunk
        own = [(max(a - first, 0), min(b - first, self.chunk)) for a, b in gaps]
        self.gaps = {name: [(a, b) for a, b in g if a < b] for name, g in (("sent", gaps), ("served", own))}
        self.errors: dict[str, Tensor] = {}
        if feedback:
            self.errors["sent"] = torch.zeros(padded, device=device)
            self.errors["served"] = torch.zeros(self.chunk, device=device)

    def mean(self, values: Tensor, step: int) -> Tensor:
        """The mean of (n,) float32 over the replicas, as their compressor leaves it.

        Parameters
        ----------
        step : the same number in all replicas and another in each call
        """
        replicas = self.replicas
        seeds = [self.seed(step, phase, replica) for phase in (0, 1) for replica in range(replicas.size)]
        senders, servers = seeds[: replicas.size], seeds[replicas.size :]
        spread = self.spread(values)
        mine = self.pack("sent", spread.view(replicas.size, -1), [senders[replicas.rank]] * replicas.size)
        received = replicas.swap(mine)
        served = self.compressor.decode(received, senders).mean(0)
        packed = self.pack("served", served[None], [servers[replicas.rank]])
        return self.close(self.compressor.decode(replicas.collect(packed[0]), servers).view(-1))

    def spread(self, values: Tensor) -> Tensor:
        """The vector with every part at the beginning of a block, (size * chunk,)."""
        found = values.new_zeros(self.replicas.size * self.chunk)
        for part, place in zip(torch.split(values, self.sizes), self.places(found), strict=True):
            place.copy_(part)
        return found

    def close(self, spread: Tensor) -> Tensor:
        """The vector (n,) again."""
        return torch.cat(self.places(spread))

    def places(self, spread: Tensor) -> list[Tensor]:
        """Views of the parts in a vector that is spread over blocks."""
        rooms = torch.split(spread[: sum(self.room)], self.room)
        return [room[:n] for room, n in zip(rooms, self.sizes, strict=True)]

    def pack(self, place: str, rows: Tensor, seeds: list[int]) -> Tensor:
        """Packed rows; what was lost at this place before goes with them, what is lost now stays."""
        error = self.errors.get(place)
        if error is not None:
            rows = rows + error.view_as(rows)
        self.clear(place, rows)
        packed = self.compressor.encode(rows, seeds)
        if error is not None:
            torch.sub(rows, self.compressor.decode(packed, seeds), out=error.view_as(rows))
            self.clear(place, error)
        return packed

    def clear(self, place: str, values: Tensor) -> None:
        """Make what fills blocks up zero again: what it was packed as is nobody's value."""
        flat = values.view(-1)
        for start, stop in self.gaps[place]:
            flat[start:stop] = 0.0

    def seed(self, step: int, phase: int, replica: int) -> int:
        """A seed that no other call, phase or replica has."""
        text = f"{self.stream}/{step}/{phase}/{replica}".encode()
        return int.from_bytes(hashlib.sha256(text).digest()[:7], "little")
