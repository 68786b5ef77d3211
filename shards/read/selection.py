"""Some complexes of many blocks, put together to blocks of their own.

A selection that takes few complexes of each block would make a window hold nearly the whole data set. Here
a block is read, its few complexes are taken, and the rest goes: a window holds what it serves, no more.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from ..complex import RAGGED_AXES, Axis
from ..format.block import Block, concatenate
from ..format.chunks import EMPTY
from ..format.container import Span
from .order import Rows
from .pool import Room

if TYPE_CHECKING:
    from .ahead import Blocks

SPARSE: Final = 0.5  # share of the blocks' complexes, below which they are put together anew


class Selection:
    """The complexes ``rows`` of ``blocks``, in blocks of ``block_size``.

    Parameters
    ----------
    rows : shape (n,), ascending, each once: rows of the data set; here they are numbered 0 .. n
    counts : ragged axis -> rows of each of them, where that is known without reading
    """

    def __init__(
        self, blocks: Blocks, rows: Rows, block_size: int, counts: Mapping[Axis, NDArray[np.integer[Any]]]
    ) -> None:
        self.blocks, self.rows, self.block_size, self.counts = blocks, rows, block_size, counts
        self.first_complex: Rows = np.arange(0, max(len(rows), 1), block_size)
        self._block = np.searchsorted(blocks.first_complex, rows, side="right") - 1

    def read(
        self,
        block: int,
        keys: Sequence[str] | None = None,
        raw: bool = False,
        fetch: Any = None,
        out: Mapping[str, NDArray[Any]] = EMPTY,
    ) -> Block:
        """Read the blocks that these complexes lie in, one after the other; ``out`` is not used."""
        return concatenate([
            self.blocks.read(source, keys, raw, fetch).take(rows) for source, rows in self._parts(block)
        ])  # fmt: skip

    def expect(self, block: int, keys: Sequence[str]) -> None:
        """Say that the blocks that these complexes lie in will be read soon."""
        for source, _ in self._parts(block):
            self.blocks.expect(source, keys)

    def room(self, keys: Sequence[str]) -> Room:
        """What the largest of these blocks takes."""
        whole = self.blocks.room(keys)
        rows: dict[Axis, int] = {"complex": min(self.block_size, max(len(self.rows), 1))}
        sources = np.split(self._block, self.first_complex[1:])
        for axis in RAGGED_AXES:
            known = self.counts.get(axis)
            if known is not None and len(known):
                rows[axis] = int(np.add.reduceat(known, self.first_complex, dtype=np.int64).max())
            else:
                rows[axis] = whole.rows[axis] * max(len(np.unique(s)) for s in sources)
        return Room(rows, whole.fields)

    def spans(self, block: int, keys: Sequence[str] | None = None) -> list[Span]:
        """The byte ranges of the blocks that they lie in."""
        return [span for source, _ in self._parts(block) for span in self.blocks.spans(source, keys)]

    def _parts(self, block: int) -> Iterator[tuple[int, Rows]]:
        """Blocks of the data set, and rows within each."""
        part = slice(block * self.block_size, (block + 1) * self.block_size)
        sources = self._block[part]
        for source in np.unique(sources).tolist():
            yield source, self.rows[part][sources == source] - self.blocks.first_complex[source]


def is_sparse(rows: Rows, first_complex: Rows, block_complexes: NDArray[np.int64]) -> bool:
    """True if ascending, distinct rows are few of the complexes in the blocks that they touch."""
    touched = np.unique(np.searchsorted(first_complex, rows, side="right") - 1)
    return len(rows) < SPARSE * int(block_complexes[touched].sum())
