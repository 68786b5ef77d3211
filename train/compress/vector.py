"""Some tensors' local parts seen as one vector, as it travels."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import torch
from torch import Tensor

from ..parallel.clip import local

T = TypeVar("T", bound=Tensor)
LARGEST = 2**25  # values of a vector: more would only take memory for copies


def flatten(tensors: Sequence[Tensor]) -> Tensor:
    """Local parts one after the other, float32."""
    return torch.cat([local(tensor).detach().reshape(-1).float() for tensor in tensors])


def unflatten(vector: Tensor, tensors: Sequence[Tensor]) -> None:
    """Write a vector of :func:`flatten` back into the tensors."""
    parts = torch.split(vector, [local(tensor).numel() for tensor in tensors])
    for tensor, part in zip(tensors, parts, strict=True):
        target = local(tensor).detach()
        target.copy_(part.view(target.shape))


def buckets(tensors: Sequence[T], largest: int = LARGEST) -> Iterator[list[T]]:
    """Runs of tensors with at most `largest` local values together, a larger tensor alone."""
    run: list[T] = []
    values = 0
    for tensor in tensors:
        n = local(tensor).numel()
        if run and values + n > largest:
            yield run
            run, values = [], 0
        run.append(tensor)
        values += n
    if run:
        yield run


def replace_all(tensors: Sequence[Tensor], change: Callable[[Tensor], None]) -> None:
    """Change tensors in place as one vector, a bucket at a time."""
    for run in buckets(tensors):
        vector = flatten(run)
        change(vector)
        unflatten(vector, run)
