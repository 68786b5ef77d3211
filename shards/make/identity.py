"""The share of residues that two protein chains have in common, by aligning them.

Local alignment (Smith & Waterman 1981, doi:10.1016/0022-2836(81)90087-5) that scores 2 for the same residue,
-1 for another and -3 for a gap; the identity is the number of identical residues in the best alignment
over the length of the shorter chain, as CD-HIT counts it (Li & Godzik 2006,
doi:10.1093/bioinformatics/btl158). Chains are aligned only if they share words (:mod:`.similarity`): below
about 45 % identity relatives are missed, and count as 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from .similarity import LEAST, WordIndex

Scores = NDArray[np.float32]

SAME: Final = 2
OTHER: Final = -1
GAP: Final = 3
LEAST_SEEN: Final = 0.4  # identities below are not told from strangers
LONGEST: Final = 8191  # residues that are compared; a score and a count share an int32
_UNIT: Final = LONGEST + 1
_CELLS: Final = 1 << 16  # of one step of the alignment, over all pairs that are aligned at once


def identities(pairs: Sequence[tuple[str, str]]) -> Scores:
    """Identity of each pair of sequences, shape (n,), in [0, 1]."""
    found = np.zeros(len(pairs), np.float32)
    for batch in _batches(pairs):
        found[batch] = _aligned([pairs[i] for i in batch])
    return found


def chain_identities(
    chains: Sequence[str], asked: Sequence[int]
) -> Iterator[tuple[NDArray[np.int64], Scores]]:
    """For each asked chain: the chains that are related to it (itself among them), and how much."""
    index = WordIndex(chains)
    for i in asked:
        others, hits = index.like(i)
        others = np.union1d(others[hits >= LEAST], [i])
        pairs = [(chains[i], chains[j]) for j in others.tolist()]
        yield others, identities(pairs)


def _batches(pairs: Sequence[tuple[str, str]]) -> Iterator[list[int]]:
    """Pairs of like length together, so that little of the tables is padding."""
    order = sorted(range(len(pairs)), key=lambda i: (max(map(len, pairs[i])), i))
    batch: list[int] = []
    for i in order:
        if batch and (len(batch) + 1) * max(map(len, pairs[i])) > _CELLS:
            yield batch
            batch = []
        batch.append(i)
    if batch:
        yield batch


def _aligned(pairs: Sequence[tuple[str, str]]) -> Scores:
    """One anti-diagonal of all tables a step. A cell is score * _UNIT + identical residues on its path."""
    a, b = (_letters([p[side][:LONGEST] for p in pairs], pad) for side, pad in ((0, 0), (1, 1)))
    backwards = b[:, ::-1]
    n, m = a.shape[1], b.shape[1]
    before = np.zeros((len(pairs), n + 1), np.int32)
    last = before.copy()
    best = np.zeros(len(pairs), np.int32)
    for d in range(2, n + m + 1):
        low, high = max(1, d - m), min(n, d - 1)
        same = a[:, low - 1 : high] == backwards[:, m - d + low : m - d + high + 1]
        here = np.zeros_like(last)
        cells = here[:, low : high + 1]
        step = np.where(same, np.int32(SAME * _UNIT + 1), np.int32(OTHER * _UNIT))
        np.add(before[:, low - 1 : high], step, out=cells)
        gap = np.maximum(last[:, low - 1 : high], last[:, low : high + 1]) - np.int32(GAP * _UNIT)
        np.maximum(cells, gap, out=cells)
        np.maximum(cells, 0, out=cells)
        np.maximum(best, cells.max(1, initial=0), out=best)
        before, last = last, here
    shorter = np.array([max(1, min(len(x), len(y))) for x, y in pairs])
    return np.asarray(np.minimum((best % _UNIT) / shorter, 1), np.float32)


def _letters(sequences: Sequence[str], pad: int) -> NDArray[np.uint8]:
    """Letters as bytes, padded with a byte that is no letter: the two sides' differ, and match nothing."""
    out = np.full((len(sequences), max(1, *map(len, sequences))), pad, np.uint8)
    for row, s in zip(out, sequences, strict=True):
        row[: len(s)] = np.frombuffer(s.upper().encode("ascii", "replace"), np.uint8)
    return out
