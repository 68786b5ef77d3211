"""Hit ratios of the policies of cache/policy.py beside what theory says of them."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator

from holoshard.cache.advise import UNITS, hit_ratio, orders


def hit_ratios() -> dict[str, float]:
    """Of never evicting beside the optimum c, and of clairvoyance beside Belady's rule written plainly."""
    uniform = orders(1, "global")
    of_optimum = min(hit_ratio(uniform, int(c * UNITS), "never") / c for c in (0.1, 0.25, 0.5, 0.75, 0.9))
    weighted = orders(1, "global", zipf=0.8)
    print("hit ratio at c        never     lru   formula  random   formula")
    for c in (0.1, 0.25, 0.5, 0.75, 0.9):
        never, lru, drawn = (hit_ratio(uniform, int(c * UNITS), p) for p in ("never", "lru", Random()))
        of_lru = c + (1 - c) * math.log(1 - c)
        print(f"  uniform {c:8.2f}  {never:9.3f}{lru:8.3f}{of_lru:10.3f}{drawn:8.3f}{of_random(c):10.3f}")
    row = {p: hit_ratio(weighted, UNITS // 10, p) for p in ("never", "lru", "clairvoyant")}
    best = belady(weighted.tolist(), UNITS // 10)
    print(f"  Zipf 0.8, 0.10  {row['never']:11.3f}{row['lru']:8.3f}; clairvoyant {row['clairvoyant']:.3f}, "
          f"Belady {best:.3f}")  # fmt: skip
    return {"hit_of_optimum": of_optimum, "hit_of_belady": row["clairvoyant"] / best}


class Random:
    """Anyone leaves; for comparison. See Policy."""

    evicts = True

    def __init__(self) -> None:
        self.rng, self.held = random.Random(0), list[str]()

    def touch(self, name: str) -> None:
        """Nothing to note."""

    def came(self, name: str) -> None:
        """It is in."""
        self.held.append(name)

    def left(self, name: str) -> None:
        """It is out."""
        self.held.remove(name)

    def victims(self, incoming: str) -> Iterator[str]:
        """In any order."""
        while self.held:
            yield self.rng.choice(self.held)


def of_random(c: float) -> float:
    """Hit ratio of random eviction in uniform epochs.

    Of the requests between two uses of a block, x epochs of them, 1 - h evict one of c each, so it survives
    with exp(-a x), a = (1 - h) / c; x = 1 - u + v for uniform u, v has E[exp(-a x)] = ((1 - exp(-a)) / a)^2.
    """
    h = c
    for _ in range(1000):
        a = (1 - h) / c
        h = ((1 - math.exp(-a)) / a) ** 2
    return h


def belady(trace: list[int], capacity: int) -> float:
    """Hit ratio of the second half of a trace when whoever is needed last leaves, or does not come in."""
    following, last = [math.inf] * len(trace), dict[int, int]()
    for i in reversed(range(len(trace))):
        following[i], last[trace[i]] = last.get(trace[i], math.inf), i
    held, hits = dict[int, float](), 0
    for i, name in enumerate(trace):
        hits += name in held and i >= len(trace) // 2
        held[name] = following[i]
        if len(held) > capacity:
            del held[max(held, key=held.__getitem__)]
    return hits / (len(trace) - len(trace) // 2)
