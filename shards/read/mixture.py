"""Several data sets as one stream, each with its share of the complexes."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import UsageError
from ..format.block import Block
from ..format.chunks import EMPTY
from ..format.container import Span
from .blocks import BlockReader
from .dataset import Dataset
from .order import Rows
from .pool import Room
from .stream import Stream, StreamOptions


class Mixture:
    """Data sets whose complexes come in the same batches.

    Parameters
    ----------
    datasets : to mix; they may have different columns, as long as a batch asks for none that one lacks
    shares : of an epoch's complexes, one a data set, in any unit; None for all alike, by size. An epoch
        has as many complexes as all data sets together: where a share asks for more than a data set has,
        its complexes come several times, each as often as the others to within one.

    Notes
    -----
    ``batch.index`` counts through the data sets one after the other; :meth:`locate` undoes that.
    """

    def __init__(self, datasets: Sequence[Dataset], shares: Sequence[float] | None = None) -> None:
        if not datasets:
            raise UsageError("a mixture needs at least one data set")
        if shares is not None and (len(shares) != len(datasets) or min(shares) < 0 or sum(shares) <= 0):
            raise UsageError(f"shares are one a data set, not negative, not all 0; found {list(shares)}")
        self.datasets, self.shares = list(datasets), shares
        self.first_row: Rows = np.cumsum([0, *map(len, datasets)])
        self.first_block: Rows = np.cumsum([0, *(d.reader.n_blocks for d in datasets)])
        firsts = [d.reader.first_complex + r for d, r in zip(datasets, self.first_row[:-1], strict=True)]
        self.first_complex: Rows = np.concatenate(firsts)

    def __len__(self) -> int:
        return int(self.first_row[-1])

    def locate(self, rows: Rows) -> tuple[Rows, Rows]:
        """Data set (its place in the list) and row there, of rows of the mixture."""
        which = np.searchsorted(self.first_row, rows, side="right") - 1
        return which, rows - self.first_row[which]

    def read(
        self,
        block: int,
        keys: Sequence[str] | None = None,
        raw: bool = False,
        fetch: Any = None,
        out: Mapping[str, NDArray[Any]] = EMPTY,
    ) -> Block:
        """Decode a block, counted through the data sets."""
        reader, own = self._reader(block)
        return reader.read(own, keys, raw, fetch, out)

    def room(self, block: int, keys: Sequence[str]) -> Room:
        """What a block unpacks to."""
        reader, own = self._reader(block)
        return reader.room(own, keys)

    def spans(self, block: int, keys: Sequence[str] | None = None) -> list[Span]:
        """The ranges of bytes that :meth:`read` asks for."""
        reader, own = self._reader(block)
        return reader.spans(own, keys)

    def _reader(self, block: int) -> tuple[BlockReader, int]:
        """The reader that has a block, and the block's number there."""
        which = int(np.searchsorted(self.first_block, block, side="right")) - 1
        return self.datasets[which].reader, block - int(self.first_block[which])

    def stream(self, split: str | None = None, batch_size: int = 64, **options: Any) -> Stream:
        """Stream a split of all data sets; options as of :meth:`Dataset.stream`, but for weights."""
        names = {f.name for f in fields(StreamOptions)}
        how = StreamOptions(**{k: options.pop(k) for k in list(options) if k in names})
        parts = [d.indices(split) for d in self.datasets]
        weights: NDArray[np.float64] | None = None
        if self.shares is not None:
            each = [share / max(len(p), 1) for share, p in zip(self.shares, parts, strict=True)]
            weights = np.repeat(np.array(each, np.float64), [len(p) for p in parts])
        told = repr(([d.manifest.fingerprint for d in self.datasets], self.shares and list(self.shares)))
        return Stream(
            self,
            np.concatenate([p + r for p, r in zip(parts, self.first_row[:-1], strict=True)]),
            np.concatenate([d.column("n_atoms") for d in self.datasets]),
            batch_size=batch_size,
            weights=weights,
            fingerprint=hashlib.sha256(told.encode()).hexdigest(),
            options=how,
            **options,
        )
