"""Memory that the processes of a node share: one copy, mapped; gone with the last of them, killed or not."""

from __future__ import annotations

import mmap
import multiprocessing
import os
import random
import subprocess
import sys
import time
import zlib

import pytest

from holoshard.cache.account import PAGE
from holoshard.cache.decoded import Decoded
from holoshard.cache.policy import LRU
from holoshard.cache.shared import SharedTier
from holoshard.cache.tier import UNKNOWN, Key

FORK = multiprocessing.get_context("fork")


def key(i, dataset="d"):
    return Key(dataset, f"block {i}", 0, UNKNOWN)


def content(i):
    return bytes([i % 251]) * (3000 * (1 + i % 3))


def blocks(tier):
    return [p for p in tier.root.rglob("*") if len(p.name) == 32]


def test_a_second_process_maps_what_the_first_one_made(tmp_path):
    first, second = (SharedTier(1 << 20, folder=tmp_path) for _ in range(2))
    for i in range(4):
        assert bytes(first.load(key(i), lambda i=i: content(i))) == content(i)
        found = second.load(key(i), lambda: pytest.fail("made twice"))
        assert bytes(found) == content(i)
        assert isinstance(found.obj, mmap.mmap)
    assert first.used() == second.used() == sum(-(-p.stat().st_size // PAGE) * PAGE for p in blocks(first))
    assert first.root.stat().st_mode & 0o077 == 0
    first.close()
    assert len(blocks(second)) == 4  # the other is still there
    second.close()
    assert blocks(second) == []
    assert bytes(found) == content(3)  # who still looks at it may


def test_a_block_that_left_stays_readable_for_who_has_it(tmp_path):
    tier = SharedTier(2 * PAGE, LRU(), folder=tmp_path)
    first = tier.load(key(0), lambda: content(0))
    first = tier.load(key(0), lambda: pytest.fail("made twice"))
    for i in (3, 6, 9):
        tier.load(key(i), lambda i=i: content(i))
    assert not tier.holds(key(0))
    assert bytes(first) == content(0)
    tier.close()


def _hold_and_wait(folder, ready):
    tier = SharedTier(1 << 20, folder=folder)
    for i in range(5):
        tier.load(key(i, "theirs"), lambda i=i: content(i))
    ready.put(1)
    time.sleep(60)


def test_what_the_killed_left_goes_when_the_next_one_comes(tmp_path):
    ready = FORK.Queue()
    process = FORK.Process(target=_hold_and_wait, args=(tmp_path, ready))
    process.start()
    ready.get(timeout=30)
    beside = SharedTier(1 << 20, folder=tmp_path)
    beside.load(key(0), lambda: content(0))
    assert len(blocks(beside)) == 6  # the other lives
    process.kill()
    process.join()
    after = SharedTier(1 << 20, folder=tmp_path)
    assert after.used() == PAGE
    assert len(blocks(after)) == 1
    assert bytes(after.load(key(0), lambda: pytest.fail("made twice"))) == content(0)
    after.close()
    beside.close()
    assert blocks(beside) == []
    assert os.listdir(beside.root / "fill") == []


def _rank(folder, pages, seed, end):
    rng, tier = random.Random(seed), SharedTier(pages * PAGE, LRU() if seed % 2 else None, folder=folder)
    while time.time() < end:
        i = rng.randrange(40)
        if zlib.crc32(tier.load(key(i), lambda i=i: content(i))) != zlib.crc32(content(i)):
            os._exit(3)
    tier.close()
    os._exit(0)


@pytest.mark.parametrize("pages", [100, 12])
def test_ranks_that_are_killed_leave_nothing(tmp_path, pages):
    end, running = time.time() + 2.5, []
    for seed in range(4):
        running.append(FORK.Process(target=_rank, args=(tmp_path, pages, seed, end)))
        running[-1].start()
    for seed in range(4, 12):
        time.sleep(0.2)
        victim = running.pop(0)
        victim.kill()
        victim.join()
        running.append(FORK.Process(target=_rank, args=(tmp_path, pages, seed, end)))
        running[-1].start()
    for process in running:
        process.join(30)
        assert process.exitcode == 0
    last = SharedTier(pages * PAGE, folder=tmp_path)
    assert last.used() == 0
    assert {path.name for path in last.root.rglob("*")} == {"state", "fill"}
    last.close()


def test_a_process_that_ends_without_closing_leaves_nothing(tmp_path):
    code = f"""
from holoshard.cache.shared import SharedTier
from holoshard.cache.tier import Key
kept = SharedTier(1 << 20, folder={str(tmp_path)!r})
for tier in (SharedTier(1 << 20, folder={str(tmp_path)!r}), kept):
    tier.load(Key("d", "x", 0, -1), lambda: b"x" * 5000)
del tier
assert kept.used() == 8192
1 / 0
"""
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 1
    (root,) = tmp_path.iterdir()
    assert {path.name for path in root.rglob("*")} == {"state", "fill"}


def test_damage_is_found_and_made_anew(tmp_path, caplog):
    first, second = (SharedTier(1 << 20, folder=tmp_path) for _ in range(2))
    made = []
    for harm in (lambda b: b[:40] + bytes([b[40] ^ 1]) + b[41:], lambda b: b[:-1], lambda b: b""):
        first.load(key(0), lambda: content(0))
        (path,) = blocks(first)
        path.write_bytes(harm(path.read_bytes()))
        os.utime(path, ns=(1, 1))
        assert bytes(second.load(key(0), lambda: made.append(1) or content(0))) == content(0)
    assert len(made) == second.counters.damaged == 3
    assert caplog.text.count("is damaged") == 3
    first.close()
    second.close()


def test_no_such_memory_costs_the_sharing_not_the_run(tmp_path, caplog):
    import numpy as np

    keep = Decoded(SharedTier(1 << 20, folder=tmp_path / "nothing"), "d")
    for _ in range(2):
        assert (keep("block", lambda: {"x": np.arange(3)})["x"] == [0, 1, 2]).all()
    assert caplog.text.count("going on without it") == 1
