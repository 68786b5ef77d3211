"""Scores of a model on a split while it trains, every process computing its part."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch
from torch import Tensor

from ..shards.complex import RELATIONS
from .config import LossConfig, TrainConfig
from .data import Tensors, judging_stream, to_tensors
from .judge.metrics import exact, summarise
from .model.loss import affinity_loss, label_weight
from .model.packing import prepared
from .model.transformer import AffinityTransformer
from .parallel.apply import release
from .parallel.mesh import World
from .parallel.pipeline import Pipeline

if TYPE_CHECKING:
    from ..shards.read.dataset import Dataset

SHOWN: Final = ("n", "rmse", "mae", "pearson", "spearman")


def validate(
    model: AffinityTransformer | Pipeline,
    dataset: Dataset,
    config: TrainConfig,
    world: World,
    weight: Tensor | None = None,
) -> dict[str, Any]:
    """Loss, RMSE, MAE, Pearson and Spearman on the validation split; the same in every process.

    Each is None where it is not defined, and all of them where a prediction is not finite.

    Parameters
    ----------
    weight : (len(dataset),) what rows weigh in the loss; all the same if None
    """
    split = config.data.valid_split
    index = [torch.zeros(0, dtype=torch.int64, device=world.device)]
    predicted = [torch.zeros(0, device=world.device)]
    sums = torch.zeros(2, dtype=torch.float64, device=world.device)
    model.eval()
    with torch.no_grad():
        for batch in judging_stream(dataset, config.data, world, split):
            # A process without a part computes all the same: the others wait for it in collectives.
            inputs = to_tensors(batch, config.data.inputs, world.device)
            whole = isinstance(model, Pipeline)
            out = model(inputs if whole else prepared(inputs, config.model.cutoff, config.data.packed))
            if batch.size:
                index.append(inputs["index"])
                predicted.append(out[:, 0])
                sums += loss_and_weight(out, inputs, weight, config.loss)
    release(model)
    rows = world.gather(torch.cat(index)).cpu().numpy()
    values = world.gather(torch.cat(predicted)).double().cpu().numpy()
    loss, total = world.sum(sums).tolist()
    if not np.isfinite(values).all():
        return {"loss": None, **dict.fromkeys(SHOWN), "n": len(rows)}
    order = np.argsort(rows)
    pk = np.asarray(dataset.column("pk"))[rows[order]]
    relation = [RELATIONS[i] for i in np.asarray(dataset.column("pk_relation"))[rows[order]]]
    summary = summarise(pk, values[order], relations=relation, n_boot=0)
    return {"loss": loss / total if total else None, **{name: summary[name] for name in SHOWN}}


def has_exact(dataset: Dataset, split: str) -> bool:
    """Whether a split has a complex with a measured value: without one there is nothing to choose by."""
    if not dataset.splits.get(split):
        return False
    rows = dataset.indices(split)
    relations = [RELATIONS[i] for i in np.asarray(dataset.column("pk_relation"))[rows]]
    return bool(exact(np.asarray(dataset.column("pk"), np.float64)[rows], relations).any())


def loss_and_weight(out: Tensor, inputs: Tensors, weight: Tensor | None, config: LossConfig) -> Tensor:
    """Summed loss of a batch and what it weighs, (2,) float64."""
    pk, relation = inputs["pk"], inputs["pk_relation"]
    row = torch.ones_like(pk) if weight is None else weight[inputs["index"]]
    used = label_weight(pk, relation, row, config)
    return torch.stack([affinity_loss(out, pk, relation, used, config), used.sum()]).double()
