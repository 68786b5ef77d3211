"""Memory of a process under a strategy, from traces of models with few layers.

All layers are alike, so bytes grow by the same amount with each; two depths beyond those that prefetching
sees give it. Where heads were pruned, layers have the mean of what they have left, since bytes grow with
heads as well; where layers share a matrix, a third trace tells what one that is not there saves. Activations
grow with the rows of a piece.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from ..config import ModelConfig, TrainConfig
from ..configfile import dump_config
from ..model.sharing import group_sizes
from ..parallel.pipeline import owners
from .memory import KINDS, Bytes
from .strategies import Recomputing
from .trace import fake_world, step_memory

SHALLOW = 2  # pieces that are traced of many: gradients of the first are there in the second
Traced = dict[str, Bytes]  # by phase of a step, then by kind


def combined(values: Callable[[list[int]], float], *traces: Traced) -> Traced:
    """A function of each number of several traces, in the phases that all of them have."""
    return {
        phase: {kind: round(values([t[phase][kind] for t in traces])) for kind in KINDS}
        for phase in traces[0]
        if all(phase in t for t in traces)
    }


def peak(trace: Traced) -> Bytes:
    """Bytes by kind in the phase that holds most."""
    return max(trace.values(), key=lambda held: sum(held.values()))


@dataclass(frozen=True, slots=True)
class Line:
    """Bytes by phase and kind as straight lines of the number of layers, through two traced depths.

    Attributes
    ----------
    saved : what one matrix that layers share saves
    shared : of those that this process would hold otherwise
    """

    low: int
    high: int
    at_low: Traced
    at_high: Traced
    saved: Traced = field(default_factory=dict)
    shared: float = 0.0

    def __call__(self, layers: int) -> Traced:
        """Bytes with so many layers."""
        step = (layers - self.low) / max(self.high - self.low, 1)
        if not self.shared:
            return combined(lambda v: v[0] + step * (v[1] - v[0]), self.at_low, self.at_high)
        return combined(
            lambda v: v[0] + step * (v[1] - v[0]) - self.shared * v[2],
            self.at_low, self.at_high, self.saved,
        )  # fmt: skip


def line(config: TrainConfig, size: int, rows: int = 1) -> Line:
    """Trace a step with few layers, and with some more."""
    parallel, layers = config.parallel, config.model.layers
    stages = parallel.pipeline * parallel.stages_each
    every = parallel.recomputed_layers.denominator  # layers after which the choice repeats
    low = 2 * stages if stages > 1 else -(-(parallel.prefetch + 2) // every) * every
    high = low + (stages if stages > 1 else every)
    if high >= layers:
        whole = trace(config, size, config.model, rows)
        return Line(layers, layers, whole, whole)
    at_low, at_high = (alike(config, size, n, rows) for n in (low, high))
    shared = shared_matrices(config)
    if not shared:
        return Line(low, high, at_low, at_high)
    pairs = ", ".join(f"2, {high // stages - 2}x1" for _ in range(stages))  # one in each stage
    lean = alike(config, size, high, rows, pairs)
    saved = combined(lambda v: (v[0] - v[1]) / parallel.stages_each, at_high, lean)
    return Line(low, high, at_low, at_high, saved, shared)


def own_layers(config: TrainConfig) -> list[list[int]]:
    """Layers of each stage of the first process."""
    holders = owners(config.parallel)
    each = config.model.layers // len(holders)
    return [list(range(n * each, (n + 1) * each)) for n, holder in enumerate(holders) if holder == 0]


def shared_matrices(config: TrainConfig) -> int:
    """Matrices that the first process does not hold because its layers share them."""
    sizes = group_sizes(config.model.share_ffn_out, config.model.layers)
    group = [number for number, n in enumerate(sizes) for _ in range(n)]
    return sum(len(stage) - len({group[layer] for layer in stage}) for stage in own_layers(config))


def alike(config: TrainConfig, size: int, layers: int, rows: int, share: str = "none") -> Traced:
    """Trace a model of so many layers, each with the mean number of heads of the first process's."""
    model, tensor = config.model, config.parallel.tensor
    mean = statistics.fmean(model.attention_heads[n] for stage in own_layers(config) for n in stage)

    def with_heads(heads: int) -> Traced:
        few = replace(model, layers=layers, layer_heads=(heads,) * layers, share_ffn_out=share)
        return trace(config, size, few, rows)

    fewer = max(int(mean // tensor), 1) * tensor
    if mean <= fewer:
        return with_heads(fewer)
    part = (mean - fewer) / tensor
    return combined(lambda v: v[0] + part * (v[1] - v[0]), with_heads(fewer), with_heads(fewer + tensor))


def trace(config: TrainConfig, size: int, model: ModelConfig, rows: int) -> Traced:
    """Bytes by phase and kind of a step with another model."""
    parallel = config.parallel
    # More micro-batches than are under way at a time change only the buffers they are received in.
    under_way = {"gpipe": parallel.micro, "1f1b": parallel.pipeline + 1}.get(
        parallel.schedule, 2 * parallel.pipeline
    )
    micro = min(parallel.micro, under_way)
    few = replace(
        config,
        model=model,
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
        """Bytes by kind at the peak with another choice of what is computed again, and of rows in a piece.

        Checkpointing changes activations alone, in the same way for all layouts with the same matrices; in
        which phase of the step most is held depends on it, and on the rows.
        """
        layers, parallel = config.model.layers, config.parallel
        found = self.line(config)(layers)
        if checkpointing != parallel.checkpointing:
            base = config
            if parallel.pipeline == 1:
                base = replace(config, parallel=replace(
                    parallel, replicate=1, reshard="full", reshard_size=0
                ))  # fmt: skip
            more = combined(lambda v: v[0] - v[1], self._kept(base, checkpointing), self.line(base)(layers))
            found = {
                phase: {**held, "activations": held["activations"] + more[phase]["activations"]}
                for phase, held in found.items()
                if phase in more
            }
        host = {"parameters": 0, "optimizer": 0} if parallel.offload else {}  # what FSDP keeps there
        return peak(
            {p: {**held, "activations": rows * held["activations"], **host} for p, held in found.items()}
        )

    def _kept(self, config: TrainConfig, checkpointing: Recomputing) -> Traced:
        """Bytes with this way of checkpointing."""
        if checkpointing == "layers":  # so many keep what full keeps, the others what none keeps
            share = float(replace(config.parallel, checkpointing=checkpointing).recomputed_layers)
            return combined(
                lambda v: v[0] + share * (v[1] - v[0]),
                self._kept(config, "none"), self._kept(config, "full"),
            )  # fmt: skip
        parallel = replace(config.parallel, checkpointing=checkpointing)
        return self.line(replace(config, parallel=parallel))(config.model.layers)
