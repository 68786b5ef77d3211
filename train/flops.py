"""How much a step computes, and how fast this machine multiplies matrices."""

from __future__ import annotations

import time

import torch

from ..shards.complex import BOND_ORDERS
from .config import ModelConfig


def training_flops(config: ModelConfig, tokens: float, pairs: float, near: float | None = None) -> float:
    """Floating-point operations of forward and backward, by the usual account.

    As in PaLM, appendix B (doi:10.48550/arXiv.2204.02311): a multiplication and an addition are two;
    backward is twice forward; what activation checkpointing computes again does not count.

    Parameters
    ----------
    tokens : real atoms of the batch
    pairs : sum over complexes of their atoms squared
    near : those of them whose features are mapped to biases; all if None
    """
    D, L, H = config.width, config.layers, config.heads
    P = config.rbf + len(BOND_ORDERS)
    heads = sum(config.attention_heads)  # of all layers: L * H unless some were pruned
    inner = heads * D // H
    token = 4 * D * inner + L * 2 * D * config.feed_forward + 2 * D * D  # of layers and neighbourhood
    pair = 2 * inner + D  # scores and weighted values; the neighbourhood's sum
    biases = (heads + H) * P * (pairs if near is None else near)
    return 6.0 * (token * tokens + pair * pairs + biases)


def matmul_peak(device: torch.device, dtype: torch.dtype, size: int = 512, seconds: float = 0.2) -> float:
    """Operations a second of a product of two square matrices, the best of those that fit in `seconds`."""
    a = torch.ones(size, size, device=device, dtype=dtype)
    best, end = 0.0, time.perf_counter() + seconds
    while time.perf_counter() < end:
        start = time.perf_counter()
        a @ a
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        best = max(best, 2 * size**3 / (time.perf_counter() - start))
    return best


def peak_memory(device: torch.device) -> int:
    """Most bytes this process has held: on the accelerator, else in main memory."""
    if device.type == "cuda":
        return int(torch.cuda.max_memory_allocated(device))
    import resource
    import sys

    # Linux counts in KiB, macOS in bytes.
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
