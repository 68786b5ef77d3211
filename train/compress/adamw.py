"""AdamW of replicas whose gradients meet in the optimizer's step, not in backward.

The step begins after gradients were found finite and clipped, so a skipped step leaves moments and
error buffers as they are. FSDP shards within a replica and knows nothing of the others.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from ..parallel.clip import local
from .compressor import Compressor
from .replicas import Replicas
from .two_level import make_exchange
from .vector import buckets, flatten, replace_all, unflatten

log = logging.getLogger("holoshard")


class ReplicatedAdamW(torch.optim.AdamW):
    """Gradients travel packed, then AdamW.

    Parameters
    ----------
    groups, lr, betas : of AdamW; ``lr`` of the groups may change between steps
    replicas : who takes part; each gives a part of a gradient that is the sum of all
    packed : parameters whose gradients are packed; those of all others are summed exactly
    feedback : add what packing lost to the next gradient
    layout : what must be the same for saved error buffers to be of use
    """

    def __init__(
        self, groups: Iterable[dict[str, Any]], replicas: Replicas, packed: Sequence[Tensor],
        compressor: Compressor, *, lr: float, betas: tuple[float, float], feedback: bool,
        layout: dict[str, Any] | None = None,
    ) -> None:  # fmt: skip
        super().__init__(groups, lr=lr, betas=betas, fused=True)
        self.replicas, self.layout = replicas, layout or {}
        self.packed = [list(run) for run in buckets(packed)]
        self.exchanges = [
            make_exchange(
                [local(p).numel() for p in run], replicas, compressor, feedback=feedback, stream=stream,
                device=local(run[0]).device,
            )
            for stream, run in enumerate(self.packed)
        ]  # fmt: skip
        names = {id(p) for run in self.packed for p in run}
        self.exact = [p for group in self.param_groups for p in group["params"] if id(p) not in names]

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """One update from the gradients of all replicas."""
        self.sum_gradients(self.exact)
        for run, exchange in zip(self.packed, self.exchanges, strict=True):
            gradients = gradients_of(run)
            total = exchange.mean(flatten(gradients), self.updates).mul_(self.replicas.size)
            unflatten(total, gradients)
        super().step()

    @property
    def updates(self) -> int:
        """Steps made so far."""
        first = self.param_groups[0]["params"][0]
        return int(self.state[first]["step"]) if first in self.state else 0

    def sum_gradients(self, parameters: Sequence[Tensor]) -> None:
        """Sum gradients over the replicas, exactly."""
        replace_all(gradients_of(parameters), self.replicas.sum)

    def errors(self, rank: int) -> dict[str, Tensor]:
        """Error buffers by name, as views; `rank` is that of this process among all."""
        return {
            f"error.{place}.{rank}.{i}": buffer
            for i, exchange in enumerate(self.exchanges)
            for place, buffer in exchange.errors.items()
        }

    def saved(self) -> dict[str, Any]:
        """What a checkpoint must hold beside tensors."""
        return {"layout": self.layout}

    def resume(self, saved: dict[str, Any], rank: int) -> dict[str, Tensor]:
        """Go on from what :meth:`saved` gave; the error buffers to be read, none if they no longer fit."""
        if saved.get("layout") == self.layout:
            return self.errors(rank)
        for buffer in self.errors(rank).values():
            buffer.zero_()
        if rank == 0 and self.errors(rank):
            log.warning(
                "error buffers of compressed exchange begin at zero: the checkpoint was written with %s, "
                "this run has %s", saved.get("layout", "none"), self.layout,
            )  # fmt: skip
        return {}


def gradients_of(parameters: Sequence[Tensor]) -> list[Tensor]:
    """Gradients, zero where a parameter has none, so that all replicas exchange vectors of one length."""
    for parameter in parameters:
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
    return [parameter.grad for parameter in parameters if parameter.grad is not None]
