"""A model put together again from its parts in many processes, one tensor at a time."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from ..model.transformer import AffinityTransformer, clean_name
from .pipeline import Pipeline, Stage


def whole_tensors(model: AffinityTransformer | Pipeline) -> Iterator[tuple[str, Tensor]]:
    """Every parameter and buffer by name; all processes must go through all of them.

    In a pipeline the whole is where the process that writes is; the others get some tensors, and empty ones
    instead of the rest.
    """
    if not isinstance(model, Pipeline):
        yield from ((name, whole(tensor)) for name, tensor in named_tensors(model))
        return
    own, writer = dict(model.own()), model.world.writing_stage
    for number, holder in enumerate(model.owners):
        with torch.device("meta"):
            stage = own.get(number) or Stage(model.config.model, number, len(model.owners))
        for name, tensor in named_tensors(stage):
            full = torch.empty(0)
            if number in own:
                full = whole(tensor).to(model.world.device, torch.float32).contiguous()
                if holder != writer:
                    dist.send(full, group=model.group, group_dst=writer)
            elif model.me == writer:
                full = torch.empty(tensor.shape, device=model.world.device)
                dist.recv(full, group=model.group, group_src=holder)
            yield name, full


def named_tensors(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Parameters and buffers by their clean names."""
    for name, tensor in itertools.chain(model.named_parameters(), model.named_buffers()):
        yield clean_name(name), tensor


def whole(tensor: Tensor) -> Tensor:
    """A tensor put together from its parts; every process that holds one must call it."""
    full: Tensor = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
    return full.detach()
