"""Batches of the stream as tensors, and what the labels of a data set weigh.

The global batch of a step depends on the seed, the epoch and the data set alone; a process gets its
part of it. Noise on positions is drawn for each complex from (seed, epoch, row), so it does not depend
on the number of processes either.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..shards.complex import KINDS, RELATIONS, Flag
from ..shards.errors import DataError, UsageError
from .config import DataConfig, Inputs, TrainConfig

if TYPE_CHECKING:
    from ..shards.read.batch import Batch
    from ..shards.read.dataset import Dataset
    from ..shards.read.fetch import Fetch
    from ..shards.read.kept import Keep
    from ..shards.read.stream import Stream

Tensors = dict[str, Tensor]
ATOM_COLUMNS = ("element", "charge", "hybridisation", "aromatic", "degree", "atom_residue_type")
COMPLEX_COLUMNS = ("pk", "pk_relation", "pk_kind")


class Share(Protocol):
    """Which part of a global batch a process gets."""

    @property
    def data_rank(self) -> int:
        """Number of the part."""

    @property
    def data_size(self) -> int:
        """Number of parts."""


@dataclass(frozen=True, slots=True)
class Labels:
    """Weight of every row of a data set, and the scale of the training labels.

    Attributes
    ----------
    weight : (len(dataset),) float32, 0 for a row without a pK
    mean, sd : of the exact training labels, pK units
    synthetic : share of the training labels that nobody measured
    """

    weight: NDArray[np.float32]
    mean: float
    sd: float
    synthetic: float = 0.0


def read_labels(dataset: Dataset, config: TrainConfig) -> Labels:
    """Weights from the configuration, mean and standard deviation from the training split.

    Raises
    ------
    DataError : fewer than two training complexes have an exact pK
    """
    pk, relation, kind = (np.asarray(dataset.column(name)) for name in COMPLEX_COLUMNS)
    by_kind = np.array([config.loss.kind_weights.get(name, 1.0) for name in KINDS], np.float32)
    weight = np.where(np.isfinite(pk), by_kind[kind], 0).astype(np.float32)
    if config.loss.weight_column:
        weight *= text_weights(dataset, config.loss.weight_column)
    train = np.zeros(len(pk), bool)
    train[dataset.indices(config.data.train_split)] = True
    exact = pk[train & (weight > 0) & (relation == RELATIONS.index("="))].astype(np.float64)
    if len(exact) < 2:
        raise DataError(
            f"{config.data.path}: split {config.data.train_split!r} has {int(train.sum())} complexes but "
            f"{len(exact)} with an exact pK, expected 2 or more; splits: {dict(dataset.splits)}"
        )
    flags = np.asarray(dataset.column("flags"))[train & (weight > 0)]
    synthetic = float(np.mean(flags & int(Flag.SYNTHETIC) != 0))
    return Labels(weight, float(exact.mean()), float(exact.std()) or 1.0, synthetic)


def text_weights(dataset: Dataset, column: str) -> NDArray[np.float32]:
    """The text column `column` of every complex as a number, 1 where it is empty.

    Raises
    ------
    UsageError : no complex has the column
    DataError : a text is no number
    """
    values = np.ones(len(dataset), np.float32)
    there: set[str] = set()
    for row, complex_ in enumerate(dataset):
        columns = complex_.text.get("columns", {})
        there.update(columns)
        text = str(columns.get(column, "")).strip()
        try:
            values[row] = float(text) if text else 1.0
        except ValueError:
            raise DataError(
                f"{complex_.id}: column {column} = {text!r}, expected a weight, a number"
            ) from None
    if column not in there:
        names = ", ".join(sorted(there)) or "none"
        raise UsageError(f"no complex has the column {column!r} of weights; there are: {names}")
    return values


def sampling_weights(dataset: Dataset, data: DataConfig) -> NDArray[np.float32] | None:
    """Weights by which the training complexes are drawn, one each; None for each once an epoch."""
    if not data.sample_column:
        return None
    return text_weights(dataset, data.sample_column)[dataset.indices(data.train_split)]


def training_stream(
    dataset: Dataset,
    config: TrainConfig,
    share: Share,
    epoch: int,
    skip: int,
    *,
    weights: NDArray[np.float32] | None = None,
    fetch: Fetch | None = None,
    keep: Keep | None = None,
) -> Stream:
    """The training batches of an epoch after its first `skip` steps, for one process.

    Parameters
    ----------
    weights : see :func:`sampling_weights`
    fetch : where bytes come from
    keep : keeps decoded blocks

    Raises
    ------
    DataError : the split has no whole batch
    """
    data = config.data
    if (n := dataset.splits[data.train_split]) < data.batch_size:
        raise DataError(
            f"{data.path}: split {data.train_split!r} has {n} complexes, expected at least one batch of "
            f"{data.batch_size}; say --data.batch_size {n} or less"
        )
    return dataset.stream(
        split=data.train_split, batch_size=data.batch_size, seed=config.seed, epoch=epoch, skip=skip,
        rank=share.data_rank, world_size=share.data_size, shuffle=data.shuffle, drop_last=True,
        max_atoms=data.max_atoms or None, weights=weights, fetch=fetch, keep=keep,
    )  # fmt: skip


def judging_stream(dataset: Dataset, data: DataConfig, share: Share, split: str | None) -> Any:
    """Every complex of a split once, in order."""
    return dataset.stream(
        split=split, batch_size=data.batch_size, shuffle=False, drop_last=False,
        rank=share.data_rank, world_size=share.data_size, max_atoms=data.max_atoms or None,
    )  # fmt: skip


def to_tensors(batch: Batch, inputs: Inputs, device: torch.device | str = "cpu") -> Tensors:
    """A batch as AffinityTransformer takes it, with its labels and rows (``index``).

    ``ligand`` cuts the pocket off; ``pocket`` hides the ligand's atoms, though the choice of pocket
    atoms still follows where the ligand was.
    """
    if batch.size == 0:
        return empty_tensors(device)
    ligand = np.asarray(batch["ligand_mask"])
    width = int(ligand.sum(1).max()) if inputs == "ligand" else ligand.shape[1]
    columns = {name: np.asarray(batch[name])[:, :width] for name in ("position", *ATOM_COLUMNS)}
    columns["ligand_mask"] = ligand[:, :width]
    columns["atom_mask"] = np.asarray(batch["atom_mask"])[:, :width]
    bond_atoms, bond_mask = np.asarray(batch["bond_atoms"]), np.asarray(batch["bond_mask"])
    if inputs == "ligand":
        columns["atom_mask"] = columns["ligand_mask"]
        bond_mask = bond_mask & (bond_atoms.astype(np.int64) < ligand.sum(1)[:, None, None]).all(-1)
    elif inputs == "pocket":
        columns["atom_mask"] = columns["atom_mask"] & ~columns["ligand_mask"]
    columns["pool_mask"] = columns["atom_mask"] if inputs == "pocket" else columns["ligand_mask"]
    columns |= {
        "bond_atoms": bond_atoms,
        "bond_mask": bond_mask,
        "bond_order": np.asarray(batch["bond_order"]),
    }
    columns |= {name: np.asarray(batch[name]) for name in COMPLEX_COLUMNS} | {
        "index": np.asarray(batch.index)
    }
    return {name: torch.from_numpy(signed(column)).to(device) for name, column in columns.items()}


def signed(column: NDArray[Any]) -> NDArray[Any]:
    """A contiguous copy or view in a dtype that torch knows well: unsigned 16 and 32 bits become int64."""
    wide = column.dtype in (np.uint16, np.uint32)
    return np.ascontiguousarray(column, np.int64 if wide else column.dtype)


def empty_tensors(device: torch.device | str = "cpu") -> Tensors:
    """One atom of no complex: what a process without a share computes, to take part in collectives."""
    atom = {name: torch.zeros(1, 1, dtype=torch.uint8) for name in ATOM_COLUMNS}
    masks = {name: torch.zeros(1, 1, dtype=torch.bool) for name in ("atom_mask", "ligand_mask", "pool_mask")}
    bonds = {"bond_atoms": torch.zeros(1, 0, 2), "bond_order": torch.zeros(1, 0)}
    bonds["bond_mask"] = torch.zeros(1, 0, dtype=torch.bool)
    labels = {"pk": torch.full((1,), torch.nan), "index": torch.full((1,), -1)}
    labels |= {name: torch.zeros(1, dtype=torch.uint8) for name in ("pk_relation", "pk_kind")}
    empty = {"position": torch.zeros(1, 1, 3)} | atom | masks | bonds | labels
    return {name: value.to(device) for name, value in empty.items()}


def add_noise(batch: Tensors, sd: float, seed: int, epoch: int) -> None:
    """Shift every atom by a normal step of `sd` angstrom on each axis, in place."""
    if sd == 0:
        return
    for row, index in enumerate(batch["index"].tolist()):
        generator = np.random.default_rng([seed, epoch, index + 1])
        step = generator.standard_normal(tuple(batch["position"].shape[1:]), np.float32) * np.float32(sd)
        batch["position"][row] += torch.from_numpy(step).to(batch["position"].device)


def pieces(batch: Tensors, n: int) -> Iterator[Tensors]:
    """Cut a batch into at most `n` pieces of whole complexes."""
    size = len(batch["index"])
    edges = np.linspace(0, size, min(n, size) + 1).round().astype(int)
    for start, stop in itertools.pairwise(edges.tolist()):
        yield {name: value[start:stop] for name, value in batch.items()}
