"""Number formats: what FSDP casts, and the scale that keeps fp16 gradients from vanishing."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch.distributed.fsdp import MixedPrecisionPolicy

from ..config import PrecisionConfig

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def parameter_dtype(precision: PrecisionConfig) -> torch.dtype:
    """Format in which parameters and optimizer state are kept."""
    return DTYPES[precision.compute] if precision.whole_model else torch.float32


def policy(precision: PrecisionConfig) -> MixedPrecisionPolicy:
    """What FSDP casts: gathered weights and summed gradients, never inputs, so positions stay float32."""
    if precision.compute == "fp32" or precision.whole_model:
        return MixedPrecisionPolicy(reduce_dtype=DTYPES[precision.reduce], cast_forward_inputs=False)
    return MixedPrecisionPolicy(
        param_dtype=DTYPES[precision.compute],
        reduce_dtype=DTYPES[precision.reduce],
        cast_forward_inputs=False,
    )


@dataclass(slots=True)
class LossScale:
    """The rule of torch.amp.GradScaler, decided by the global gradient norm.

    That norm is one number, the same in every process and along every axis, so all of them agree on
    which steps to skip without exchanging anything more.

    Attributes
    ----------
    value : what losses are multiplied by; 1 where the format needs none
    growth_interval : steps without overflow after which it doubles
    good_steps : how many there have been
    """

    value: float
    growth_interval: int
    good_steps: int = 0

    @classmethod
    def of(cls, precision: PrecisionConfig) -> LossScale:
        """The first scale: 1 and constant unless fp16."""
        if precision.compute == "fp16":
            return cls(precision.init_scale, precision.growth_interval)
        return cls(1.0, 0)

    def update(self, norm: float) -> bool:
        """Learn from the norm of the scaled gradient; True if the step is to be made."""
        finite = math.isfinite(norm)
        if self.growth_interval:
            self.good_steps = self.good_steps + 1 if finite else 0
            if not finite:
                self.value *= 0.5
            elif self.good_steps >= self.growth_interval:
                self.value, self.good_steps = self.value * 2.0, 0
        return finite
