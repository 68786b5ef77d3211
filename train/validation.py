"""Scores of a model on a split while it trains, every process computing its part."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch

from ..shards.complex import RELATIONS
from .config import TrainConfig
from .data import judging_stream, to_tensors
from .judge.metrics import summarise
from .model.pairs import with_near
from .model.transformer import AffinityTransformer
from .parallel.apply import release
from .parallel.mesh import World
from .parallel.pipeline import Pipeline

if TYPE_CHECKING:
    from ..shards.read.dataset import Dataset

SHOWN: Final = ("n", "rmse", "mae", "pearson", "spearman")


def validate(
    model: AffinityTransformer | Pipeline, dataset: Dataset, config: TrainConfig, world: World
) -> dict[str, Any]:
    """RMSE, MAE, Pearson and Spearman on the validation split; the same in every process."""
    split = config.data.valid_split
    index = [torch.zeros(0, dtype=torch.int64, device=world.device)]
    predicted = [torch.zeros(0, device=world.device)]
    model.eval()
    with torch.no_grad():
        for batch in judging_stream(dataset, config.data, world, split):
            # A process without a part computes all the same: the others wait for it in collectives.
            inputs = to_tensors(batch, config.data.inputs, world.device)
            whole = isinstance(model, Pipeline)
            pk = model(inputs if whole else with_near(inputs, config.model.cutoff))[:, 0]
            if batch.size:
                index.append(torch.from_numpy(np.asarray(batch.index)).to(world.device))
                predicted.append(pk)
    release(model)
    rows = world.gather(torch.cat(index)).cpu().numpy()
    values = world.gather(torch.cat(predicted)).double().cpu().numpy()
    order = np.argsort(rows)
    pk = np.asarray(dataset.column("pk"))[rows[order]]
    relation = [RELATIONS[i] for i in np.asarray(dataset.column("pk_relation"))[rows[order]]]
    summary = summarise(pk, values[order], relations=relation, n_boot=0)
    return {name: summary[name] for name in SHOWN}
