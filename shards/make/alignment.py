"""Many pairs of protein sequences aligned at once.

Local alignment with affine gaps (Smith & Waterman 1981, doi:10.1016/0022-2836(81)90087-5; Gotoh 1982,
doi:10.1016/0022-2836(82)90398-9) by BLOSUM62 (Henikoff & Henikoff 1992, doi:10.1073/pnas.89.22.10915), a gap
of k residues costing ``OPEN + EXTEND * (k - 1)``: the scores are those of BLAST's defaults.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.int32]

AMINO: Final = "ARNDCQEGHILKMFPSTWYV"
LOWER: Final = (  # BLOSUM62 up to its diagonal, rows and columns in the order of AMINO
    "4", "-1 5", "-2 0 6", "-2 -2 1 6", "0 -3 -3 -3 9", "-1 1 0 0 -3 5", "-1 0 0 2 -4 2 5",
    "0 -2 0 -1 -3 -2 -2 6", "-2 0 1 -1 -3 0 0 -2 8", "-1 -3 -3 -3 -1 -3 -3 -4 -3 4",
    "-1 -2 -3 -4 -1 -2 -3 -4 -3 2 4", "-1 2 0 -1 -3 1 1 -2 -1 -3 -2 5", "-1 -1 -2 -3 -1 0 -2 -3 -2 1 2 -1 5",
    "-2 -3 -3 -3 -2 -3 -3 -3 -1 0 0 -3 0 6", "-1 -2 -2 -1 -3 -1 -1 -2 -2 -3 -3 -1 -2 -4 7",
    "1 -1 1 0 -1 0 0 0 -1 -2 -2 0 -1 -2 -1 4", "0 -1 0 -1 -1 -1 -1 -2 -2 -1 -1 -1 -1 -2 -1 1 5",
    "-3 -3 -4 -4 -2 -2 -3 -2 -2 -3 -2 -3 -1 1 -4 -3 -2 11",
    "-2 -2 -2 -3 -2 -1 -2 -3 2 -1 -1 -2 -1 3 -3 -2 -2 2 7",
    "0 -3 -3 -3 -1 -2 -2 -3 -3 3 1 -2 1 -1 -2 -2 0 -3 -1 4",
)  # fmt: skip
UNKNOWN: Final = -1  # any other letter, with any letter
OPEN: Final = 12
EXTEND: Final = 1
LONGEST: Final = 8191  # residues that are compared; a score and a count share an int32
_UNIT: Final = LONGEST + 1
_CELLS: Final = 1 << 15  # of one step of the alignment, over all pairs that are aligned at once
_LETTERS: Final = len(AMINO) + 2  # an unknown one, and padding
_LOW: Final = -(1 << 29)  # lower than any score


def matrix() -> NDArray[np.int64]:
    """Scores of letters, shape (_LETTERS, _LETTERS): AMINO, an unknown letter, padding that never matches."""
    scores = np.full((_LETTERS, _LETTERS), UNKNOWN, np.int64)
    for i, row in enumerate(LOWER):
        scores[i, : i + 1] = scores[: i + 1, i] = list(map(int, row.split()))
    scores[-1] = scores[:, -1] = -100
    return scores


def _table() -> Numbers:
    """For a pair of letters score * _UNIT, and one more if they are the same amino acid; flat."""
    table = matrix() * _UNIT
    table[np.arange(len(AMINO)), np.arange(len(AMINO))] += 1
    return table.astype(np.int32).reshape(-1)


_PAIR: Final = _table()
_LETTER: Final = np.full(256, len(AMINO), np.int32)
_LETTER[np.frombuffer(AMINO.encode(), np.uint8)] = np.arange(len(AMINO))


def align(pairs: Sequence[tuple[str, str]]) -> tuple[Numbers, Numbers]:
    """Score of the best local alignment of each pair, and the most identical residues in one of that score.

    Returns
    -------
    two arrays of shape (n,)
    """
    score, same = np.zeros(len(pairs), np.int32), np.zeros(len(pairs), np.int32)
    for batch in _batches(pairs):
        best = _aligned([pairs[i] for i in batch])
        score[batch], same[batch] = best // _UNIT, best % _UNIT
    return score, same


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


def _aligned(pairs: Sequence[tuple[str, str]]) -> Numbers:
    """The best cell of each pair's table, of score * _UNIT + identical residues on its path.

    One anti-diagonal of all tables a step, row i of the arrays at residue i of the shorter sequences; pairs
    lie side by side. ``across`` and ``down`` are the best cells that end in a gap of either sequence.
    """
    shorter, longer = zip(*(sorted(p, key=len) for p in pairs), strict=True)
    a, b = _letters(shorter) * np.int32(_LETTERS), _letters(longer)[::-1].copy()
    n, m = len(a), len(b)
    last, before = np.zeros((2, n + 2, len(pairs)), np.int32)
    across, down = np.full((2, n + 2, len(pairs)), _LOW, np.int32)
    best = np.zeros(len(pairs), np.int32)
    for d in range(2, n + m + 1):
        low, high = max(1, d - m), min(n, d - 1)
        cells: Any = _PAIR.take(a[low - 1 : high] + b[m - d + low : m - d + high + 1])
        opened = last[low - 1 : high + 1] - np.int32(OPEN * _UNIT)
        np.subtract(across[low : high + 1], EXTEND * _UNIT, out=across[low : high + 1])
        np.maximum(across[low : high + 1], opened[1:], out=across[low : high + 1])
        down[low : high + 1] = np.maximum(down[low - 1 : high] - np.int32(EXTEND * _UNIT), opened[:-1])
        cells += before[low - 1 : high]
        for other in (across[low : high + 1], down[low : high + 1], 0):
            np.maximum(cells, other, out=cells)
        np.maximum(best, cells.max(0), out=best)
        before[low : high + 1] = cells
        before[low - 1] = before[high + 1] = 0
        across[high + 1] = down[high + 1] = down[low - 1] = _LOW
        last, before = before, last
    return best


def _letters(sequences: Sequence[str]) -> Numbers:
    """Letters as numbers, padded, shape (longest, n)."""
    cut = [s[:LONGEST].upper().encode("ascii", "replace") for s in sequences]
    out = np.full((max(1, *map(len, cut)), len(cut)), _LETTERS - 1, np.int32)
    for k, s in enumerate(cut):
        out[: len(s), k] = _LETTER[np.frombuffer(s, np.uint8)]
    return out
