"""The tier in memory: capacity, one fetch for many threads, errors."""

from __future__ import annotations

import pickle
import threading
import time

import pytest

from holoshard.cache.errors import SettingError
from holoshard.cache.memory import MemoryTier
from holoshard.cache.policy import LRU
from holoshard.cache.tier import Key, format_size, parse_size


def key(i: int, length: int = 10, dataset: str = "d") -> Key:
    return Key(dataset, "train-00000.h5", i * 100, length)


def test_keeps_what_fits_and_passes_on_the_rest():
    tier = MemoryTier(25)
    for i in (0, 1, 2, 0, 1, 2):
        assert tier.load(key(i), lambda i=i: bytes([i]) * 10) == bytes([i]) * 10
    assert (tier.counters.hits, tier.counters.misses, tier.counters.refused, tier.used()) == (2, 4, 2, 20)
    assert tier.holds(key(0))
    assert not tier.holds(key(2))


def test_lru_lets_the_oldest_go_and_never_more_than_needed():
    tier = MemoryTier(30, LRU())
    for i in (0, 1, 2, 0, 3):
        tier.load(key(i), lambda: b"x" * 10)
    assert [tier.holds(key(i)) for i in range(4)] == [True, False, True, True]
    tier.load(key(9, 40), lambda: b"x" * 40)  # larger than the tier: nobody leaves for it
    assert tier.used() == 30
    assert tier.counters.evictions == 1


def test_threads_share_one_fetch():
    tier, fetched, out = MemoryTier(100), [], []
    begin = threading.Barrier(8)

    def fetch():
        fetched.append(1)
        time.sleep(0.05)
        return b"y" * 10

    def ask():
        begin.wait()
        out.append(tier.load(key(1), fetch))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(fetched) == 1
    assert out == [b"y" * 10] * 8
    assert tier.counters.hits == 7


def test_an_error_reaches_the_caller_and_nothing_is_kept():
    tier = MemoryTier(100)
    with pytest.raises(OSError, match="gone"):
        tier.load(key(1), lambda: (_ for _ in ()).throw(OSError("gone")))
    assert tier.used() == 0
    assert tier.load(key(1), lambda: b"z" * 10) == b"z" * 10


def test_a_pickled_copy_begins_empty():
    tier = MemoryTier(100)
    tier.load(key(1), lambda: b"z" * 10)
    copy = pickle.loads(pickle.dumps(tier))
    assert (copy.capacity, copy.used()) == (100, 0)
    tier.close()
    assert tier.used() == 0


def test_names_differ_whenever_keys_do():
    keys = {key(1), key(2), key(1, 11), key(1, 10, "e"), Key("d", "x", 100, 10)}
    assert len({k.name for k in keys}) == 5


def test_sizes_in_words():
    assert parse_size("256GiB") == 256 << 30
    assert parse_size("1.5 TB") == 1_500_000_000_000
    assert parse_size("4096") == parse_size(4096) == 4096
    assert format_size(2048) == "2.0 KiB"
    for wrong in ("many", "12 parsecs", "-1GiB", ""):
        with pytest.raises(SettingError, match="size"):
            parse_size(wrong)
