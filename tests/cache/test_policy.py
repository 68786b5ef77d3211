"""Hit ratios against theory and against brute force."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holoshard.cache.errors import SettingError
from holoshard.cache.memory import MemoryTier
from holoshard.cache.policy import LRU, Clairvoyant, NeverEvict, policy_named
from holoshard.cache.tier import Key


def keys(n: int) -> list[Key]:
    return [Key("d", "f", i, 1) for i in range(n)]


def hits(trace, capacity, policy, n) -> np.ndarray:
    """Whether each request hits, in blocks of one byte."""
    tier, known, out = MemoryTier(capacity, policy), keys(n), []
    for i in trace:
        before = tier.counters.hits
        tier.load(known[i], lambda: b"x")
        out.append(tier.counters.hits > before)
    assert tier.used() <= capacity
    return np.array(out)


def epochs(n: int, count: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.concatenate([rng.permutation(n) for _ in range(count)])


@pytest.mark.parametrize("c", [0.1, 0.25, 0.5, 0.75, 0.9])
def test_uniform_epochs_reach_the_optimum(c):
    n = 400
    trace = epochs(n, 5)
    never = hits(trace, int(c * n), NeverEvict(), n)[n:].mean()
    assert never == pytest.approx(c)
    belady = hits(trace, int(c * n), Clairvoyant(keys(n)[i] for i in trace), n)[n:].mean()
    assert 0.98 * c <= belady <= c + 0.02


@pytest.mark.parametrize("c", [0.25, 0.5, 0.75])
def test_lru_follows_its_formula(c):
    n = 2000
    found = hits(epochs(n, 4), int(c * n), LRU(), n)[n:].mean()
    assert found == pytest.approx(c + (1 - c) * math.log(1 - c), abs=0.02)


def test_clairvoyance_pays_for_weighted_sampling():
    n, rng = 500, np.random.default_rng(1)
    weights = 1 / np.arange(1, n + 1) ** 0.8
    trace = rng.choice(n, 10_000, p=weights / weights.sum())
    known = keys(n)
    found = {
        name: hits(trace, n // 10, policy, n)[2000:].mean()
        for name, policy in (("lru", LRU()), ("never", NeverEvict()),
                             ("belady", Clairvoyant(known[i] for i in trace)))
    }  # fmt: skip
    assert found["belady"] >= 0.98 * belady(trace.tolist(), n // 10)[2000:].mean()
    assert found["belady"] > found["never"] + 0.1
    assert found["belady"] > found["lru"] + 0.1


def belady(trace: list[int], capacity: int) -> np.ndarray:
    """Belady's rule with bypass, written the slow way."""
    following = [math.inf] * len(trace)
    last: dict[int, int] = {}
    for i in reversed(range(len(trace))):
        following[i] = last.get(trace[i], math.inf)
        last[trace[i]] = i
    held: dict[int, float] = {}
    out = []
    for i, name in enumerate(trace):
        out.append(name in held)
        held[name] = following[i]
        if len(held) > capacity:
            del held[max(held, key=lambda k: held[k])]
    return np.array(out)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 9), max_size=80), st.integers(0, 6))
def test_clairvoyant_is_belady(trace, capacity):
    known = keys(10)
    found = hits(trace, capacity, Clairvoyant(known[i] for i in trace), 10)
    assert found.sum() == belady(trace, capacity).sum()


def test_a_future_can_be_told_epoch_by_epoch():
    n, trace, known = 100, epochs(100, 3), keys(100)
    policy = Clairvoyant()
    tier = MemoryTier(50, policy)
    for epoch in range(3):
        policy.extend(known[i] for i in trace[epoch * n : (epoch + 1) * n])
        for i in trace[epoch * n : (epoch + 1) * n]:
            tier.load(known[i], lambda: b"x")
    assert tier.used() == 50


def test_names():
    assert isinstance(policy_named("lru"), LRU)
    with pytest.raises(SettingError, match="clairvoyant"):
        policy_named("best")


def test_places_that_other_processes_took_are_past():
    """Two processes ask in turn; this policy sees its own half only, and lets go what the other had."""
    policy, n = Clairvoyant(), 2000
    mine, theirs = ([Key("d", who, i, 1) for i in range(n)] for who in ("mine", "theirs"))
    policy.extend(key for pair in zip(mine, theirs, strict=True) for key in pair)
    policy.extend(mine[:500])
    policy.came(theirs[0].name)
    policy.came(mine[0].name)
    policy.touch(mine[0].name)
    assert list(policy.victims(mine[1].name)) == [mine[0].name]  # theirs[0] is expected any moment
    for key in mine[1:n]:
        policy.touch(key.name)
    assert list(policy.victims(mine[0].name)) == [theirs[0].name]  # its time went by unseen
