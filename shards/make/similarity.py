"""Clusters of protein sequences by the words they share, for those who have no MMseqs2 at hand.

Sequences are written in a ten-letter alphabet of similar amino acids (Murphy, Wallqvist & Levy 2000,
doi:10.1093/protein/13.3.149). Two are linked when words of ``WORD`` letters match along one diagonal (the
same shift between them, give or take ``BAND`` residues of insertions) at least ``LEAST`` times, and
``SHARED`` times the words of the shorter one. Clusters are what links connect: no two linked sequences are
ever in different clusters, so a split by clusters errs towards groups that are too large.

Chance: two unrelated letters are alike in 13.5 % of pairs, so two chains of 300 residues share about 4 words
by chance, spread over 600 diagonals; ten in one band need a run of 14 letters or several runs. In chains of
300 residues the links reach down to about 45 % identity, in chains of 120 to about 55 %. MMseqs2 finds more
distant relatives: where that matters, give its clusters as the column ``cluster`` of the label table.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

ALPHABET: Final = ("LVIM", "C", "A", "G", "ST", "P", "FYW", "EDNQ", "KR", "H")
WORD: Final = 5  # letters
BAND: Final = 32  # diagonals
SHARED: Final = 0.04  # of the shorter sequence's words
LEAST: Final = 10  # words

_LETTER: Final = np.full(256, len(ALPHABET), np.int64)
for _i, _letters in enumerate(ALPHABET):
    _LETTER[np.frombuffer(_letters.encode(), np.uint8)] = _i


def words(sequence: str) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Words of a sequence and where they begin; a word with an unknown letter is none."""
    letters = _LETTER[np.frombuffer(sequence.upper().encode("ascii", "replace"), np.uint8)]
    if len(letters) < WORD:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    windows = np.lib.stride_tricks.sliding_window_view(letters, WORD)
    place = np.flatnonzero((windows < len(ALPHABET)).all(1))
    return windows[place] @ (len(ALPHABET) ** np.arange(WORD)), place


def sequence_clusters(
    chains: Sequence[Sequence[str]], link: Callable[[Sequence[str]], NDArray[np.int64]] | None = None
) -> NDArray[np.int64]:
    """Cluster complexes by their protein chains.

    Parameters
    ----------
    chains : the sequences of each complex; the clusters of its chains are joined
    link : names a member of each distinct chain's cluster; :func:`linked_chains` if None

    Returns
    -------
    shape (n,), the cluster of each complex; one without a chain is alone
    """
    distinct = sorted({s for sequences in chains for s in sequences})
    number = {s: i for i, s in enumerate(distinct)}
    leader = (link or linked_chains)(distinct)
    alone = len(distinct)
    parents = Forest(alone + len(chains))
    for i, j in enumerate(leader.tolist()):
        parents.join(i, j)
    for k, sequences in enumerate(chains):
        for s in sequences:
            parents.join(alone + k, number[s])
    roots = [parents.root(alone + k) for k in range(len(chains))]
    return np.unique(np.array(roots, np.int64), return_inverse=True)[1].astype(np.int64)


class Forest:
    """Disjoint sets of 0 .. n-1 (union-find with path halving)."""

    def __init__(self, n: int) -> None:
        self.parent = list(range(n))

    def root(self, i: int) -> int:
        """Return the representative of i's set: its smallest member."""
        parent = self.parent
        while parent[i] != i:
            parent[i] = parent[parent[i]]
            i = parent[i]
        return i

    def join(self, i: int, j: int) -> None:
        """Unite the sets of i and j."""
        a, b = self.root(i), self.root(j)
        self.parent[max(a, b)] = min(a, b)


class WordIndex:
    """Some sequences and who has which word where, to find those like one of them."""

    def __init__(self, sequences: Sequence[str]) -> None:
        self.sequences = [words(s) for s in sequences]
        self.sizes = np.array([len(w) for w, _ in self.sequences], np.int64)
        flat = np.concatenate([*(w for w, _ in self.sequences), np.zeros(0, np.int64)])
        by_word = np.argsort(flat, kind="stable")
        self._owners = np.repeat(np.arange(len(sequences)), self.sizes)[by_word]
        self._places = np.concatenate([*(p for _, p in self.sequences), np.zeros(0, np.int64)])[by_word]
        self._bounds = np.searchsorted(flat[by_word], np.arange(len(ALPHABET) ** WORD + 1))
        self._longest = int(self._places.max(initial=0)) + 1

    def like(self, i: int, before: int | None = None) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return sequences (below ``before``) that share words with i, and how many in their best band."""
        mine, at = self.sequences[i]
        starts = self._bounds[mine]
        counts = self._bounds[mine + 1] - starts
        rows = np.repeat(starts - (np.cumsum(counts) - counts), counts) + np.arange(counts.sum())
        other, diagonal = self._owners[rows], self._places[rows] - np.repeat(at, counts) + self._longest
        if before is not None:
            other, diagonal = other[other < before], diagonal[other < before]
        bands = 2 * self._longest // BAND + 3
        found, hits = [], []
        for shift in (0, BAND // 2):  # a diagonal near the edge of one band is in the middle of another
            keys, n = np.unique(other * bands + (diagonal + shift) // BAND, return_counts=True)
            found.append(keys // bands)
            hits.append(n)
        owners, number = np.concatenate(found), np.concatenate(hits)
        distinct, where = np.unique(owners, return_inverse=True)
        best = np.zeros(len(distinct), np.int64)
        np.maximum.at(best, where, number)
        return distinct, best


def linked_chains(sequences: Sequence[str]) -> NDArray[np.int64]:
    """Return the smallest member of each sequence's cluster."""
    index, forest = WordIndex(sequences), Forest(len(sequences))
    for i in range(len(sequences)):
        others, hits = index.like(i, before=i)
        shorter = np.minimum(index.sizes[others], index.sizes[i])
        for j in others[hits >= np.maximum(SHARED * shorter, LEAST)].tolist():
            forest.join(i, j)
    return np.array([forest.root(i) for i in range(len(sequences))], np.int64)
