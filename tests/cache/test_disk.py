"""The node tier: what is on the disk is right, within its capacity, and nobody's death matters."""

from __future__ import annotations

import errno
import fcntl
import logging
import multiprocessing
import os
import threading
import time

import pytest

from holoshard.cache import disk as disk_module
from holoshard.cache import locks as locks_module
from holoshard.cache.account import PAGE, Account
from holoshard.cache.blockfile import dataset_folder
from holoshard.cache.disk import DiskTier
from holoshard.cache.locks import Locks
from holoshard.cache.policy import LRU
from holoshard.cache.tier import Key

SPAWN = multiprocessing.get_context("spawn")
SIZE = PAGE - 32  # with its header one page


def key(i: int, dataset: str = "d", length: int = SIZE) -> Key:
    return Key(dataset, "train-00000.h5", i * PAGE, length)


def content(i: int, length: int = SIZE) -> bytes:
    return bytes([i % 251]) * length


def tier(folder, pages=4, policy=None, **options) -> DiskTier:
    return DiskTier(folder, pages * PAGE, policy, spare=0.0, **options)


def load(t: DiskTier, i: int, dataset: str = "d", fetched: list | None = None) -> bytes:
    def fetch():
        if fetched is not None:
            fetched.append(i)
        return content(i)

    return bytes(t.load(key(i, dataset), fetch))


def on_disk(t: DiskTier) -> int:
    return sum(-(-p.stat().st_size // PAGE) * PAGE for p in t.root.rglob("*") if len(p.name) == 32)


def test_a_second_process_finds_what_a_first_one_fetched(tmp_path):
    first, second, fetched = tier(tmp_path), tier(tmp_path), []
    for t in (first, second):
        for i in range(3):
            assert load(t, i, fetched=fetched) == content(i)
    assert fetched == [0, 1, 2]
    assert second.counters.hits == 3
    first.close()
    second.close()
    later = tier(tmp_path)
    assert load(later, 2, fetched=fetched) == content(2)
    assert fetched == [0, 1, 2]


def test_capacity_is_exact_over_several_tiers(tmp_path):
    tiers = [tier(tmp_path, 5) for _ in range(3)]
    for i in range(12):
        load(tiers[i % 3], i)
    assert on_disk(tiers[0]) == tiers[1].used() == 5 * PAGE
    assert sum(t.counters.refused for t in tiers) == 7


def test_lru_evicts_and_stays_within_capacity(tmp_path):
    t = tier(tmp_path, 3, LRU())
    for i in (0, 1, 2, 0, 3):
        load(t, i)
    assert [t.holds(key(i)) for i in range(4)] == [True, False, True, True]
    assert on_disk(t) == t.used() == 3 * PAGE


def test_a_changed_data_set_gets_its_own_bytes_and_an_unused_one_makes_room(tmp_path):
    old = tier(tmp_path, 2)
    load(old, 0, "old")
    load(old, 1, "old")
    new = tier(tmp_path, 2)
    assert bytes(new.load(key(0, "new"), lambda: content(9))) == content(9)
    assert new.counters.refused == 1  # the old one is in use
    assert load(old, 0, "old") == content(0)
    old.close()
    assert bytes(new.load(key(0, "new"), lambda: content(9))) == content(9)
    assert new.counters.evictions == 1
    assert new.holds(key(0, "new"))
    assert on_disk(new) == 2 * PAGE


@pytest.mark.parametrize("harm", ["flip", "cut", "grow", "empty"])
def test_a_damaged_block_is_fetched_again(tmp_path, harm, caplog):
    t = tier(tmp_path)
    load(t, 1)
    path = next(p for p in t.root.rglob("*") if len(p.name) == 32)
    data = bytearray(path.read_bytes())
    if harm == "flip":
        data[100] ^= 1
    path.write_bytes({"flip": data, "cut": data[:-1], "grow": data + b"x", "empty": b""}[harm])
    again = tier(tmp_path)  # has not seen the file
    if harm == "grow":  # bytes after the block do not matter
        assert load(again, 1) == content(1)
        return
    fetched = []
    assert load(again, 1, fetched=fetched) == content(1)
    assert fetched == [1]
    assert again.counters.damaged == 1
    assert "damaged" in caplog.text
    assert load(tier(tmp_path), 1, fetched=fetched) == content(1)
    assert fetched == [1]


def test_a_short_read_is_passed_on_and_not_kept(tmp_path):
    t = tier(tmp_path)
    assert t.load(key(1), lambda: b"short") == b"short"
    assert not t.holds(key(1))
    assert t.used() == 0


def test_what_a_dead_process_left_goes_and_is_counted_out(tmp_path):
    t = tier(tmp_path)
    load(t, 0)
    t.close()
    left = t.root / "fill" / f"{'a' * 15}-1-{PAGE}"
    left.write_bytes(b"half")
    account = Account(t.root)  # alone: counts anew
    assert not left.exists()
    assert account.used() == PAGE
    account.close()


def test_a_death_inside_the_account_is_counted_anew(tmp_path):
    t, other = tier(tmp_path), tier(tmp_path)
    load(t, 0)
    load(other, 1)
    state = t.root / "state"
    with state.open("r+b") as file:  # busy, and a wrong number
        file.write(b"HSCACHE1\1\0\0\0\0\0\0\0" + (77 * PAGE).to_bytes(8, "little"))
    load(t, 2)
    assert t.used() == 3 * PAGE
    with state.open("r+b") as file:
        file.write(b"rubbish rubbish rubbish")
    load(other, 3)
    assert t.used() == on_disk(t) == 4 * PAGE


def _fill_and_die(folder, ready):
    t = tier(folder, 8)
    load(t, 0)

    def fetch():
        ready.put(os.getpid())
        time.sleep(60)
        return b""

    t.load(key(1), fetch)


def test_a_kill_during_a_fetch_frees_the_block_for_others(tmp_path):
    ready = SPAWN.Queue()
    process = SPAWN.Process(target=_fill_and_die, args=(tmp_path, ready))
    process.start()
    ready.get(timeout=60)
    t, fetched = tier(tmp_path, 8), []
    waiter = threading.Thread(target=load, args=(t, 1, "d", fetched))
    waiter.start()
    time.sleep(0.2)
    assert not fetched  # the other process is fetching it
    process.kill()
    process.join()
    waiter.join(20)
    assert fetched == [1]
    assert load(t, 0, fetched=fetched) == content(0)
    assert fetched == [1]


def test_a_fetch_that_hangs_elsewhere_is_not_waited_for_for_ever(tmp_path):
    slow, t = tier(tmp_path), tier(tmp_path, patience_s=0.1)
    fetching, end = threading.Event(), threading.Event()

    def hang():
        fetching.set()
        end.wait(30)
        return content(1)

    thread = threading.Thread(target=slow.load, args=(key(1), hang))
    thread.start()
    fetching.wait(10)
    assert load(t, 1) == content(1)
    end.set()
    thread.join()
    assert on_disk(t) == t.used() == PAGE


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS])
def test_a_failing_disk_costs_the_cache_not_the_run(tmp_path, monkeypatch, caplog, code):
    t = tier(tmp_path)
    load(t, 0)

    def fail(fd, buffers):
        os.write(fd, b"a part of it")
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patched:
        patched.setattr(disk_module.os, "writev", fail)
        for i in range(1, 4):
            assert load(t, i) == content(i)
    assert caplog.text.count("going on without it") == 1
    assert load(t, 0, fetched=(fetched := [])) == content(0)
    assert not fetched
    assert os.listdir(t.root / "fill") == []
    assert t.used() == on_disk(t) == PAGE
    t._silent_until = 0.0  # the disk has recovered
    load(t, 1)
    assert t.holds(key(1))


def test_a_disk_that_others_filled_is_left_alone(tmp_path, caplog):
    t = DiskTier(tmp_path, 1 << 40, spare=1.0)
    assert load(t, 0) == content(0)
    assert not t.holds(key(0))
    assert "full disk" in caplog.text


def test_a_missing_or_forbidden_folder_is_passed_through(tmp_path, caplog):
    with caplog.at_level(logging.WARNING):
        t = tier(tmp_path / "nothing")
        assert load(t, 0) == content(0)
        assert load(t, 0) == content(0)
    assert caplog.text.count("going on without it") == 1
    assert not (tmp_path / "nothing").exists()


def test_read_only_uses_and_writes_nothing(tmp_path):
    t = tier(tmp_path)
    load(t, 0)
    t.close()
    before = sorted((p, p.stat().st_mtime_ns) for p in tmp_path.rglob("*"))
    reader, fetched = tier(tmp_path, read_only=True), []
    assert load(reader, 0, fetched=fetched) == content(0)
    assert load(reader, 1, fetched=fetched) == content(1)
    reader.close()
    assert fetched == [1]
    assert sorted((p, p.stat().st_mtime_ns) for p in tmp_path.rglob("*")) == before


def test_a_smaller_capacity_is_kept_from_the_start(tmp_path):
    t = tier(tmp_path, 8)
    for i in range(8):
        load(t, i)
    t.close()
    smaller = tier(tmp_path, 3)
    assert smaller.used() == on_disk(smaller) == 3 * PAGE


def test_other_files_in_the_folder_are_nobodys_business(tmp_path):
    (tmp_path / "thesis.tex").write_text("mine")
    t = tier(tmp_path, 1)
    load(t, 0)
    t.account().clear()
    assert (tmp_path / "thesis.tex").read_text() == "mine"
    assert t.used() == 0


def test_without_locks_on_the_file_system_they_move_to_the_node(tmp_path, monkeypatch):
    cache, node = tmp_path / "lustre", tmp_path / "node"
    cache.mkdir()
    node.mkdir()
    monkeypatch.setattr(locks_module.tempfile, "gettempdir", lambda: str(node))
    real = fcntl.fcntl

    def no_locks(fd, command, argument=0):
        if command == fcntl.F_OFD_SETLK and str(cache) in os.readlink(f"/proc/self/fd/{fd}"):
            raise OSError(errno.ENOSYS, "no locks here")
        return real(fd, command, argument)

    monkeypatch.setattr(locks_module.fcntl, "fcntl", no_locks)
    tiers, fetched = [tier(cache, 3) for _ in range(2)], []
    for i in range(5):
        for t in tiers:
            assert load(t, i, fetched=fetched) == content(i)
    assert len(fetched) == 3 + 2 * 2  # three kept, two refused to both
    assert sum(p.stat().st_size for p in cache.rglob("*") if len(p.name) == 32) == 3 * PAGE
    assert list(node.rglob("*-*"))
    for t in tiers:
        t.close()
    reader, fetched = tier(cache, read_only=True), []
    assert load(reader, 0, fetched=fetched) == content(0)
    assert not fetched


def test_a_forked_child_attaches_for_itself(tmp_path):
    t = tier(tmp_path)
    load(t, 0)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            owner = t.account().owner
            code = 0 if load(t, 1) == content(1) and owner != "" else 1
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    assert load(t, 1, fetched=(fetched := [])) == content(1)
    assert not fetched
    assert on_disk(t) == t.used() == 2 * PAGE


def test_locks_exclude_threads_and_say_who_is_busy(tmp_path):
    locks = Locks(tmp_path / "state")
    with locks.hold(7) as held:
        assert held
        assert locks.busy(7)
        assert not locks.busy(8)
        with locks.hold(7, 0.01) as again:
            assert not again
    assert not locks.busy(7)


def test_folders_of_data_sets_cannot_leave_the_cache():
    assert set(dataset_folder("../../etc")) <= set("0123456789abcdef")


def test_a_cache_folder_that_is_a_link_is_not_followed(tmp_path, caplog):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    t = tier(tmp_path)
    t.root.symlink_to(elsewhere)
    assert load(t, 0) == content(0)
    assert list(elsewhere.iterdir()) == []
    assert "not a folder of this user" in caplog.text


@pytest.mark.parametrize("read_only", [False, True])
def test_the_folder_of_another_user_is_not_believed(tmp_path, monkeypatch, caplog, read_only):
    planted = tier(tmp_path)
    monkeypatch.setattr(disk_module.os, "getuid", lambda: 54321)
    planted.root = tmp_path / "holoshard-cache-54321"  # made by us in the place of someone else's
    planted._check_owner = lambda: None
    assert bytes(planted.load(key(0), lambda: b"x" * SIZE)) == b"x" * SIZE
    planted.close()
    before = sorted((p, p.stat().st_mtime_ns) for p in tmp_path.rglob("*"))
    t = tier(tmp_path, read_only=read_only)
    assert t.root == planted.root
    for _ in range(2):
        assert load(t, 0) == content(0)
    assert caplog.text.count("not a folder of this user") == 1
    assert sorted((p, p.stat().st_mtime_ns) for p in tmp_path.rglob("*")) == before


def test_what_died_while_others_live_is_given_back_when_they_leave(tmp_path):
    t, other = tier(tmp_path, 4), tier(tmp_path, 4)
    load(t, 0)
    load(other, 1)
    account = t.account()
    left = account.reserve(PAGE, 4 * PAGE, iter(()), "0" * 16).path
    left.rename(left.with_name("b" * 15 + "-1-" + str(PAGE)))  # of an owner that is not alive
    assert t.used() == 3 * PAGE
    other.close()
    assert t.used() == on_disk(t) == 2 * PAGE


def test_without_the_locks_of_linux_it_is_passed_through(tmp_path, monkeypatch, caplog):
    monkeypatch.delattr(fcntl, "F_OFD_SETLK")
    assert load(tier(tmp_path), 0) == content(0)
    assert "locks of Linux" in caplog.text


def test_a_file_that_changed_since_it_was_seen_is_checked_again(tmp_path):
    t, fetched = tier(tmp_path), []
    load(t, 1)
    load(t, 1)
    path = next(p for p in t.root.rglob("*") if len(p.name) == 32)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(1, 1))
    assert load(t, 1, fetched=fetched) == content(1)
    assert fetched == [1]
