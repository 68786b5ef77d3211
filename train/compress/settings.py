"""[compression] of a configuration, and what goes together with it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from ..config import TrainConfig


@dataclass(frozen=True, slots=True)
class CompressionConfig:
    """What travels between replicas (parallel.replicate) in each step."""

    kind: Literal["auto", "none", "sign", "eden"] = "auto"
    """sign: a bit and error feedback; eden: unbiased; auto: sign with onebit-adam, otherwise none."""
    bits: int = 1
    """Bits of a value with eden, 1 to 8."""
    warmup: int = 0
    """Updates with exact gradients before onebit-adam packs; 0 until its variance is steady, at most half of
    the run's."""


def check_compression(config: TrainConfig, refuse: Callable[[str, str], None]) -> None:
    """Refuse what cannot be, by `refuse(key, what is expected)`."""
    compression, is_onebit = config.compression, config.optimizer.kind == "onebit-adam"
    if not 1 <= compression.bits <= 8:
        refuse("compression.bits", "1 to 8")
    if compression.bits > 1 and config.packing != "eden":
        refuse("compression.bits", '1, or compression.kind = "eden": a sign has one bit')
    if compression.warmup and not is_onebit:
        refuse("compression.warmup", '0, or optimizer.kind = "onebit-adam"')
    if config.packing == "none":
        if is_onebit:
            refuse("compression.kind", '"sign" or "eden" with optimizer.kind = "onebit-adam"')
        return
    if config.parallel.replicate < 2:
        refuse("parallel.replicate", "2 or more: only what replicas exchange is packed")
    if config.parallel.offload:
        refuse("parallel.offload", "false with a compressed exchange, which works where the gradients are")
