"""Which strategies fit a cluster, what they cost, and the one to take."""

from __future__ import annotations

import dataclasses
import json
import logging
from dataclasses import dataclass
from typing import Any, Final

from ...shards.errors import UsageError
from ..config import ParallelConfig, TrainConfig
from ..model.transformer import parameter_count
from ..parallel.mesh import axis_sizes
from .estimate import Estimator
from .memory import Bytes
from .strategies import CHECKPOINTING, Cluster, larger, strategies
from .trace import fake_processes
from .traffic import Traffic, bubble, recomputed, step_seconds, traffic

log = logging.getLogger("holoshard")

ROWS: Final = (1, 2, 4, 8, 16)
SPARE: Final = 0.9  # of the memory: the rest goes to the allocator, libraries and what bonds take
GIB: Final = 2**30


@dataclass(frozen=True, slots=True)
class Estimate:
    """A strategy with its cost.

    Attributes
    ----------
    rows : complexes in a piece or micro-batch of a process
    memory : bytes of the first process at its peak, by kind
    seconds : rough time of a step
    """

    name: str
    config: TrainConfig
    rows: int
    memory: Bytes
    seconds: float
    traffic: Traffic

    @property
    def total(self) -> int:
        """Bytes at the peak."""
        return sum(self.memory.values())


def plan(config: TrainConfig, cluster: Cluster) -> dict[str, Any]:
    """Every strategy with the choice that suits it best, and the fastest of those that fit.

    Raises
    ------
    UsageError : the batch cannot be divided among so many processes
    """
    found: list[Estimate] = []
    with fake_processes(cluster.size):
        estimator = Estimator(config, cluster.size)
        options = list(strategies(config, cluster))
        for i, (name, strategy) in enumerate(options):
            log.info("layout %d of %d: %s", i + 1, len(options), name)
            found += choices(estimator, name, strategy, cluster)
    if not found:
        raise UsageError(
            f"data.batch_size = {config.data.batch_size} cannot be shared among {cluster.size} processes; "
            f"give a multiple of {cluster.size}"
        )
    fitting = [e for e in found if fits(e, cluster)]
    best = min(fitting, key=preference) if fitting else None
    return {
        "parameters": parameter_count(config.model), "processes": cluster.size,
        "memory_limit": cluster.memory, "strategies": [row(e, cluster) for e in found],
        "recommended": None if best is None else {
            "name": best.name, "parallel": table(best.config.parallel),
            "reason": reason(best, fitting, cluster), **row(best, cluster),
        },
    }  # fmt: skip


def running(config: TrainConfig, cluster: Cluster) -> Estimate:
    """The layout that a configuration has, with its cost.

    Raises
    ------
    ConfigError : it is not one of so many processes
    """
    parallel, sizes = config.parallel, axis_sizes(config, cluster.size)
    pieces = parallel.accumulate * (parallel.micro if parallel.pipeline > 1 else 1)
    rows = -(-config.data.batch_size // (sizes["replicate"] * sizes["shard"] * pieces))
    with fake_processes(cluster.size):
        memory = Estimator(config, cluster.size).bytes(config, parallel.checkpointing, rows)
    sent = traffic(config, cluster.size)
    return Estimate("as it runs", config, rows, memory, step_seconds(config, cluster), sent)


def fits(estimate: Estimate, cluster: Cluster) -> bool:
    """Whether its peak leaves the spare memory."""
    return estimate.total <= SPARE * cluster.memory


def preference(estimate: Estimate) -> tuple[float, float, int]:
    """Less is better: of equally fast ones what computes least again, then what holds least."""
    return estimate.seconds, recomputed(estimate.config.parallel), estimate.total


def choices(estimator: Estimator, name: str, strategy: TrainConfig, cluster: Cluster) -> list[Estimate]:
    """For each way of checkpointing, the fastest number of rows that fits; the leanest if none does."""
    made: list[Estimate] = []
    for checkpointing in CHECKPOINTING:
        parallel = strategy.parallel
        if checkpointing != "none" and parallel.zero_bubble:
            continue
        if checkpointing in ("selective", "layers") and parallel.tensor * parallel.pipeline > 1:
            continue  # between the two others
        fitting: list[Estimate] = []
        for rows in ROWS:
            config = larger(strategy, rows)
            if config is None:
                continue
            memory = estimator.bytes(strategy, checkpointing, rows)
            config = dataclasses.replace(
                config, parallel=dataclasses.replace(config.parallel, checkpointing=checkpointing)
            )
            estimate = Estimate(
                name, config, rows, memory, step_seconds(config, cluster), traffic(config, cluster.size)
            )
            if not fitting or fits(estimate, cluster):
                fitting.append(estimate)
        made.append(min(fitting, key=lambda e: e.seconds))
    return made


def row(estimate: Estimate, cluster: Cluster) -> dict[str, Any]:
    """An estimate as plain values."""
    sent = estimate.traffic
    return {
        "name": estimate.name, "checkpointing": estimate.config.parallel.checkpointing, "rows": estimate.rows,
        "memory": estimate.memory, "total": estimate.total,
        "fits": fits(estimate, cluster), "bubble": bubble(estimate.config.parallel),
        "sent": {**dataclasses.asdict(sent), "total": sent.total}, "seconds": estimate.seconds,
    }  # fmt: skip


def table(parallel: ParallelConfig) -> str:
    """The [parallel] table of a configuration, without what is as by default."""
    default = ParallelConfig()
    lines = [
        f"{f.name} = {json.dumps(value)}"
        for f in dataclasses.fields(ParallelConfig)
        if (value := getattr(parallel, f.name)) != getattr(default, f.name)
    ]
    return "\n".join(["[parallel]", *lines])


def reason(best: Estimate, fitting: list[Estimate], cluster: Cluster) -> str:
    """Why this one, in a sentence or two."""
    said = (
        f"the shortest step of the {len(fitting)} choices that fit: {best.total / GIB:.1f} of "
        f"{cluster.memory / GIB:.0f} GiB, {best.traffic.total / GIB:.1f} GiB sent by a process in a step"
    )
    others = [e for e in fitting if e.name != best.name]
    if others:
        next_best = min(others, key=lambda e: e.seconds)
        longer = next_best.seconds / best.seconds - 1
        said += f"; next comes {next_best.name}, {longer:.0%} longer" if longer >= 0.005 else (
            f"; {next_best.name} takes as long with {next_best.total / GIB:.1f} GiB"
        )  # fmt: skip
    return said


def text_of(made: dict[str, Any]) -> str:
    """The plan for people."""
    head = ("strategy", "recompute", "rows", "params", "grads", "optim", "gather", "activ", "total", "fits",
            "bubble", "sent", "step")  # fmt: skip
    rows = [head]
    unit, name = (GIB, "GiB") if max(r["total"] for r in made["strategies"]) > GIB else (GIB >> 10, "MiB")
    for r in made["strategies"]:
        sizes = [f"{v / unit:.1f}" for v in (*r["memory"].values(), r["total"])]
        rows.append((
            r["name"], r["checkpointing"], str(r["rows"]), *sizes, "yes" if r["fits"] else "no",
            f"{r['bubble']:.0%}", f"{r['sent']['total'] / unit:.1f}", f"{r['seconds']:.2g} s",
        ))  # fmt: skip
    widths = [max(len(line[i]) for line in rows) for i in range(len(head))]
    lines = [
        "  ".join(
            v.ljust(w) if i < 2 else v.rjust(w) for i, (v, w) in enumerate(zip(line, widths, strict=True))
        )
        for line in rows
    ]
    best = made["recommended"]
    told = "nothing fits: more processes, or less memory a layer (model.width)" if best is None else (
        f"Recommended: {best['name']}: {best['reason']}.\n\n{best['parallel']}"
    )  # fmt: skip
    head_line = (
        f"{made['parameters']:,} parameters, {made['processes']} processes; {name} of the first process at "
        f"its peak, {name} sent in a step"
    )
    return "\n".join([head_line, "", *lines, "", told])
