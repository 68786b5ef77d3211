"""Processes that hold the same parameters and saw different complexes, and how they talk."""

from __future__ import annotations

from typing import Protocol

import torch
import torch.distributed as dist
from torch import Tensor


class Replicas(Protocol):
    """One of several replicas; every method is called by all of them in the same order."""

    @property
    def size(self) -> int:
        """How many there are."""

    @property
    def rank(self) -> int:
        """Which one this is."""

    def sum(self, values: Tensor) -> None:
        """Sum over the replicas, in place."""

    def swap(self, rows: Tensor) -> Tensor:
        """Give row i of (size, n) to replica i; row i of the result is what replica i gave."""

    def collect(self, row: Tensor) -> Tensor:
        """The row (n,) of every replica: (size, n)."""


class GroupReplicas:
    """Replicas that are processes of a process group."""

    def __init__(self, group: dist.ProcessGroup) -> None:
        self.group, self.size, self.rank = group, group.size(), group.rank()

    def sum(self, values: Tensor) -> None:
        """One all-reduce."""
        dist.all_reduce(values, group=self.group)

    def swap(self, rows: Tensor) -> Tensor:
        """One all-to-all."""
        received = torch.empty_like(rows)
        dist.all_to_all_single(received, rows, group=self.group)
        return received

    def collect(self, row: Tensor) -> Tensor:
        """One all-gather."""
        rows = row.new_empty(self.size * len(row))  # gloo wants one row, not several
        dist.all_gather_single(rows, row, group=self.group)
        return rows.view(self.size, -1)
