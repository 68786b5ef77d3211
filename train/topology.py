"""Where processes sit: racks, nodes, GPUs; who should talk to whom, and what crosses which level.

Two sources. A ``topology.toml``::

    [racks]
    r1 = ["node[01-04]"]
    r2 = ["node[05-07]", "node09"]

above which ``rack_gb_per_s = 12.5`` may say what a rack's link carries either way; or Slurm: what ``scontrol
show topology`` prints, whose lowest switches are taken for racks.
"""

from __future__ import annotations

import itertools
import re
import subprocess
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from ..shards.errors import ConfigError

Level = Literal["node", "rack", "cross"]
LEVELS: Final[tuple[Level, ...]] = ("node", "rack", "cross")  # bytes inside a node, a rack, between racks


@dataclass(frozen=True, slots=True)
class Place:
    """Where a process sits."""

    rack: str
    node: str
    gpu: int  # number within the node


@dataclass(frozen=True, slots=True)
class Topology:
    """Places of all processes, by rank."""

    places: tuple[Place, ...]

    @classmethod
    def of(cls, nodes: Sequence[str], racks: Mapping[str, str]) -> Topology:
        """From the node of each rank and the rack of each node.

        Raises
        ------
        ConfigError : a node is in no rack
        """
        seen: dict[str, int] = {}
        places = []
        for node in nodes:
            name = node if node in racks else node.partition(".")[0]  # host names may have a domain
            if name not in racks:
                raise ConfigError(f"the topology has no node {node!r}; it has {', '.join(sorted(racks)[:8])}")
            places.append(Place(racks[name], name, seen.get(name, 0)))
            seen[name] = seen.get(name, 0) + 1
        return cls(tuple(places))

    @classmethod
    def whole(cls, racks: Mapping[str, str], per_node: int) -> Topology:
        """`per_node` processes on every node there is, as for a plan."""
        return cls.of([node for node in racks for _ in range(per_node)], racks)

    def order(self) -> list[int]:
        """Ranks by rack, node and GPU: neighbours in a mesh made of it are neighbours in the building.

        Racks and nodes come as the ranks name them, so that rank 0 is the first.
        """
        racks: dict[str, int] = {}
        nodes: dict[str, int] = {}
        key = [
            (racks.setdefault(p.rack, len(racks)), nodes.setdefault(p.node, len(nodes)), p.gpu)
            for p in self.places
        ]
        return sorted(range(len(key)), key=key.__getitem__)

    def level(self, a: int, b: int) -> Level:
        """The highest level that a message from rank `a` to rank `b` crosses."""
        one, two = self.places[a], self.places[b]
        if one.rack != two.rack:
            return "cross"
        return "rack" if one.node != two.node else "node"

    def by_rack(self, ranks: Sequence[int]) -> list[list[int]]:
        """The ranks of a group, rack by rack."""
        racks: dict[str, list[int]] = {}
        for rank in ranks:
            racks.setdefault(self.places[rank].rack, []).append(rank)
        return list(racks.values())


def is_even(racks: Sequence[Sequence[int]]) -> bool:
    """True if two levels make sense: several racks, with as many members each, and more than one."""
    return len(racks) > 1 and len({len(rack) for rack in racks}) == 1 and len(racks[0]) > 1


def read_racks(source: str) -> dict[str, str]:
    """The rack of each node: `source` is a TOML file, or ``slurm``.

    Raises
    ------
    ConfigError : it cannot be read, or says nothing
    """
    if source == "slurm":
        try:
            command = ["scontrol", "show", "topology"]
            text = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
        except (OSError, subprocess.SubprocessError) as error:
            raise ConfigError(
                f'parallel.topology = "slurm": {error}; name a topology.toml instead, or leave it empty'
            ) from error
        return racks_of_slurm(text)
    path = Path(source)
    if not path.is_file():
        raise ConfigError(
            f'parallel.topology = {source!r}: no such file, expected a topology.toml or "slurm"'
        )
    return racks_of_toml(path.read_text(encoding="utf-8", errors="replace"), source)


def racks_of_toml(text: str, source: str = "topology.toml") -> dict[str, str]:
    """The rack of each node of a topology.toml."""
    try:
        racks = tomllib.loads(text)["racks"]
        lists = {
            rack: list(itertools.chain.from_iterable(map(hosts, names))) for rack, names in racks.items()
        }
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(
            f'{source}: expected a table [racks] with lines such as r1 = ["node[01-04]"]: {error}'
        ) from error
    return _invert(lists, source)


def rack_speed(source: str) -> float | None:
    """Bytes a second of a rack's link either way, as a topology.toml states it; None where nobody does.

    Raises
    ------
    ConfigError : it is not a number above 0
    """
    if source == "slurm":
        return None
    try:
        value = tomllib.loads(Path(source).read_text(encoding="utf-8")).get("rack_gb_per_s")
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"{source}: {error}") from error
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 1e-6 <= value <= 1e12:
        raise ConfigError(f"{source}: rack_gb_per_s = {value!r}, expected GB a second, a number above 0")
    return value * 1e9


def racks_of_slurm(text: str) -> dict[str, str]:
    """The lowest switch of each node in what ``scontrol show topology`` prints."""
    lists = {}
    for line in text.splitlines():
        values = dict(re.findall(r"(\w+)=(\S+)", line))
        if values.get("Level", "0") == "0" and "Nodes" in values and "Switches" not in values:
            name = values.get("SwitchName") or values.get("BlockName")
            if name:
                lists[name] = hosts(values["Nodes"])
    return _invert(lists, "scontrol show topology")


def hosts(text: str) -> list[str]:
    """The names in a host list such as ``gpu[01-03,7],login``."""
    found: list[str] = []
    for name, ranges, rest in re.findall(r"([^,\[\]]+)(?:\[([^\]]+)\])?([^,\[\]]*)", text):
        if not ranges:
            found.append(name)
        for part in filter(None, ranges.split(",")):
            low, _, high = part.partition("-")
            found += [
                f"{name}{number:0{len(low)}d}{rest}" for number in range(int(low), int(high or low) + 1)
            ]
    return found


def _invert(lists: Mapping[str, Iterable[str]], source: str) -> dict[str, str]:
    racks: dict[str, str] = {}
    for rack, names in lists.items():
        for name in names:
            if racks.setdefault(name, rack) != rack:
                raise ConfigError(
                    f"{source}: node {name} is in {racks[name]} and in {rack}, expected one rack"
                )
    if not racks:
        raise ConfigError(f"{source}: no nodes found, expected racks or switches that list theirs")
    return racks
