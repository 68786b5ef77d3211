"""A run's layout chosen anew, from what its steps took, for the machines that there are now.

A checkpoint is read by any number of processes in any layout, so the run goes on from its newest one with
the same command; only the [parallel] table of its configuration changes.
"""

from __future__ import annotations

import itertools
import statistics
import tomllib
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from ...shards.errors import UsageError
from ..config import ParallelConfig, TrainConfig, check
from ..configfile import build, dump_config, load_config
from ..judge.atomic import write_text
from ..record import read_record
from . import advise
from .strategies import Cluster


@dataclass(frozen=True, slots=True)
class Measured:
    """What the newest start of a run says of its machines.

    Attributes
    ----------
    flops : operations a second of a process while it computes, without what it waited
    step_s : seconds of a step
    memory : most bytes that a process held
    processes : that there were
    """

    flops: float
    step_s: float
    memory: int
    processes: int


def measured(run: Path) -> Measured:
    """From the log of a run.

    Raises
    ------
    UsageError : there is none, or its newest start is too short to tell: two lines of metrics
    """
    lines = read_record(run) if (run / "metrics.jsonl").is_file() else []
    starts = [i for i, line in enumerate(lines) if is_start(line)]
    lines = lines[starts[-1] :] if starts else []
    steps = [line for line in lines if is_step(line)]
    # The first steps after a start allocate and warm up.
    used = list(itertools.pairwise(steps))
    if not used or not starts:
        raise UsageError(f"{run}: {len(steps)} lines of metrics since its newest start, expected 2 or more")
    computing = [computed(b) for _, b in used]
    return Measured(
        statistics.median(
            b["flops_per_s"] * b["seconds"] / c for (_, b), c in zip(used, computing, strict=True)
        ),
        statistics.median(b["seconds"] / max(b["step"] - a["step"], 1) for a, b in used),
        max(int(line["peak_memory"]) for line in steps),
        int(lines[0]["run"]["processes"]),
    )


def is_step(line: dict[str, Any]) -> bool:
    """True for the metrics of a step, in the shape that training writes them."""
    parts = ("step", "flops_per_s", "seconds", "peak_memory")
    numbers = all(isinstance(line.get(part), int | float) for part in parts)
    return numbers and line["flops_per_s"] > 0 and computed(line) > 0


def is_start(line: dict[str, Any]) -> bool:
    """True for the first line of a start, which says how many processes there are."""
    return isinstance(line.get("run"), dict) and isinstance(line["run"].get("processes"), int)


def computed(line: dict[str, Any]) -> float:
    """Seconds that a line's steps computed."""
    seconds = [line.get(part) for part in ("forward", "backward", "pipeline")]
    return float(sum(value for value in seconds if isinstance(value, int | float)))


def plan_again(run: Path, cluster: Cluster, write: bool = True, margin: float = 0.0) -> dict[str, Any]:
    """Choose the layout of a run anew, from what was measured.

    Its speed replaces `cluster.flops`; what a process held beyond its tensors (libraries, fragments) is not
    there for another layout either.

    Parameters
    ----------
    margin : how much shorter a step must become, as a share, for a layout that fits to be left

    Returns
    -------
    what :func:`.advise.plan` returns, "measured", and "changed": whether config.toml was written

    Raises
    ------
    UsageError : the run's log cannot tell, or no layout fits
    """
    config, found = load_config(run / "config.toml"), measured(run)
    before = advise.running(config, Cluster(1, found.processes, 0))
    beyond = max(0, found.memory - before.total)
    cluster = replace(cluster, flops=found.flops, memory=max(0, cluster.memory - beyond))
    made = advise.plan(config, cluster)
    best = made["recommended"]
    if best is None:
        raise UsageError(
            f"no layout of {cluster.size} processes fits {run}, with {beyond / 2**20:.0f} MiB a process that "
            "are not tensors: more nodes, or more --memory"
        )
    wanted = with_parallel(config, best["parallel"])
    if found.processes == cluster.size:
        now = advise.running(config, cluster)
        if advise.fits(now, cluster) and best["seconds"] >= (1 - margin) * now.seconds:
            wanted = config
    changed = write and wanted != config
    if changed:
        write_text(run / "config.toml", dump_config(wanted))
    return {**made, "changed": changed, "measured": {**asdict(found), "beyond_tensors": beyond}}


def with_parallel(config: TrainConfig, text: str) -> TrainConfig:
    """The configuration with the [parallel] table of a TOML text; its topology stays."""
    table = {"topology": config.parallel.topology, **tomllib.loads(text)["parallel"]}
    changed = replace(config, parallel=build(ParallelConfig, table, "the plan", "parallel."))
    check(changed, "the plan")
    return changed
