"""Several data sets as one stream, each with its share of the complexes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any, ParamSpec, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..errors import UsageError
from ..format.block import Block
from ..format.chunks import EMPTY
from ..format.container import Span
from .ahead import stored_fields
from .batch import DEFAULT_FIELDS
from .blocks import BlockReader
from .dataset import Dataset
from .making import check_fields, window
from .order import Rows
from .pool import Room
from .stream import Stream, StreamOptions

P = ParamSpec("P")
T = TypeVar("T")


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

    def expect(self, block: int, keys: Sequence[str]) -> None:
        """Say that a block will be read soon."""
        reader, own = self._reader(block)
        reader.expect(own, keys)

    def room(self, keys: Sequence[str]) -> Room:
        """What the largest block of them all unpacks to."""
        return Room.widest([d.reader.room(keys) for d in self.datasets])

    def spans(self, block: int, keys: Sequence[str] | None = None) -> list[Span]:
        """The ranges of bytes that :meth:`read` asks for."""
        reader, own = self._reader(block)
        return reader.spans(own, keys)

    def _reader(self, block: int) -> tuple[BlockReader, int]:
        """The reader that has a block, and the block's number there."""
        which = int(np.searchsorted(self.first_block, block, side="right")) - 1
        return self.datasets[which].reader, block - int(self.first_block[which])

    def stream(
        self,
        split: str | None = None,
        batch_size: int = 64,
        *,
        weights: str | None = None,
        memory: int | None = None,
        **options: Any,
    ) -> Stream:
        """Stream a split of all data sets; options as of :meth:`Dataset.stream`.

        ``weights`` names a column that all of them have: complexes are drawn in proportion to it, within a
        data set only if there are shares.

        Raises
        ------
        UsageError
            A data set lacks the split, a field or the column of weights, or has a field of another shape or
            unit than the others; or ``memory`` is too little.
        """
        names = {f.name for f in fields(StreamOptions)}
        how = StreamOptions(**{k: options.pop(k) for k in list(options) if k in names})
        self._check_fields(how)
        parts = [(d, self._ask(i, d.indices, split)) for i, d in enumerate(self.datasets)]
        if memory is not None:
            options["window"] = window(parts, batch_size, memory, how, options.get("window"))
        told = repr([
            [d.manifest.fingerprint for d in self.datasets], self.shares and list(self.shares), weights
        ])  # fmt: skip
        return Stream(
            self,
            np.concatenate([p + r for (_, p), r in zip(parts, self.first_row[:-1], strict=True)]),
            np.concatenate([d.column("n_atoms") for d in self.datasets]),
            batch_size=batch_size,
            weights=self._weights(parts, weights),
            fingerprint=hashlib.sha256(told.encode()).hexdigest(),
            options=how,
            **options,
        )

    def _check_fields(self, how: StreamOptions) -> None:
        """UsageError if a field is missing anywhere, or is not the same kind of thing everywhere."""
        for i, dataset in enumerate(self.datasets):
            self._ask(i, check_fields, dataset, how)
        first = self.datasets[0]
        for key in stored_fields(DEFAULT_FIELDS if how.fields is None else how.fields, how.max_atoms):
            here = first.manifest.fields[key]
            for i, dataset in enumerate(self.datasets[1:], 1):
                there = dataset.manifest.fields[key]
                kinds = [(f.axis, f.shape, f.unit, f.per_unit, f.value_dtype.kind) for f in (here, there)]
                if kinds[0] != kinds[1]:
                    raise UsageError(
                        f"{key!r} is not the same in all data sets: its axis, shape, unit, steps a unit and "
                        f"kind of number are {kinds[0]} in {self._name(0)} and {kinds[1]} in "
                        f"{self._name(i)}; leave it out of stream(fields=...), or write one of them anew"
                    )

    def _weights(
        self, parts: Sequence[tuple[Dataset, Rows]], column: str | None
    ) -> NDArray[np.float64] | None:
        """A weight a row, None if all are alike."""
        if column is None and self.shares is None:
            return None
        found = [
            np.ones(len(rows)) if column is None else self._ask(i, d.weights, column)[rows]
            for i, (d, rows) in enumerate(parts)
        ]
        if self.shares is not None:
            found = [w * (s / (w.sum() or 1.0)) for w, s in zip(found, self.shares, strict=True)]
        return np.concatenate(found)

    def _name(self, i: int) -> str:
        return f"data set {i} of the mixture ({self.datasets[i].reader.source.root})"

    def _ask(self, i: int, ask: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Ask a data set, and let the error say which it was."""
        try:
            return ask(*args, **kwargs)
        except UsageError as error:
            raise UsageError(f"{self._name(i)}: {error}") from error
