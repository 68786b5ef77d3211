"""An epoch of batches for one rank: where it is, how it resumes. The reading is in :mod:`.ahead`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..errors import UsageError
from ..format.container import Span
from .ahead import Blocks, ReadAhead
from .batch import DEFAULT_FIELDS, Batch
from .memory import Memory
from .options import StreamOptions
from .order import Order, Rows, Shuffle, draw

__all__ = ["Stream", "StreamOptions"]

PLAIN = StreamOptions()
VERSION: Final = 2  # of the order of an epoch


class Stream:
    """An epoch's batches, for one rank.

    ``len(stream)`` is the number of global steps of an epoch, the same on every rank. Iterating begins at
    :attr:`step`; when an epoch has ended, :attr:`epoch` is one more and :attr:`step` is 0, so that
    iterating again gives the next epoch. :meth:`state_dict` says where the consumer is (not how far has
    been read ahead) and does not depend on the world size: a run may resume with another.

    With ``drop_last`` the complexes that do not fill a last batch are left out: others each epoch.
    Without it the last batch is smaller, and a rank's part of it may be empty.
    """

    def __init__(
        self,
        blocks: Blocks,
        rows: Rows,
        lengths: NDArray[np.integer[Any]],
        *,
        batch_size: int,
        seed: int = 0,
        epoch: int = 0,
        rank: int = 0,
        world_size: int = 1,
        shuffle: Shuffle | bool = True,
        drop_last: bool = True,
        skip: int = 0,
        weights: NDArray[np.floating[Any]] | None = None,
        window: int | None = None,
        lanes: int | None = None,
        fingerprint: str = "",
        options: StreamOptions = PLAIN,
        index: Rows | None = None,
    ) -> None:
        if not 0 <= rank < world_size:
            raise UsageError(f"rank must lie in 0 .. world_size - 1; found rank {rank} of {world_size}")
        if batch_size < world_size:
            raise UsageError(
                f"batch_size counts complexes over all ranks; found {batch_size} for {world_size} ranks; "
                "give at least one a rank"
            )
        if skip < 0:
            raise UsageError(f"skip counts global steps, so it is not negative; found {skip}")
        if weights is not None and len(weights) != len(rows):
            raise UsageError(f"weights are one a row; found {len(weights)} for {len(rows)} rows")
        ascending = np.argsort(rows, kind="stable")
        self.blocks, self.rows, self.lengths = blocks, rows[ascending], lengths
        self.weights = None if weights is None else np.asarray(weights)[ascending]
        self.batch_size, self.seed, self.rank, self.world_size = batch_size, seed, rank, world_size
        self.drop_last, self.window, self.lanes, self.options = drop_last, window, lanes, options
        self.shuffle: Shuffle = ("global" if shuffle else "none") if isinstance(shuffle, bool) else shuffle
        self.fingerprint, self.index = fingerprint, index
        self.epoch, self.step = epoch, skip
        self.keys = tuple(DEFAULT_FIELDS if options.fields is None else options.fields)
        self._order: Order | None = None
        self.memory = Memory()  # of epoch after epoch

    def __len__(self) -> int:
        """Global steps of an epoch."""
        full, rest = divmod(len(self.rows), self.batch_size)
        return full + (rest > 0 and not self.drop_last)

    def dataset_rows(self, rows: Rows) -> Rows:
        """Rows of the data set for rows of ``blocks``, which differ where blocks are a selection."""
        return rows if self.index is None else self.index[rows]

    @property
    def order(self) -> Order:
        """The order of the current epoch."""
        if self._order is None or self._order.epoch != self.epoch:
            rows = self.rows
            if self.weights is not None:
                rows = draw(rows, self.weights, seed=self.seed, epoch=self.epoch)
            of_block = np.searchsorted(self.blocks.first_complex, rows, side="right") - 1
            self._order = Order(
                rows, of_block, self.lengths[rows], batch_size=self.batch_size, seed=self.seed,
                epoch=self.epoch, shuffle=self.shuffle, window=self.window, lanes=self.lanes,
            )  # fmt: skip
        return self._order

    def set_epoch(self, epoch: int) -> None:
        """Go to the beginning of an epoch."""
        self.epoch, self.step = epoch, 0

    def state_dict(self) -> dict[str, Any]:
        """Return where the consumer is: a few numbers, the same on every rank."""
        return {"version": VERSION, "step": self.step, "epoch": self.epoch, **self._identity()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go where ``state`` says; UsageError if it is of a stream with another order."""
        if state.get("version") != VERSION:
            raise UsageError(
                f"this state has version {state.get('version')!r}, here it is {VERSION}: the order of an "
                "epoch has changed since; go on at the beginning of an epoch with set_epoch"
            )
        for name, mine in self._identity().items():
            if state.get(name) != mine:
                raise UsageError(
                    f"this state is of another stream: its {name} is {state.get(name)!r}, here it is "
                    f"{mine!r}; resume with the same data set, seed, batch size and shuffle"
                )
        self.epoch, self.step = int(state["epoch"]), int(state["step"])

    def _identity(self) -> dict[str, Any]:
        return {
            "batch_size": self.batch_size, "seed": self.seed, "shuffle": self.shuffle,
            "drop_last": self.drop_last, "window": self.window, "lanes": self.lanes,
            "n_complexes": len(self.rows), "fingerprint": self.fingerprint,
        }  # fmt: skip

    def every(self, n: int, offset: int = 0) -> Iterator[Batch]:
        """Yield the batches at step + offset, step + offset + n, ... of this epoch; the stream stays put."""
        if self.step < len(self):
            reader = ReadAhead(self, len(self), n, self.step + offset)
            try:
                yield from reader.batches(self.step)
            finally:
                reader.close()

    def needs(self) -> Iterator[tuple[str, Sequence[Span]]]:
        """Yield the blocks that iterating will read, in that order: what a cache wants to know.

        Each is the name under which ``keep`` is asked for it, and the byte ranges it is decoded from.
        """
        if self.step < len(self):
            yield from ReadAhead(self, len(self)).needs(self.step)

    def ranges(self) -> Iterator[Span]:
        """Yield the byte ranges alone."""
        for _, spans in self.needs():
            yield from spans

    def __iter__(self) -> Iterator[Batch]:
        epoch, total = self.epoch, len(self)
        if self.step < total:
            reader = ReadAhead(self, total)
            try:
                for batch in reader.batches(self.step):
                    self.step = batch.step + 1
                    yield batch
            finally:
                reader.close()
        if self.epoch == epoch and self.step >= total:
            self.set_epoch(epoch + 1)
