"""Which layers share the second linear of their feed-forward part.

Sharing between neighbouring layers saves parameters, and with them optimizer state and exchanged
gradients, but no arithmetic: every layer still multiplies by its matrix.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ...shards.errors import ConfigError

if TYPE_CHECKING:  # torch takes seconds to import, and a configuration does not need it
    from torch import Tensor, nn

    from .transformer import Layer


def group_sizes(spec: str, layers: int) -> list[int]:
    """Numbers of neighbouring layers that share, first to last; they add up to `layers`.

    Parameters
    ----------
    spec : "none", "all", "pairs", or sizes in order such as "2, 2, 1" or "18x2, 4x1" (18 pairs, 4 alone)

    Raises
    ------
    ConfigError : it is none of these, or does not add up
    """
    if spec in ("none", "all"):
        return [1] * layers if spec == "none" else [layers]
    if spec == "pairs":
        return [2] * (layers // 2) + [1] * (layers % 2)
    sizes: list[int] = []
    for part in spec.split(","):
        found = re.fullmatch(r"(?:(\d+)\s*x\s*)?(\d+)", part.strip())
        if not found:
            raise ConfigError(
                f'model.share_ffn_out = {spec!r}, expected "none", "all", "pairs" or sizes such as '
                '"2, 2, 1" or "18x2, 4x1"'
            )
        sizes += [int(found[2])] * int(found[1] or 1)
    if sum(sizes) != layers or 0 in sizes:
        raise ConfigError(
            f"model.share_ffn_out = {spec!r}: groups of {sum(sizes)} layers, expected groups of 1 or more "
            f"that add up to model.layers = {layers}"
        )
    return sizes


def share_down(layers: list[Layer], spec: str) -> None:
    """Give every layer of a group the second feed-forward linear of the group's first, in place."""
    start = 0
    for size in group_sizes(spec, len(layers)):
        for layer in layers[start + 1 : start + size]:
            layer.feed_forward.down = layers[start].feed_forward.down
        start += size


def with_all_names(tensors: Mapping[str, Tensor], model: nn.Module) -> dict[str, Tensor]:
    """Tensors by name, those that layers share by every name that `model` has for them.

    Files and checkpoints hold a shared tensor once, by its first name.
    """
    first = {id(parameter): name for name, parameter in model.named_parameters()}
    names = {name: first[id(p)] for name, p in model.named_parameters(remove_duplicate=False)}
    return {**tensors, **{name: tensors[source] for name, source in names.items() if source in tensors}}
