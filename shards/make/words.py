"""Sequences that may be related to one, by the words they share: whom to align, of many.

Words of two kinds are compared (``KINDS``): three amino acids in a row, and four letters, one left out
between them, in a ten-letter alphabet of similar amino acids (Murphy, Wallqvist & Levy 2000,
doi:10.1093/protein/13.3.149). What counts is how many match along one diagonal (the same shift between the
sequences), give or take half of ``BAND`` residues of insertions, over the square root of what chance gives.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.int64]

SIMILAR: Final = ("LVIM", "C", "A", "G", "ST", "P", "FYW", "EDNQ", "KR", "H")
BAND: Final = 16  # diagonals


@dataclass(frozen=True, slots=True)
class Kind:
    """Words of the letters at ``places``, in an alphabet whose letters each stand for some amino acids."""

    alphabet: Sequence[str]
    places: tuple[int, ...]

    def words(self, sequence: str) -> tuple[Numbers, Numbers]:
        """Words of a sequence and where they begin; a word with an unknown letter is none."""
        letter = np.full(256, len(self.alphabet), np.int64)
        for i, letters in enumerate(self.alphabet):
            letter[np.frombuffer(letters.encode(), np.uint8)] = i
        found = letter[np.frombuffer(sequence.upper().encode("ascii", "replace"), np.uint8)]
        n = max(len(found) - self.places[-1], 0)
        windows = np.stack([found[p : p + n] for p in self.places], axis=1)
        begin = np.flatnonzero((windows < len(self.alphabet)).all(1))
        return windows[begin] @ (len(self.alphabet) ** np.arange(len(self.places))), begin


KINDS: Final = (Kind(tuple("ACDEFGHIKLMNPQRSTVWY"), (0, 1, 2)), Kind(SIMILAR, (0, 1, 3, 4)))


class WordIndex:
    """Some sequences and who has which word where, to find those like one of them."""

    def __init__(self, sequences: Sequence[str]) -> None:
        self._lengths = np.array([len(s) for s in sequences], np.int64)
        self._longest = int(self._lengths.max(initial=0)) + 1
        self._tables = [_Table(kind, sequences) for kind in KINDS]

    def ranked(self, i: int, before: int | None = None) -> Numbers:
        """Other sequences (those below ``before``) that share words with i, the likeliest relatives first."""
        hits = [table.hits(i) for table in self._tables]
        other, shift = (np.concatenate(parts) for parts in zip(*hits, strict=True))
        wanted = (other != i) & (other < (len(self._lengths) if before is None else before))
        other, shift = other[wanted], shift[wanted] + self._longest
        halves = 4 * self._longest // BAND + 3  # halves of a band, and one between sequences
        keys, counts = np.unique(other * halves + shift // (BAND // 2), return_counts=True)
        counts[:-1] += np.where(np.diff(keys) == 1, counts[1:], 0)  # a half and the next one
        owners, first = np.unique(keys // halves, return_index=True)
        if not len(owners):
            return owners
        score = np.maximum.reduceat(counts, first) / np.sqrt(self._lengths[owners] + 50)
        return owners[np.lexsort((owners, -score))]


class _Table:
    """Where the words of one kind are."""

    def __init__(self, kind: Kind, sequences: Sequence[str]) -> None:
        self._of = [kind.words(s) for s in sequences]
        flat = np.concatenate([*(w for w, _ in self._of), np.zeros(0, np.int64)])
        by_word = np.argsort(flat, kind="stable")
        self._owners = np.repeat(np.arange(len(sequences)), [len(w) for w, _ in self._of])[by_word]
        self._places = np.concatenate([*(p for _, p in self._of), np.zeros(0, np.int64)])[by_word]
        n_words = len(kind.alphabet) ** len(kind.places)
        self._bounds = np.searchsorted(flat[by_word], np.arange(n_words + 1))

    def hits(self, i: int) -> tuple[Numbers, Numbers]:
        """For each match of a word of i: whose it is, and the shift between the two places."""
        mine, at = self._of[i]
        starts = self._bounds[mine]
        counts = self._bounds[mine + 1] - starts
        rows = np.repeat(starts - (np.cumsum(counts) - counts), counts) + np.arange(counts.sum())
        return self._owners[rows], self._places[rows] - np.repeat(at, counts)
