"""Which settings go together with a compressed exchange."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..config import TrainConfig


def check_compression(config: TrainConfig, refuse: Callable[[str, str], None]) -> None:
    """Refuse what cannot be, by `refuse(key, what is expected)`."""
    compression, is_onebit = config.compression, config.optimizer.kind == "onebit-adam"
    if not 1 <= compression.bits <= 8:
        refuse("compression.bits", "1 to 8")
    if compression.bits > 1 and config.packing != "eden":
        refuse("compression.bits", '1, or compression.kind = "eden": a sign has one bit')
    if compression.warmup < 0:
        refuse("compression.warmup", "0 or more")
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
