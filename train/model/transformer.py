"""A transformer over the atoms of a complex that no rotation or shift of the input changes.

Atoms are tokens. Geometry enters only through distances: radial basis functions of |r_i - r_j| and the
bond between i and j form pair features, and every layer adds a linear map of them to its attention
scores. Distances are taken from differences of float32 positions, so a moved complex gives the same
prediction.

Shapes: B complexes, N atoms (padded), M bonds (padded), H heads, D channels, K pairs.
"""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn import functional

from ...shards.complex import KINDS
from ..config import ModelConfig
from .attention import Attention, Neighbourhood
from .linear import LayerNorm, Linear
from .packing import Rows
from .pairs import Pairs, pair_features
from .sharing import share_down

# The columns of a token and the rows of the table that each has; longer than today's vocabularies,
# which only grow, so that a trained model reads tomorrow's data. Values beyond count as unknown (0).
ATOM_FEATURES: Final = (
    ("element", 128), ("charge", 16), ("hybridisation", 16), ("aromatic", 2), ("degree", 16),
    ("atom_residue_type", 64), ("ligand_mask", 2),
)  # fmt: skip
CHARGE_ZERO: Final = 8  # row of a formal charge of 0
POOL_SIZE: Final = 32.0  # ligand atoms by which the summed pool is divided: a usual drug's

Inputs = Mapping[str, Any]  # tensors by name, and the Rows of a packed batch


class FeedForward(nn.Module):
    """Two linear maps with GELU between them."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.up = Linear(config.width, config.feed_forward)
        self.down = Linear(config.feed_forward, config.width, scale=(2 * config.layers) ** -0.5)

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, N, D)."""
        out: Tensor = self.down(functional.gelu(self.up(x)))
        return out


class Layer(nn.Module):
    """Pre-norm attention and feed-forward."""

    def __init__(self, config: ModelConfig, heads: int) -> None:
        super().__init__()
        self.attention_norm, self.attention = LayerNorm(config.width), Attention(config, heads)
        self.feed_forward_norm, self.feed_forward = LayerNorm(config.width), FeedForward(config)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor, pair: Pairs, mask: Tensor) -> Tensor:
        """Map (B, N, D) as Attention does."""
        x = x + self.dropout(self.attention(self.attention_norm(x), pair, mask))
        out: Tensor = x + self.dropout(self.feed_forward(self.feed_forward_norm(x)))
        return out


class Embedding(nn.Module):
    """Atoms to tokens: the sum of one row for each feature, and what surrounds the atom."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.table = nn.EmbeddingBag(sum(size for _, size in ATOM_FEATURES), config.width, mode="sum")
        self.neighbourhood = Neighbourhood(config)
        self.norm = LayerNorm(config.width)

    def forward(self, batch: Inputs, pair: Pairs) -> Tensor:
        """Tokens (B, N, D)."""
        B, N = batch["atom_mask"].shape
        columns, start = [], 0
        for name, size in ATOM_FEATURES:
            value = batch[name].long() + (CHARGE_ZERO if name == "charge" else 0)
            columns.append(torch.where((value >= 0) & (value < size), value, 0) + start)
            start += size
        x = self.table(torch.stack(columns, -1).view(B * N, -1)).view(B, N, -1)
        out: Tensor = x + self.neighbourhood(self.norm(x), pair.to(x.dtype), batch["atom_mask"])
        return out


class Head(nn.Module):
    """Tokens to a prediction: mean and sum over the pooled atoms, then two linear maps."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.norm = LayerNorm(config.width)
        self.hidden = Linear(2 * config.width, config.width)
        self.dropout = nn.Dropout(config.dropout)
        self.out = Linear(config.width, 2 if config.uncertainty else 1, scale=0.0)

    def forward(self, x: Tensor, mask: Tensor, rows: Rows | None = None) -> Tensor:
        """(B, 1) or, with uncertainty, (B, 2) float32, from (B, N, D) and the mask of pooled atoms (B, N)."""
        pooled = self.norm(x).float() * mask[..., None]
        total, count = pooled.sum(1), mask.sum(1, keepdim=True)
        if rows is not None:  # packed: (1, T, D)
            B = len(rows.sizes)
            total = pooled.new_zeros(B, x.shape[-1]).index_add(0, rows.segment, pooled[0])
            count = count.new_zeros(B, 1).index_add(0, rows.segment, mask[0, :, None].to(count.dtype))
        mean = total / count.clamp(min=1)
        pooled = torch.cat([mean, total / POOL_SIZE], -1).to(x.dtype)
        out: Tensor = self.out(self.dropout(functional.gelu(self.hidden(pooled))))
        return out.float()


class AffinityTransformer(nn.Module):
    """Predicts pK. Its buffers ``target_mean`` and ``target_sd`` carry the scale of the labels."""

    target_mean: Tensor
    target_sd: Tensor

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = Embedding(config)
        # A dictionary, not a list: a pipeline stage drops layers and the others keep their names.
        layers = [Layer(config, heads) for heads in config.attention_heads]
        share_down(layers, config.share_ffn_out)
        self.layers = nn.ModuleDict({str(i): layer for i, layer in enumerate(layers)})
        self.head = Head(config)
        if config.kind_offsets:
            self.kind = nn.Embedding(len(KINDS), 1)
        self.register_buffer("target_mean", torch.zeros(()))
        self.register_buffer("target_sd", torch.ones(()))

    def forward(self, batch: Inputs) -> Tensor:
        """Predict pK, (B, 1) float32; with uncertainty (B, 2): pK and the log of its standard deviation.

        Parameters
        ----------
        batch : position (B, N, 3) angstrom; the columns of ATOM_FEATURES, (B, N) each; atom_mask (B, N)
            the atoms the model may see; pool_mask (B, N) those it pools; bond_atoms (B, M, 2),
            bond_order and bond_mask (B, M); pk_kind (B,) where kinds have offsets; near (K,) of
            :func:`.pairs.near_pairs` where only those pairs are to be computed
        """
        pair = pair_features(batch, self.config.rbf, self.config.cutoff)
        return self.finish(self.layered(self.embedding(batch, pair), pair, batch), batch)

    def layered(self, x: Tensor, pair: Pairs, batch: Inputs) -> Tensor:
        """Tokens (B, N, D) after the layers there are."""
        pair = pair.to(x.dtype)
        for layer in self.layers.values():
            x = layer(x, pair, batch["atom_mask"])
        return x

    def finish(self, x: Tensor, batch: Inputs) -> Tensor:
        """The prediction from the last tokens."""
        z = self.head(x, batch["pool_mask"], batch.get("rows"))
        pk = self.target_mean + self.target_sd * z[:, :1]
        if self.config.kind_offsets:
            pk = pk + self.kind(batch["pk_kind"].long()).float()
        return torch.cat([pk, z[:, 1:] + self.target_sd.log()], 1)


def first_weights(model: nn.Module, seed: int) -> Iterator[tuple[nn.Parameter, Tensor]]:
    """Each parameter with its first value, float32 on the CPU.

    A value depends on the seed and the parameter's name alone, so that every layout of processes
    starts from the same model, and only one parameter at a time is whole in memory.
    """
    for prefix, module in model.named_modules():
        for name, parameter in module.named_parameters(prefix=prefix, recurse=False):
            value = torch.zeros(parameter.shape)
            if isinstance(module, nn.LayerNorm) and name.endswith("weight"):
                value.fill_(1.0)
            elif (std := _first_std(module)) and name.endswith("weight"):
                generator = torch.Generator().manual_seed(_hash(f"{seed}/{clean_name(name)}"))
                value.normal_(0.0, std, generator=generator)
            yield parameter, value


def _first_std(module: nn.Module) -> float:
    if isinstance(module, Linear):
        return float(module.scale * module.in_features**-0.5)
    return float(len(ATOM_FEATURES) ** -0.5) if isinstance(module, nn.EmbeddingBag) else 0.0


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:7], "little")


def clean_name(name: str) -> str:
    """A parameter's name without what activation checkpointing and a pipeline put into it."""
    return re.sub(r"^stages\.\d+\.|_checkpoint_wrapped_module\.", "", name)


@functools.cache
def parameter_count(config: ModelConfig) -> int:
    """Parameters of a model, without allocating them."""
    with torch.device("meta"):
        return sum(p.numel() for p in AffinityTransformer(config).parameters())
