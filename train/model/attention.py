"""Attention of atoms to atoms, with a bias from what is known of each pair.

Shapes: B complexes, N atoms (padded), H heads, D channels, d channels of a head.
"""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor, nn
from torch.nn import functional

from ...shards.complex import BOND_ORDERS
from ..config import ModelConfig
from .linear import Linear
from .packing import attend_packed
from .pairs import Pairs

NEIGHBOURS: Final = 16.0  # divides sums over neighbours, so that they start near 1


class Attention(nn.Module):
    """Multi-head attention whose scores get a bias from pair features."""

    def __init__(self, config: ModelConfig, heads: int) -> None:
        super().__init__()
        D, P = config.width, config.rbf + len(BOND_ORDERS)
        self.head_width = D // config.heads
        inner = heads * self.head_width  # less than D where heads were pruned
        self.query, self.key, self.value = Linear(D, inner), Linear(D, inner), Linear(D, inner)
        self.bias = Linear(P, heads, bias=False)
        self.out = Linear(inner, D, scale=(2 * config.layers) ** -0.5)

    def forward(self, x: Tensor, pair: Pairs, mask: Tensor) -> Tensor:
        """Map (B, N, D) with the features of pairs and the mask of real atoms (B, N)."""
        B, N, _ = x.shape
        q, k, v = (split_heads(f(x), self.head_width) for f in (self.query, self.key, self.value))
        bias = self.bias(pair.features)
        if pair.rows is not None:
            y = attend_packed(q, k, v, pair.ragged(bias), pair.rows)
        else:
            y = attend(q, k, v, pair.dense(bias, B, N, mask))
        out: Tensor = self.out(join_heads(y))
        return out


class Neighbourhood(nn.Module):
    """What surrounds each atom: sums, not averages, so that contacts can be counted.

    A continuous-filter sum as in SchNet (doi:10.1063/1.5019779), one filter of the distance for each head.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        D, P = config.width, config.rbf + len(BOND_ORDERS)
        self.head_width = D // config.heads
        self.value = Linear(D, D)
        self.filter = Linear(P, config.heads, bias=False)
        self.out = Linear(D, D)

    def forward(self, x: Tensor, pair: Pairs, mask: Tensor) -> Tensor:
        """Map (B, N, D) as Attention does."""
        B, N, _ = x.shape
        v = split_heads(self.value(x).masked_fill(~mask[..., None], 0.0), self.head_width)
        near = self.filter(pair.features)
        if pair.atoms is not None:
            one, other = pair.atoms
            y = torch.zeros_like(v).index_add(2, one, near.T[:, None, :, None] * v[:, :, other])
        else:
            y = pair.dense(near, B, N) @ v
        y = y / NEIGHBOURS
        out: Tensor = self.out(join_heads(y))
        return out


def split_heads(x: Tensor, d: int) -> Tensor:
    """(B, N, H * d) to (H, B, N, d): how many heads there are is what tensor parallelism left us."""
    B, N, _ = x.shape
    return x.view(B, N, -1, d).permute(2, 0, 1, 3)


def join_heads(x: Tensor) -> Tensor:
    """(H, B, N, d) to (B, N, H * d)."""
    return x.permute(1, 2, 0, 3).flatten(2)


def attend(q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
    """softmax(q k' / sqrt(d) + bias) v, with a bias (H, B, N, N) that hides padded keys: (H, B, N, d).

    On a CPU, scaled_dot_product_attention has no fast way to differentiate a bias and takes some twelve
    passes over the scores; plain products take three.
    """
    if q.device.type == "cpu" and torch.is_grad_enabled():
        H, B, N, d = q.shape
        q, k, v = (t.reshape(H * B, N, d) for t in (q, k, v))
        scores = torch.baddbmm(bias.reshape(H * B, N, N), q, k.mT, alpha=d**-0.5)
        return torch.bmm(scores.softmax(-1), v).view(H, B, N, d)
    q, k, v = (t.transpose(0, 1) for t in (q, k, v))
    y = functional.scaled_dot_product_attention(q, k, v, attn_mask=bias.transpose(0, 1))
    return y.transpose(0, 1)
