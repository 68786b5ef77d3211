"""A data set to use: complexes by number, columns of the index, streams of batches."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, overload

import numpy as np
from numpy.typing import NDArray

from ..complex import Complex
from ..errors import UsageError
from ..format.block import Block
from ..format.manifest import Manifest
from ..format.records import complex_at, texts_of
from .blocks import BlockReader
from .fetch import Fetch
from .recent import BlockCache
from .remote import fetch_for, is_remote, open_remote
from .source import open_source

if TYPE_CHECKING:
    from .stream import Stream

CACHE_BYTES: Final = 256 << 20  # of decoded blocks, for ds[i]
SIZE_COLUMNS: Final[Mapping[str, str]] = {"n_atoms": "atom", "n_bonds": "bond", "n_residues": "residue"}
PLACE_COLUMNS: Final = ("split", "shard", "block", "row")


def open_dataset(path: str | Path, fetch: Fetch | None = None, verify: bool = True) -> Dataset:
    """Open a data set folder, or one part or shard file.

    Reads the manifest only; columns of the index and blocks are read when they are asked for.
    ``verify`` checks the checksum of everything that is read. ``path`` may be the address of a data set
    folder on a server or object store (``https://``, ``s3://``, ...): its manifest and index are copied,
    its blocks read by range.

    Raises UsageError if there is nothing at ``path``, FormatError if it is not a data set.
    """
    if is_remote(path):
        fetch = fetch or fetch_for(str(path))
        return Dataset(BlockReader(open_remote(str(path), fetch), fetch, verify))
    return Dataset(BlockReader(open_source(Path(path)), fetch, verify))


class Dataset(Sequence[Complex]):
    """Complexes in the order of the shards. Picklable; safe in threads and after a fork."""

    def __init__(self, reader: BlockReader, cache_bytes: int = CACHE_BYTES) -> None:
        self.reader = reader
        self._cache = BlockCache(reader, cache_bytes)
        self._columns: dict[str, NDArray[Any]] = {}

    @property
    def manifest(self) -> Manifest:
        """What the data set says of itself."""
        return self.reader.source.manifest

    @property
    def splits(self) -> dict[str, int]:
        """Split -> number of complexes."""
        return dict(self.manifest.splits)

    def __len__(self) -> int:
        return self.reader.n_complexes

    @overload
    def __getitem__(self, index: int) -> Complex: ...
    @overload
    def __getitem__(self, index: slice | Sequence[int] | NDArray[np.integer[Any]]) -> list[Complex]: ...
    def __getitem__(
        self, index: int | slice | Sequence[int] | NDArray[np.integer[Any]]
    ) -> Complex | list[Complex]:
        """The complex at a row, or a list of them for a slice or several rows, in their order.

        A complex is unpacked with its block. Of several rows each block is unpacked once, so asking for many
        at random is far quicker at once than one by one.
        """
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if isinstance(index, list | tuple | np.ndarray) and np.ndim(index) == 1:
            rows = [self._row(i) for i in index]
            found = {row: complex_at(*self.block_of(row)) for row in sorted(set(rows))}
            return [found[row] for row in rows]
        return complex_at(*self.block_of(self._row(index)))

    def _row(self, index: Any) -> int:
        """A row from the beginning; IndexError if there is none."""
        try:
            row = operator.index(index)
        except TypeError:
            raise TypeError(
                f"a data set is indexed by rows or a slice, not {index!r}; dataset.select([id]) gives the "
                "rows of ids, dataset.ids() all ids, dataset.column(name) a column"
            ) from None
        if row < 0:
            row += len(self)
        if not 0 <= row < len(self):
            raise IndexError(f"row {index} of a data set of {len(self)} complexes")
        return row

    def block_of(self, row: int) -> tuple[Block, int]:
        """The decoded block of a row, raw, kept for a while, and the complex's place in it."""
        block, at = self.reader.locate(row)
        return self._cache.get(block), at

    def __iter__(self) -> Iterator[Complex]:
        for number in range(self.reader.n_blocks):
            block = self.reader.read(number, raw=True)
            for row in range(block.n_complexes):
                yield complex_at(block, row)

    def ids(self) -> list[str]:
        """The id of each complex."""
        if self.reader.source.has_index:
            return [b.decode() for b in self.column("id").tolist()]
        blocks = (self.reader.read(b, ["text_json"]) for b in range(self.reader.n_blocks))
        return [t["id"] for block in blocks for t in texts_of(block)]

    def column(self, name: str) -> NDArray[Any]:
        """One value a complex, shape (n_complexes, ...).

        ``name`` is a field of the complex axis, ``n_atoms``, ``n_bonds``, ``n_residues``, ``id`` (bytes),
        ``split`` (a name), ``shard``, ``block`` or ``row``. A data set's index answers without a shard
        being read, except for fields of several numbers a complex, such as ``centre``. Do not write into
        the result.
        """
        if name not in self._columns:
            self._columns[name] = self._read_column(name)
        return self._columns[name]

    def indices(self, split: str | None = None) -> NDArray[np.int64]:
        """Rows of a split, ascending; all rows for None."""
        if split is None:
            return np.arange(len(self))
        if split not in self.splits:
            raise UsageError(f"no split {split!r} in this data set; it has: {', '.join(self.splits)}")
        ends = np.cumsum([s.n_complexes for s in self.manifest.shards])
        return np.concatenate([
            np.arange(end - s.n_complexes, end)
            for s, end in zip(self.manifest.shards, ends, strict=True) if s.split == split
        ])  # fmt: skip

    def select(self, which: Any) -> NDArray[np.int64]:
        """Rows of some complexes, for ``stream(rows=...)``, without reading a shard.

        ``which`` is a sequence of ids, whose order is kept; a polars expression over the columns of
        :meth:`to_pandas`, such as ``(pl.col("pk_relation") == "=") & (pl.col("n_atoms") < 500)``; a function
        of these columns as numpy arrays, such as ``lambda c: c["n_atoms"] < 500``; or a mask.
        Raises UsageError for an id or a column that is not here.
        """
        from .frame import rows_where

        return rows_where(self, which)

    def to_pandas(self) -> Any:
        """The index as a pandas DataFrame: id, split, sizes, labels; a row a complex."""
        from .frame import to_pandas

        return to_pandas(self)

    def to_polars(self) -> Any:
        """The index as a polars DataFrame."""
        from .frame import to_polars

        return to_polars(self)

    def stream(
        self,
        split: str | None = None,
        batch_size: int = 64,
        *,
        rows: NDArray[np.int64] | None = None,
        weights: str | NDArray[np.floating[Any]] | None = None,
        memory: int | None = None,
        **options: Any,
    ) -> Stream:
        """Batches of a split (None: of all complexes), or of some ``rows`` of it, for one epoch.

        A last batch of fewer complexes is left out unless ``drop_last=False``.

        ``weights`` draws complexes in proportion to a column of that name, or to an array, one number a row;
        an epoch has as many complexes as there are rows, and which they are depends on seed and epoch alone.
        ``memory`` bounds the bytes that the stream holds: the shuffle window is as long as they allow, on
        every rank and for any number of ranks, so it is part of what the order depends on.

        ``options`` are those of :class:`~holoshard.shards.read.stream.Stream` (seed, epoch, rank,
        world_size, shuffle, drop_last, skip, ...) and of its ``StreamOptions`` (fields, max_atoms,
        layout, threads, fetch, ...). UsageError for a field or a column of weights that is not here.
        """
        from .making import make_stream

        chosen = self.indices(split) if rows is None else np.asarray(rows, np.int64)
        if isinstance(weights, str):
            weights = self.weights(weights)[chosen]
        stream = make_stream(self, chosen, batch_size, memory, {"weights": weights, **options})
        if len(chosen) and not len(stream):
            raise UsageError(
                f"{len(chosen)} complexes make no batch of {batch_size}: ask for batch_size={len(chosen)} or "
                "less, or for the last, smaller batch with drop_last=False"
            )
        return stream

    def weights(self, name: str) -> NDArray[np.float64]:
        """A column to draw by, one number a complex; UsageError if it is not here, or not such a column."""
        try:
            column = self.column(name)
        except UsageError as error:
            raise UsageError(
                f"weights: {error}. A column of the label table becomes one with "
                f"holoshard shard --number {name}"
            ) from error
        if column.dtype.kind not in "biuf" or column.ndim != 1:
            raise UsageError(
                f"weights: column {name!r} is not one number a complex; holoshard shard --number NAME makes "
                "such a column of one of the label table"
            )
        return column.astype(np.float64)

    def _read_column(self, name: str) -> NDArray[Any]:
        field = self.manifest.fields.get(name)
        if name in PLACE_COLUMNS:
            return self._place_column(name)
        if name not in SIZE_COLUMNS and name != "id" and (field is None or field.axis != "complex"):
            known = [k for k, f in self.manifest.fields.items() if f.axis == "complex"]
            names = ", ".join([*SIZE_COLUMNS, "id", *PLACE_COLUMNS, *known])
            raise UsageError(f"no column {name!r}; there are: {names}")
        if self.reader.source.has_index and not (field and field.shape):
            return self.reader.source.index(name)
        if name == "id":
            return np.array([i.encode() for i in self.ids()])
        key = [] if field is None else [name]
        blocks = [self.reader.read(b, key) for b in range(self.reader.n_blocks)]
        if field is None:
            axis = SIZE_COLUMNS[name]
            return np.concatenate([np.zeros(0, np.int64), *(b.counts[axis] for b in blocks)])  # type: ignore[index]
        empty = np.zeros((0, *field.shape), field.value_dtype)
        return np.concatenate([empty, *(b.columns[name] for b in blocks)])

    def _place_column(self, name: str) -> NDArray[Any]:
        reader, n = self.reader, self.reader.block_complexes
        if name == "split":
            shards = self.manifest.shards
            return np.repeat(np.array([s.split for s in shards], np.str_), [s.n_complexes for s in shards])
        if name == "row":
            return np.arange(len(self)) - np.repeat(reader.first_complex, n)
        return np.repeat(reader.shard if name == "shard" else np.arange(reader.n_blocks), n)

    def __repr__(self) -> str:
        splits = ", ".join(f"{name} {n}" for name, n in self.splits.items())
        return f"<Dataset {self.reader.source.root}: {len(self)} complexes ({splits})>"
