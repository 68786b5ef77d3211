"""Pipeline parallelism: each process holds some of the layers, and micro-batches pass through all of them.

Every process of a pipeline reads the same rows, so each stage computes the pair features itself and only
tokens travel. The order of forward and backward is torch.distributed.pipelining's: GPipe
(doi:10.48550/arXiv.1811.06965), 1F1B and interleaved 1F1B (doi:10.48550/arXiv.2104.04473), and the two
zero-bubble schedules (doi:10.48550/arXiv.2401.10241), which put off the gradients of weights to fill gaps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.pipelining import (
    PipelineStage,
    Schedule1F1B,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
    ScheduleInterleavedZeroBubble,
    ScheduleZBVZeroBubble,
)

from ..config import ModelConfig, ParallelConfig, TrainConfig
from ..model.pairs import NEAR, pair_features, with_near
from ..model.transformer import AffinityTransformer, Inputs
from .mesh import World
from .precision import DTYPES

SCHEDULES: Final[Mapping[str, Any]] = {
    "gpipe": ScheduleGPipe,
    "1f1b": Schedule1F1B,
    "interleaved": ScheduleInterleaved1F1B,
    "interleaved-zb": ScheduleInterleavedZeroBubble,
    "zbv": ScheduleZBVZeroBubble,
}
Objective = Callable[[Tensor, Inputs], Tensor]


def owners(parallel: ParallelConfig) -> list[int]:
    """For each stage, the process of the pipeline that holds it: round and round, or there and back (zbv)."""
    P, n = parallel.pipeline, parallel.pipeline * parallel.stages_each
    if parallel.schedule == "zbv":
        return [min(stage, n - 1 - stage) for stage in range(n)]
    return [stage % P for stage in range(n)]


class Stage(AffinityTransformer):
    """Some consecutive layers; the first stage has the embedding, the last the head. Names stay as they were.

    Make it on the meta device: it begins as the whole model.
    """

    def __init__(self, config: ModelConfig, number: int, count: int) -> None:
        super().__init__(config)
        self.is_first, self.is_last = number == 0, number == count - 1
        each = config.layers // count
        for i in range(config.layers):
            if i // each != number:
                del self.layers[str(i)]
        if not self.is_first:
            del self.embedding
        if not self.is_last:
            for name in ("head", "kind", "target_mean", "target_sd"):
                if hasattr(self, name):
                    delattr(self, name)

    def forward(self, *tokens: Tensor, **batch: Tensor) -> Tensor:  # type: ignore[override]
        """Tokens (B, N, D), or from the last stage the prediction; the first takes no tokens."""
        batch = with_near(batch, self.config.cutoff)
        pair = pair_features(batch, self.config.rbf, self.config.cutoff)
        x = self.layered(tokens[0] if tokens else self.embedding(batch, pair), pair, batch)
        return self.finish(x, batch) if self.is_last else x


class Pipeline(nn.Module):
    """The stages that this process holds, and what it does with the others'.

    Parameters
    ----------
    stages : by number
    """

    def __init__(self, stages: Mapping[int, Stage], config: TrainConfig, world: World) -> None:
        super().__init__()
        assert world.mesh is not None
        self.stages = nn.ModuleDict({str(number): stage for number, stage in stages.items()})
        self.config, self.world = config, world
        self.group = world.mesh.get_group("pipeline")
        self.owners = owners(config.parallel)
        self.me = dist.get_rank(self.group)
        self.dtype = DTYPES[config.precision.compute]
        self._shape: tuple[int, ...] = ()
        self._schedule: Any = None
        self._batch: Inputs = {}
        self._objective: Objective | None = None

    def own(self) -> Iterator[tuple[int, Stage]]:
        """Stages of this process, in order."""
        for number, stage in self.stages.items():
            assert isinstance(stage, Stage)
            yield int(number), stage

    def train_step(self, batch: Inputs, objective: Objective, scale: float) -> Tensor:
        """Forward and backward of one piece of a batch; its loss, the same in all processes of the pipeline.

        Parameters
        ----------
        objective : (prediction, rows of the batch) -> their part of the loss of the global batch: a sum,
            so that micro-batches with unequal weights add up exactly
        scale : what gradients are multiplied by
        """
        B, N = batch["atom_mask"].shape
        schedule = self._prepare(B // self.config.parallel.micro, N)
        self._batch, self._objective, self._scale = batch, objective, scale
        losses: list[Tensor] = []
        rows = torch.arange(B, device=self.world.device)
        schedule.step(target=rows, losses=losses, return_outputs=False, **batch)
        total = torch.zeros((), device=self.world.device)
        if losses:
            total += torch.stack([loss.detach() for loss in losses]).sum() / scale
        dist.broadcast(total, group=self.group, group_src=self.owners[-1])
        return total

    def _loss(self, prediction: Tensor, rows: Tensor) -> Tensor:
        assert self._objective is not None
        part = {name: value[rows] for name, value in self._batch.items()}
        return self._objective(prediction, part) * self._scale

    def _prepare(self, rows: int, atoms: int) -> Any:
        """The schedule for micro-batches of this shape; tokens change theirs with the batch."""
        if self._shape != (rows, atoms):
            parallel, model, device = self.config.parallel, self.config.model, self.world.device
            tokens = torch.empty(
                rows, atoms, model.width, dtype=self.dtype, device="meta", requires_grad=True
            )
            prediction = torch.empty(rows, 1 + model.uncertainty, device="meta", requires_grad=True)
            stages = [
                PipelineStage(
                    stage, number, len(self.owners), device, group=self.group,
                    input_args=() if stage.is_first else tokens,
                    output_args=prediction if stage.is_last else tokens,
                )
                for number, stage in self.own()
            ]  # fmt: skip
            single = parallel.schedule in ("gpipe", "1f1b")
            # Losses are sums over the global batch, so gradients of micro-batches are added, not averaged.
            self._schedule = SCHEDULES[parallel.schedule](
                stages[0] if single else stages, parallel.micro, loss_fn=self._loss, scale_grads=False
            )
            self._shape = (rows, atoms)
        return self._schedule

    def forward(self, batch: Inputs) -> Tensor:
        """Predictions without gradients, the same in all processes of the pipeline.

        Chunks of rows follow each other through the stages, as many as make a stage wait little.
        """
        B, N = batch["atom_mask"].shape
        # As many in all processes, whose parts of a batch differ by a row: parameters are gathered for each.
        n_chunks = self.world.least(min(B, self.config.parallel.micro))
        rows = torch.arange(B, device=self.world.device).tensor_split(n_chunks)
        chunks = [{name: value[r] for name, value in batch.items() if name != NEAR} for r in rows]
        sends: list[Any] = []
        made: dict[int, list[Tensor]] = {}
        for number, stage in self.own():
            made[number] = []
            for i, chunk in enumerate(chunks):
                tokens: tuple[Tensor, ...] = ()
                if not stage.is_first and self.owners[number - 1] == self.me:
                    tokens = (made[number - 1][i],)
                elif not stage.is_first:
                    shape = (len(rows[i]), N, self.config.model.width)
                    tokens = (torch.empty(shape, dtype=self.dtype, device=self.world.device),)
                    dist.recv(tokens[0], group=self.group, group_src=self.owners[number - 1])
                out = stage(*tokens, **chunk).detach().contiguous()
                made[number].append(out)
                if not stage.is_last and self.owners[number + 1] != self.me:
                    sends.append(dist.isend(out, group=self.group, group_dst=self.owners[number + 1]))
        last = len(self.owners) - 1
        outputs = 1 + self.config.model.uncertainty
        prediction = (
            torch.cat(made[last]) if last in made else torch.empty(B, outputs, device=self.world.device)
        )
        dist.broadcast(prediction, group=self.group, group_src=self.owners[-1])
        for send in sends:
            send.wait()
        return prediction
