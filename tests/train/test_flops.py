from __future__ import annotations

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode
from toy_model import make, random_batch
from worlds import run_world

from holoshard.train.config import ModelConfig
from holoshard.train.flops import matmul_peak, peak_memory, training_flops


@pytest.mark.parametrize("shape", [(64, 2, 4), (128, 3, 2)])
def test_the_formula_agrees_with_torchs_own_count(shape):
    width, layers, heads = shape
    config = ModelConfig(width=width, layers=layers, heads=heads, rbf=16)
    model, batch = make(config).train(), random_batch((60, 60), (20, 20))
    with FlopCounterMode(display=False) as counter:
        model(batch).sum().backward()
    formula = training_flops(config, tokens=120, pairs=2 * 60**2)
    # The first matrix of a chain needs no gradient of its input, and the head is left out.
    assert formula == pytest.approx(counter.get_total_flops(), rel=0.06)


def test_peak_grows_with_nothing_silly():
    assert matmul_peak(torch.device("cpu"), torch.float32, size=128, seconds=0.05) > 1e8


def hold():
    before = peak_memory(torch.device("cpu"))
    held = torch.ones(64 << 20)
    assert peak_memory(torch.device("cpu")) - before > 0.5 * held.nbytes


def test_memory_counts_what_is_held():
    run_world(1, hold)  # in a process that has not held more before
