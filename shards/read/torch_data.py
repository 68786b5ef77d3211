"""A stream as a torch IterableDataset, for those whose code is built around a DataLoader.

A :class:`~holoshard.shards.read.stream.Stream` needs no DataLoader: its threads read ahead, and no batch is
copied between processes. With this adapter a DataLoader gives the same batches in the same order, for any
number of workers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ..errors import MissingExtraError
from .stream import Stream

if TYPE_CHECKING:
    import torch
    from torch.utils.data import IterableDataset


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
