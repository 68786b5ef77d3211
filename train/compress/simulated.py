"""Replicas that are threads of one process: what compression does to learning, measured without a cluster."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TypeVar

import torch
from torch import Tensor

Result = TypeVar("Result")


@dataclass(slots=True)
class Meeting:
    """Where threads leave tensors for each other."""

    size: int
    given: list[Tensor] = field(init=False)
    barrier: threading.Barrier = field(init=False)

    def __post_init__(self) -> None:
        self.given = [torch.empty(0)] * self.size
        self.barrier = threading.Barrier(self.size)

    def exchange(self, rank: int, values: Tensor) -> list[Tensor]:
        """What all threads gave; nobody goes on before all have looked."""
        self.given[rank] = values
        self.barrier.wait()
        found = list(self.given)
        self.barrier.wait()
        return found


@dataclass(frozen=True, slots=True)
class ThreadReplicas:
    """One replica of a meeting; see :class:`.replicas.Replicas`."""

    rank: int
    meeting: Meeting

    @property
    def size(self) -> int:
        """How many there are."""
        return self.meeting.size

    def sum(self, values: Tensor) -> None:
        """Sum over the replicas, in place, in the same order in each."""
        given = self.meeting.exchange(self.rank, values.clone())
        values.copy_(torch.stack(given).sum(0))

    def swap(self, rows: Tensor) -> Tensor:
        """Row i of the result is what replica i gave to this one."""
        return torch.stack([given[self.rank] for given in self.meeting.exchange(self.rank, rows)])

    def collect(self, row: Tensor) -> Tensor:
        """The row of every replica."""
        return torch.stack(self.meeting.exchange(self.rank, row))


def simulate(size: int, work: Callable[[ThreadReplicas], Result]) -> list[Result]:
    """Run `work` as each of `size` replicas at the same time; what they return, in order.

    A replica that fails ends the others, and its error is raised.
    """
    meeting = Meeting(size)

    def run(rank: int) -> Result:
        try:
            return work(ThreadReplicas(rank, meeting))
        except BaseException:
            meeting.barrier.abort()
            raise

    with ThreadPoolExecutor(size) as pool:
        futures = [pool.submit(run, rank) for rank in range(size)]
        errors = [error for future in futures if (error := future.exception()) is not None]
    for error in errors:
        if not isinstance(error, threading.BrokenBarrierError):
            raise error
    return [future.result() for future in futures]
