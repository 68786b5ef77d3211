"""Identities of chains, against another aligner and by hand."""

from __future__ import annotations

import numpy as np
import pytest
from families import founder, relative

from holoshard.shards.make.identity import GAP, OTHER, SAME, chain_identities, identities


def test_by_hand():
    pairs = [
        ("ACDEF", "ACDEF"), ("GGACDEFGG", "ACDEF"), ("AAAA", "CCCC"), ("", "A"), ("acdef", "ACDEF"),
        ("ACDEFGHIKL", "ACDEFWGHIKL"), ("ACDEFGHIKL", "ACDEFHIKL"), ("ACDEWGHIKL", "ACDEFGHIKL"),
    ]  # fmt: skip
    assert identities(pairs) == pytest.approx([1, 1, 0, 0, 1, 1, 1, 0.9])


def test_an_independent_aligner_finds_the_same_score_and_identity():
    Align = pytest.importorskip("Bio.Align")
    aligner = Align.PairwiseAligner(
        mode="local", match_score=SAME, mismatch_score=OTHER, open_gap_score=-GAP, extend_gap_score=-GAP
    )
    rng = np.random.default_rng(0)
    pairs = []
    for share in (0.95, 0.8, 0.6, 0.5):
        for _ in range(6):
            a = founder(rng, int(rng.integers(40, 160)))
            pairs.append((a, relative(rng, a, share)))
    for (a, b), found in zip(pairs, identities(pairs), strict=True):
        # Of alignments of the same score ours is one with the most identical residues.
        best = max(
            sum(x == y for x, y in zip(*map(str, alignment), strict=True))
            for alignment, _ in zip(aligner.align(a, b), range(300), strict=False)
        )
        assert found >= best / min(len(a), len(b)) - 1e-6
        assert found == pytest.approx(best / min(len(a), len(b)), abs=0.04)


def test_relatives_are_found_and_strangers_are_not():
    rng = np.random.default_rng(1)
    founders = [founder(rng, 250) for _ in range(12)]
    chains = [s for f in founders for s in (f, relative(rng, f, 0.9), relative(rng, f, 0.6))]
    asked = list(range(0, len(chains), 3))
    for i, (others, share) in zip(asked, chain_identities(chains, asked), strict=True):
        assert others.tolist() == [i, i + 1, i + 2]
        assert share == pytest.approx([1, 0.9, 0.6], abs=0.1)
