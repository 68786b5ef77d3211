"""Complexes one after the other in one row, without padding.

Pairs exist within a complex only: what is known of them lies in a ragged row, the n x n pairs of the first
complex, then those of the second. On a CPU attention goes from complex to complex; with CUDA it is one
FlexAttention (doi:10.48550/arXiv.2412.05496) that looks up each score's bias and skips what lies between
complexes. The numbers are those of the padded batch.

Shapes: B complexes, T atoms of all, R = sum of n x n over complexes, H heads, d channels of a head.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention

from .pairs import NEAR, near_pairs, with_near


class Rows(NamedTuple):
    """Where the complexes of a packed batch lie.

    Attributes
    ----------
    sizes : atoms of each complex
    segment : (T,) number of each atom's complex
    first : (T,) first atom of its complex
    base : (T,) place in the ragged row of the pair of this atom with the first
    blocks : which blocks of scores FlexAttention computes; None where that is not used
    """

    sizes: tuple[int, ...]
    segment: Tensor
    first: Tensor
    base: Tensor
    blocks: BlockMask | None = None


def prepared(batch: dict[str, Tensor], cutoff: float, packed: bool) -> dict[str, Any]:
    """A batch as the model computes it fastest: packed if wanted, otherwise with its near pairs named."""
    if packed and batch["atom_mask"].any():  # a process without a share has no atom to pack
        return pack(batch, cutoff)
    return with_near(batch, cutoff)


def pack(batch: dict[str, Tensor], cutoff: float) -> dict[str, Any]:
    """A padded batch as one row of real atoms: columns (1, T, ...), bonds (1, M, ...), labels as they are.

    Adds ``rows`` (:class:`Rows`), ``near`` (places in the ragged row) and ``near_atoms`` (2, K). The atoms of
    a complex are its first ones, as the stream lays them.
    """
    mask, near = batch["atom_mask"], near_pairs(batch, cutoff)
    B, N = mask.shape
    sizes, device = mask.sum(1), mask.device
    starts, squares = sizes.cumsum(0) - sizes, sizes.square().cumsum(0) - sizes.square()
    segment = torch.arange(B, device=device)[:, None].expand(B, N)[mask]
    packed: dict[str, Any] = {name: v for name, v in batch.items() if name not in (NEAR, "bond_atoms")}
    packed |= {name: v[mask][None] for name, v in batch.items() if v.shape[:2] == (B, N) and v.ndim < 4}
    bonds = batch["bond_mask"]
    shifted = batch["bond_atoms"].long() + starts[:, None, None]
    packed |= {"bond_atoms": shifted[bonds][None], "bond_order": batch["bond_order"][bonds][None]}
    packed["bond_mask"] = bonds[bonds][None]
    row, i, j = near // (N * N), near // N % N, near % N
    packed[NEAR] = squares[row] + i * sizes[row] + j
    packed["near_atoms"] = torch.stack([starts[row] + i, starts[row] + j])
    place = torch.arange(len(segment), device=device)
    first = starts[segment]
    base = squares[segment] + (place - first) * sizes[segment]
    blocks = blocks_of(segment) if device.type == "cuda" else None  # once for all layers
    packed["rows"] = Rows(tuple(sizes.tolist()), segment, first, base, blocks)
    return packed


def attend_packed(q: Tensor, k: Tensor, v: Tensor, bias: Tensor, rows: Rows) -> Tensor:
    """softmax(q k' / sqrt(d) + bias) v within each complex: (H, 1, T, d), with bias (H, R)."""
    if q.device.type == "cuda":
        return attend_flex(q, k, v, bias, rows, compiled())
    parts, start, place = [], 0, 0
    for n in rows.sizes:
        own = slice(start, start + n)
        scores = torch.baddbmm(
            bias[:, place : place + n * n].view(-1, n, n),
            q[:, 0, own],
            k[:, 0, own].mT,
            alpha=q.shape[-1] ** -0.5,
        )
        parts.append(scores.softmax(-1) @ v[:, 0, own])
        start, place = start + n, place + n * n
    return torch.cat(parts, 1)[:, None]


def attend_flex(
    q: Tensor, k: Tensor, v: Tensor, bias: Tensor, rows: Rows, flex: Any = flex_attention
) -> Tensor:
    """The same by FlexAttention."""
    first, base, last = rows.first, rows.base, bias.shape[1] - 1

    def biased(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return score + bias[h, (base[i] + j - first[i]).clamp(0, last)]  # masked pairs are looked up as well

    mask = rows.blocks or blocks_of(rows.segment)
    y: Tensor = flex(*(t.transpose(0, 1) for t in (q, k, v)), score_mod=biased, block_mask=mask)
    return y.transpose(0, 1)


def blocks_of(segment: Tensor) -> BlockMask:
    """Scores within complexes, for FlexAttention."""

    def same(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return segment[i] == segment[j]

    T = len(segment)
    return create_block_mask(same, None, None, T, T, device=str(segment.device))


@cache
def compiled() -> Any:
    """FlexAttention as one kernel; without compilation it would hold all scores."""
    return torch.compile(flex_attention, dynamic=True)
