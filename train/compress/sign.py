"""One bit a value: its sign, and one scale for each block of values.

The scale is the mean magnitude of the block's values; zeros, which fill blocks up, do not count. That makes
the error smallest in the squares among all multiples of the signs (1-bit Adam, doi:10.48550/arXiv.2102.02888;
Bernstein et al., doi:10.48550/arXiv.1802.04434). What comes back is biased: it needs error feedback.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from .compressor import as_bytes, from_bytes, pack_bits, unpack_bits


@dataclass(frozen=True, slots=True)
class Sign:
    """Signs, with one float32 scale a block: 32 / (1 + 32 / block) times fewer bytes than float32."""

    block: int = 1024

    def packed_size(self, n: int) -> int:
        """Bytes of a row of `n` values."""
        return n // 8 + 4 * (n // self.block)

    def encode(self, values: Tensor, seeds: Sequence[int]) -> Tensor:
        """Pack (rows, n) float32; there is nothing random in it."""
        blocks = torch.unflatten(values, -1, (-1, self.block))
        scales = blocks.abs().sum(-1) / blocks.count_nonzero(-1).clamp(min=1)
        return torch.cat([pack_bits(values >= 0), as_bytes(scales)], -1)

    def decode(self, packed: Tensor, seeds: Sequence[int]) -> Tensor:
        """Unpack to (rows, n) float32."""
        n = packed.shape[-1] * self.block // (self.block // 8 + 4)
        signs = torch.unflatten(unpack_bits(packed[..., : n // 8]), -1, (-1, self.block))
        scales = from_bytes(packed[..., n // 8 :])[..., None]
        return torch.where(signs.bool(), scales, -scales).flatten(-2)
