"""Which heads stay."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ...shards.errors import UsageError
from .importance import By


def choose(
    scores: Sequence[Tensor], keep: float, by: By, *, seed: int = 0, multiple: int = 1
) -> list[list[int]]:
    """Heads that stay in each layer, ascending, at least `multiple` a layer.

    Parameters
    ----------
    scores : importance of each layer's heads, comparable between layers
    keep : share of all heads that stay
    by : reversed keeps the least important, random any: controls for the others
    multiple : a layer's heads come and go by so many, so that tensor parallelism can divide them

    Raises
    ------
    UsageError : keep is no share, or a layer's heads are no multiple of `multiple`
    """
    if not 0 < keep <= 1:
        raise UsageError(f"--keep {keep}, expected a share above 0 and up to 1")
    for i, layer in enumerate(scores):
        if multiple < 1 or len(layer) % multiple:
            raise UsageError(
                f"--multiple {multiple}, expected a divisor of the {len(layer)} heads of layer {i}"
            )
    if by == "random":
        generator = torch.Generator().manual_seed(seed)
        scores = [torch.rand(len(layer), generator=generator) for layer in scores]
    elif by == "reversed":
        scores = [-layer for layer in scores]
    # The best heads of a layer make its first team, and so on: whole teams stay or go.
    teams = [
        (float(layer[team].mean()), i, team.tolist())
        for i, layer in enumerate(scores)
        for team in torch.split(layer.argsort(descending=True, stable=True), multiple)
    ]
    wanted = max(round(keep * sum(map(len, scores)) / multiple), len(scores))
    first = {i: min((t for t in teams if t[1] == i), key=lambda t: -t[0]) for i in range(len(scores))}
    rest = sorted((t for t in teams if t is not first[t[1]]), key=lambda t: (-t[0], t[1], t[2]))
    kept: list[list[int]] = [[] for _ in scores]
    for _, i, team in [*first.values(), *rest][:wanted]:
        kept[i] += team
    return [sorted(heads) for heads in kept]
