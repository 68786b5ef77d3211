"""Reading ahead: an epoch's windows to blocks to batches, in threads.

Work goes to a thread pool in the order in which it is needed: the blocks of the next window, a few with
each batch of this one, so that the reading is spread evenly, each into its place in the window's
:class:`~holoshard.shards.read.pool.Pool`; then the window's batches, a few ahead of the consumer. A task
only ever waits for tasks that were handed in before it, so one thread is enough, and nothing is read that
the order does not name.

Held at once are the pools of two windows and some batches, whatever the size of the data set.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, ParamSpec, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..errors import FormatError, HoloshardError
from ..format.block import Block
from ..format.chunks import EMPTY
from ..format.container import Span
from .batch import ATOM_RESIDUE_TYPE, Batch, rotations
from .crop import crop, residue_type_field, with_residue_type
from .gather import Gather
from .kept import arrays_of, block_of, name_of
from .order import Rows, share
from .pool import Pool, Room
from .promise import Promise, promise

if TYPE_CHECKING:
    from .stream import Stream

P = ParamSpec("P")
T = TypeVar("T")

ROOMY: Final = 1.25  # regions of a pool over the blocks of its first two windows
AHEAD: Final = 4  # batches ready before the consumer asks


class Blocks(Protocol):
    """Where a stream's blocks come from; :class:`holoshard.shards.read.blocks.BlockReader` is one."""

    first_complex: Rows
    """Data set row of each block's first complex, ascending, shape (n_blocks,)."""

    def read(
        self,
        block: int,
        keys: Sequence[str] | None = None,
        raw: bool = False,
        fetch: Any = None,
        out: Mapping[str, NDArray[Any]] = EMPTY,
    ) -> Block:
        """Decode the named fields of one block, into ``out`` where that fits."""

    def expect(self, block: int, keys: Sequence[str]) -> None:
        """Hear that :meth:`read` of that block will come."""

    def room(self, keys: Sequence[str]) -> Room:
        """What :meth:`read` unpacks the named fields of the largest block to, if they stay raw."""

    def spans(self, block: int, keys: Sequence[str] | None = None) -> Sequence[Span]:
        """The byte ranges that :meth:`read` fetches."""


@dataclass(slots=True, eq=False)
class _Window:
    """A window's share of this rank: the rows of each step, the blocks they lie in, and where these are."""

    numbers: list[int]  # of the steps
    steps: list[Rows]
    sizes: list[int]  # of the global batches
    needs: Rows
    of: Rows  # which of the needs each row lies in, step after step
    pool: Pool | None = None
    region: dict[int, int] = field(default_factory=dict)  # block -> its place in the pool
    slots: list[Rows] = field(default_factory=list)  # of each step's rows in the pool
    landed: dict[int, Promise[None]] = field(default_factory=dict)  # block -> when it is in the pool
    ready: Promise[Gather] | None = None


class ReadAhead:
    """One pass over the steps of an epoch."""

    def __init__(self, stream: Stream, total: int, every: int = 1, offset: int = 0) -> None:
        self.stream, self.order, self.total = stream, stream.order, total
        self.every, self.offset = every, offset
        self.options = stream.options
        self.stored = stored_fields(stream.keys, self.options.max_atoms)
        self.pooled = tuple(dict.fromkeys([*stream.keys, "n_ligand_atoms"]))
        threads = self.options.threads
        self.threads = ThreadPoolExecutor(threads, "holoshard-stream") if threads > 0 else None
        self.ahead = AHEAD if threads > 0 else 1
        self.pool: Pool | None = None

    def close(self) -> None:
        """Forget what has not begun, and wait for what has."""
        if self.threads is not None:
            self.threads.shutdown(wait=True, cancel_futures=True)

    def submit(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Promise[T]:
        """Do some work in a thread, or now if there are none."""
        return promise(self.threads, work, *args, **kwargs)

    def batches(self, step: int) -> Iterator[Batch]:
        """Yield this rank's batches from ``step`` on."""
        ready: deque[Promise[Batch]] = deque()
        plans = (self.plan(w, step) for w in range(self._window_of(step), self.order.n_windows))
        windows = (plan for plan in plans if plan is not None)
        before, window = None, next(windows, None)
        while window is not None:
            following = next(windows, None)
            if window.pool is None:
                self.place(window, before, spare=0 if following is None else len(following.needs))
            self.read(window, window.needs)
            window.ready = self.submit(self.prepare, window)
            n = len(window.steps)
            late = min(self.ahead, n - 1)  # by then the window before is over, unless this one is short
            for i in range(n):
                if following is not None and i >= late:  # its blocks, evenly over the batches of this one
                    if following.pool is None:
                        for batch in ready if late < self.ahead else ():
                            batch.exception()
                        self.release(before, window)
                        self.place(following, window, spare=len(window.needs))
                    self.read(following, following.needs[share(len(following.needs), i - late, n - late)])
                ready.append(self.submit(self.collate, window, i))
                if len(ready) >= self.ahead:
                    yield ready.popleft().result()
            before, window = window, following
        while ready:
            yield ready.popleft().result()

    def needs(self, step: int) -> Iterator[tuple[str, Sequence[Span]]]:
        """Yield what :meth:`batches` will read: of each block its name for a Keep, and its byte ranges."""
        held = set[int]()
        for w in range(self._window_of(step), self.order.n_windows):
            window = self.plan(w, step)
            if window is None:
                continue
            needs = window.needs.tolist()
            for block in needs:
                if block not in held:
                    yield self.kept_name(block), self.stream.blocks.spans(block, self.stored)
            held = set(needs)

    def _window_of(self, step: int) -> int:
        return min(step // self.order.window_steps, self.order.n_windows - 1)

    def plan(self, w: int, step: int) -> _Window | None:
        """Say what this rank serves of window w, from ``step`` on; None if that is nothing."""
        window = self.order.window(w)
        numbers, steps, sizes = list[int](), list[Rows](), list[int]()
        for k, rows in enumerate(window.batches(), window.first):
            if step <= k < self.total and (k - self.offset) % self.every == 0:
                numbers.append(k)
                steps.append(rows[share(len(rows), self.stream.rank, self.stream.world_size)])
                sizes.append(len(rows))
        if not steps:
            return None
        blocks = self.blocks_of(np.concatenate(steps))
        there = np.zeros(len(self.stream.blocks.first_complex), np.bool_)
        there[blocks] = True
        needs, of = np.flatnonzero(there), (np.cumsum(there) - 1)[blocks]
        if not len(needs):  # no rows for this rank: any block says what an empty batch looks like
            needs = self.blocks_of(next(window.batches()))[:1]
        return _Window(numbers, steps, sizes, needs, of)

    def blocks_of(self, rows: Rows) -> Rows:
        """Block of each data set row."""
        return np.searchsorted(self.stream.blocks.first_complex, rows, side="right") - 1

    def place(self, window: _Window, before: _Window | None, spare: int) -> None:
        """Give each block of a window a region; what the window before holds too stays where it is."""
        needs = window.needs.tolist()
        shared = set[int]() if before is None else before.region.keys() & set(needs)
        pool = self.pool
        if pool is None or len(pool.free) < len(needs) - len(shared):
            # The first windows begin where blocks do, and touch fewer. What is never used takes no memory.
            n = min(int((len(needs) + spare) * ROOMY) + 2, max(len(self.stream.blocks.first_complex), 1))
            pool = self.pool = Pool(
                self.room(), n, self.pooled, self.options.pad_multiple, self.stream.memory
            )
        for block in needs:
            if before is not None and before.pool is not None and block in shared:
                landed, there = before.landed[block], before.region[block]
                if before.pool is pool:
                    window.region[block], window.landed[block] = there, landed
                else:  # it has grown too small
                    here = window.region[block] = pool.free.pop()
                    window.landed[block] = self.submit(_copy, landed, before.pool, there, pool, here)
            else:
                window.region[block] = pool.free.pop()
                if self.options.fetch is None and self.options.keep is None:
                    self.stream.blocks.expect(block, self.stored)
        window.pool = pool
        begin = np.array([window.region[block] for block in needs]) * pool.size
        begin -= self.stream.blocks.first_complex[window.needs]
        slots = np.concatenate(window.steps) + begin[window.of]
        window.slots = np.split(slots, np.cumsum([len(rows) for rows in window.steps])[:-1])

    def release(self, window: _Window | None, held: _Window) -> None:
        """Give back the regions of a window that is over, but for the blocks that the one after it holds."""
        if window is not None and window.pool is self.pool is not None:
            self.pool.free += [r for block, r in window.region.items() if block not in held.region]

    def read(self, window: _Window, blocks: Rows) -> None:
        """Hand in the reading of those of a window's blocks that are not on their way to the pool."""
        assert window.pool is not None
        for block in blocks.tolist():
            if block not in window.landed:
                window.landed[block] = self.submit(self.land, window.pool, window.region[block], block)

    def room(self) -> Room:
        """What the largest block takes in a pool."""
        room = self.stream.blocks.room(self.stored)
        if ATOM_RESIDUE_TYPE not in self.stream.keys:
            return room
        derived = residue_type_field(room.fields)
        return replace(room, fields={**room.fields, ATOM_RESIDUE_TYPE: derived})

    def land(self, pool: Pool, i: int, block: int) -> None:
        """Read a block into its place in a pool."""
        if self.options.keep is None:
            pool.land(i, self.decode(block, pool.regions(i)))
        else:
            kept = self.options.keep(self.kept_name(block), lambda: arrays_of(self.decode(block)))
            pool.land(i, block_of(kept))

    def kept_name(self, block: int) -> str:
        """Name of a decoded block; see :class:`Keep`."""
        stream = self.stream
        return name_of(stream.fingerprint, block, self.stored, stream.keys, self.options.max_atoms)

    def decode(self, block: int, out: Mapping[str, NDArray[Any]] = EMPTY) -> Block:
        """Read one block, raw, and derive from it what a batch needs; unpack into ``out`` where it fits."""
        try:
            decoded = self.stream.blocks.read(block, self.stored, raw=True, fetch=self.options.fetch, out=out)
        except HoloshardError:
            raise  # the reader says which file and block
        except Exception as error:
            raise FormatError(
                f"block {block} of the data set cannot be read: {type(error).__name__}: {error}; "
                "holoshard verify tells which files are damaged"
            ) from error
        try:
            if ATOM_RESIDUE_TYPE in self.stream.keys:
                decoded = with_residue_type(decoded, out.get(ATOM_RESIDUE_TYPE))
            if self.options.max_atoms is not None:
                decoded = crop(decoded, self.options.max_atoms)
        except FormatError as error:
            raise FormatError(f"block {block} of the data set: {error}") from error
        return replace(decoded, columns={k: decoded.columns[k] for k in self.pooled})

    def prepare(self, window: _Window) -> Gather:
        """Wait until all blocks of a window are there, and raise what went wrong with any of them."""
        for landed in window.landed.values():
            landed.result()
        assert window.pool is not None
        return Gather(window.pool, window.slots, self.stream.keys, self.options.pad_multiple)

    def collate(self, window: _Window, i: int) -> Batch:
        """Gather the batch of step i of a window."""
        assert window.ready is not None
        gather, options, stream = window.ready.result(), self.options, self.stream
        columns = gather.packed(i) if options.layout == "packed" else gather.padded(i)
        index = stream.dataset_rows(window.steps[i])
        if options.rotate and "position" in columns:
            turn = rotations(index, stream.seed, self.order.epoch)
            x, of = columns["position"], columns.get("atom_batch")
            columns["position"] = x @ turn if of is None else np.einsum("ni,nij->nj", x, turn[of])
        return Batch(columns, index, window.sizes[i], window.numbers[i], self.order.epoch)


def _copy(landed: Promise[None], old: Pool, there: int, new: Pool, here: int) -> None:
    """A block that two windows share, where there is a new pool."""
    landed.result()
    new.land(here, old.block(there))


def stored_fields(keys: Sequence[str], max_atoms: int | None) -> tuple[str, ...]:
    """Fields to read from the shards for these keys of a batch."""
    stored = dict.fromkeys([*keys, "n_ligand_atoms"])
    if stored.pop(ATOM_RESIDUE_TYPE, 0) is None:
        stored |= dict.fromkeys(["residue", "residue_type"])
    if max_atoms is not None:
        stored |= dict.fromkeys(["position"])
    return tuple(stored)
