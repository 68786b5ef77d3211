"""A run's newest checkpoint with fewer heads, as the beginning of a run of its own."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from ...shards.errors import UsageError
from ...shards.read.dataset import Dataset, open_dataset
from ..checkpoint import Checkpoints, training_tensors
from ..config import TrainConfig
from ..configfile import dump_config, load_config
from ..data import judging_stream, read_labels, to_tensors
from ..flops import training_flops
from ..judge.atomic import refuse_file, write_text
from ..model.loss import affinity_loss, label_weight
from ..model.sharing import with_all_names
from ..model.transformer import AffinityTransformer, parameter_count
from ..optimizer import make_optimizer
from ..parallel.mesh import AXES, World
from ..parallel.precision import parameter_dtype
from ..predictor import BEST, export
from ..validation import validate
from .choose import choose
from .cut import cut_config, cut_tensors, silence
from .importance import Batch, By, importance
from .settings import SparsityConfig

REPORT: Final = "pruning.json"
TIMED: Final = 7  # steps of each model that are timed, in turns


@dataclass(frozen=True, slots=True)
class Loaded:
    """A run's state, whole and in this process."""

    config: TrainConfig
    model: AffinityTransformer
    tensors: dict[str, Tensor]
    state: dict[str, Any]


def alone() -> World:
    """A world of this process."""
    return World(0, 1, 0, 1, torch.device("cpu"), dict.fromkeys(AXES, 1), None)


def prune(
    run: Path, out: Path, *, keep: float, by: By, complexes: int = 512, seed: int = 0, multiple: int = 1
) -> dict[str, Any]:
    """Write `out`: the run's newest checkpoint without its least important heads; the report.

    Raises
    ------
    UsageError : `run` has no checkpoint, `out` is in use, or `keep`, `complexes` or `multiple` do not fit
    """
    if complexes < 1:
        raise UsageError(f"--complexes {complexes}, expected at least 1 to look at")
    refuse_file(out)
    if out.exists() and any(out.iterdir()):
        raise UsageError(f"{out} is not empty, expected a new folder for the pruned run")
    loaded = load_run(run)
    config, dataset = loaded.config, open_dataset(loaded.config.data.path)
    batches = list(labelled_batches(dataset, config, complexes))

    def loss(prediction: Tensor, batch: Batch) -> Tensor:
        return affinity_loss(prediction, batch["pk"], batch["pk_relation"], batch["weight"], config.loss)

    if by == "gates":
        scores, kept = open_gates(run, loaded.state)
        silence(loaded.tensors, config.model, kept)  # as the gates do: the model that is compared with
    else:
        scores = importance(loaded.model, batches, loss, by)
        kept = choose(scores, keep, by, seed=seed, multiple=multiple)
    smaller = replace(config, model=cut_config(config.model, kept), sparsity=SparsityConfig())
    tensors = cut_tensors(loaded.tensors, config.model, kept)
    pruned = filled(smaller, tensors)
    report = {
        "from": str(run), "step": loaded.state["position"]["step"], "by": by, "keep": keep,
        "heads_before": list(config.model.attention_heads), "heads_after": list(smaller.model.layer_heads),
        "kept": kept, "importance": [[round(float(value), 4) for value in layer] for layer in scores],
        **compare(loaded.model, config, pruned, smaller, batches, dataset),
    }  # fmt: skip
    with whole_folder(out) as partial:
        write_run(partial, smaller, pruned, tensors, loaded.state)
        write_text(partial / REPORT, json.dumps(report, indent=1) + "\n")
    return report


@contextmanager
def whole_folder(out: Path) -> Iterator[Path]:
    """A folder to fill beside `out`, which becomes `out` at the end: that is there whole or not at all."""
    out = out.absolute()
    partial = out.with_name(f".{out.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)  # of one that was killed
    partial.mkdir(parents=True)
    try:
        yield partial
        os.replace(partial, out)  # an empty folder may be there
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def load_run(run: Path) -> Loaded:
    """The newest sound checkpoint of a run."""
    if not (run / "config.toml").is_file():
        raise UsageError(
            f"no run in {run}: it has no config.toml; expected the folder of a run that saved a checkpoint"
        )
    config = load_config(run / "config.toml")
    model = AffinityTransformer(config.model).to(parameter_dtype(config.precision))
    tensors = training_tensors(model, make_optimizer(model, config.optimizer))
    state = Checkpoints(run / "checkpoints", alone()).restore(tensors, {})
    if state is None:
        raise UsageError(f"{run} has no sound checkpoint, expected the folder of a run that saved one")
    return Loaded(config, model, tensors, state)


def open_gates(run: Path, state: dict[str, Any]) -> tuple[list[Tensor], list[list[int]]]:
    """Running importance, and the heads that training left open, once its choice is final.

    Raises
    ------
    UsageError : gates are moving still, or there are none
    """
    heads = state.get("heads")
    if not heads:
        raise UsageError(f"{run} has no gates, expected a run with sparsity.keep below 1; or --by norm")
    if not heads["final"] or any(gate not in (0.0, 1.0) for layer in heads["gates"] for gate in layer):
        raise UsageError(
            f"{run}: at step {state['position']['step']} heads still fall silent or come back; train beyond "
            "sparsity.end and sparsity.every steps more"
        )
    scores = [torch.tensor(layer, dtype=torch.float64) for layer in heads["importance"]]
    return scores, [[h for h, gate in enumerate(layer) if gate] for layer in heads["gates"]]


def labelled_batches(
    dataset: Dataset, config: TrainConfig, complexes: int, split: str = ""
) -> Iterator[Batch]:
    """The first complexes of a split, or of the training split, with the weights of their labels."""
    weight = torch.from_numpy(read_labels(dataset, config).weight)
    stream = judging_stream(dataset, config.data, _Alone(), split or config.data.train_split)
    for batch in itertools.islice(stream, -(-complexes // config.data.batch_size)):
        tensors = to_tensors(batch, config.data.inputs)
        row_weight = weight[tensors["index"]]
        tensors["weight"] = label_weight(tensors["pk"], tensors["pk_relation"], row_weight, config.loss)
        yield tensors


def filled(config: TrainConfig, tensors: dict[str, Tensor]) -> AffinityTransformer:
    """A model with these parameters and buffers."""
    model = AffinityTransformer(config.model).to(parameter_dtype(config.precision))
    own = {name.removeprefix("model."): value for name, value in tensors.items() if name.startswith("model.")}
    model.load_state_dict(with_all_names(own, model))
    return model


def write_run(
    out: Path,
    config: TrainConfig,
    model: AffinityTransformer,
    tensors: dict[str, Tensor],
    state: dict[str, Any],
) -> None:
    """A run's folder from which `holoshard train` goes on; what it judged best before counts no more."""
    write_text(out / "config.toml", dump_config(config))
    position = {**state["position"], "best": None, "best_step": 0, "stale": 0}
    same = {**state["same"], "[model]": asdict(config.model)}
    kept = {"position": position, "scale": state["scale"], "same": same}
    Checkpoints(out / "checkpoints", alone()).save(position["step"], tensors, kept)
    export(model, config, position["step"], out / BEST, alone(), synthetic=state.get("synthetic", 0.0))


def compare(
    before: AffinityTransformer, config: TrainConfig, after: AffinityTransformer, smaller: TrainConfig,
    batches: list[Batch], dataset: Dataset,
) -> dict[str, Any]:  # fmt: skip
    """Parameters, operations, measured step time and quality, before and after."""
    atoms = torch.cat([batch["atom_mask"].sum(1) for batch in batches]).double()
    work = float(atoms.sum()), float(atoms.square().sum())
    seconds = step_seconds([before, after], batches)
    found: dict[str, Any] = {
        "parameters": [parameter_count(c.model) for c in (config, smaller)],
        "flops": [training_flops(c.model, *work) / len(atoms) for c in (config, smaller)],
        "step_seconds": seconds,
    }
    if dataset.splits.get(config.data.valid_split):
        judged = [validate(m, dataset, c, alone()) for m, c in ((before, config), (after, smaller))]
        found |= {name: [scores[name] for scores in judged] for name in ("rmse", "pearson")}
    return found


def step_seconds(models: list[AffinityTransformer], batches: list[Batch]) -> list[float]:
    """CPU seconds of forward and backward of each model, medians of turns that all are disturbed in alike."""
    times: list[list[float]] = [[] for _ in models]
    for turn in range(TIMED + 1):
        for model, measured in zip(models, times, strict=True):
            begin = time.process_time()
            torch.autograd.grad(
                model(batches[turn % len(batches)]).sum(), list(model.parameters()), allow_unused=True
            )
            measured.append(time.process_time() - begin)
    return [statistics.median(measured[1:]) for measured in times]


class _Alone:
    """All of a batch for one process."""

    data_rank, data_size = 0, 1
