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
from .topology import LEVELS, Level, Topology, is_even, rack_speed, read_racks

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


def swap(topology: Topology, group: Group, n: int, compressor: Compressor) -> Bytes:
    """All-to-all of packed chunks: each process sends each other one."""
    return pairwise(topology, group, _packed_chunk(group, n, compressor))


def packed(topology: Topology, group: Group, n: int, compressor: Compressor) -> Bytes:
    """The all-to-all, then an all-gather of chunks that were packed anew, which is a ring."""
    swapped = swap(topology, group, n, compressor)
    gathered = ring(topology, group, (len(group) - 1) * _packed_chunk(group, n, compressor))
    return {level: swapped[level] + gathered[level] for level in LEVELS}


def _packed_chunk(group: Group, n: int, compressor: Compressor) -> int:
    chunk = -(-n // (len(group) * compressor.block)) * compressor.block
    return compressor.packed_size(chunk)


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


Way = Callable[[Topology, Group, int], Bytes]


def _signs(topology: Topology, group: Group, n: int) -> Bytes:
    return packed(topology, group, n, Sign())


def _swapped_signs(topology: Topology, group: Group, n: int) -> Bytes:
    return swap(topology, group, n, Sign())


WAYS: Final[dict[str, Way]] = {
    "flat": flat,
    "two-level": lambda t, g, n: two_level(t, g, n, flat),
    "1-bit": _signs,
    "two-level, 1-bit across": lambda t, g, n: two_level(t, g, n, _signs),
}
# Of ways that pack, the phase that begins in each process as soon as its own chunks are packed.
EARLY: Final[dict[str, Way]] = {
    "1-bit": _swapped_signs,
    "two-level, 1-bit across": lambda t, g, n: two_level(t, g, n, _swapped_signs),
}


def replica_groups(topology: Topology, shard: int) -> list[list[int]]:
    """Ranks with the same piece of the model, when `shard` neighbours share one copy."""
    order = topology.order()
    return [order[i::shard] for i in range(shard)]


def describe(topology: Topology, shard: int, values: int, speed: float | None = None) -> dict[str, Any]:
    """Who talks to whom, and bytes of a step by level.

    Parameters
    ----------
    shard : neighbouring processes that share one copy of the model
    values : gradients of a model, of which each process exchanges its share
    speed : bytes a second of a rack's link either way

    Returns
    -------
    "shard_groups", "replica_groups" : ranks; "shard_level" : the highest level inside a shard group;
    "bytes" : for each of WAYS the bytes of all processes by level; "link_seconds" : with a `speed`, the time
    that the links of the racks take for each
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
    seconds = {}
    if speed is not None:
        for way in WAYS:
            seconds[way] = sum(exchange_seconds(topology, group, way, n, speed) for group in groups)
    return {
        "shard_groups": shards, "replica_groups": groups,
        "shard_level": max(crossed, key=LEVELS.index, default="node"), "bytes": sums, "link_seconds": seconds,
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
    speed, shard = rack_speed(config.parallel.topology), len(topology.places) // copies
    return describe(topology, shard, parameter_count(config.model), speed)


def text_of_levels(found: dict[str, Any]) -> str:
    """What :func:`describe` found, in words."""
    shards, level = found["shard_groups"], found["shard_level"]
    where = "across racks: fewer shards would stay in one" if level == "cross" else f"within one {level}"
    seconds = found["link_seconds"]
    lines = [
        f"{len(shards)} copies of the model, each in {len(shards[0])} processes {where}",
        f"first copy: ranks {listed(shards[0])}; first replica group: {listed(found['replica_groups'][0])}",
        f"{'bytes of a step':<26}" + "".join(f"{level:>12}" for level in LEVELS)
        + f"{'links, s':>12}" * bool(seconds),
    ]  # fmt: skip
    lines += [
        f"{way:<26}"
        + "".join(f"{counts[level]:>12.3g}" for level in LEVELS)
        + (f"{seconds[way]:>12.3g}" if seconds else "")
        for way, counts in found["bytes"].items()
    ]
    return "\n".join(lines)


def listed(ranks: Group) -> str:
    """Ranks, of many the first ones."""
    more = f", ... ({len(ranks)})" if len(ranks) > SHOWN else ""
    return ", ".join(map(str, ranks[:SHOWN])) + more


def exchange_seconds(
    topology: Topology, group: Group, way: str, n: int, bytes_per_s: float, free: float = 0.0, turns: int = 1
) -> float:
    """Time of an exchange of `n` values whose racks have links of `bytes_per_s` either way.

    Racks of one size send alike, so that their links work at the same time. The exchange takes `free`, and
    the links their time besides, but for what travels while others still pack: of a two-stage pipeline of k
    parts that take a and b in all, min(a, b) (1 - 1 / k) is hidden.

    Parameters
    ----------
    free : seconds of the exchange where no link is slow: packing, sums, latencies
    turns : processes that share a core and pack in turn; 1 where each has an accelerator of its own
    """
    racks = len({place.rack for place in topology.places})
    if racks == 1:
        return free
    through = WAYS[way](topology, group, n)["cross"] / racks / bytes_per_s
    early = EARLY[way](topology, group, n)["cross"] / racks / bytes_per_s if way in EARLY else 0.0
    return free + through - min(early, free) * (1 - 1 / turns)
