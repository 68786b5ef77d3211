"""The complexes of some parts in another order, in bounded memory.

The output is cut into stretches that fit into memory. A few stretches are gathered each with a pass over the
parts. Many would be as many passes: then one pass deals all complexes to a temporary file a stretch, and
each file is read back once, so that the work grows with the data and not with its square.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ..console import Progress
from ..format.block import Block, concatenate
from ..format.codec import Codec, Codecs
from ..format.layout import BLOCK_SIZE
from ..read.blocks import BlockReader
from .ordered import in_order, one_ahead
from .spool import ShardSpool
from .survey import Survey

Rows = NDArray[np.int64]

PASSES: Final = 4  # over the parts, at most
MAX_FILES: Final = 512  # temporary files at a time; beyond, stretches grow
QUICK: Final = Codecs(*[Codec("blosc", "lz4", 1)] * 3)


@dataclass(frozen=True, slots=True)
class PartSource:
    """Complexes of the parts, by their numbers in the survey.

    Attributes
    ----------
    stretch_bytes : unpacked complexes gathered at once
    folder : where temporary files may lie
    threads : that read parts
    """

    readers: Sequence[BlockReader]
    found: Survey
    stretch_bytes: int
    folder: Path
    threads: int = 1

    def blocks(self, chosen: Rows, bar: Progress) -> Iterator[Block]:
        """Yield the chosen complexes in their order, as raw blocks."""
        average = max(self.found.nbytes // len(self.found), 1)
        length = max(self.stretch_bytes // average, -(-len(chosen) // MAX_FILES), 1)
        stretches = [chosen[begin : begin + length] for begin in range(0, len(chosen), length)]
        with ThreadPoolExecutor(self.threads, "holoshard-read") as pool:
            gather = self._in_passes if len(stretches) <= PASSES else self._in_files
            whole_ones = gather(stretches, pool)
            for whole in one_ahead(whole_ones) if self.threads > 1 else whole_ones:
                for start in range(0, whole.n_complexes, BLOCK_SIZE):
                    stop = min(start + BLOCK_SIZE, whole.n_complexes)
                    yield whole.slice(start, stop)
                    bar.advance(stop - start)

    def _in_passes(self, stretches: Sequence[Rows], pool: ThreadPoolExecutor) -> Iterator[Block]:
        for some in stretches:
            pieces = [block.take(rows) for block, rows, _ in self._read(some, pool)]
            yield concatenate(pieces).take(_back(self._sorted(some)))

    def _in_files(self, stretches: Sequence[Rows], pool: ThreadPoolExecutor) -> Iterator[Block]:
        size = max(1, min(BLOCK_SIZE, len(stretches[0]) // len(stretches)))
        with ExitStack() as stack:
            piles = [
                stack.enter_context(closing(_Pile(ShardSpool(self.folder, size, QUICK, in_memory=0), size)))
                for _ in stretches
            ]
            stretch = np.repeat(np.arange(len(stretches)), [len(s) for s in stretches])
            for block, rows, place in self._read(np.concatenate(stretches), pool):
                of = stretch[place]
                for k in np.unique(of).tolist():
                    piles[k].add(block.take(rows[of == k]))
            for some, pile in zip(stretches, piles, strict=True):
                yield pile.whole().take(_back(self._sorted(some)))
                pile.close()

    def _sorted(self, chosen: Rows) -> Rows:
        """Order of the chosen in which one pass over the parts meets them."""
        part, row = np.array(self.found.part)[chosen], np.array(self.found.row)[chosen]
        return np.lexsort((row, part)).astype(np.int64)

    def _read(self, chosen: Rows, pool: ThreadPoolExecutor) -> Iterator[tuple[Block, Rows, Rows]]:
        """Yield each block of the parts that holds some of the chosen, its rows, their places in chosen."""
        order = self._sorted(chosen)
        part, row = np.array(self.found.part)[chosen[order]], np.array(self.found.row)[chosen[order]]
        first = [r.first_complex for r in self.readers]
        block = np.empty(len(order), np.int64)
        for p in np.unique(part).tolist():
            here = part == p
            block[here] = np.searchsorted(first[p], row[here], side="right") - 1
        starts = np.flatnonzero(np.r_[True, (np.diff(part) != 0) | (np.diff(block) != 0)])
        jobs = list(zip(part[starts].tolist(), block[starts].tolist(), strict=True))

        def read(job: tuple[int, int]) -> Block:
            return self.readers[job[0]].read(job[1], raw=True)

        stops = [*starts[1:].tolist(), len(order)]
        blocks = in_order(pool, read, jobs, self.threads)
        for (p, b), start, stop, found in zip(jobs, starts.tolist(), stops, blocks, strict=True):
            yield found, row[start:stop] - first[p][b], order[start:stop]


class _Pile:
    """Complexes of one stretch as they come, in a temporary file."""

    def __init__(self, spool: ShardSpool, size: int) -> None:
        self.spool, self.size = spool, size
        self._held: list[Block] = []
        self._n = 0

    def add(self, block: Block) -> None:
        """Take some complexes."""
        self._held.append(block)
        self._n += block.n_complexes
        if self._n >= self.size:
            joined = concatenate(self._held)
            whole = self._n - self._n % self.size
            for start in range(0, whole, self.size):
                self.spool.append(joined.slice(start, start + self.size))
            self._n -= whole
            self._held = [joined.slice(whole, whole + self._n).take(np.arange(self._n))] if self._n else []

    def whole(self) -> Block:
        """All of them, in the order in which they came."""
        return concatenate([*self.spool.unpacked(), *self._held])

    def close(self) -> None:
        """Drop the file."""
        self.spool.close()
        self._held = []


def _back(order: Rows) -> Rows:
    """The permutation that undoes ``order``."""
    back = np.empty(len(order), np.int64)
    back[order] = np.arange(len(order))
    return back
