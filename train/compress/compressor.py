"""What turns numbers into fewer bytes; :mod:`.exchange` sends them.

Another compressor needs no more than :class:`Compressor` and a line in :func:`make_compressor`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from ...shards.errors import ConfigError


class Compressor(Protocol):
    """Rows of numbers to bytes and back, each row by itself.

    Attributes
    ----------
    block : values that are packed together; a row has a multiple of it
    """

    @property
    def block(self) -> int:
        """Values that are packed together."""

    def packed_size(self, n: int) -> int:
        """Bytes of a row of `n` values."""

    def encode(self, values: Tensor, seeds: Sequence[int]) -> Tensor:
        """Pack (rows, n) float32 to (rows, packed_size(n)) uint8.

        Parameters
        ----------
        seeds : of each row's random numbers; whoever decodes it must give the same
        """

    def decode(self, packed: Tensor, seeds: Sequence[int]) -> Tensor:
        """Unpack to (rows, n) float32; equal bytes and seeds give equal numbers everywhere."""


def make_compressor(kind: str, bits: int = 1) -> Compressor:
    """The compressor of this name; `bits` are those of a value, which a sign has one of.

    Raises
    ------
    ConfigError : there is none of this name
    """
    from .eden import Eden
    from .sign import Sign

    if kind == "sign":
        return Sign()
    if kind == "eden":
        return Eden(bits)
    raise ConfigError(f'compression.kind = {kind!r}, expected "sign" or "eden"')


def pack_bits(bits: Tensor) -> Tensor:
    """(..., n) of 0 and 1 to (..., n / 8) uint8, the lowest bit first."""
    shifts = torch.arange(8, dtype=torch.uint8, device=bits.device)
    return (torch.unflatten(bits.to(torch.uint8), -1, (-1, 8)) << shifts).sum(-1, dtype=torch.uint8)


def unpack_bits(packed: Tensor) -> Tensor:
    """(..., n / 8) uint8 to (..., n) uint8 of 0 and 1."""
    shifts = torch.arange(8, dtype=torch.uint8, device=packed.device)
    return ((packed[..., None] >> shifts) & 1).flatten(-2)


def as_bytes(values: Tensor) -> Tensor:
    """(..., n) float32 as (..., 4 n) uint8."""
    return values.contiguous().view(torch.uint8)


def from_bytes(packed: Tensor) -> Tensor:
    """(..., 4 n) uint8 as (..., n) float32."""
    return packed.contiguous().view(torch.float32)
