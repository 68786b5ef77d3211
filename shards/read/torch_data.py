"""Data sets and streams as torch and PyTorch Geometric know them, for code built around a DataLoader.

A :class:`~holoshard.shards.read.stream.Stream` needs no DataLoader: its threads read ahead, and no batch is
copied between processes. With this adapter a DataLoader gives the same batches in the same order, for any
number of workers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..complex import Complex
from ..errors import MissingExtraError, UsageError
from .batch import Batch
from .dataset import Dataset
from .stream import Stream

if TYPE_CHECKING:
    import torch
    from torch.utils.data import Dataset as TorchDataset
    from torch.utils.data import IterableDataset


Transform = Callable[[Complex], Any] | None


def iterable(stream: Stream) -> IterableDataset[dict[str, torch.Tensor]]:
    """Return a stream as an IterableDataset of dictionaries of tensors.

    Give it to ``DataLoader(iterable(stream), batch_size=None, num_workers=W)``. Worker w serves the steps
    w, w + W, ...; each worker reads all blocks that its steps touch. Where the consumer is, only the
    consumer knows: to resume, count its steps and give ``skip``. An epoch is ``stream.set_epoch(e)``
    before the loader is iterated.
    """
    try:
        from torch.utils.data import IterableDataset, get_worker_info
    except ModuleNotFoundError as error:
        raise MissingExtraError("torch", "train") from error

    class TorchStream(IterableDataset[dict[str, Any]]):
        def __iter__(self) -> Iterator[dict[str, Any]]:
            info = get_worker_info()
            every, offset = (1, 0) if info is None else (info.num_workers, info.id)
            for batch in stream.every(every, offset):
                yield batch.torch()

        def __len__(self) -> int:
            return len(stream) - stream.step

        def __reduce__(self) -> Any:  # a class made in a function: pickled by making it again
            return iterable, (stream,)

    return TorchStream()


def mapped(
    dataset: Dataset, rows: Sequence[int] | None = None, transform: Transform = None
) -> TorchDataset[Any]:
    """Return complexes by number as a map-style torch Dataset, for samplers of your own.

    Item i is ``transform(dataset[rows[i]])``, the :class:`~holoshard.shards.complex.Complex` itself if
    there is no transform: :func:`geometric` makes one a PyTorch Geometric ``Data``. Random access unpacks a
    block a complex unless neighbours are asked for together; a stream is many times faster.
    """
    try:
        from torch.utils.data import Dataset as TorchDataset
    except ModuleNotFoundError as error:
        raise MissingExtraError("torch", "train") from error

    chosen = range(len(dataset)) if rows is None else np.asarray(rows)

    class Complexes(TorchDataset[Any]):
        def __len__(self) -> int:
            return len(chosen)

        def __getitem__(self, i: int) -> Any:
            if not -len(chosen) <= i < len(chosen):
                raise IndexError(f"item {i} of {len(chosen)}")  # what ends a for loop
            found = dataset[int(chosen[i])]
            return found if transform is None else transform(found)

        def __reduce__(self) -> Any:
            return mapped, (dataset, rows, transform)

    return Complexes()


def geometric(c: Complex) -> Any:
    """Return a complex as a ``torch_geometric.data.Data``.

    ``pos`` (n, 3) float32, angstrom; ``z`` (n,) int64, atomic numbers; ``charge`` (n,) int64;
    ``residue_type`` (n,) int64, of each atom's residue; ``ligand_mask`` (n,) bool; ``edge_index`` (2, 2m)
    int64, each bond in both directions; ``edge_attr`` (2m,) int64, indices into BOND_ORDERS; ``y`` (1,)
    float32, pK, NaN without one; ``relation`` and ``id``, text.
    """
    data = _data()
    both = np.concatenate([c.bond_atoms, c.bond_atoms[:, ::-1]]).astype(np.int64)
    return data(
        pos=_tensor(c.position), z=_tensor(c.element, np.int64), charge=_tensor(c.charge, np.int64),
        residue_type=_tensor(c.residue_type[c.residue], np.int64), ligand_mask=_tensor(c.is_ligand),
        edge_index=_tensor(both.T), edge_attr=_tensor(np.tile(c.bond_order, 2), np.int64),
        y=_tensor(np.array([c.affinity.pk], np.float32)), relation=c.affinity.relation, id=c.id,
    )  # fmt: skip


def geometric_batch(batch: Batch) -> Any:
    """Return a packed batch as one ``Data`` of all its complexes, as PyTorch Geometric's own collation does.

    ``pos``, ``z``, ``charge``, ``residue_type``, ``ligand_mask``, ``edge_index``, ``edge_attr``, ``y`` as
    :func:`geometric` says; ``batch`` (n,) int64, the complex of each atom; ``ptr`` (B + 1,) int64.
    """
    if not batch.is_packed:
        raise ValueError("geometric_batch needs a packed batch; found a padded one: stream(layout='packed')")
    bonds = np.concatenate([batch["bond_atoms"], batch["bond_atoms"][:, ::-1]]).astype(np.int64)
    return _data()(
        pos=_tensor(batch["position"]), z=_tensor(batch["element"], np.int64),
        charge=_tensor(batch["charge"], np.int64),
        residue_type=_tensor(batch["atom_residue_type"], np.int64),
        ligand_mask=_tensor(batch["ligand_mask"]), edge_index=_tensor(bonds.T),
        edge_attr=_tensor(np.tile(batch["bond_order"], 2), np.int64), y=_tensor(batch["pk"]),
        batch=_tensor(batch["atom_batch"], np.int64), ptr=_tensor(batch["atom_cu_seqlens"], np.int64),
    )  # fmt: skip


def _data() -> Any:
    try:
        from torch_geometric.data import Data
    except ModuleNotFoundError as error:
        raise UsageError("this needs PyTorch Geometric: pip install torch_geometric") from error
    return Data


def _tensor(array: NDArray[Any], dtype: Any = None) -> torch.Tensor:
    import torch

    return torch.from_numpy(np.ascontiguousarray(array, dtype))
