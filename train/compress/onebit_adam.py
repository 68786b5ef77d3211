"""1-bit Adam (Tang et al. 2021, doi:10.48550/arXiv.2102.02888) over replicas, with sharded parameters.

It begins as AdamW with exact gradients. When the second moment has become steady it is frozen, and from
then on each replica adds its own gradient to the first moment and only that moment travels, packed, with
error feedback on both sides. Adam's update is then linear in what is packed, so that errors cancel over
time; packed gradients would enter the second moment too, where they do not.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor

from ..parallel.clip import local
from .adamw import ReplicatedAdamW, gradients_of
from .compressor import Compressor
from .exchange import Exchange
from .replicas import Replicas
from .two_level import TwoLevelExchange
from .vector import flatten, unflatten

LATEST: Final = 0.5  # share of a run's updates after which warm-up ends, steady or not
STEADY: Final = 0.96  # ratio of the second moment's norms beyond which warm-up may end, as in the paper
# Smallest second moment, as a share of its tensor's mean. All momenta of a block come back with one
# magnitude; divided by the root of a far smaller second moment it would be a leap.
FLOOR: Final = 1e-2


class OneBitAdam(ReplicatedAdamW):
    """AdamW for a while, then 1-bit Adam.

    Parameters
    ----------
    warmup : updates before the second moment is frozen; 0 to wait until it is steady: until its 1-norm
        changed by less than 4 % in 1 / (1 - beta2) updates in which the learning rate did not rise
    latest : updates after which it is frozen although it is not steady; 0 for never
    others : of :class:`.adamw.ReplicatedAdamW`

    Attributes
    ----------
    frozen_at : updates made when the second moment was frozen, None before
    """

    def __init__(
        self, groups: Iterable[dict[str, Any]], replicas: Replicas, packed: Sequence[Tensor],
        compressor: Compressor, *, lr: float, betas: tuple[float, float], feedback: bool = True,
        warmup: int = 0, latest: int = 0, layout: dict[str, Any] | None = None,
    ) -> None:  # fmt: skip
        super().__init__(
            groups, replicas, packed, compressor, lr=lr, betas=betas, feedback=feedback, layout=layout
        )
        self.end, self.frozen_at = warmup or latest, None if packed else 0
        self.looks = not warmup
        self.seen: tuple[float, float] | None = None  # norm of the second moment and lr when last looked at
        self.group_of = {p: group for group in self.param_groups for p in group["params"]}

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """One update from the gradients of all replicas."""
        if self.frozen_at is None:
            for run in (self.exact, *self.packed):
                self.sum_gradients(run)
            torch.optim.AdamW.step(self)
            self.consider_freezing()
            return
        self.sum_gradients(self.exact)
        gradients = [gradients_of(run) for run in self.packed]
        for run in self.packed:
            for parameter in run:
                parameter.grad = None  # AdamW passes it by
        torch.optim.AdamW.step(self)
        for run, own, exchange in zip(self.packed, gradients, self.exchanges, strict=True):
            self.exchange_momentum(run, own, exchange)
            for parameter in run:
                self.update(parameter)

    def exchange_momentum(
        self, run: Sequence[Tensor], gradients: Sequence[Tensor], exchange: Exchange | TwoLevelExchange
    ) -> None:
        """First moments from this replica's gradients, then their mean over the replicas."""
        moments = [self.state[parameter]["exp_avg"] for parameter in run]
        for parameter, moment, gradient in zip(run, moments, gradients, strict=True):
            beta1 = self.group_of[parameter]["betas"][0]
            # The gradient is the sum of the replicas' parts, and the exchange gives a mean.
            local(moment).mul_(beta1).add_(local(gradient), alpha=(1 - beta1) * self.replicas.size)
            self.state[parameter]["step"] += 1
        unflatten(exchange.mean(flatten(moments), self.updates), moments)

    def update(self, parameter: Tensor) -> None:
        """AdamW's update with the frozen second moment."""
        group, state = self.group_of[parameter], self.state[parameter]
        beta1, beta2 = group["betas"]
        moment, second = local(state["exp_avg"]), local(state["exp_avg_sq"])
        # A parameter that never had a gradient would be moved by the sign that 0 is packed as.
        moment.masked_fill_(second == 0, 0.0)
        assert self.frozen_at is not None
        root = (second / (1 - beta2**self.frozen_at)).sqrt_().add_(group["eps"])
        own = local(parameter).detach()
        own.mul_(1 - group["lr"] * group["weight_decay"])
        own.addcdiv_(moment, root, value=-group["lr"] / (1 - beta1 ** float(state["step"])))

    def consider_freezing(self) -> None:
        """End the warm-up if it is time; the same decision in every process."""
        updates, group = self.updates, self.param_groups[0]
        if self.end and updates >= self.end:
            self.freeze()
            return
        if not self.looks or updates % round(1 / (1 - group["betas"][1])):
            return
        norm, lr = self.norm_of_second_moments(), float(group["lr"])
        if self.seen is not None and lr <= self.seen[1] and _ratio(norm, self.seen[0]) >= STEADY:
            self.freeze()
        self.seen = norm, lr

    def norm_of_second_moments(self) -> float:
        """Sum of the second moments of all processes; replicas count several times, always alike."""
        parts = [local(self.state[p]["exp_avg_sq"]).double().sum() for run in self.packed for p in run]
        total = torch.stack(parts).sum()
        if dist.is_initialized():
            dist.all_reduce(total)
        return float(total)

    def freeze(self) -> None:
        """Keep the second moments as they are, but none far below the mean of its tensor."""
        for run in self.packed:
            for parameter in run:
                second = self.state[parameter]["exp_avg_sq"]
                total = second.sum()
                floor = (
                    FLOOR * (total.full_tensor() if isinstance(total, DTensor) else total) / second.numel()
                )
                own = local(second)
                own.copy_(torch.where(own > 0, torch.maximum(own, floor.to(own)), own))
        self.frozen_at = self.updates

    def saved(self) -> dict[str, Any]:
        """What a checkpoint must hold beside tensors."""
        return {**super().saved(), "frozen_at": self.frozen_at, "seen": self.seen}

    def resume(self, saved: dict[str, Any], rank: int) -> dict[str, Tensor]:
        """Go on from what :meth:`saved` gave."""
        self.frozen_at, seen = saved.get("frozen_at", self.frozen_at), saved.get("seen")
        self.seen = (seen[0], seen[1]) if seen else None
        return super().resume(saved, rank)


def _ratio(a: float, b: float) -> float:
    return min(a, b) / max(a, b) if max(a, b) > 0 else 1.0
