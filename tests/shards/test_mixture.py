"""Several data sets in one stream."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from random_complexes import random_complexes

from holoshard.shards.errors import UsageError
from holoshard.shards.make.writer import write_part
from holoshard.shards.read.dataset import open_dataset
from holoshard.shards.read.mixture import Mixture


@pytest.fixture(scope="module")
def datasets(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mixture")
    for k, n in enumerate((90, 30)):
        write_part(folder / f"{k}.h5", random_complexes(n, seed=k, prefix=f"d{k}-"), block_size=8)
    return [open_dataset(folder / f"{k}.h5") for k in (0, 1)]


def test_by_size_every_complex_once(datasets):
    mixture = Mixture(datasets)
    rows = np.concatenate([b.index for b in mixture.stream(batch_size=12)])
    assert np.array_equal(np.sort(rows), np.arange(120))


def test_rows_are_those_of_their_data_set(datasets):
    mixture = Mixture(datasets)
    for batch in mixture.stream(batch_size=30):
        which, rows = mixture.locate(batch.index)
        assert set(which.tolist()) == {0, 1}
        for b in range(batch.size):
            c = datasets[which[b]][int(rows[b])]
            assert c.id.startswith(f"d{which[b]}-")
            assert np.array_equal(batch["position"][b, : c.n_atoms], c.position)


@pytest.mark.parametrize("shares", [(1, 1), (0.2, 0.8), (1, 0)])
def test_shares(datasets, shares):
    mixture = Mixture(datasets, shares)
    rows = np.concatenate([b.index for b in mixture.stream(batch_size=8, epoch=2)])
    which, _ = mixture.locate(rows)
    wanted = 120 * np.array(shares) / sum(shares)
    assert np.bincount(which, minlength=2) == pytest.approx(wanted, abs=1)
    for k in (0, 1):
        times = np.bincount(rows[which == k])
        times = times[times > 0]
        assert times.max(initial=0) - times.min(initial=99 if not len(times) else times.max()) <= 1


def test_weights_of_a_column_within_shares(datasets):
    weights = [d.column("n_ligand_atoms").astype(float) for d in datasets]
    for shares, by_size in ((None, True), ((1, 1), False)):
        s = Mixture(datasets, shares).stream(batch_size=8, weights="n_ligand_atoms", drop_last=False)
        rows = np.concatenate([b.index for b in s])
        sums = np.array([w.sum() for w in weights])
        each = [w * 120 / (sums.sum() if by_size else 2 * w.sum()) for w in weights]
        assert np.abs(np.bincount(rows, minlength=120) - np.concatenate(each)).max() <= 1


def scored(path, score):
    """A part whose complexes have a column of their own."""
    write_part(path, [replace(c, extra={"complex/score": score}) for c in random_complexes(9, seed=5)])
    return open_dataset(path)


@pytest.mark.parametrize("how", [{"fields": ["pk", "score"]}, {"weights": "score"}])
def test_a_column_that_one_data_set_lacks_is_refused_by_its_name(datasets, how, tmp_path):
    own = scored(tmp_path / "scored.h5", np.float32(2))
    assert len(list(Mixture([own, own]).stream(batch_size=6, **how))) == 3
    with pytest.raises(UsageError, match=r"data set 1 of the mixture .*score"):
        Mixture([own, datasets[0]]).stream(batch_size=6, **how)


def test_a_field_of_another_kind_is_refused(tmp_path):
    one = scored(tmp_path / "one.h5", np.float32(2))
    three = scored(tmp_path / "three.h5", np.zeros(3, np.float32))
    whole = scored(tmp_path / "whole.h5", np.int16(2))
    for odd in (three, whole):
        assert len(list(Mixture([one, odd]).stream(batch_size=6))) == 3  # a batch without it is fine
        with pytest.raises(UsageError, match=r"'score' is not the same .*data set 1"):
            Mixture([one, odd]).stream(batch_size=6, fields=["pk", "score"])


def test_a_split_that_one_data_set_lacks_is_refused(datasets):
    with pytest.raises(UsageError, match=r"data set 0 of .*no split 'test'"):
        Mixture(datasets).stream("test", batch_size=8)


def test_a_budget_of_bytes_bounds_the_window(datasets):
    mixture = Mixture(datasets)
    with pytest.raises(UsageError, match="hold no window"):
        mixture.stream(batch_size=8, memory=1000, threads=0)
    with pytest.raises(UsageError, match="not both"):
        mixture.stream(batch_size=8, memory=1 << 30, window=8)
    some = mixture.stream(batch_size=8, memory=1 << 20, threads=0)
    more = mixture.stream(batch_size=8, memory=2 << 20, threads=0)
    assert 8 <= some.window < more.window
    alone = datasets[0].stream(batch_size=8, memory=1 << 20, threads=0)
    assert some.window <= alone.window
    assert sum(b.size for b in some) == 120


def test_a_state_of_another_mixture_is_refused(datasets):
    state = Mixture(datasets, (1, 1)).stream(batch_size=8).state_dict()
    with pytest.raises(UsageError, match="fingerprint"):
        Mixture(datasets, (1, 2)).stream(batch_size=8).load_state_dict(state)


@pytest.mark.parametrize("shares", [(1,), (-1, 2), (0, 0)])
def test_impossible_shares_are_refused(datasets, shares):
    with pytest.raises(UsageError, match="shares"):
        Mixture(datasets, shares)
