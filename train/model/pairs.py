"""What attention knows of two atoms: their distance and their bond.

Beyond the cutoff radial basis functions are zero, and most pairs of a pocket lie beyond it. Where a batch
names its near pairs only those are computed, which is exact; without names all are, in shapes that depend on
nothing but the batch's.

Shapes: B complexes, N atoms (padded), M bonds (padded), P pair features, K pairs (near ones, or all).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch
from torch import Tensor

from ...shards.complex import BOND_ORDERS

if TYPE_CHECKING:
    from .packing import Rows

NEAR: Final = "near"  # in a batch: the pairs to look at
HIDDEN: Final = -3e4  # the score of a padded key: finite in fp16, and exp() of it is 0


class Pairs(NamedTuple):
    """Features of pairs, and where those belong.

    Attributes
    ----------
    places : (K,) int64, ascending: (b * N + i) * N + j of each pair; None for all pairs in this order
    features : (K, P)
    atoms, rows : of a packed batch: the two atoms of each pair (2, K), and where its complexes lie; `places`
        are then those in its ragged row
    """

    places: Tensor | None
    features: Tensor
    atoms: Tensor | None = None
    rows: Rows | None = None

    def to(self, dtype: torch.dtype) -> Pairs:
        """The same with features in another format."""
        return self._replace(features=self.features.to(dtype))

    def dense(self, values: Tensor, B: int, N: int, shown: Tensor | None = None) -> Tensor:
        """Values (K, H) of the pairs at their places, (H, B, N, N), 0 elsewhere.

        With the mask (B, N) of atoms that are `shown`, pairs whose second atom is not are HIDDEN.
        """
        H = values.shape[1]
        hidden = None if shown is None else ~shown[None, :, None, :]
        if self.places is None:
            all_pairs = values.T.reshape(H, B, N, N)
            return all_pairs if hidden is None else all_pairs.masked_fill(hidden, HIDDEN)
        # Autograd copies whole what is changed through a view, twice: the rows are a tensor of their own.
        if hidden is None:
            rows = values.new_zeros(H, B * N * N)
        else:  # no pair that is near has such an atom
            rows = (hidden.to(values.dtype) * HIDDEN).expand(H, B, N, N).reshape(H, B * N * N).contiguous()
        return rows.scatter_(1, self.places.expand(H, len(self.places)), values.T).view(H, B, N, N)

    def ragged(self, values: Tensor) -> Tensor:
        """Values (K, H) of the pairs of a packed batch at their places, (H, R), 0 elsewhere."""
        assert self.places is not None
        assert self.rows is not None
        H, K, R = values.shape[1], len(self.places), sum(n * n for n in self.rows.sizes)
        return values.new_zeros(H, R).scatter(1, self.places.expand(H, K), values.T)


def near_pairs(batch: Mapping[str, Tensor], cutoff: float) -> Tensor:
    """Pairs of real atoms nearer than `cutoff` angstrom, or bonded: (K,) as in :class:`Pairs`."""
    position, mask = batch["position"].float(), batch["atom_mask"]
    near = distances(position) < cutoff
    rows, first, second = bonds(batch)
    near[rows, first, second] = True
    near[rows, second, first] = True
    near &= mask[:, :, None] & mask[:, None, :]
    return near.view(-1).nonzero()[:, 0]


def with_near(batch: dict[str, Tensor], cutoff: float) -> dict[str, Tensor]:
    """The batch with its near pairs named, on a CPU; an accelerator would have to wait for their number."""
    if batch["position"].device.type != "cpu":
        return batch
    return batch | {NEAR: near_pairs(batch, cutoff)}


def pair_features(batch: Mapping[str, Any], rbf: int, cutoff: float) -> Pairs:
    """Radial basis functions of distances, then bond orders one-hot; float32, P = rbf + bond orders.

    Gaussians at evenly spaced centres from 0 to `cutoff` angstrom, one spacing wide, times the cosine
    switch of Behler and Parrinello (doi:10.1103/PhysRevLett.98.146401), so that they vanish smoothly
    at `cutoff`. Radial basis functions of distances as in SchNet (doi:10.1063/1.5019779).
    """
    position, index = batch["position"].float(), batch.get(NEAR)
    N, rows, atoms = position.shape[1], batch.get("rows"), batch.get("near_atoms")
    if index is None:
        distance = distances(position).view(-1, 1)
    else:
        first, second = (index // N, index // (N * N) * N + index % N) if atoms is None else atoms
        points = position.view(-1, 3)
        distance = (points[first] - points[second]).square_().sum(1, keepdim=True).sqrt_()
    features = torch.empty(len(distance), rbf + len(BOND_ORDERS), device=position.device)
    features[:, rbf:].zero_()
    # exp(-((d - centre) / width)^2 / 2) with the factors drawn into distance and centres.
    scale = math.sqrt(0.5) * max(rbf - 1, 1) / cutoff
    centres = torch.linspace(0.0, cutoff * scale, rbf, device=position.device)
    # Below exp(-20) nothing is left to learn, and far below it float32 is denormal, which is slow.
    radial = torch.sub(distance * scale, centres).square_().clamp_(max=20.0).neg_().exp_()
    switch = torch.cos(distance.clamp(max=cutoff) * (math.pi / cutoff)).add_(1.0).mul_(0.5)
    torch.mul(radial, switch, out=features[:, :rbf])
    complexes, one, other = bonds(batch)
    channel = rbf + batch["bond_order"].long()[batch["bond_mask"]].clamp(max=len(BOND_ORDERS) - 1)
    for a, b in ((one, other), (other, one)):
        place = (complexes * N + a) * N + b if rows is None else rows.base[a] + b - rows.first[a]
        features[place if index is None else torch.searchsorted(index, place), channel] = 1.0
    return Pairs(index, features, atoms, rows)


def distances(position: Tensor) -> Tensor:
    """Of all pairs, (B, N, N), from differences of positions: |a|^2 - 2ab + |b|^2 would lose digits."""
    return torch.cdist(position, position, compute_mode="donot_use_mm_for_euclid_dist")


def bonds(batch: Mapping[str, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """Of each real bond: its complex and its two atoms."""
    mask = batch["bond_mask"]
    rows = torch.arange(len(mask), device=mask.device)[:, None].expand_as(mask)[mask]
    first, second = batch["bond_atoms"].long()[mask].unbind(-1)
    return rows, first, second
