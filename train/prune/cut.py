"""Rows and columns of the heads that stay.

A silent head adds nothing to the output map, so cutting its rows of query, key, value and bias and its
columns of that map gives the same model as silencing it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

import torch
from torch import Tensor

from ..config import ModelConfig

NAME: Final = re.compile(r"(?:.*\.)?layers\.(\d+)\.attention\.(query|key|value|bias|out)\.(weight|bias)")
Heads = Sequence[Sequence[int]]


def cut_config(config: ModelConfig, kept: Heads) -> ModelConfig:
    """The same model with these heads."""
    return replace(config, layer_heads=tuple(len(heads) for heads in kept))


def cut_tensors(tensors: Mapping[str, Tensor], config: ModelConfig, kept: Heads) -> dict[str, Tensor]:
    """Parameters or anything of their shapes (moments of an optimizer), by name, without the other heads."""
    width = config.width // config.heads
    return {name: cut_tensor(name, tensor, width, kept) for name, tensor in tensors.items()}


def cut_tensor(name: str, tensor: Tensor, width: int, kept: Heads) -> Tensor:
    """One tensor; those that heads do not divide come back as they are."""
    found = NAME.fullmatch(name)
    if not found or (found[2], found[3]) == ("out", "bias"):
        return tensor
    heads = torch.tensor(kept[int(found[1])])
    if found[2] == "bias":  # a row a head
        return tensor.index_select(0, heads).contiguous()
    channels = (heads[:, None] * width + torch.arange(width)).reshape(-1)
    return tensor.index_select(1 if found[2] == "out" else 0, channels).contiguous()


def silence(tensors: Mapping[str, Tensor], config: ModelConfig, kept: Heads) -> None:
    """Take the other heads' columns out of the output maps, in place: what cutting must equal."""
    width = config.width // config.heads
    for name, tensor in tensors.items():
        found = NAME.fullmatch(name)
        if found and (found[2], found[3]) == ("out", "weight"):
            stays = torch.zeros(tensor.shape[1] // width, 1)
            stays[list(kept[int(found[1])])] = 1.0
            tensor.mul_(stays.expand(-1, width).reshape(-1))


def baked(name: str, tensor: Tensor, gates: list[Tensor]) -> Tensor:
    """A parameter by its name, its columns multiplied by their heads' gates if it is an output map."""
    found = NAME.fullmatch(name)
    if not found or (found[2], found[3]) != ("out", "weight"):
        return tensor
    gate = gates[int(found[1])].to(tensor)
    return tensor * gate.repeat_interleave(tensor.shape[1] // len(gate))
