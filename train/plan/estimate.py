"""Memory of a process under a strategy, from traces of models with few layers.

All layers are alike, so bytes grow by the same amount with each; two depths beyond those that prefetching
sees give it. Activations grow with the rows of a piece.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..config import TrainConfig
from ..configfile import dump_config
from .memory import KINDS, Bytes
from .strategies import Recomputing
from .trace import fake_world, step_memory

SHALLOW = 2  # pieces that are traced of many: gradients of the first are there in the second
Traced = dict[str, Bytes]


@dataclass(frozen=True, slots=True)
class Line:
    """Bytes by phase and kind as straight lines of the number of layers, through two traced depths."""

    low: int
    high: int
    at_low: Traced
    at_high: Traced

    def __call__(self, layers: int) -> Bytes:
        """Bytes by kind at the peak, with so many layers."""
        step = (layers - self.low) / max(self.high - self.low, 1)
        found = [
            {kind: round(low[kind] + step * (self.at_high[phase][kind] - low[kind])) for kind in KINDS}
            for phase, low in self.at_low.items()
            if phase in self.at_high
        ]
        return max(found, key=lambda held: sum(held.values()))


def line(config: TrainConfig, size: int, rows: int = 1) -> Line:
    """Trace a step with few layers, and with some more."""
    parallel, layers = config.parallel, config.model.layers
    stages = parallel.pipeline * parallel.stages_each
    every = parallel.checkpoint_every if parallel.checkpointing == "layers" else 1
    low = 2 * stages if stages > 1 else -(-(parallel.prefetch + 2) // every) * every
    high = low + (stages if stages > 1 else every)
    if high >= layers:
        whole = trace(config, size, layers, rows)
        return Line(layers, layers, whole, whole)
    return Line(low, high, trace(config, size, low, rows), trace(config, size, high, rows))


def trace(config: TrainConfig, size: int, layers: int, rows: int) -> Traced:
    """Bytes by phase and kind of a model with so many layers."""
    parallel = config.parallel
    # More micro-batches than are under way at a time change only the buffers they are received in.
    under_way = {"gpipe": parallel.micro, "1f1b": parallel.pipeline + 1}.get(
        parallel.schedule, 2 * parallel.pipeline
    )
    micro = min(parallel.micro, under_way)
    few = replace(
        config,
        model=replace(config.model, layers=layers, layer_heads=(), share_ffn_out="none"),
        parallel=replace(parallel, micro_batches=micro if parallel.pipeline > 1 else 0),
    )
    batch = rows * (micro if parallel.pipeline > 1 else 1)
    found = step_memory(few, fake_world(few, size), batch, min(parallel.accumulate, SHALLOW))
    if parallel.pipeline > 1:
        width = 4 if config.precision.compute == "fp32" else 2
        tokens = rows * config.data.max_atoms * config.model.width * width
        for held in found.values():
            held["activations"] += (parallel.micro - micro) * tokens * (2 * parallel.stages_each - 1)
    return found


class Estimator:
    """Estimates for one model and number of processes; what strategies have in common is traced once."""

    def __init__(self, config: TrainConfig, size: int) -> None:
        self.config, self.size = config, size
        self._lines: dict[str, Line] = {}

    def line(self, config: TrainConfig) -> Line:
        """The line of this configuration."""
        pieces = min(config.parallel.accumulate, SHALLOW)
        config = replace(config, parallel=replace(config.parallel, accumulate=pieces, offload=False))
        key = dump_config(config)
        if key not in self._lines:
            self._lines[key] = line(config, self.size)
        return self._lines[key]

    def bytes(self, config: TrainConfig, checkpointing: Recomputing, rows: int) -> Bytes:
        """Bytes by kind with another choice of what is computed again, and of rows in a piece.

        Checkpointing changes activations alone, in the same way for all layouts with the same matrices.
        """
        layers, parallel = config.model.layers, config.parallel
        found = self.line(config)(layers)
        if checkpointing != parallel.checkpointing:
            base = config
            if parallel.pipeline == 1:
                base = replace(config, parallel=replace(
                    parallel, replicate=1, reshard="full", reshard_size=0
                ))  # fmt: skip
            lean, kept = self.line(base)(layers)["activations"], self._kept(base, checkpointing)
            found["activations"] += kept - lean
        found["activations"] *= rows
        if parallel.offload:  # what FSDP keeps in the host's memory
            found |= {"parameters": 0, "optimizer": 0}
        return found

    def _kept(self, config: TrainConfig, checkpointing: Recomputing) -> int:
        """Bytes of activations with this way of checkpointing."""
        if checkpointing == "layers":  # every k-th layer keeps what full keeps, the others what none keeps
            none, full = self._kept(config, "none"), self._kept(config, "full")
            return none + (full - none) // config.parallel.checkpoint_every
        parallel = replace(config.parallel, checkpointing=checkpointing)
        return self.line(replace(config, parallel=parallel))(config.model.layers)["activations"]
