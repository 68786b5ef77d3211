"""What hit ratio a node's cache can have, and what to set for it: each policy simulated on each order.

Formulas hold for one node and uniform epochs only (knowing c = cache / data set, never evicting hits c and
LRU c + (1 - c) ln(1 - c)); with several nodes or weighted sampling it is simpler to play it through.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from .errors import SettingError
from .memory import MemoryTier
from .policy import Clairvoyant, Policy, policy_named
from .tier import Key, format_size

UNITS: Final = 1000  # pieces that the data set is cut into
ROUNDS: Final = 8  # requests of the node, in data sets; the first half fills the cache
SHUFFLES: Final = ("global", "local")
CLOSE: Final = 0.005  # what never evicting may cost
SHOWN: Final = 3  # digits of a ratio: shuffles that look equal are
FULL: Final = 0.995


@dataclass(frozen=True, slots=True)
class Advice:
    """What to expect and what to set.

    Attributes
    ----------
    ratios : (shuffle, policy) -> share of requests that the cache answers once it is warm
    shuffle, policy : the best pair, the simplest of those that are equal
    text : lines for people
    """

    ratios: dict[tuple[str, str], float]
    shuffle: str
    policy: str
    text: tuple[str, ...]


def orders(nodes: int, shuffle: str, zipf: float = 0.0, seed: int = 0) -> NDArray[np.int64]:
    """The units that one node asks for, epoch after epoch.

    Parameters
    ----------
    nodes : that share an epoch evenly
    shuffle : "global" deals the units anew each epoch, "local" keeps a node's
    zipf : exponent of the weights by which units are drawn with replacement; 0 for each once an epoch
    """
    rng = np.random.default_rng(seed)
    weights = 1 / np.arange(1, UNITS + 1) ** zipf
    weights = rng.permutation(weights)
    share = max(UNITS // nodes, 1)
    mine = rng.permutation(UNITS)[:share]
    out = []
    for _ in range(-(-ROUNDS * UNITS // share)):
        if zipf:
            members = np.arange(UNITS) if shuffle == "global" else mine
            p = weights[members] / weights[members].sum()
            out.append(rng.choice(members, share, p=p))
        else:
            out.append(rng.permutation(UNITS)[:share] if shuffle == "global" else rng.permutation(mine))
    return np.concatenate(out)


def hit_ratio(order: NDArray[np.int64], capacity: int, policy: Policy | str) -> float:
    """Share of the second half of the requests that a cache of so many units answers."""
    keys = [Key("", "", i, 1) for i in range(UNITS)]
    if policy == "clairvoyant":
        policy = Clairvoyant(keys[i] for i in order.tolist())
    tier = MemoryTier(capacity, policy_named(policy) if isinstance(policy, str) else policy)
    half, before = len(order) // 2, 0
    for i, unit in enumerate(order.tolist()):
        if i == half:
            before = tier.counters.hits
        tier.load(keys[unit], lambda: b"x")
    return (tier.counters.hits - before) / (len(order) - half)


def advise(data_bytes: int, capacities: Sequence[int], nodes: int = 1, zipf: float = 0.0) -> Advice:
    """Compare policies and shuffles for a data set, and a node's tiers.

    Parameters
    ----------
    data_bytes : of the blocks of one epoch
    capacities : of the tiers of one node, bytes; a slower tier also holds what a faster one holds

    Raises
    ------
    SettingError : a number makes no sense
    """
    if data_bytes < 1 or nodes < 1 or zipf < 0 or not capacities:
        raise SettingError("advice needs a data set that is not empty, a tier, and at least one node")
    largest = max(capacities)
    capacity = min(int(largest / data_bytes * UNITS), UNITS)
    ratios = {}
    for shuffle in SHUFFLES:
        order = orders(nodes, shuffle, zipf)
        for policy in ("never", "lru", "clairvoyant"):
            ratios[shuffle, policy] = round(hit_ratio(order, capacity, policy), 4)
    best = max(ratios.values())
    # Never evicting costs least, and a global shuffle mixes best: they are chosen where nothing is lost.
    reached = {p: max(ratios[s, p] for s in SHUFFLES) for p in ("never", "clairvoyant")}
    policy = next(p for p, ratio in reached.items() if ratio >= best - CLOSE)
    shuffle = max(SHUFFLES, key=lambda s: round(ratios[s, policy], SHOWN))
    return Advice(ratios, shuffle, policy, _text(data_bytes, largest, nodes, ratios, shuffle, policy))


def _text(data_bytes: int, largest: int, nodes: int, ratios: dict[tuple[str, str], float], shuffle: str,
          policy: str) -> tuple[str, ...]:  # fmt: skip
    c = min(largest / data_bytes, 1)
    lines = [
        f"data set {format_size(data_bytes)}, {nodes} node{'s' * (nodes > 1)}, largest tier "
        f"{format_size(largest)} a node: c = {c:.3f}, nodes together {min(nodes * c, 1):.3f}",
        "hits once warm    never evict     lru   clairvoyant",
    ]
    for name in SHUFFLES:
        row = [ratios[name, p] for p in ("never", "lru", "clairvoyant")]
        lines.append(f"shuffle {name:8s}  {row[0]:11.3f} {row[1]:7.3f} {row[2]:13.3f}")
    found = ratios[shuffle, policy]
    if found < FULL:
        lines.append(
            f"for all reads to hit give each node {format_size(data_bytes / nodes)} with shuffle 'local' "
            f"({format_size(data_bytes)} with 'global'); until then read ahead to hide the rest"
        )
    if shuffle == "global" and round(found, SHOWN) == round(ratios["local", policy], SHOWN):
        lines.append("'local' would hit as many; 'global' mixes better")
    lines.append(f"{100 * found:.1f} % of reads hit with, in the configuration of a training:")
    lines += ["  [data]", f'  shuffle = "{shuffle}"', "  [cache]", f'  policy = "{policy}"']
    return tuple(lines)
