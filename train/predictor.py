"""A trained model as others use it: one safetensors file, loaded in one process, that predicts pK."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Self

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from ..shards.errors import FormatError, UsageError
from .config import TrainConfig
from .configfile import dump_config, parse_config
from .data import judging_stream, to_tensors
from .model.packing import prepared
from .model.sharing import with_all_names
from .model.transformer import AffinityTransformer
from .parallel.pipeline import Pipeline
from .parallel.whole import whole_tensors

if TYPE_CHECKING:
    from ..shards.read.dataset import Dataset
    from .parallel.mesh import World

FORMAT, VERSION = "holoshard-model", 1  # key of our metadata in the file, newest version that is read
BEST = "best.safetensors"


@dataclass(frozen=True, slots=True)
class Predictions:
    """What a model says of some complexes.

    Attributes
    ----------
    index : (n,) rows in the data set, ascending
    pk : (n,) predicted pK
    sd : (n,) predicted standard deviation, pK units; None from a model without uncertainty
    """

    index: NDArray[np.int64]
    pk: NDArray[np.float64]
    sd: NDArray[np.float64] | None = None


class _Alone:
    """All of a batch for one process."""

    data_rank, data_size = 0, 1


class Predictor:
    """A model ready to predict.

    Attributes
    ----------
    config : the configuration it was trained with
    step : training step of its weights
    path : the file it came from
    synthetic : share of the labels it learned from that nobody measured
    """

    def __init__(
        self, model: AffinityTransformer, config: TrainConfig, step: int, path: Path, synthetic: float = 0.0
    ) -> None:
        self.model, self.config, self.step, self.path = model.eval(), config, step, path
        self.synthetic = synthetic

    @classmethod
    def load(cls, path: Path, device: str = "cpu") -> Self:
        """Read a run folder or a ``.safetensors`` file.

        Raises
        ------
        UsageError : there is none
        FormatError : it is not one of ours, damaged, or of a newer version
        """
        file = path / BEST if path.is_dir() else path
        if not file.is_file():
            raise UsageError(f"no model at {file}; expected a run folder of `holoshard train`, or its {BEST}")
        try:
            with safe_open(str(file), framework="pt") as opened:
                meta = json.loads((opened.metadata() or {}).get(FORMAT, "{}"))
                if not 1 <= meta.get("version", 0) <= VERSION:
                    raise FormatError(
                        f"{file}: {FORMAT} version {meta.get('version')}, expected up to {VERSION}; train or "
                        "export it with this version of holoshard"
                    )
                tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
            config = parse_config(meta["config"], str(file))
            model = AffinityTransformer(config.model)
            model.load_state_dict(with_all_names(tensors, model))
        except (SafetensorError, KeyError, ValueError, RuntimeError) as error:
            raise FormatError(f"{file}: not a whole model of ours: {error}; export it again") from error
        return cls(model.to(device), config, meta["step"], file, float(meta.get("synthetic", 0.0)))

    def predict(
        self, dataset: Dataset, split: str | None = None, *, batch_size: int | None = None
    ) -> Predictions:
        """Predict every complex of a split, or of the whole data set."""
        data = self.config.data
        if batch_size is not None:
            data = replace(data, batch_size=batch_size)
        device = next(self.model.parameters()).device
        index, out = [np.zeros(0, np.int64)], [torch.zeros(0, 2 if self.config.model.uncertainty else 1)]
        with torch.inference_mode():
            for batch in judging_stream(dataset, data, _Alone(), split):
                index.append(np.asarray(batch.index))
                inputs = to_tensors(batch, data.inputs, device)
                out.append(self.model(prepared(inputs, self.config.model.cutoff, data.packed)).cpu())
        rows, values = np.concatenate(index), torch.cat(out).double().numpy()
        order = np.argsort(rows)
        sd = np.exp(values[order, 1]) if values.shape[1] == 2 else None
        return Predictions(rows[order], values[order, 0], sd)


def export(
    model: AffinityTransformer | Pipeline,
    config: TrainConfig,
    step: int,
    path: Path,
    world: World | None = None,
    change: Callable[[str, Tensor], Tensor] | None = None,
    synthetic: float = 0.0,
) -> None:
    """Write a model as one float32 file; every process of a world must call it, the first writes.

    `change` gets every whole tensor with its name and gives the one to be written. Replaced atomically; the
    metadata hold the configuration, the step, the share of `synthetic` labels and the format's version.
    """
    writes = world is None or world.is_first
    tensors = {}
    for name, full in whole_tensors(model):
        if writes:
            changed = full if change is None else change(name, full)
            tensors[name] = changed.float().cpu().contiguous()
    if not writes:
        return
    # One entry: safetensors writes several in no fixed order, and the same model should give the same bytes.
    about = {"version": VERSION, "step": step, "synthetic": synthetic, "config": dump_config(config)}
    meta = {FORMAT: json.dumps(about)}
    partial = path.with_name(f".{path.name}.partial")
    save_file(tensors, str(partial), meta)
    with partial.open("rb") as file:
        os.fsync(file.fileno())
    os.replace(partial, path)
