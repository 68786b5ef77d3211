"""One to eight bits a value, without bias: EDEN (Vargaftik et al. 2022, doi:10.48550/arXiv.2108.08842).

A random rotation makes any vector look Gaussian, so that one table of levels (Lloyd-Max of the normal
distribution) suits all. Then ||x||^2 / <rotated x, levels> is the scale that makes the mean over rotations
exactly x. The rotation is a Hadamard transform of randomly flipped signs. One such transform leaves heavy
tails far from Gaussian and the result biased; two do not.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ...shards.errors import ConfigError
from .compressor import as_bytes, from_bytes, pack_bits, unpack_bits

ROTATIONS = 2


@dataclass(frozen=True, slots=True)
class Eden:
    """`bits` a value and one float32 scale a block; the block is a power of 4."""

    bits: int = 1
    block: int = 4096

    def __post_init__(self) -> None:
        if not 1 <= self.bits <= 8:
            raise ConfigError(f"compression.bits = {self.bits}, expected 1 to 8")

    def packed_size(self, n: int) -> int:
        """Bytes of a row of `n` values."""
        return n // 8 * self.bits + 4 * (n // self.block)

    def encode(self, values: Tensor, seeds: Sequence[int]) -> Tensor:
        """Pack (rows, n) float32 with the rotation of each row's seed."""
        blocks = torch.unflatten(values, -1, (-1, self.block))
        rotated = blocks
        for signs in self._signs(seeds, values.device):
            rotated = self._hadamard(rotated * signs)
        square = blocks.square().sum(-1)
        # In a unit vector's direction values have the standard deviation 1 / sqrt(block).
        unit = rotated * (self.block / square.clamp(min=1e-30)).sqrt()[..., None]
        levels, edges = normal_levels(self.bits)
        codes = torch.bucketize(unit, edges.to(values.device))
        product = (rotated * levels.to(values.device)[codes]).sum(-1)
        scales = torch.where(product > 0, square / product.clamp(min=1e-30), 0.0)
        # A plane of bits after the other: the same for every number of bits.
        planes = [pack_bits((codes >> bit) & 1).flatten(-2) for bit in range(self.bits)]
        return torch.cat([*planes, as_bytes(scales)], -1)

    def decode(self, packed: Tensor, seeds: Sequence[int]) -> Tensor:
        """Unpack to (rows, n) float32."""
        n = packed.shape[-1] * self.block // (self.block // 8 * self.bits + 4)
        planes = torch.split(packed[..., : n // 8 * self.bits], n // 8, -1)
        codes = sum(unpack_bits(plane).int() << bit for bit, plane in enumerate(planes))
        assert isinstance(codes, Tensor)
        levels = normal_levels(self.bits)[0].to(packed.device)
        scales = from_bytes(packed[..., n // 8 * self.bits :])[..., None]
        values = torch.unflatten(levels[codes], -1, (-1, self.block)) * scales
        for signs in reversed(self._signs(seeds, packed.device)):
            values = self._hadamard(values) * signs
        return values.flatten(-2)

    def _signs(self, seeds: Sequence[int], device: torch.device) -> list[Tensor]:
        """One (rows, 1, block) of +1 and -1 for each rotation; made on the CPU, so alike on all devices."""
        rows = [
            torch.randint(0, 2, (ROTATIONS, self.block), generator=torch.Generator().manual_seed(seed))
            for seed in seeds
        ]
        signs = torch.stack(rows).mul_(2).sub_(1).float().to(device)
        return [signs[:, i, None] for i in range(ROTATIONS)]

    def _hadamard(self, blocks: Tensor) -> Tensor:
        """Orthonormal Hadamard transform of the last axis, its own inverse."""
        side = math.isqrt(self.block)
        matrix = hadamard(side).to(blocks.device)
        # The transform of side * side values is a small one on each axis of a square.
        square = torch.unflatten(blocks, -1, (side, side))
        return (matrix @ square @ matrix).flatten(-2)


@functools.cache
def hadamard(n: int) -> Tensor:
    """The orthonormal Hadamard matrix of Sylvester, (n, n) float32; n is a power of 2."""
    matrix = torch.ones(1, 1)
    while len(matrix) < n:
        matrix = torch.cat([torch.cat([matrix, matrix], 1), torch.cat([matrix, -matrix], 1)])
    return matrix / math.sqrt(n)


@functools.cache
def normal_levels(bits: int) -> tuple[Tensor, Tensor]:
    """Levels (2^bits,) and the edges between them (2^bits - 1,) of the normal distribution, float32.

    They make the mean square error smallest (Lloyd 1982, doi:10.1109/TIT.1982.1056489): each level is the
    mean of its cell, each edge lies half way between two levels.
    """
    n = 2**bits
    share = (torch.arange(n, dtype=torch.float64) + 0.5) / n
    # The best density of many levels is the cube root of that of the values: here a wider normal one.
    levels = torch.special.ndtri(share) * math.sqrt(3.0)
    for _ in range(4000):
        edges = (levels[1:] + levels[:-1]) / 2
        bounds = torch.cat([edges.new_tensor([-math.inf]), edges, edges.new_tensor([math.inf])])
        density = torch.exp(-0.5 * bounds.square()) / math.sqrt(2 * math.pi)
        levels = (density[:-1] - density[1:]) / torch.special.ndtr(bounds).diff()
    return levels.float(), ((levels[1:] + levels[:-1]) / 2).float()
