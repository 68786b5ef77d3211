"""Which protein chains are related, and the share of residues that they have in common.

For those who have no MMseqs2 at hand (:mod:`.mmseqs`). Of all chains those that share most words with a
chain (:mod:`.words`) are aligned with it (:mod:`.alignment`). Two are related if chance gives a score like
theirs in one of a million pairs of such lengths at most, by the statistics of Karlin & Altschul 1990
(doi:10.1073/pnas.87.6.2264), with the constants of Altschul & Gish 1996
(doi:10.1016/S0076-6879(96)66029-7) for BLOSUM62 and gaps of 11 + 1 a residue. Their identity is the number
of identical residues in the best alignment over the length of the shorter chain, as CD-HIT counts it (Li &
Godzik 2006, doi:10.1093/bioinformatics/btl158); it is 0 for strangers.

Found of 564 relatives, made of real and random chains by BLOSUM62's rates of exchange, with insertions and
losses, among 1,600 strangers (none of which was taken for a relative):

=============== ====== ====== ====== ====== =====
identity        20-25  25-30  30-35  35-40  40- %
=============== ====== ====== ====== ====== =====
150 residues -    56     85     99    100    100
80-149 residues    9     68     81    100    100
=============== ====== ====== ====== ====== =====

On one core aligning takes some 15 ms a chain, and finding whom to align with 1 ms more for every 1,000
chains: 10,000 chains of 150 to 450 residues, in 2,200 families, took 228 s.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final

import numpy as np
from numpy.typing import NDArray

from .alignment import LONGEST, align
from .forest import Forest
from .words import WordIndex

Scores = NDArray[np.float32]
Numbers = NDArray[np.int64]

LEAST_SEEN: Final = 0.3  # identities below are found less surely
# Of the shorter chain: what is less shares a small part, and does not tie chains together.
LINKED: Final = 0.2
CHANCE: Final = 1e-6
LAMBDA: Final = 0.267
K: Final = 0.041
TRIED: Final = 32  # chains aligned with one; as many more while a quarter of them is related
FIRST: Final = 8  # of these in the first round of clustering; most chains have found their cluster then
GROUP: Final = 16  # chains whose alignments are made at the same time


def identities(pairs: Sequence[tuple[str, str]]) -> Scores:
    """Identity of each pair of sequences, shape (n,), in [0, 1]; 0 where they are not related."""
    score, same = align(pairs)
    sizes = np.array([sorted((min(len(a), LONGEST), min(len(b), LONGEST))) for a, b in pairs], np.float64)
    sizes = np.maximum(sizes.reshape(-1, 2), 1)
    related = K * sizes.prod(1) * np.exp(-LAMBDA * score) <= CHANCE
    alike = np.array([a == b != "" for a, b in pairs], bool)  # too short to tell from chance, but the same
    return np.where(alike, 1, np.where(related, same / sizes[:, 0], 0)).astype(np.float32)


def chain_identities(chains: Sequence[str], asked: Sequence[int]) -> Iterator[tuple[Numbers, Scores]]:
    """For each asked chain: the distinct chains that are related to it (itself among them), and how much."""
    index = WordIndex(chains)
    for begin in range(0, len(asked), GROUP):
        going = asked[begin : begin + GROUP]
        ranked = {i: index.ranked(i) for i in going}
        found = {i: [(i, 1.0)] for i in going}
        start = 0
        while going:
            tried = {i: ranked[i][start : start + TRIED].tolist() for i in going}
            told = iter(identities([(chains[i], chains[j]) for i in going for j in tried[i]]).tolist())
            near = {i: [(j, s) for j in tried[i] if (s := next(told))] for i in going}
            for i in going:
                found[i] += near[i]
            going = [i for i in going if 4 * len(near[i]) >= TRIED]
            start += TRIED
        for i in asked[begin : begin + GROUP]:
            others, share = zip(*sorted(found[i]), strict=True)
            yield np.array(others, np.int64), np.array(share, np.float32)


def linked_chains(chains: Sequence[str]) -> Numbers:
    """Smallest member of each chain's cluster: what links of identity ``LINKED`` or more connect."""
    index, forest = WordIndex(chains), Forest(len(chains))
    for begin in range(0, len(chains), GROUP):
        some = range(begin, min(begin + GROUP, len(chains)))
        ranked = {i: iter(index.ranked(i, before=i).tolist()) for i in some}
        for most in (FIRST, TRIED - FIRST):
            pairs = list[tuple[int, int]]()
            for i in some:
                mine = forest.root(i)
                pairs += islice(((i, j) for j in ranked[i] if forest.root(j) != mine), most)
            shares = identities([(chains[i], chains[j]) for i, j in pairs])
            for (i, j), share in zip(pairs, shares.tolist(), strict=True):
                if share >= LINKED:
                    forest.join(i, j)
    return np.array([forest.root(i) for i in range(len(chains))], np.int64)
