"""Reading ahead: the right bytes, within bounds, errors where they belong, a prompt end."""

from __future__ import annotations

import errno
import gc
import itertools
import os
import threading
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holoshard.cache.errors import SettingError, SourceError
from holoshard.cache.memory import MemoryTier
from holoshard.cache.prefetch import Prefetcher
from holoshard.cache.tiered import TieredCache

SIZE = 100


class Server:
    """Bytes that say where they come from; slow, failing or hanging on demand."""

    def __init__(self, delay=0.0):
        self.delay, self.calls, self.requests, self.flying, self.most = delay, [], 0, 0, 0
        self.lock, self.hang, self.bad = threading.Lock(), None, {}

    def __call__(self, path, offset, length):
        units = range(offset // SIZE, -(-(offset + length) // SIZE))
        with self.lock:
            self.calls.extend(units)
            self.requests += 1
            self.flying += 1
            self.most = max(self.most, self.flying)
        if self.hang is not None:
            self.hang.wait(30)
        time.sleep(self.delay)
        with self.lock:
            self.flying -= 1
        for unit in units:
            if unit in self.bad:
                raise self.bad[unit]
        return b"".join(map(content, units))


def content(i: int) -> bytes:
    return i.to_bytes(4, "big") * (SIZE // 4)


def ranges(numbers):
    return (("f", i * SIZE, SIZE) for i in numbers)


def wait_for(condition):
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.005)


def cached(server, capacity=0, attempts=1):
    return TieredCache([MemoryTier(capacity)], server, dataset="d", attempts=attempts)


def test_everything_is_fetched_once_and_found():
    server = Server(0.001)
    with Prefetcher(cached(server), ranges(range(200)), readers=4) as ahead:
        for i in range(200):
            assert ahead("f", i * SIZE, SIZE) == content(i)
        told = ahead.ahead
        assert sorted(server.calls) == list(range(200))
        assert told.requests == 200 == told.ready + told.late + told.unforetold
        deadline = time.monotonic() + 10
        while (ahead._plan.bytes or ahead._plan.held) and time.monotonic() < deadline:
            time.sleep(0.005)  # a reader counts out its last block after the consumer has it
        assert ahead._plan.bytes == 0
        assert not ahead._plan.held
    assert server.most <= 5  # four readers, and the consumer itself at the start


def test_bytes_held_are_bounded_when_the_consumer_stops():
    server = Server()
    with Prefetcher(cached(server), ranges(itertools.count()), readers=4, max_bytes=10 * SIZE) as ahead:
        for i in range(50):  # deep enough for the bytes to be the bound
            ahead("f", i * SIZE, SIZE)
        ahead._plan.told.depth = 1000
        wait_for(lambda: ahead._plan.bytes == 10 * SIZE)
        time.sleep(0.05)
        assert ahead._plan.bytes == 10 * SIZE
        assert len(set(server.calls)) <= 60


def test_depth_follows_latency():
    server = Server(0.02)
    with Prefetcher(cached(server), ranges(range(400)), readers=16) as ahead:
        for i in range(200):
            ahead("f", i * SIZE, SIZE)
            time.sleep(0.002)
        assert ahead.ahead.depth >= 16
        assert 0.01 < ahead.ahead.latency_s < 1
        late = ahead.ahead.late + ahead.ahead.unforetold
        assert late < 150


@settings(max_examples=15, deadline=None)
@given(
    st.lists(st.integers(0, 8), max_size=40), st.randoms(use_true_random=False), st.integers(1, 4),
    st.integers(0, 5), st.integers(0, 5),
)  # fmt: skip
def test_any_order_of_asking_gets_the_right_bytes(future, random, readers, room, capacity):
    asked = [i for i in future if random.random() < 0.8] + [random.randrange(12) for _ in range(5)]
    random.shuffle(asked)
    cache = cached(Server(), capacity * SIZE)
    with Prefetcher(cache, ranges(future), readers=readers, max_bytes=room * SIZE) as ahead:
        for i in asked:
            assert ahead("f", i * SIZE, SIZE) == content(i)
    assert cache.tiers[0].used() <= capacity * SIZE


def test_an_error_comes_where_its_bytes_are_asked_for_and_names_them():
    server = Server()
    server.bad[3] = OSError(errno.EIO, "Input/output error")
    with Prefetcher(cached(server), ranges(range(6)), readers=2) as ahead:
        for i in (0, 1, 2):
            ahead("f", i * SIZE, SIZE)
        with pytest.raises(SourceError, match=r"f, 100 bytes at 300: .*Input/output error"):
            ahead("f", 300, SIZE)
        assert ahead("f", 400, SIZE) == content(4)


def test_neighbours_come_in_one_request_and_an_error_among_them_hits_one_alone():
    server = Server(0.005)
    server.bad[30] = OSError(errno.EIO, "Input/output error")
    order = [i for j in (40, 0, 20, 60) for i in range(j, j + 20)]
    with Prefetcher(cached(server), ranges(order), readers=1, max_depth=100) as ahead:
        ahead._plan.told.depth = 100
        for i in order:
            if i == 30:
                with pytest.raises(SourceError, match=r"f, 100 bytes at 3000: .*Input/output error"):
                    ahead("f", i * SIZE, SIZE)
            else:
                assert ahead("f", i * SIZE, SIZE) == content(i)
    assert server.requests < 60  # 80 and more one by one


def test_what_the_reader_passes_by_is_neither_fetched_nor_held():
    server, needless = Server(), {i for i in range(300) if i % 3}
    plan = {"readers": 2, "max_bytes": 8 * SIZE, "needless": lambda key: key.offset // SIZE in needless}
    with Prefetcher(cached(server), ranges([*range(300), *range(300)]), **plan) as ahead:
        for i in [*range(300), *range(300)]:
            if i in needless and i != 100:
                ahead.passed("f", i * SIZE, SIZE)
            else:  # 100 was taken for needless, and is asked for after all
                assert ahead("f", i * SIZE, SIZE) == content(i)
        wait_for(lambda: not ahead._plan.held)
        assert ahead._plan.bytes == 0
    assert set(server.calls) == {i for i in range(300) if i not in needless} | {100}


def test_what_is_skipped_is_let_go():
    with Prefetcher(cached(Server()), ranges(range(2000)), readers=2, max_bytes=8 * SIZE) as ahead:
        for i in range(0, 2000, 2):  # every other one is never asked for
            assert ahead("f", i * SIZE, SIZE) == content(i)
        assert ahead._plan.bytes <= 8 * SIZE


def test_closing_does_not_wait_for_a_read_that_hangs():
    server = Server()
    server.hang = threading.Event()
    ahead = Prefetcher(cached(server), ranges(range(9)), readers=2)
    wait_for(lambda: server.flying == 2)
    start = time.monotonic()
    ahead.close()
    assert time.monotonic() - start < 10  # the server hangs for 30
    server.hang.set()
    assert ahead("f", 0, SIZE) == content(0)


def test_a_forgotten_prefetcher_ends_its_threads():
    ahead = Prefetcher(cached(Server()), ranges(itertools.count()), readers=2)
    ahead("f", 0, SIZE)
    threads = ahead._threads
    del ahead
    gc.collect()
    wait_for(lambda: not any(t.is_alive() for t in threads))


def test_a_future_that_fails_only_costs_the_looking_ahead(caplog):
    def future():
        yield from ranges(range(2))
        raise ValueError("no order")

    with Prefetcher(cached(Server()), future(), readers=1) as ahead:
        for i in range(5):
            assert ahead("f", i * SIZE, SIZE) == content(i)
    assert "no order" in caplog.text


def test_a_forked_child_reads_without_threads():
    with Prefetcher(cached(Server()), ranges(range(9)), readers=2) as ahead:
        wait_for(lambda: len(ahead._plan.held) >= 2)
        child = os.fork()
        if child == 0:
            os._exit(0 if ahead("f", 300, SIZE) == content(3) else 1)
        assert os.waitpid(child, 0)[1] == 0


def test_wrong_settings():
    with pytest.raises(SettingError):
        Prefetcher(cached(Server()), ranges([]), readers=0)
