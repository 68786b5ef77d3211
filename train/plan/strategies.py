"""The layouts worth comparing for so many processes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from ...shards.errors import ConfigError
from ..config import ParallelConfig, TrainConfig, check
from ..parallel.mesh import axis_sizes

Recomputing = Literal["none", "selective", "layers", "full"]
CHECKPOINTING: tuple[Recomputing, ...] = ("none", "selective", "layers", "full")


@dataclass(frozen=True, slots=True)
class Cluster:
    """The machines.

    Attributes
    ----------
    nodes, per_node : machines, and accelerators in each
    memory : bytes of an accelerator that a process may use
    flops : operations a second of an accelerator that layers reach
    link, network : bytes a second that an accelerator sends within its node, and to other nodes
    """

    nodes: int
    per_node: int
    memory: int
    flops: float = 400e12
    link: float = 400e9
    network: float = 40e9

    @property
    def size(self) -> int:
        """Processes."""
        return self.nodes * self.per_node


def strategies(config: TrainConfig, cluster: Cluster) -> Iterator[tuple[str, TrainConfig]]:
    """Names and configurations that this model, batch and cluster allow, each with full recomputation."""
    keep = ParallelConfig(prefetch=config.parallel.prefetch, checkpointing="full")
    options: list[tuple[str, ParallelConfig]] = [
        ("full shard", keep),
        ("grad-op", replace(keep, reshard="grad_op")),
    ]
    if cluster.nodes > 1 and cluster.per_node > 1:
        part = replace(keep, reshard="part", reshard_size=cluster.per_node)
        options += [("part kept in node", part), ("hybrid", replace(keep, replicate=cluster.nodes))]
    options.append(("offload", replace(keep, offload=True)))
    for tensor in sorted({2, cluster.per_node}):
        if 1 < tensor <= cluster.per_node:
            options.append((f"tensor {tensor}", replace(keep, tensor=tensor)))
    deepest = max(2, cluster.nodes)
    for stages in (2, 4, 8, 16):
        if stages <= deepest:
            options.append((f"pipeline {stages}", piped(keep, stages, "1f1b")))
    for schedule in ("interleaved", "zbv"):
        options.append((f"pipeline {min(4, deepest)} {schedule}", piped(keep, min(4, deepest), schedule)))
    both = replace(piped(keep, min(4, deepest), "1f1b"), tensor=2)
    options.append((f"tensor 2, pipeline {both.pipeline}", both))
    for name, parallel in options:
        fitted = fit(replace(config, parallel=parallel), cluster.size)
        if fitted is not None:
            yield name, fitted


def piped(keep: ParallelConfig, stages: int, schedule: str) -> ParallelConfig:
    """A pipeline of so many processes; gathered weights stay for its micro-batches."""
    made = replace(keep, pipeline=stages, schedule=schedule, reshard="grad_op")  # type: ignore[arg-type]
    return replace(made, checkpointing="none") if made.zero_bubble else made


def fit(config: TrainConfig, size: int) -> TrainConfig | None:
    """The configuration with pieces of one complex a process; None where something does not divide."""
    parallel = config.parallel
    try:
        sizes = axis_sizes(config, size)
        share, rest = divmod(config.data.batch_size, sizes["replicate"] * sizes["shard"])
        if rest or not share:
            return None
        if parallel.pipeline > 1:
            parallel = replace(parallel, micro_batches=share, accumulate=1)
        else:
            parallel = replace(parallel, accumulate=share)
        fitted = replace(config, parallel=parallel)
        check(fitted)
    except ConfigError:
        return None
    return fitted


def larger(config: TrainConfig, rows: int) -> TrainConfig | None:
    """The same with `rows` complexes in a piece; None where that does not divide."""
    parallel = config.parallel
    pieces = parallel.micro if parallel.pipeline > 1 else parallel.accumulate
    if pieces % rows:
        return None
    key = "micro_batches" if parallel.pipeline > 1 else "accumulate"
    made = replace(config, parallel=replace(parallel, **{key: pieces // rows}))  # type: ignore[arg-type]
    try:
        check(made)
    except ConfigError:
        return None
    return made
