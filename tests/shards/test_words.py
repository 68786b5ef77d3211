"""Words of sequences, and who is tried first."""

from __future__ import annotations

import numpy as np
from families import kin, natural

from holoshard.shards.make.words import KINDS, SIMILAR, Kind, WordIndex


def test_by_hand():
    found, places = Kind(SIMILAR, (0, 1, 2, 3, 4)).words("LVIMLVIM")  # one letter, over and over
    assert places.tolist() == [0, 1, 2, 3]
    assert len(set(found.tolist())) == 1
    plain = Kind(tuple("ACDEF"), (0, 2))
    assert plain.words("ACDxAC")[1].tolist() == [0, 2]  # A.D and D.A; an unknown letter is in no word
    assert plain.words("ADA")[0].tolist() == plain.words("aCa")[0].tolist()
    assert all(len(kind.words(s)[0]) == 0 for kind in KINDS for s in ("", "AC"))


def test_a_relative_comes_before_strangers():
    rng = np.random.default_rng(0)
    a = natural(rng, 250)
    chains = [a, *(natural(rng, 250) for _ in range(200)), kin(rng, a, 0.45), a[:200]]
    index = WordIndex(chains)
    assert index.ranked(0)[:2].tolist() == [202, 201]
    assert 0 not in index.ranked(0)
    assert index.ranked(0, before=1).tolist() == []
    assert index.ranked(201, before=201)[0] == 0
    assert WordIndex(["", "A"]).ranked(0).tolist() == []
