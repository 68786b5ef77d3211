"""Bytes that replicas exchange in a step, by the level they cross, for each way of exchanging.

Counted over all processes, for one vector of `n` values that each replica group sums. Rings and pairwise
exchanges are those of :mod:`.compress.replicas`; a ring goes through a group in the order of its ranks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final

from ..shards.errors import ConfigError
from .compress.compressor import Compressor
from .compress.sign import Sign
from .config import TrainConfig
from .model.transformer import parameter_count
from .topology import LEVELS, Level, Topology, is_even, read_racks

Bytes = dict[str, float]
Group = Sequence[int]
SHOWN: Final = 16  # ranks of a group


def ring(topology: Topology, group: Group, bytes_each: float) -> Bytes:
    """A ring in which each process sends `bytes_each` to the next."""
    found: Bytes = dict.fromkeys(LEVELS, 0.0)
    for a, b in zip(group, (*group[1:], group[0]), strict=True):
        if a != b:
            found[topology.level(a, b)] += bytes_each
    return found


def pairwise(topology: Topology, group: Group, bytes_each: float) -> Bytes:
    """Everyone sends `bytes_each` to everyone else; pairs are counted, since there may be billions."""
    places = [topology.places[rank] for rank in group]
    n = len(places)
    in_node = sum(m * (m - 1) for m in Counter((p.rack, p.node) for p in places).values())
    in_rack = sum(m * (m - 1) for m in Counter(p.rack for p in places).values())
    pairs: dict[Level, int] = {"node": in_node, "rack": in_rack - in_node, "cross": n * (n - 1) - in_rack}
    return {level: pairs[level] * bytes_each for level in LEVELS}


def flat(topology: Topology, group: Group, n: int) -> Bytes:
    """One ring all-reduce of float32."""
    return ring(topology, group, 2 * (len(group) - 1) / len(group) * 4 * n)


def packed(topology: Topology, group: Group, n: int, compressor: Compressor) -> Bytes:
    """All-to-all and all-gather of packed chunks: each process sends each other one of either."""
    chunk = -(-n // (len(group) * compressor.block)) * compressor.block
    return pairwise(topology, group, 2 * compressor.packed_size(chunk))


def two_level(
    topology: Topology, group: Group, n: int, across: Callable[[Topology, Group, int], Bytes]
) -> Bytes:
    """Sums within racks (reduce-scatter, later all-gather), and `across` racks for what each then holds."""
    racks = topology.by_rack(group)
    if not is_even(racks):
        return across(topology, group, n)
    size = len(racks[0])
    parts = [ring(topology, rack, 2 * (size - 1) / size * 4 * n) for rack in racks]
    parts += [across(topology, peers, -(-n // size)) for peers in zip(*racks, strict=True)]
    return {level: sum(part[level] for part in parts) for level in LEVELS}


def _signs(topology: Topology, group: Group, n: int) -> Bytes:
    return packed(topology, group, n, Sign())


WAYS: Final[dict[str, Callable[[Topology, Group, int], Bytes]]] = {
    "flat": flat,
    "two-level": lambda t, g, n: two_level(t, g, n, flat),
    "1-bit": _signs,
    "two-level, 1-bit across": lambda t, g, n: two_level(t, g, n, _signs),
}


def replica_groups(topology: Topology, shard: int) -> list[list[int]]:
    """Ranks with the same piece of the model, when `shard` neighbours share one copy."""
    order = topology.order()
    return [order[i::shard] for i in range(shard)]


def describe(topology: Topology, shard: int, values: int) -> dict[str, Any]:
    """Who talks to whom, and bytes of a step by level.

    Parameters
    ----------
    shard : neighbouring processes that share one copy of the model
    values : gradients of a model, of which each process exchanges its share

    Returns
    -------
    "shard_groups", "replica_groups" : ranks; "shard_level" : the highest level inside a shard group;
    "bytes" : for each of WAYS the bytes of all processes by level
    """
    order = topology.order()
    shards = [order[i : i + shard] for i in range(0, len(order), shard)]
    groups = replica_groups(topology, shard)
    # Of an ordered group the first and the last are as far apart as any two.
    crossed = [topology.level(group[0], group[-1]) for group in shards]
    n = -(-values // shard)
    sums = {
        way: {level: sum(count(topology, group, n)[level] for group in groups) for level in LEVELS}
        for way, count in WAYS.items()
    }
    return {
        "shard_groups": shards, "replica_groups": groups,
        "shard_level": max(crossed, key=LEVELS.index, default="node"), "bytes": sums,
    }  # fmt: skip


def of_config(config: TrainConfig, per_node: int) -> dict[str, Any]:
    """:func:`describe` for a configuration that names a topology, with `per_node` processes on each node.

    Stages of a pipeline have replica groups of their own with so much less each; bytes are those of all.
    """
    topology = Topology.whole(read_racks(config.parallel.topology), per_node)
    copies = max(1, config.parallel.replicate)
    if len(topology.places) % copies:
        raise ConfigError(
            f"parallel.replicate = {copies}, expected a divisor of the {len(topology.places)} processes of "
            f"{config.parallel.topology}"
        )
    return describe(topology, len(topology.places) // copies, parameter_count(config.model))


def text_of_levels(found: dict[str, Any]) -> str:
    """What :func:`describe` found, in words."""
    shards, level = found["shard_groups"], found["shard_level"]
    where = "across racks: fewer shards would stay in one" if level == "cross" else f"within one {level}"
    lines = [
        f"{len(shards)} copies of the model, each in {len(shards[0])} processes {where}",
        f"first copy: ranks {listed(shards[0])}; first replica group: {listed(found['replica_groups'][0])}",
        f"{'bytes of a step':<26}" + "".join(f"{level:>12}" for level in LEVELS),
    ]  # fmt: skip
    lines += [
        f"{way:<26}" + "".join(f"{counts[level]:>12.3g}" for level in LEVELS)
        for way, counts in found["bytes"].items()
    ]
    return "\n".join(lines)


def listed(ranks: Group) -> str:
    """Ranks, of many the first ones."""
    more = f", ... ({len(ranks)})" if len(ranks) > SHOWN else ""
    return ", ".join(map(str, ranks[:SHOWN])) + more


def crossing_seconds(topology: Topology, counts: Bytes, bytes_per_s: float) -> float:
    """Time that what crosses takes on the links of the racks, each as fast as `bytes_per_s` either way.

    Racks of one size send alike, so that the links work at the same time.
    """
    racks = len({place.rack for place in topology.places})
    return counts["cross"] / racks / bytes_per_s if racks > 1 else 0.0
