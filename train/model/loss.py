"""What a label says about a prediction.

An exact label ("=", "~") pulls from both sides. A bound ("<", ">=", ...) pulls only a prediction that
lies on its wrong side, as in one-sided (Tobit-like) regression. A complex without a pK says nothing.
Losses are in pK units and are sums: the caller divides by the weight of the global batch, so that the
number of processes and pieces does not matter.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional

from ...shards.complex import RELATIONS
from ..config import LossConfig

_EXACT = tuple(RELATIONS.index(r) for r in ("=", "~"))
_BELOW = tuple(RELATIONS.index(r) for r in ("<", "<="))  # the true pK lies below the label
_ABOVE = tuple(RELATIONS.index(r) for r in (">", ">="))


def is_one_of(values: Tensor, choices: tuple[int, ...]) -> Tensor:
    """Mask of the entries of `values` that are among `choices`."""
    return torch.isin(values.long(), torch.tensor(choices, device=values.device))


def label_weight(pk: Tensor, relation: Tensor, weight: Tensor, config: LossConfig) -> Tensor:
    """Weight of each label, (B,) float32: 0 where there is nothing to learn from.

    Parameters
    ----------
    pk, relation, weight : (B,) label (NaN for none), index into RELATIONS, weight of the row
    """
    usable = is_one_of(relation, _EXACT + (_BELOW + _ABOVE if config.censored else ()))
    return torch.where(usable & pk.isfinite(), weight.float(), 0.0)


def affinity_loss(
    prediction: Tensor, pk: Tensor, relation: Tensor, weight: Tensor, config: LossConfig
) -> Tensor:
    """Weighted sum of the losses of a batch, a float32 scalar.

    Parameters
    ----------
    prediction : (B, 1) pK, or (B, 2): pK and the log of its standard deviation
    pk, relation : (B,) label and index into RELATIONS
    weight : (B,) of :func:`label_weight`
    """
    used = weight > 0
    # NaN * 0 is NaN, so labels that do not count are replaced before any arithmetic.
    pk = torch.where(used, pk.float(), prediction[:, 0].detach())
    error = prediction[:, 0] - pk
    below, above = is_one_of(relation, _BELOW), is_one_of(relation, _ABOVE)
    if prediction.shape[1] == 2:
        loss = _likelihood(error, prediction[:, 1], below, above)
    else:
        error = torch.where(below, error.clamp(min=0), torch.where(above, error.clamp(max=0), error))
        if config.kind == "mse":
            loss = error.square()
        else:
            loss = functional.huber_loss(error, torch.zeros_like(error), reduction="none", delta=config.delta)
    return (loss * weight).sum()


def _likelihood(error: Tensor, log_sd: Tensor, below: Tensor, above: Tensor) -> Tensor:
    """Negative log-likelihood of a Gaussian; of a bound, that of the side it leaves open (Tobin 1958)."""
    log_sd = log_sd.clamp(-3.0, 3.0)  # 0.05 to 20 pK units: beyond, a batch of one would run away
    z = error * torch.exp(-log_sd)
    exact = 0.5 * z.square() + log_sd + 0.5 * math.log(2 * math.pi)
    side = torch.where(below, z, -z)  # how far the prediction lies on the wrong side
    return torch.where(below | above, -torch.special.log_ndtr(-side), exact)
