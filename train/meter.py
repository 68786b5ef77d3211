"""What the steps since the last line of metrics add up to, over all processes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from .config import TrainConfig
from .flops import matmul_peak, peak_memory, training_flops
from .parallel.mesh import World
from .parallel.precision import DTYPES

if TYPE_CHECKING:
    from .data import Tensors


def in_words(line: Mapping[str, Any]) -> str:
    """A line of metrics for the terminal: speed, where the time went, memory, the optimizer."""
    parts = ("data_wait", "forward", "backward", "pipeline", "communication", "optimizer")
    seconds = line["seconds"]
    shares = ", ".join(
        f"{name.replace('_', ' ')} {line[name] / seconds:.0%}" for name in parts if name in line
    )
    scale = f", loss scale {line['loss_scale']:g}" if line["loss_scale"] != 1 else ""
    skipped = f", {line['skipped']} skipped" if line["skipped"] else ""
    return (
        f"{line['samples_per_s']:.1f} complexes/s, {line['tokens_per_s']:.0f} atoms/s, "
        f"{line['flops_per_s'] / 1e9:.1f} Gflop/s ({line['of_matmul_peak']:.0%} of the matmul peak); "
        f"{shares}; {line['peak_memory'] / 2**30:.2f} GiB; "
        f"lr {line['lr']:.2g}, gradient {line['grad_norm']:.2g}{scale}{skipped}"
    )


class Meter:
    """Counts steps, complexes and atoms, and sums losses, without waiting for the device."""

    def __init__(self, config: TrainConfig, world: World) -> None:
        self.config, self.world = config, world
        self.peak = matmul_peak(world.device, DTYPES[config.precision.compute])
        # loss, complexes, atoms, atoms squared: one tensor, one exchange
        self._sums = torch.zeros(4, dtype=torch.float64, device=world.device)
        self._steps = 0

    def add(self, batch: Tensors, loss: Tensor) -> None:
        """Count a step: this process's part of its batch, and of its loss."""
        atoms = batch["atom_mask"].sum(1).double()
        size = torch.tensor(float(len(atoms)), dtype=torch.float64, device=atoms.device)
        self._sums += torch.stack([loss.double(), size, atoms.sum(), atoms.square().sum()])
        self._steps += 1

    def read(self, seconds: float) -> dict[str, float]:
        """Mean loss and rates of the steps that took `seconds`; begins anew. Every process must call it."""
        loss, samples, tokens, pairs = self.world.sum(self._sums).tolist()
        # How many pairs were near is not known here, and the maps of their features are little: left out.
        flops = training_flops(self.config.model, tokens, pairs, near=0.0) / seconds / self.world.size
        figures = {
            "loss": loss / self._steps if self._steps else math.nan,
            "samples_per_s": samples / seconds,
            "tokens_per_s": tokens / seconds,
            "flops_per_s": flops,
            "of_matmul_peak": flops / self.peak,
            "peak_memory": peak_memory(self.world.device),
        }
        self._sums.zero_()
        self._steps = 0
        return figures
