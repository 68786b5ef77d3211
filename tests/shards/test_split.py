"""Splits: whole groups, the fractions asked for, and the same for the same seed."""

from __future__ import annotations

import numpy as np
import pytest
from families import AMINO, relative
from hypothesis import given, settings
from hypothesis import strategies as st

from holoshard.shards.errors import UsageError
from holoshard.shards.make.rule import LEFT_OUT, Facts, Rule
from holoshard.shards.make.similarity import sequence_clusters
from holoshard.shards.make.split import split as divide


def split(some, method="random", fixed=None, **options):
    return divide(some, Rule(method, **{"cluster_with": "auto", **options}), fixed)


def facts(n=200, **changes):
    rng = np.random.default_rng(5)
    options = {
        "ids": [f"c{i:04d}" for i in range(n)],
        "scaffolds": [f"s{rng.integers(0, 30)}" for _ in range(n)],
        "ligands": [f"l{i}" for i in range(n)],
        "sequences": ["" for _ in range(n)],
        "smiles": ["" for _ in range(n)],
        "deposited": rng.integers(1990, 2025, n).astype(np.int32) * 10000 + 101,
        "columns": {"cluster": [str(rng.integers(0, 25)) for _ in range(n)]},
        "column_names": ("cluster",),
    }
    return Facts(**{**options, **changes})


def shares(of):
    return np.bincount(of[of >= 0], minlength=3) / len(of)


@settings(max_examples=60, deadline=None)
@given(
    n=st.integers(1, 300),
    n_groups=st.integers(1, 60),
    seed=st.integers(0, 3),
    fractions=st.sampled_from([(0.8, 0.1, 0.1), (0.5, 0.25, 0.25), (0.9, 0.0, 0.1), (1.0, 0.0, 0.0)]),
)
def test_groups_are_never_divided_and_fractions_are_matched(n, n_groups, seed, fractions):
    labels = [str(i * i % n_groups) for i in range(n)]
    some = facts(n, columns={"cluster": labels})
    found = split(some, "cluster", fractions=fractions, seed=seed)
    assert all(len(set(found.of[[x == label for x in labels]])) == 1 for label in set(labels))
    sizes = np.bincount(np.unique(labels, return_inverse=True)[1])
    # No split can be asked to come nearer than the largest group allows.
    assert np.abs(shares(found.of) - fractions).max() * n <= sizes.max() + 1
    assert all(share == 0 for share, f in zip(shares(found.of), fractions, strict=True) if f == 0)
    assert found.record["n_groups"] == len(set(labels))
    assert np.array_equal(found.of, split(some, "cluster", fractions=fractions, seed=seed).of)


def test_random_is_exact_and_follows_the_seed():
    a, b = (split(facts(1000), "random", seed=s).of for s in (0, 1))
    assert np.bincount(a).tolist() == np.bincount(b).tolist() == [800, 100, 100]
    assert not np.array_equal(a, b)


def test_scaffold_groups_and_ligands_without_a_ring():
    n = 40
    some = facts(
        n, scaffolds=["c1ccccc1"] * 10 + [""] * 30, ligands=["same"] * 5 + [f"l{i // 2}" for i in range(35)]
    )
    found = split(some, "scaffold", seed=3)
    assert len(set(found.of[:10])) == 1
    assert all(found.of[i] == found.of[i + 1] for i in range(11, n - 1, 2))
    assert len(set(found.of[10:])) == 3


def test_time_is_oldest_to_newest_by_whole_days():
    some = facts(300)
    found = split(some, "time")
    dates = some.deposited
    assert dates[found.of == 0].max() < dates[found.of == 1].min()
    assert dates[found.of == 1].max() < dates[found.of == 2].min()
    assert shares(found.of) == pytest.approx([0.8, 0.1, 0.1], abs=0.05)


def test_time_without_dates():
    with pytest.raises(UsageError, match="dates"):
        split(facts(deposited=np.zeros(200, np.int32)), "time")


def test_complexes_without_a_date_do_not_train_unless_told_to(caplog):
    dates = np.r_[np.zeros(150, np.int32), np.arange(50, dtype=np.int32) + 20200101]
    found = split(facts(deposited=dates), "time")
    assert (found.of[:150] == LEFT_OUT).all()
    assert np.bincount(found.of[150:]).tolist() == [40, 5, 5]
    assert found.record["n_undated"] == found.record["left_out"] == 150
    assert "150 of 200 complexes have no deposition date: left out" in caplog.text
    found = split(facts(deposited=dates), "time", undated="train")
    assert (found.of[:150] == 0).all()
    assert "have no deposition date: train" in caplog.text
    assert found.record["cuts"] == [20200141, 20200146]


def test_given():
    values = ["train", "Val", "test", "", "removed"] * 40
    found = split(facts(columns={"split": values}), "given").of
    assert found[:5].tolist() == [0, 1, 2, LEFT_OUT, LEFT_OUT]
    assert np.array_equal(split(facts(columns={"mine": values}), "given", column="mine").of, found)


def test_given_by_a_file(tmp_path):
    path = tmp_path / "folds.csv"
    path.write_text("id,split,note\nc0001,train,x\nc0003,test,\nnobody,valid,\nc0004,,\n")
    found = split(facts(6), "given", file=str(path))
    assert found.of.tolist() == [LEFT_OUT, 0, LEFT_OUT, 2, LEFT_OUT, LEFT_OUT]
    assert (found.record["file"], found.record["left_out"]) == ("folds.csv", 4)
    path.write_text("id\tsplit\nc0001\ttrain\nc0001\ttest\n")
    with pytest.raises(UsageError, match="'c0001' is in 'train' and in 'test'"):
        split(facts(6), "given", file=str(path))
    path.write_text("name,fold\n")
    with pytest.raises(UsageError, match="columns id and split; found name, fold"):
        split(facts(6), "given", file=str(path))


@pytest.mark.parametrize(
    ("method", "options", "message"),
    [
        ("given", {}, "no complex has a column 'split'; the columns are cluster"),
        ("given", {"column": "cluster"}, "expected train, valid or test"),
        ("cluster", {"column": "family"}, "have no 'family'"),
        ("random", {"fractions": (0.8, 0.1, 0.2)}, "add up to 1"),
        ("random", {"fractions": (float("nan"), 0.1, 0.2)}, "add up to 1"),
        ("random", {"fractions": (1.1, -0.1, 0.0)}, "add up to 1"),
        ("random", {"seed": -1}, "--seed -1: expected 0 to 9007199254740991"),
        ("random", {"identity": 0.2}, "below, relatives are often missed"),
        ("random", {"tanimoto": float("nan")}, "--tanimoto nan"),
        ("random", {"file": "x.csv"}, "goes with --split given"),
        ("random", {"test_list": "casf-2099"}, "not a file; lists that are shipped: casf-2016"),
        ("random", {"test_list": "casf-2016"}, "none of these 200 complexes is on it"),
        ("alphabet", {}, "expected one of random"),
    ],
)
def test_impossible_splits_are_refused(method, options, message):
    with pytest.raises(UsageError, match=message):
        split(facts(), method, **options)


def test_cluster_needs_something_to_cluster():
    with pytest.raises(UsageError, match="neither"):
        split(facts(columns={}), "cluster")


def test_relatives_cluster_and_strangers_do_not():
    rng = np.random.default_rng(1)
    founders = ["".join(AMINO[i] for i in rng.integers(0, 20, rng.integers(150, 500))) for _ in range(60)]
    chains = [[relative(rng, f, 0.8)] for f in founders for _ in range(4)]
    clusters = sequence_clusters(chains).reshape(60, 4)
    assert len(np.unique(clusters)) == 60
    assert (clusters == clusters[:, :1]).all()


def test_chains_join_their_clusters():
    rng = np.random.default_rng(2)
    a, b, c = ("".join(AMINO[i] for i in rng.integers(0, 20, 200)) for _ in range(3))
    found = sequence_clusters([[a], [b], [a, b], [c], [], []])
    assert found[0] == found[1] == found[2]
    assert len(set(found.tolist())) == 4


def test_cluster_falls_back_to_sequences():
    rng = np.random.default_rng(3)
    founders = ["".join(AMINO[i] for i in rng.integers(0, 20, 200)) for _ in range(10)]
    sequences = [relative(rng, founders[i % 10], 0.8) for i in range(100)]
    some = facts(100, columns={}, sequences=sequences)
    found = split(some, "cluster", fractions=(0.6, 0.2, 0.2), cluster_with="built-in")
    assert found.record["groups_by"] == "protein sequence, built in"
    assert np.bincount(found.of).tolist() == [60, 20, 20]
    assert (found.of.reshape(10, 10) == found.of[:10]).all()


def test_tanimoto_keeps_similar_ligands_together():
    pytest.importorskip("rdkit")
    series = ["CCCCCc1ccccc1{}", "O=C(N)c1ccc2[nH]ccc2c1{}", "C1CCNCC1{}", "CC(C)(C)OC(=O)N{}"]
    smiles = [s.format("C" * (3 + k)) for k in range(10) for s in series]
    found = split(facts(40, smiles=smiles), "tanimoto", fractions=(0.5, 0.25, 0.25))
    assert found.record["n_groups"] == 4
    assert all(len(set(found.of[k::4])) == 1 for k in range(4))
    assert np.bincount(found.of).tolist() == [20, 10, 10]
    with pytest.raises(UsageError, match="SMILES"):
        split(facts(), "tanimoto")


def test_ligand_clusters_are_what_similar_pairs_connect():
    pytest.importorskip("rdkit")
    from holoshard.shards.make.fingerprints import ALIKE, fingerprints, ligand_clusters, tanimoto

    smiles = ["C" * k for k in range(1, 12)] + ["c1ccccc1", "c1ccncc1", "", "", "not a molecule", "c1ccccc1"]
    found = ligand_clusters(smiles)
    bits, n = fingerprints(smiles)
    alike = tanimoto(bits, n, bits, n) >= ALIKE
    assert all(found[i] == found[j] for i, j in np.argwhere(alike))
    assert found[11] == found[16]
    assert np.bincount(found)[found[13:16]].tolist() == [1, 1, 1]
    # Nothing else is joined: within a cluster of several each has a partner that is alike.
    assert all(alike[i].sum() > 1 for i in range(len(smiles)) if (found == found[i]).sum() > 1)
