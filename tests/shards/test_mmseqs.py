"""The built-in clusters of chains beside those of MMseqs2."""

from __future__ import annotations

import numpy as np
import pytest
from families import founder, relative

from holoshard.shards.errors import UsageError
from holoshard.shards.make import mmseqs
from holoshard.shards.make.groups import chain_linker
from holoshard.shards.make.identity import chain_identities, linked_chains

with_mmseqs = pytest.mark.skipif(not mmseqs.installed(), reason="MMseqs2 (mmseqs) is not installed")


@pytest.fixture(scope="module")
def families():
    """Twenty families of a founder and relatives at 90, 65 and 38 % identity, clustered by MMseqs2."""
    rng = np.random.default_rng(4)
    founders = [founder(rng, int(rng.integers(200, 350))) for _ in range(20)]
    chains = [s for f in founders for s in (f, *(relative(rng, f, share) for share in (0.9, 0.65, 0.38)))]
    return chains, mmseqs.chain_clusters(chains)


@with_mmseqs
def test_the_built_in_agrees_with_mmseqs_where_relatives_are_near(families):
    chains, theirs = families
    near = [i for i in range(len(chains)) if i % 4 < 3]
    ours, theirs = linked_chains([chains[i] for i in near]), theirs[near]
    # Labels differ; what is together does not.
    assert np.array_equal(ours[:, None] == ours[None], theirs[:, None] == theirs[None])
    assert len(np.unique(ours)) == 20


@with_mmseqs
def test_the_built_in_sees_nearly_as_far_and_links_no_strangers(families):
    chains, theirs = families
    ours = linked_chains(chains)
    family = np.arange(80) // 4
    assert not ((ours[:, None] == ours[None]) & (family[:, None] != family[None])).any()
    found = [int((c.reshape(20, 4)[:, 3] == c.reshape(20, 4)[:, 0]).sum()) for c in (ours, theirs)]
    assert found[0] >= 17
    assert found[1] >= 18
    assert len(np.unique(theirs)) == 40 - found[1]


@with_mmseqs
def test_identities_are_those_of_the_built_in(families):
    chains, _ = families
    asked = list(range(0, 80, 4))
    both = [list(f(chains, asked)) for f in (chain_identities, mmseqs.chain_identities)]
    n_seen = n_strange = 0
    for i, (others, share), (theirs, their_share) in zip(asked, *both, strict=True):
        assert share[others == i].tolist() == their_share[theirs == i].tolist() == [1]
        assert set(others.tolist()) <= set(range(i, i + 4))
        n_strange += len(set(theirs.tolist()) - set(range(i, i + 4)))
        seen, a, b = np.intersect1d(others, theirs, return_indices=True)
        assert share[a] == pytest.approx(their_share[b], abs=0.06)
        n_seen += len(seen)
    assert n_seen >= 74
    assert n_strange <= 2  # chance, which MMseqs2 allows more of


@with_mmseqs
def test_it_is_used_where_it_is_installed():
    link, name = chain_linker("auto")
    assert link is mmseqs.chain_clusters
    assert name.startswith("protein sequence, MMseqs2 ")
    assert mmseqs.chain_clusters([]).tolist() == []


def test_without_it_the_built_in_serves_and_asking_for_it_is_refused(monkeypatch):
    monkeypatch.setattr(mmseqs, "PROGRAM", "mmseqs-that-is-not-here")
    assert chain_linker("auto") == (linked_chains, "protein sequence, built in")
    with pytest.raises(UsageError, match="cannot be called"):
        chain_linker("mmseqs")
