from __future__ import annotations

import threading
from contextlib import contextmanager

import pytest
import torch

from holoshard.train.feed import Fed, SideStream, ahead


def source(n, made=lambda i: None):
    for i in range(n):
        made(i)
        yield Fed(i // 2, {"index": torch.tensor([i])})


def test_all_come_in_order_with_their_epochs():
    found = [(fed.epoch, int(fed.tensors["index"])) for fed in ahead(source(5), torch.device("cpu"))]
    assert found == [(0, 0), (0, 1), (1, 2), (1, 3), (2, 4)]


def test_one_is_made_while_another_is_used_and_no_more():
    there = [threading.Event() for _ in range(4)]
    feed = ahead(source(4, lambda i: there[i].set()), torch.device("cpu"))
    for i in range(3):
        assert int(next(feed).tensors["index"]) == i
        assert there[i + 1].wait(10)
        assert i + 2 > 3 or not there[i + 2].wait(0.05)
    feed.close()


def test_an_error_reaches_the_caller_after_what_came_before():
    def broken():
        yield from source(1)
        raise OSError("gone")

    feed = ahead(broken(), torch.device("cpu"))
    next(feed)
    with pytest.raises(OSError, match="gone"):
        next(feed)


class Cuda:
    """Stands for torch.cuda and its streams: writes down what is asked of them, in order."""

    def __init__(self):
        self.log = []
        self.on = "computing"

    def Stream(self, device):
        return Side(self)

    @contextmanager
    def stream(self, side):
        self.on = "side"
        yield
        self.on = "computing"

    def current_stream(self, device):
        return Computing(self)


class Side:
    def __init__(self, cuda):
        self.cuda = cuda

    def record_event(self):
        assert self.cuda.on == "side"
        self.cuda.log.append("recorded")
        return len(self.cuda.log)


class Computing:
    def __init__(self, cuda):
        self.cuda = cuda

    def wait_event(self, event):
        self.cuda.log.append(f"waits for {event}")


class Value:
    """Stands for a tensor."""

    def __init__(self, cuda, state="pageable"):
        self.cuda, self.state = cuda, state

    def pin_memory(self):
        return Value(self.cuda, "pinned")

    def to(self, device, non_blocking):
        assert (self.state, non_blocking, self.cuda.on) == ("pinned", True, "side")
        self.cuda.log.append("copied")
        return Value(self.cuda, "there")

    def record_stream(self, stream):
        assert isinstance(stream, Computing)
        assert self.state == "there"
        self.cuda.log.append("kept")


def test_copies_pass_on_a_stream_of_their_own_and_are_waited_for():
    cuda = Cuda()
    side = SideStream(torch.device("cuda", 0), cuda)
    first, second = (side.send(Fed(0, {"a": Value(cuda), "b": Value(cuda)})) for _ in range(2))
    assert cuda.log == ["copied", "copied", "recorded"] * 2
    cuda.log.clear()
    side.receive(first)
    assert cuda.log == ["waits for 3", "kept", "kept"]
    assert side.receive(second).tensors["a"].state == "there"
    assert cuda.log[3] == "waits for 6"


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_the_same_values_arrive_on_an_accelerator():
    device = torch.device("cuda", 0)
    found = [fed.tensors["index"] for fed in ahead(source(50), device)]
    assert all(value.device == device for value in found)
    assert torch.cat(found).tolist() == list(range(50))
