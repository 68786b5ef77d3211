"""Several data sets in one stream."""

from __future__ import annotations

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


def test_a_state_of_another_mixture_is_refused(datasets):
    state = Mixture(datasets, (1, 1)).stream(batch_size=8).state_dict()
    with pytest.raises(UsageError, match="fingerprint"):
        Mixture(datasets, (1, 2)).stream(batch_size=8).load_state_dict(state)


@pytest.mark.parametrize("shares", [(1,), (-1, 2), (0, 0)])
def test_impossible_shares_are_refused(datasets, shares):
    with pytest.raises(UsageError, match="shares"):
        Mixture(datasets, shares)
