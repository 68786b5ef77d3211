"""Batches on their way to the step: read, converted and copied to the device while another is computed."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .config import TrainConfig
from .data import Tensors, add_noise, to_tensors
from .model.loss import label_weight
from .reading import Reading


class Fed(NamedTuple):
    """A batch with the epoch that it belongs to."""

    epoch: int
    tensors: Tensors
    arrived: Any = None  # the CUDA event after its copy


def batches(reading: Reading, config: TrainConfig, weight: Tensor, epoch: int, step: int) -> Iterator[Fed]:
    """Batches in main memory from a step of an epoch on, epoch after epoch without end.

    Parameters
    ----------
    weight : (complexes of the data set,) what each label weighs
    """
    for number in itertools.count(epoch):
        for batch in reading.stream(number, step if number == epoch else 0):
            tensors = to_tensors(batch, config.data.inputs)
            add_noise(tensors, config.data.noise, config.seed, number)
            tensors["weight"] = label_weight(
                tensors["pk"], tensors["pk_relation"], weight[tensors["index"]], config.loss
            )
            yield Fed(number, tensors)


def ahead(source: Iterator[Fed], device: torch.device) -> Iterator[Fed]:
    """The same on the device; a thread makes the next one while the caller works with the last."""
    side = SideStream(device) if device.type == "cuda" else None

    def make() -> Fed | None:
        fed = next(source, None)
        return side.send(fed) if side is not None and fed is not None else fed

    with ThreadPoolExecutor(1, "feed") as thread:
        coming = thread.submit(make)
        while (fed := coming.result()) is not None:
            coming = thread.submit(make)
            yield side.receive(fed) if side is not None else fed


class SideStream:
    """Copies to a CUDA device on a stream of its own, so that they pass beside what is computed.

    Parameters
    ----------
    cuda : torch.cuda, or what stands for it in a test
    """

    def __init__(self, device: torch.device, cuda: Any = torch.cuda) -> None:
        self.device, self.cuda, self.stream = device, cuda, cuda.Stream(device)

    def send(self, fed: Fed) -> Fed:
        """Begin to copy a batch: from pinned memory, since only that is copied while the caller goes on."""
        with self.cuda.stream(self.stream):  # which also makes the device that of this thread
            tensors = {
                name: value.pin_memory().to(self.device, non_blocking=True)
                for name, value in fed.tensors.items()
            }
            return fed._replace(tensors=tensors, arrived=self.stream.record_event())

    def receive(self, fed: Fed) -> Fed:
        """Let what the caller computes from now on wait for the copy; the caller itself does not."""
        current = self.cuda.current_stream(self.device)
        current.wait_event(fed.arrived)
        for value in fed.tensors.values():
            value.record_stream(current)  # else its memory could be dealt again while it is still read
        return fed
