"""Alignments of many pairs at once, against an independent aligner and by hand."""

from __future__ import annotations

import numpy as np
import pytest
from families import founder, kin, natural

from holoshard.shards.make.alignment import AMINO, EXTEND, LONGEST, OPEN, UNKNOWN, align, matrix


@pytest.fixture(scope="module")
def aligner():
    Align = pytest.importorskip("Bio.Align")
    blosum = Align.substitution_matrices.load("BLOSUM62")
    assert np.array_equal(matrix()[:20, :20], [[blosum[a][b] for b in AMINO] for a in AMINO])
    return Align.PairwiseAligner(
        mode="local", substitution_matrix=blosum, open_gap_score=-OPEN, extend_gap_score=-EXTEND
    )


def test_scores_are_those_of_another_aligner_and_identities_those_of_one_of_its_alignments(aligner):
    rng = np.random.default_rng(0)
    pairs = [("A", "W"), ("MKV", "MKV" * 40)]
    for share in (0.95, 0.7, 0.5, 0.35, 0.25):
        for _ in range(8):
            a = natural(rng, int(rng.integers(20, 240)))
            pairs.append((a, kin(rng, a, share)))
    pairs += [(natural(rng, 150), natural(rng, 220)) for _ in range(8)]
    score, same = align(pairs)
    assert score.tolist() == [aligner.score(a, b) for a, b in pairs]
    assert align([(b, a) for a, b in pairs])[0].tolist() == score.tolist()
    for (a, b), s, found in zip(pairs, score, same, strict=True):
        if s:
            # Of alignments of the same score ours is one with the most identical residues; the other program
            # does not count those where a gap of one sequence meets a gap of the other.
            best = max(_identical(x) for x, _ in zip(aligner.align(a, b), range(50), strict=False))
            assert best <= found <= best + 0.05 * min(len(a), len(b))


def _identical(alignment):
    return sum(x == y for x, y in zip(*map(str, alignment), strict=True))


def test_by_hand():
    pairs = [
        ("WWW", "WWW"),
        ("", "A"),
        ("aw", "AW"),
        ("XXX", "XXX"),
        ("WWWXWWW", "WWWAWWW"),
        ("W" * 9000,) * 2,
    ]
    score, same = align(pairs)
    assert score.tolist() == [33, 0, 15, 0, 66 + UNKNOWN, 11 * LONGEST]
    assert same.tolist() == [3, 0, 2, 0, 6, LONGEST]
    a = founder(np.random.default_rng(1), 60)
    score, same = align([(a, a[:30] + "GGG" + a[30:]), (a, a)])
    assert score[1] - score[0] == OPEN + 2 * EXTEND
    assert same.tolist() == [60, 60]


def test_nothing_to_align():
    assert [x.tolist() for x in align([])] == [[], []]
