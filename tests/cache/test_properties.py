"""Random traces, capacities, policies and deaths: right bytes, within capacity, no fetch of what is held."""

from __future__ import annotations

import multiprocessing
import os
import random
import shutil
import signal
import tempfile
import threading
import time
import zlib
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holoshard.cache.account import PAGE
from holoshard.cache.blockfile import dataset_folder
from holoshard.cache.disk import DiskTier
from holoshard.cache.memory import MemoryTier
from holoshard.cache.policy import LRU, Clairvoyant, NeverEvict
from holoshard.cache.shared import SharedTier
from holoshard.cache.tier import Key

FORK = multiprocessing.get_context("fork")


def size(i: int) -> int:
    return 500 + 3000 * (i % 4)  # one to three pages


def content(i: int, dataset: str = "d") -> bytes:
    return bytes([(i * 7 + len(dataset)) % 251]) * size(i)


def key(i: int, dataset: str = "d") -> Key:
    return Key(dataset, "f", i, size(i))


def disk_bytes(tier: DiskTier) -> int:
    files = [p for p in tier.root.rglob("*") if len(p.name) == 32 or p.parent.name == "fill"]
    return sum(-(-p.stat().st_size // PAGE) * PAGE for p in files)


def policy(name: str, trace):
    known = [key(i, d) for i, d, _ in trace]
    return {"never": NeverEvict, "lru": LRU, "clairvoyant": lambda: Clairvoyant(known)}[name]()


policies = st.sampled_from(["never", "lru", "clairvoyant"])
actions = st.sampled_from(["load"] * 9 + ["flip"] * 4 + ["reopen", "die", "fail"])
traces = st.lists(st.tuples(st.integers(0, 5), st.sampled_from(["d", "other"]), actions), max_size=50)


@settings(max_examples=60, deadline=None)
@given(traces, policies, st.integers(0, 40_000))
def test_memory_against_a_model(trace, name, capacity):
    tier = MemoryTier(capacity, policy(name, trace))
    for i, dataset, _ in trace:
        fetched, held = [], tier.holds(key(i, dataset))
        data = tier.load(key(i, dataset), lambda i=i, d=dataset, f=fetched: f.append(i) or content(i, d))
        assert bytes(data) == content(i, dataset)
        assert bool(fetched) != held
        assert tier.used() == sum(len(d) for d in tier._held.values()) <= capacity


@settings(max_examples=50, deadline=None)
@given(traces, policies, st.integers(0, 10), st.booleans(), st.booleans())
def test_disk_against_a_model(trace, name, pages, second, shared):
    """Two processes' worth of tiers on one folder; one may be closed, die in the middle, or find damage."""
    folder = Path(tempfile.mkdtemp())

    def make():
        who = policy(name, trace)
        if shared:
            return SharedTier(pages * PAGE, who, folder=folder)
        return DiskTier(folder, pages * PAGE, who, spare=0)

    try:
        tiers = [make() for _ in range(1 + second)]
        for n, (i, dataset, action) in enumerate(trace):
            tier = tiers[n % len(tiers)]
            damaged = False
            if action == "reopen":
                tier.close()
            elif action == "die":
                leave_as_the_dead_do(tier)
            elif action == "flip":
                damaged = flip(tier, key(i, dataset))
            fetched, held = [], tier.holds(key(i, dataset))

            def fetch(i=i, d=dataset, f=fetched, fails=action == "fail"):
                f.append(i)
                if fails:
                    raise LookupError
                return content(i, d)

            try:
                assert bytes(tier.load(key(i, dataset), fetch)) == content(i, dataset)
            except LookupError:
                assert action == "fail"
            assert bool(fetched) != (held and not damaged)
            assert disk_bytes(tier) <= tier.used() <= pages * PAGE
        for tier in tiers:
            tier.close()
        last = make()
        assert last.used() == disk_bytes(last)
        assert not shared or last.used() == 0
        assert os.listdir(last.root / "fill") == []
        last.close()
    finally:
        shutil.rmtree(folder)


def leave_as_the_dead_do(tier: DiskTier) -> None:
    """A child reserves room, writes half of a block and is killed."""
    tier.used()
    child = os.fork()
    if child == 0:
        account = tier.account()
        found = account.reserve(2 * PAGE, tier.capacity, iter(()), "0" * 16)
        if not isinstance(found, list):
            found.path.write_bytes(b"half of it")
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)


def flip(tier: DiskTier, which: Key) -> bool:
    path = tier.root / dataset_folder(which.dataset) / which.name
    if not path.exists():
        return False
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(1, random.randrange(1, 10**9)))
    return True


def worker(folder, pages, seed, log, end):
    """Loads at random until it is killed or time is up; logs what it fetched; exits 3 if a byte is wrong."""
    rng = random.Random(seed)
    tier = DiskTier(folder, pages * PAGE, LRU() if seed % 2 else None, spare=0)
    fd = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    while time.time() < end:
        i = rng.randrange(60)

        def fetch(i=i):
            os.write(fd, b"%d\n" % i)
            time.sleep(0.001)
            return content(i)

        if zlib.crc32(tier.load(key(i), fetch)) != zlib.crc32(content(i)):
            os._exit(3)
    tier.close()
    os._exit(0)


def kill_some(folder, log, pages, seconds, every_s, n=4):
    """Run n processes on one folder, kill one now and then and start another; capacity holds all along."""
    watch = DiskTier(folder, pages * PAGE, spare=0)
    watch.used()
    end, seeds = time.time() + seconds, iter(range(10_000))
    start = lambda: FORK.Process(target=worker, args=(folder, pages, next(seeds), log, end))  # noqa: E731
    running = [start() for _ in range(n)]
    for process in running:
        process.start()
    killed = 0
    while time.time() < end - every_s:
        time.sleep(every_s)
        victim = running.pop(random.randrange(n))
        victim.kill()
        victim.join(30)
        killed += 1
        running.append(start())
        running[-1].start()
        assert blocks_bytes(watch) <= pages * PAGE
    for process in running:
        process.join(60)
        assert process.exitcode == 0  # 3: a wrong byte; None: it hangs
    return watch, killed


def blocks_bytes(tier: DiskTier) -> int:
    total = 0
    for path in list(tier.root.rglob("*")):
        try:
            total += -(-path.stat().st_size // PAGE) * PAGE if len(path.name) == 32 else 0
        except FileNotFoundError:
            continue
    return total


@pytest.mark.parametrize("pages", [200, 30])
def test_kill_9_at_any_moment(tmp_path, pages):
    log = tmp_path / "log"
    watch, killed = kill_some(tmp_path, log, pages, seconds=4, every_s=0.15)
    assert killed >= 3  # about 26 on a quiet machine
    fetches = Counter(log.read_text().split())
    if pages == 200:  # all fits: a second fetch only where a process died in its first
        assert len(fetches) == 60
        assert sum(fetches.values()) <= 60 + killed
    watch.close()
    after = DiskTier(tmp_path, pages * PAGE, spare=0)
    assert after.used() == blocks_bytes(after) <= pages * PAGE
    assert os.listdir(after.root / "fill") == []
    assert all(bytes(after.load(key(i), lambda i=i: content(i))) == content(i) for i in range(60))
    after.close()


class Filler(threading.Thread):
    """Something else that fills a small file system to the last byte, and leaves again, in turn."""

    def __init__(self, disk: Path, every_s: float) -> None:
        super().__init__(daemon=True)
        self.path, self.every_s, self.full, self.end = disk / "filler", every_s, 0, threading.Event()

    def run(self) -> None:
        while not self.end.wait(self.every_s):
            with suppress(OSError), self.path.open("wb", buffering=0) as file:
                while file.write(b"x" * PAGE):
                    pass
            self.full += os.statvfs(self.path.parent).f_bavail == 0
            self.end.wait(self.every_s)
            self.path.unlink()

    def stop(self) -> None:
        self.end.set()
        self.join(30)
        self.path.unlink(missing_ok=True)


@pytest.mark.parametrize(
    ("n", "seconds", "every_s"), [(4, 6, 0.2), pytest.param(8, 60, 1.0, marks=pytest.mark.slow)]
)
def test_kill_9_and_a_full_disk_in_between(tmp_path, monkeypatch, n, seconds, every_s):
    """Processes on a small file system of its own, killed one by one while something else fills it."""
    monkeypatch.setattr("holoshard.cache.disk.RETRY_S", 0.5)
    disk, pages = tmp_path / "disk", 60
    disk.mkdir()
    if os.getuid() or os.system(f"mount -t tmpfs -o size=400k tmpfs {disk} 2>/dev/null"):
        pytest.skip("mounting a small file system needs root")
    try:
        (disk / "other").write_bytes(b"y" * 100_000)
        filler = Filler(disk, seconds / 10)
        filler.start()
        watch, killed = kill_some(disk, tmp_path / "log", pages, seconds, every_s, n)
        filler.stop()
        assert killed >= 3  # one every time on a quiet machine
        assert filler.full >= 2
        watch.close()
        after = DiskTier(disk, pages * PAGE, spare=0)
        assert after.used() == blocks_bytes(after)
        assert os.listdir(after.root / "fill") == []
        after.close()
        assert (disk / "other").read_bytes() == b"y" * 100_000
        left = {path.relative_to(after.root).parts[0] for path in after.root.rglob("*")}
        assert left == {"fill", "state", dataset_folder("d")}
        assert sorted(path.name for path in disk.iterdir()) == [after.root.name, "other"]
        print(f"{killed} killed, the disk was full {filler.full} times")
    finally:
        os.system(f"umount {disk}")
