"""The training loop. Begin with :meth:`Trainer.run`: it says what happens, in order."""

from __future__ import annotations

import dataclasses
import datetime
import itertools
import logging
import math
import platform
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from ..shards.console import Progress as Bar
from ..shards.console import progress
from ..shards.errors import HoloshardError
from ..shards.read.dataset import open_dataset
from .checkpoint import Checkpoints, set_optimizer_steps, training_tensors
from .compress.adamw import ReplicatedAdamW
from .compress.make import optimizer_of
from .config import TrainConfig
from .configfile import dump_config
from .data import Tensors, pieces, read_labels, training_stream
from .diagnosis import diagnose, not_finite
from .feed import ahead, batches
from .judge.atomic import write_text
from .meter import Meter, in_words
from .model.loss import affinity_loss
from .model.packing import prepared
from .model.transformer import Inputs, parameter_count
from .optimizer import learning_rate
from .parallel.apply import build_model, synchronise
from .parallel.clip import clip_factor, gradient_norm, scale_gradients
from .parallel.mesh import World
from .parallel.pipeline import Pipeline
from .parallel.precision import LossScale
from .position import Position
from .predictor import BEST, export
from .prune.adaptive import AdaptiveHeads
from .reading import Reading
from .record import Clock, Record
from .stop import StopSignals
from .validation import has_exact, validate
from .watchdog import Watchdog

log = logging.getLogger("holoshard")

REQUEUE: Final = 75  # exit code of a run that was told to stop and can go on: EX_TEMPFAIL of sysexits.h


class TrainingError(HoloshardError):
    """Training cannot go on: losses or gradients are not finite."""


class Trainer:
    """One run in one process of its world.

    Parameters
    ----------
    config, folder : what to do, and the run's folder, where an earlier start of the run is continued
    world : this process among the others
    choose : at an epoch's end, the [parallel] table to go on in, or nothing; for run.replan
    signals : that tell it to stop; what was received before counts
    """

    def __init__(
        self, config: TrainConfig, folder: Path, world: World,
        choose: Callable[[Path, World], str] = lambda folder, world: "", signals: StopSignals | None = None,
    ) -> None:  # fmt: skip
        self.config, self.folder, self.world, self.choose = config, folder, world, choose
        self.layout = ""  # that another trainer shall go on in
        self.signals = signals or StopSignals()
        self.dataset = open_dataset(config.data.path)
        self.labels = read_labels(self.dataset, config)
        self.weight = torch.from_numpy(self.labels.weight).to(world.device)
        self.model = build_model(config, world, self.labels.mean, self.labels.sd)
        self.steps_per_epoch = len(training_stream(self.dataset, config, world, 0, 0))
        self.last_step = config.run.steps or config.run.epochs * self.steps_per_epoch
        self.optimizer = optimizer_of(self.model, config, world, self.last_step)
        self.exchange = self.optimizer if isinstance(self.optimizer, ReplicatedAdamW) else None
        self.tensors = training_tensors(self.model, self.optimizer)
        self.scale = LossScale.of(config.precision)
        self.at = Position()
        self.checkpoints = Checkpoints(
            folder / "checkpoints", world, config.checkpoint.keep, config.checkpoint.background
        )
        self.reading = Reading(self.dataset, config, world)
        self.heads = self.adaptive_heads()
        self.saved_step = -1
        self.clock = Clock()
        self.meter = Meter(config, world)
        self.last: dict[str, float] = {}
        self.line: dict[str, Any] = {}  # of metrics, the newest
        self.can_judge = has_exact(self.dataset, config.data.valid_split)
        self.scales: list[float] = []  # loss scales of the skipped steps

    def run(self) -> dict[str, Any]:
        """Train to the end, to a signal, or until nothing gets better.

        Returns
        -------
        outcome, step, epoch, best_step, best_rmse, the last loss, parameters, processes, and
        ``exit_code`` REQUEUE where a signal ended it early
        """
        outcome = "done"
        self.prepare_folder()
        self.restore()
        with (
            Record(self.folder, self.world.is_first, self.config.run.tensorboard) as self.record,
            self.signals as signals,
            self.bar() as bar,
            Watchdog(self.config.run.hang_seconds, self.world.rank, self.where) as watchdog,
            self.reading,
        ):
            self.record.write(run=self.describe())
            for batch in self.batches():
                self.clock.lap("data_wait")
                weight, told = self.agree(batch, signals.received)
                if told:
                    outcome = "preempted"
                    break
                self.step(batch, weight)
                bar.advance(1, epoch=self.at.epoch)
                watchdog.beat()
                is_last = self.at.step == self.last_step
                if is_last or self.at.step % self.config.run.log_every == 0:
                    self.write_metrics()
                if is_last or self.at.step % (self.config.run.eval_every or self.steps_per_epoch) == 0:
                    self.judge()
                if self.config.checkpoint.every and self.at.step % self.config.checkpoint.every == 0:
                    self.save()
                if 0 < self.config.run.patience <= self.at.stale:
                    outcome = "early_stop"
                    break
                if self.replans and not is_last:
                    self.layout = self.choose(self.folder, self.world)
                    self.clock.skip()
                    if self.layout:
                        outcome = "new layout"
                        break
            self.save()
            self.checkpoints.finish()
            self.record.write(step=self.at.step, event=outcome)
        return self.result(outcome)

    def batches(self) -> Iterator[Tensors]:
        """This process's part of every global batch from where the run stands, over the epochs."""
        weight, left = torch.from_numpy(self.labels.weight), self.last_step - self.at.step
        source = batches(self.reading, self.config, weight, self.at.epoch, self.at.step_in_epoch)
        for fed in ahead(itertools.islice(source, left), self.world.device):
            if fed.epoch != self.at.epoch:
                self.at.epoch, self.at.step_in_epoch = fed.epoch, 0
            yield fed.tensors

    @property
    def replans(self) -> bool:
        """True at an epoch's end, where the layout is to be chosen anew."""
        return self.config.run.replan == "epoch" and self.at.step_in_epoch == self.steps_per_epoch

    def agree(self, batch: Tensors, told: bool) -> tuple[float, bool]:
        """Weight of the global batch, and whether any process was told to stop: one exchange for both."""
        weight = batch["weight"].sum().double()
        both = self.world.sum_of_all(torch.stack([weight, weight.new_tensor(float(told))]))
        total, stops = (both * self.world.data_size / self.world.size).tolist()  # neighbours share rows
        self.clock.lap("communication")
        return max(total, 1e-12), stops > 0

    def step(self, batch: Tensors, weight: float) -> None:
        """Forward, backward and update; with a gradient that is not finite nothing changes but the count."""
        world = self.world
        seed = np.random.SeedSequence([self.config.seed, self.at.step, world.data_rank, world.stage_rank])
        torch.manual_seed(int(seed.generate_state(1)[0]))  # dropout
        self.model.train()
        total = torch.zeros((), device=self.world.device)
        parts = list(pieces(batch, self.config.parallel.accumulate))
        for i, part in enumerate(parts):
            if isinstance(self.model, Pipeline):
                total += self.model.train_step(part, partial(self.loss_of, weight=weight), self.scale.value)
                self.clock.lap("pipeline")
                continue
            synchronise(self.model, i == len(parts) - 1, self.config.parallel.keeps_gradients)
            ready = prepared(part, self.config.model.cutoff, self.config.data.packed)
            if self.heads is not None:
                self.heads.look(ready["atom_mask"])
            loss = self.loss_of(self.model(ready), part, weight)
            self.clock.lap("forward")
            (loss * self.scale.value).backward()  # type: ignore[no-untyped-call]
            total += loss.detach()
            self.clock.lap("backward")
        parameters = list(self.model.parameters())
        unscale = 1.0 / self.scale.value
        norm = gradient_norm(parameters, world, apart=self.config.apart) * unscale
        lr = learning_rate(self.config.optimizer, self.at.step, self.last_step)
        if self.scale.update(norm):
            scale_gradients(parameters, unscale * clip_factor(norm, self.config.optimizer.clip))
            for group in self.optimizer.param_groups:
                group["lr"] = lr
            self.optimizer.step()
            self.at.updates, self.at.skipped_in_a_row = self.at.updates + 1, 0
            self.meter.add(batch, total)
        else:
            self.skip(batch, norm)
        self.optimizer.zero_grad(set_to_none=True)
        self.clock.lap("optimizer")
        self.at.step, self.at.step_in_epoch = self.at.step + 1, self.at.step_in_epoch + 1
        self.last |= {"lr": lr, "grad_norm": norm}
        if self.heads is not None:
            self.heads.advance(self.at.step)

    def loss_of(self, prediction: Tensor, part: Inputs, weight: float) -> Tensor:
        """What some rows add to the loss of a global batch of this weight."""
        loss = affinity_loss(prediction, part["pk"], part["pk_relation"], part["weight"], self.config.loss)
        return loss / weight

    def skip(self, batch: Tensors, norm: float) -> None:
        """Count and write down a step whose gradient is not finite; stop after too many in a row."""
        self.at.skipped, self.at.skipped_in_a_row = self.at.skipped + 1, self.at.skipped_in_a_row + 1
        rows = sorted(self.world.gather(batch["index"]).tolist())
        ids = [self.dataset[row].id for row in rows]
        self.record.write(
            step=self.at.step, event="skipped_step", grad_norm=norm, loss_scale=self.scale.value, ids=ids
        )
        log.warning(
            "step %d is skipped: its gradient is not finite; ids: %s", self.at.step, ", ".join(ids[:8])
        )
        self.scales.append(self.scale.value)
        if self.at.skipped_in_a_row >= self.config.run.max_skipped:
            self.give_up(batch)

    def give_up(self, batch: Tensors) -> None:
        """End the run with a diagnosis of its last batch."""
        found = diagnose(self.model, batch, self.config.loss)
        rows = torch.tensor(found.pop("rows"), dtype=torch.int64, device=self.world.device)
        ids = [self.dataset[row].id for row in self.world.gather(rows).tolist()]
        self.record.write(step=self.at.step, event="diagnosis", **found, ids=ids, loss_scales=self.scales)
        where = f"first in {found['module']}" if found["module"] else "in backward only"
        raise TrainingError(
            f"{self.at.skipped_in_a_row} steps in a row up to step {self.at.step} had no finite gradient: "
            f"{where}; parameters not finite: {', '.join(found['parameters'][:3]) or 'none'}; complexes: "
            f"{', '.join(ids[:5]) or 'none'}; loss scales: {', '.join(f'{v:g}' for v in self.scales[-5:])}. "
            "Lower optimizer.lr, or look at these complexes with `holoshard show`"
        )

    def write_metrics(self) -> None:
        """One line of metrics over the steps since the last."""
        seconds, parts = self.clock.read()
        io_wait = self.reading.io_wait(parts.get("data_wait", 0.0) / seconds)
        self.last |= self.meter.read(seconds)
        self.line = {
            **self.last, "seconds": seconds, **parts, "skipped": self.at.skipped,
            "loss_scale": self.scale.value, "io_wait": io_wait, **self.reading.counters(),
        }  # fmt: skip
        self.record.write(step=self.at.step, epoch=self.at.epoch, **self.line)

    def judge(self) -> None:
        """Validate, and keep the model where it is the best so far."""
        split = self.config.data.valid_split
        scores: dict[str, Any] = {}
        is_best = True  # without measured complexes to validate on the newest is kept
        if self.can_judge:
            scores = validate(self.model, self.dataset, self.config, self.world, self.weight)
            is_best = scores["rmse"] is not None and (self.at.best is None or scores["rmse"] < self.at.best)
            self.at.stale = 0 if is_best else self.at.stale + 1
            self.record.write(
                step=self.at.step, epoch=self.at.epoch, eval={"split": split, **scores}, best=is_best
            )
            if self.world.is_first:
                pearson = "-" if scores["pearson"] is None else f"{scores['pearson']:.3f}"
                loss = f"{self.last['loss']:.3f}" if "loss" in self.last else "-"  # none yet after a resume
                log.info(
                    "step %d, epoch %d: loss %s, %s loss %.3f, RMSE %.3f, Pearson %s%s",
                    self.at.step, self.at.epoch, loss, split, scores["loss"] or math.nan,
                    scores["rmse"] or math.nan, pearson, ", best" if is_best else "",
                )  # fmt: skip
        if self.world.is_first and self.line:
            log.info("%s", in_words(self.line))
        if is_best:
            self.at.best, self.at.best_step = scores.get("rmse"), self.at.step
            bake = self.heads.bake if self.heads is not None else None
            export(
                self.model, self.config, self.at.step, self.folder / BEST, self.world, bake,
                self.labels.synthetic,
            )  # fmt: skip
        self.clock.skip()

    def save(self) -> None:
        """Write a checkpoint, unless this step has one; weights that are not finite are never written."""
        if self.at.step != self.saved_step:
            self.refuse_not_finite()
            state = {
                "position": dataclasses.asdict(self.at), "scale": dataclasses.asdict(self.scale),
                "same": self.same(), "exchange": self.exchange.saved() if self.exchange else {},
                "heads": self.heads.saved() if self.heads else {}, "synthetic": self.labels.synthetic,
            }  # fmt: skip
            errors = self.exchange.errors(self.world.rank) if self.exchange else {}
            self.checkpoints.save(self.at.step, self.tensors | errors, state)
            self.saved_step = self.at.step
            self.clock.skip()

    def refuse_not_finite(self) -> None:
        """End the run if a parameter is not finite in any process; the checkpoint before stays the latest."""
        bad = not_finite(self.model)
        if self.world.any(bool(bad)):
            self.checkpoints.finish()
            self.record.write(step=self.at.step, event="diagnosis", parameters=bad)
            raise TrainingError(
                f"step {self.at.step}: parameters are not finite: {', '.join(bad[:3]) or 'elsewhere'}. "
                "Nothing is saved, the checkpoint before stays the latest. Lower optimizer.lr, or set "
                "optimizer.clip"
            )

    def prepare_folder(self) -> None:
        """Make the run's folder and write down its configuration."""
        if self.world.is_first:
            self.folder.mkdir(parents=True, exist_ok=True)
            write_text(self.folder / "config.toml", dump_config(self.config))
        self.world.barrier()

    def restore(self) -> None:
        """Go on from the newest sound checkpoint of the folder, if there is one."""
        state = self.checkpoints.restore(self.tensors, self.same(), self.further_tensors)
        if state is not None:
            self.at = Position(**state["position"])
            self.scale = LossScale(**state["scale"])
            set_optimizer_steps(self.optimizer, self.at.updates)
            if self.heads is not None:
                self.heads.resume(state.get("heads", {}))
            self.saved_step = self.at.step
            if self.world.is_first:
                log.info("continuing %s from step %d of %d", self.folder, self.at.step, self.last_step)

    def adaptive_heads(self) -> AdaptiveHeads | None:
        """Gates of heads that fall silent, if the configuration wants some to."""
        if self.config.sparsity.keep == 1 or isinstance(self.model, Pipeline):
            return None
        return AdaptiveHeads(self.model, self.config, self.world, self.last_step)

    def further_tensors(self, state: dict[str, Any]) -> dict[str, Tensor]:
        """Error buffers of a compressed exchange, where those of the checkpoint fit."""
        return self.exchange.resume(state.get("exchange", {}), self.world.rank) if self.exchange else {}

    def same(self) -> dict[str, Any]:
        """What must not change between starts of a run."""
        data = self.config.data
        return {
            "[model]": dataclasses.asdict(self.config.model), "seed": self.config.seed,
            "data.batch_size": data.batch_size, "data.shuffle": data.shuffle,
            **({"data.sample_column": data.sample_column} if data.sample_column else {}),
            "the data set": self.dataset.manifest.fingerprint,
        }  # fmt: skip

    def describe(self) -> dict[str, Any]:
        """The first line of metrics of each start."""
        return {
            "started": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "parameters": parameter_count(self.config.model),
            "processes": self.world.size, "parallel": self.world.sizes, "device": str(self.world.device),
            "precision": self.config.precision.compute, "dataset": self.config.data.path,
            "complexes": dict(self.dataset.splits), "steps": self.last_step, "step": self.at.step,
            "pk_mean": self.labels.mean, "pk_sd": self.labels.sd,
            "python": platform.python_version(), "torch": torch.__version__,
        }  # fmt: skip

    def where(self) -> str:
        """What the process is doing, for whoever finds it hanging."""
        return f"step {self.at.step + 1}, after {self.clock.part}"

    def bar(self) -> AbstractContextManager[Bar]:
        """Progress to the terminal, from the first process."""
        if not self.world.is_first:
            return nullcontext(_Silent())
        return progress("train", self.last_step - self.at.step, "steps")

    def result(self, outcome: str) -> dict[str, Any]:
        """What the command returns."""
        return {
            "run": str(self.folder), "outcome": outcome, "step": self.at.step, "epoch": self.at.epoch,
            "best_step": self.at.best_step, "best_rmse": self.at.best, "loss": self.last.get("loss"),
            "skipped": self.at.skipped, "processes": self.world.size,
            "exit_code": REQUEUE if outcome == "preempted" else 0,
        }  # fmt: skip


class _Silent:
    """A bar that shows nothing."""

    def advance(self, n: int = 1, **counts: int) -> None:
        """Count nothing."""
