"""Which settings of [parallel] go together, and what would work where they do not."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING

from .model.sharing import group_sizes

if TYPE_CHECKING:
    from .config import ParallelConfig, TrainConfig

Refuse = Callable[[str, str], None]


def check_pipeline(config: TrainConfig, refuse: Refuse) -> None:
    """Refuse a pipeline that cannot run, by `refuse(key, what is expected)`."""
    parallel, layers = config.parallel, config.model.layers
    P, n, M = parallel.pipeline, parallel.pipeline * parallel.stages_each, parallel.micro
    if P == 1:
        for key, value in (("stages", parallel.stages), ("micro_batches", parallel.micro_batches)):
            if value:
                refuse(f"parallel.{key}", "0 without a pipeline, or parallel.pipeline = 2 or more")
        if parallel.schedule != "1f1b":
            refuse("parallel.schedule", '"1f1b" without a pipeline, or parallel.pipeline = 2 or more')
        return
    single = parallel.schedule in ("gpipe", "1f1b")
    if single and parallel.stages > 1:
        refuse("parallel.stages", f'1 with parallel.schedule = "{parallel.schedule}", or "interleaved"')
    if not single and parallel.stages == 1:
        refuse("parallel.stages", '2 with this parallel.schedule, or parallel.schedule = "1f1b"')
    if parallel.schedule == "zbv" and parallel.stages_each != 2:
        refuse("parallel.stages", '2 with parallel.schedule = "zbv", or "interleaved-zb"')
    if layers % n:
        works = [p for p in range(2, layers + 1) if layers % (p * parallel.stages_each) == 0]
        refuse(
            "parallel.pipeline",
            f"as many layers in each of {P} x {parallel.stages_each} stages: model.layers = {layers} allows "
            f"{', '.join(map(str, works)) or 'no pipeline'} with {parallel.stages_each} to a process",
        )
    if parallel.schedule == "1f1b" and M < P:
        refuse("parallel.micro_batches", f'at least {P}, one a stage, or parallel.schedule = "gpipe"')
    if parallel.schedule.startswith("interleaved") and M % max(1, M // P):
        refuse("parallel.micro_batches", f"a multiple of parallel.pipeline = {P} with this schedule")
    check_zero_bubble(parallel, refuse)
    edges = set(itertools.accumulate(group_sizes(config.model.share_ffn_out, layers)))
    if not set(range(layers // n, layers + 1, layers // n)) <= edges:
        refuse(
            "parallel.pipeline", f"stages of {layers // n} layers that cut no group of model.share_ffn_out"
        )


def check_zero_bubble(parallel: ParallelConfig, refuse: Refuse) -> None:
    """Refuse what cannot put off the gradients of weights."""
    if not parallel.zero_bubble:
        return
    if parallel.reshard != "grad_op":
        refuse(
            "parallel.reshard",
            f'"grad_op" with parallel.schedule = "{parallel.schedule}": gradients of weights come later '
            'and need the gathered weights still; or parallel.schedule = "interleaved"',
        )
    if parallel.checkpointing != "none":
        refuse(
            "parallel.checkpointing",
            f'"none" with parallel.schedule = "{parallel.schedule}", which keeps activations for the '
            'gradients of weights; or parallel.schedule = "interleaved"',
        )
