"""The order of an epoch: a pure function of seed, epoch, manifest and batch size.

Blocks are dealt to C canonical *lanes*; a global batch takes the next G/C complexes of every lane, and
its rows are grouped by lane. Rank r of R takes the contiguous rows r*G/R .. (r+1)*G/R, which are whole
lanes where R divides C: then each block is read by one rank. Nothing here knows of ranks, so the global
batches are the same for any number of them, and a run resumes by its step number alone.

Within a lane complexes are shuffled over a *window* (a run of complexes of the lane, whole steps long),
then sorted into buckets of similar length; the steps of a window are then put in random order, the same
in every lane, so that all ranks meet batches of similar length at the same time. Windows and lanes are
cut at complexes, not at blocks, so that all lanes have the same length to within one complex.

How many lanes and how long a window follows from the batch size and the number of complexes:
a window is ``WINDOW`` complexes or ``WINDOW_STEPS`` batches, whichever is more, and there are as many
lanes as still leave each of them ``LANE_BLOCKS`` blocks a window, and divide the batch. A small data set
is one window and one lane: a perfect shuffle.

Every second lane is read from its end: so two lanes meet the block that lies across their border in the same
window, and it is read once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from ..errors import UsageError
from ..format.block import ragged_rows
from ..permutation import order_by, permutation, uniforms, words

Rows = NDArray[np.int64]
Shuffle = Literal["global", "local", "none"]

WINDOW: Final = 8192  # complexes: about 50 MB decoded; sorting 8,192 pads batches of 64 to 1.03
WINDOW_STEPS: Final = 32  # at least so many batches to sort by length
LANE_BLOCKS: Final = 2  # a lane's share of a window, so that its batches mix blocks
STEPS_PER_BUCKET: Final = 4  # batches of similar length that exchange complexes at random
MAX_BUCKETS: Final = 32  # finer buckets would save less than 1 % of padding

_SPARE_BITS: Final = 24  # of random words, so that lane, word and place are one number to sort by
_DEAL, _SHUFFLE, _STEPS, _LOCAL, _DRAW = range(5)  # what a permutation is for, part of its seed


@dataclass(frozen=True, slots=True)
class Window:
    """The global batches of consecutive steps.

    Attributes
    ----------
    first : step of the first batch
    rows : shape (steps, G), data set rows of the full batches, grouped by lane
    tail : shape (t,), t < G, rows of the last, partial batch of an epoch; empty in every other window
    """

    first: int
    rows: Rows
    tail: Rows

    def batches(self) -> Iterator[Rows]:
        """Yield the rows of each batch, the partial one last."""
        yield from self.rows
        if len(self.tail):
            yield self.tail


class Order:
    """Global batches of one epoch.

    Parameters
    ----------
    rows : shape (n,), int64, the data set rows to serve, ascending; a row may repeat
    blocks : shape (n,), the block each lies in, ascending
    lengths : shape (n,), atoms of each, for the buckets
    batch_size : complexes in a global batch, over all ranks
    shuffle : "global" deals the blocks to lanes anew each epoch; "local" keeps a lane's blocks, so that
        what a node has cached stays useful, and shuffles within the lane; "none" is data set order
    window, lanes : override the rule of this module; they are part of what the order depends on
    """

    def __init__(
        self,
        rows: Rows,
        blocks: Rows,
        lengths: NDArray[np.integer],
        *,
        batch_size: int,
        seed: int = 0,
        epoch: int = 0,
        shuffle: Shuffle = "global",
        window: int | None = None,
        lanes: int | None = None,
    ) -> None:
        _check(batch_size=batch_size, seed=seed, epoch=epoch, window=window, lanes=lanes)
        self.rows, self.lengths = rows, lengths
        self.batch_size, self.seed, self.epoch, self.shuffle = batch_size, seed, epoch, shuffle
        starts = np.flatnonzero(np.diff(blocks, prepend=-1))  # where each block's rows begin
        counts = np.diff(starts, append=len(rows))
        block_size = int(np.median(counts)) if len(counts) else 1
        self.window_steps = _window_steps(batch_size, window)
        if shuffle == "none":
            self.lanes = 1
        else:
            self.lanes = _lanes(batch_size, self.window_steps, block_size, len(rows), lanes)
        self._lay(starts, counts)

    def __len__(self) -> int:
        """Full batches; a last partial one comes on top if :attr:`remainder` is not 0."""
        return len(self.rows) // self.batch_size

    @property
    def remainder(self) -> int:
        """Complexes left over by the full batches."""
        return len(self.rows) % self.batch_size

    @property
    def n_windows(self) -> int:
        """Windows in the epoch; the partial batch belongs to the last."""
        return max(-(-len(self) // self.window_steps), int(self.remainder > 0))

    def _lay(self, starts: Rows, counts: Rows) -> None:
        """Deal blocks to lanes: runs of rows, as the lanes read them, one lane after the other."""
        n, lanes = len(self.rows), self.lanes
        if self.shuffle != "none":
            key = (self.seed, self.epoch) if self.shuffle == "global" else (self.seed,)
            dealt = permutation(len(starts), _DEAL, *key)
            starts, counts = starts[dealt], counts[dealt]
        # Position p of a round robin over lanes is lane p % C, so lane c has ceil((n - c) / C) of them.
        self._edges = np.concatenate([[0], np.cumsum((n - np.arange(lanes) + lanes - 1) // lanes)])
        ends = np.cumsum(counts)
        cuts = np.unique(np.concatenate([ends - counts, self._edges[:-1]]))
        cuts = cuts[cuts < n]
        run = np.searchsorted(ends, cuts, side="right")
        first = starts[run] + cuts - (ends - counts)[run]
        size = np.diff(cuts, append=n)
        if self.shuffle == "local":
            lane = np.searchsorted(self._edges, cuts, side="right")
            within = np.lexsort((permutation(len(cuts), _LOCAL, self.seed, self.epoch), lane))
            first, size = first[within], size[within]
        self._first, self._ends = first, np.cumsum(size)
        self._begins = self._ends - size

    def part(self, rank: int, world_size: int) -> Rows:
        """Rows of the lanes that a rank's share of every batch lies in: the same in all epochs if "local"."""
        lo, hi = rank * self.lanes // world_size, -(-(rank + 1) * self.lanes // world_size)
        return self.rows[self._members(self._edges[[lo]], self._edges[[hi]])]

    def _members(self, lo: Rows, hi: Rows) -> Rows:
        """Members (indices of ``rows``) at the positions lo .. hi of the lanes laid end to end."""
        lo, hi = lo[hi > lo], hi[hi > lo]
        first, last = (np.searchsorted(self._ends, at, side="right") for at in (lo, hi - 1))
        runs = ragged_rows(first, last - first + 1)
        begin, end = (np.repeat(at, last - first + 1) for at in (lo, hi))
        begin = np.maximum(self._begins[runs], begin)
        size = np.minimum(self._ends[runs], end) - begin
        return ragged_rows(self._first[runs] + begin - self._begins[runs], size)

    def window(self, w: int) -> Window:
        """Return the batches of window w, 0 <= w < n_windows."""
        first = w * self.window_steps
        steps = max(min(len(self) - first, self.window_steps), 0)
        share = self.batch_size // self.lanes
        full = steps * share
        lo, hi = self._stretches(first * share, full, w)
        sizes = hi - lo
        members, lane = self._members(lo, hi), np.repeat(np.arange(self.lanes), sizes)
        if self.shuffle != "none":
            drawn = words(len(members), _SHUFFLE, self.seed, self.epoch, w) >> np.uint64(_SPARE_BITS)
            members = members[order_by(lane, drawn)]
        head = np.arange(len(members)) - np.repeat(np.cumsum(sizes) - sizes, sizes) < full
        body = members[head].reshape(self.lanes, full)
        if self.shuffle != "none":
            body = self._bucketed(body, steps)
        body = body.reshape(self.lanes, steps, share).swapaxes(0, 1)
        if self.shuffle != "none":
            body = body[permutation(steps, _STEPS, self.seed, self.epoch, w)]
        return Window(first, self.rows[body.reshape(steps, self.batch_size)], self.rows[members[~head]])

    def _stretches(self, done: int, size: int, w: int) -> tuple[Rows, Rows]:
        """Positions of window w in each lane, of which ``done`` went before; the last takes what is left."""
        begin, end = self._edges[:-1], self._edges[1:]
        sizes = end - begin - done if w == self.n_windows - 1 else np.full(self.lanes, size)
        lo = np.where(np.arange(self.lanes) % 2, end - done - sizes, begin + done)
        return lo, lo + sizes

    def _bucketed(self, body: Rows, steps: int) -> Rows:
        """Members of each lane, (lanes, n), those of similar length together: as they come in a bucket."""
        buckets = min(steps // STEPS_PER_BUCKET, MAX_BUCKETS)
        if buckets < 2:
            return body
        lanes, n = body.shape
        lane, flat = np.repeat(np.arange(lanes), n), body.reshape(-1)
        bucket = np.empty(len(flat), np.int64)
        step = np.arange(n) // (n // steps)
        bucket[order_by(lane, self.lengths[flat])] = np.tile(step * buckets // steps, lanes)
        return flat[order_by(lane, bucket)].reshape(lanes, n)

    def batch(self, step: int) -> Rows:
        """Return the data set rows of the global batch at ``step``."""
        if not 0 <= step < len(self) + (self.remainder > 0):
            raise IndexError(f"step {step} of an epoch of {len(self)} steps")
        w = min(step // self.window_steps, self.n_windows - 1)
        window = self.window(w)
        return window.rows[step - window.first] if step < len(self) else window.tail


def share(size: int, rank: int, world_size: int) -> slice:
    """Part of a global batch of ``size`` rows that one rank serves; sizes differ by at most 1."""
    return slice(rank * size // world_size, (rank + 1) * size // world_size)


def draw(rows: Rows, weights: NDArray[np.floating], *, seed: int, epoch: int) -> Rows:
    """Draw as many rows as there are, each in proportion to its weight.

    Systematic resampling (Kitagawa 1996, doi:10.1080/10618600.1996.10474692): a row of expected count m
    comes floor(m) or ceil(m) times, so that a weight of 1 for all rows is each row once.

    Parameters
    ----------
    rows : shape (n,), ascending
    weights : shape (n,), finite and not negative, not all 0

    Returns
    -------
    shape (n,), ascending, rows repeated as often as drawn
    """
    weights = np.asarray(weights, np.float64)
    if not np.all(np.isfinite(weights)) or np.any(weights < 0) or weights.sum() <= 0:
        raise UsageError(
            "weights must be finite, not negative and not all 0; "
            f"found {int((~np.isfinite(weights)).sum())} not finite, {int((weights < 0).sum())} negative"
        )
    expected = np.cumsum(weights) * (len(rows) / weights.sum())
    expected[-1] = len(rows)
    offset = uniforms(1, _DRAW, seed, epoch)[0]
    # Tick j + offset falls to the row whose stretch of the cumulative sum holds it.
    times = np.diff(np.clip(np.ceil(expected - offset), 0, len(rows)).astype(np.int64), prepend=0)
    return np.repeat(rows, times)


def _window_steps(batch_size: int, window: int | None) -> int:
    if window is not None:
        return max(window // batch_size, 1)
    return max(-(-WINDOW // batch_size), WINDOW_STEPS)


def _lanes(batch_size: int, window_steps: int, block_size: int, n: int, wanted: int | None) -> int:
    """Most lanes that divide the batch and leave each lane its blocks in a window of this data set."""
    if wanted is not None:
        if wanted < 1 or batch_size % wanted:
            raise UsageError(f"lanes must divide the batch size {batch_size}; found {wanted}")
        return wanted
    window = min(window_steps * batch_size, n)
    most = max(window // (LANE_BLOCKS * block_size), 1)
    if n <= window_steps * batch_size:  # one window holds all: lanes would only coarsen the shuffle
        most = 1
    return max(lanes for lanes in range(1, min(most, batch_size) + 1) if batch_size % lanes == 0)


def _check(**numbers: int | None) -> None:
    least = {"batch_size": 1, "seed": 0, "epoch": 0, "window": 1, "lanes": 1}
    for name, value in numbers.items():
        if value is not None and value < least[name]:
            raise UsageError(f"{name} must be at least {least[name]}; found {value}")
