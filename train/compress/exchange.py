"""The mean of a vector over replicas, in packed bytes, in two phases.

Each replica serves one chunk of the vector: first all send it their packed chunks (all-to-all), then it
packs the mean of them and sends it to all (all-gather). What packing lost is added to what is packed next
time, at the sender and at the server (error feedback; 1-bit Adam, doi:10.48550/arXiv.2102.02888). Every
replica unpacks the same bytes, so all get bit for bit the same mean.
"""

from __future__ import annotations

import hashlib

import torch
from torch import Tensor

from .compressor import Compressor
from .replicas import Replicas


class Exchange:
    """One vector's way between replicas, and the errors it left behind.

    Parameters
    ----------
    n : values of the vector
    replicas : who takes part
    feedback : keep errors: one float32 copy of the vector, and of the chunk that is served here
    stream : number of this exchange among those of a process, for its random numbers

    Attributes
    ----------
    errors : {"sent": (size * chunk,), "served": (chunk,)} float32; empty without feedback
    """

    def __init__(
        self, n: int, replicas: Replicas, compressor: Compressor, *, feedback: bool, stream: int = 0,
        device: torch.device | str = "cpu",
    ) -> None:  # fmt: skip
        self.n, self.replicas, self.compressor, self.stream = n, replicas, compressor, stream
        blocks = -(-n // (replicas.size * compressor.block))
        self.chunk = blocks * compressor.block
        padded = replicas.size * self.chunk
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
        padded = torch.nn.functional.pad(values, (0, replicas.size * self.chunk - self.n))
        mine = self.pack("sent", padded.view(replicas.size, -1), [senders[replicas.rank]] * replicas.size)
        received = replicas.swap(mine)
        served = self.compressor.decode(received, senders).mean(0)
        packed = self.pack("served", served[None], [servers[replicas.rank]])
        return self.compressor.decode(replicas.collect(packed[0]), servers).view(-1)[: self.n]

    def pack(self, place: str, rows: Tensor, seeds: list[int]) -> Tensor:
        """Packed rows; what was lost at this place before goes with them, what is lost now stays."""
        error = self.errors.get(place)
        if error is None:
            return self.compressor.encode(rows, seeds)
        rows = rows + error.view_as(rows)
        packed = self.compressor.encode(rows, seeds)
        torch.sub(rows, self.compressor.decode(packed, seeds), out=error.view_as(rows))
        return packed

    def bytes_sent(self) -> int:
        """Bytes that a replica sends in one exchange; what it keeps for itself does not travel."""
        return 2 * (self.replicas.size - 1) * self.compressor.packed_size(self.chunk)

    def seed(self, step: int, phase: int, replica: int) -> int:
        """A seed that no other call, phase or replica has."""
        text = f"{self.stream}/{step}/{phase}/{replica}".encode()
        return int.from_bytes(hashlib.sha256(text).digest()[:7], "little")


def bytes_of_all_reduce(n: int, size: int, width: int = 4) -> int:
    """Bytes that each of `size` processes sends in the usual all-reduce of `n` values of `width` bytes.

    Reduce-scatter and all-gather in a ring (Patarasuk and Yuan 2009, doi:10.1016/j.jpdc.2008.09.002).
    """
    return round(2 * (size - 1) / size * n * width)
