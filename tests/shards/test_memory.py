"""Memory comes back when the last view of it is gone, and not before."""

from __future__ import annotations

import pickle
import threading

import numpy as np
import pytest

from holoshard.shards.read.memory import SMALL, Memory

N = 2 * SMALL


def address(array):
    return array.__array_interface__["data"][0]


def test_memory_is_used_again_once_nobody_looks():
    memory = Memory()
    first = memory.empty((N // 4, 4), np.uint8)
    place = address(first)
    view = first[5:, 1].view()
    del first
    second = memory.empty((N,), np.uint8)
    assert address(second) != place  # the view still looks
    del view
    third = memory.empty((N // 8,), np.float64)
    assert address(third) == place
    assert third.shape == (N // 8,)
    assert third.dtype == np.float64


def test_torch_holds_on_to_it():
    torch = pytest.importorskip("torch")
    memory = Memory()
    array = memory.empty((N,), np.uint8)
    array[:] = 7
    tensor = torch.from_numpy(array)[10:]
    del array
    for _ in range(5):
        memory.empty((N,), np.uint8)[:] = 9
    assert bool((tensor == 7).all())


def test_sizes_that_do_not_fit_are_made_anew():
    memory = Memory()
    for n in (N, 3 * N, N // 2, 40 * N):
        array = memory.empty((n,), np.uint8)
        array[:] = 1
        assert len(array) == n
    assert len(memory.empty((3,), np.int16)) == 3
    assert pickle.loads(pickle.dumps(memory)).empty((N,), np.uint8).shape == (N,)


def test_threads_never_share_memory_that_is_looked_at():
    memory, wrong = Memory(), []

    def work(value):
        for _ in range(300):
            array = memory.empty((N,), np.uint8)
            array[:] = value
            if (array != value).any():
                wrong.append(value)

    threads = [threading.Thread(target=work, args=(v,)) for v in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong
