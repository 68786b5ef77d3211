from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np
import pytest
from judged_run import small_dataset
from random_complexes import random_complex

from holoshard.shards.errors import MissingExtraError, UsageError
from holoshard.shards.read.dataset import open_dataset
from holoshard.train.judge import baselines
from holoshard.train.judge.baselines import Ligands


def ligands(heavy, contacts=None, smiles=None):
    heavy = np.asarray(heavy, dtype=float)
    n = len(heavy)
    return Ligands(heavy, np.zeros((n, 36)) if contacts is None else contacts, smiles or ("C",) * n)


@pytest.fixture(autouse=True)
def small_forests(monkeypatch):
    monkeypatch.setattr(baselines, "N_TREES", 50)


def test_mean():
    predicted = baselines.fit("mean", ligands([1, 2, 3]), np.array([5.0, 6.0, 10.0]), ligands([9, 9]))
    assert predicted == pytest.approx([7, 7])


def test_heavy_atoms_is_the_line_of_least_squares():
    rng = np.random.default_rng(0)
    heavy, pk = rng.integers(8, 50, 60), rng.normal(6, 1, 60)
    test = np.array([10.0, 33.0])
    slope, intercept = np.polyfit(heavy, pk, 1)
    predicted = baselines.fit("heavy_atoms", ligands(heavy), pk, ligands(test))
    assert predicted == pytest.approx(slope * test + intercept)


def test_heavy_atoms_of_equal_ligands_is_the_mean():
    predicted = baselines.fit("heavy_atoms", ligands([5, 5]), np.array([4.0, 6.0]), ligands([50]))
    assert predicted == pytest.approx([5])


def test_contacts_are_counted_by_elements_within_twelve_angstrom():
    holo = random_complex(np.random.default_rng(1), "x", n_atoms=30)
    position, element = holo.position.copy(), holo.element.copy()
    position[:] = 500  # all out of reach of the five below
    position[:, 0] += 50 * np.arange(30)
    n = holo.n_ligand_atoms
    position[0], element[0] = (0, 0, 0), 6
    position[1], element[1] = (1, 0, 0), 17
    position[n], element[n] = (11.5, 0, 0), 8  # 11.5 from the C, 10.5 from the Cl
    position[n + 1], element[n + 1] = (0, 12.0, 0), 16  # exactly 12 from the C: not within
    position[n + 2], element[n + 2] = (2, 0, 0), 1  # hydrogen is in no pair
    holo = replace(holo, position=position, element=element)
    expected = np.zeros((4, 9))
    expected[baselines.PROTEIN_ELEMENTS.index(8), baselines.LIGAND_ELEMENTS.index(6)] = 1
    expected[baselines.PROTEIN_ELEMENTS.index(8), baselines.LIGAND_ELEMENTS.index(17)] = 1
    assert np.array_equal(baselines.contact_counts(holo), expected.ravel())


def test_contacts_agree_with_a_loop():
    holo = random_complex(np.random.default_rng(2), "x", n_atoms=60)
    counts = dict.fromkeys([(p, q) for p in (6, 7, 8, 16) for q in (6, 7, 8, 9, 15, 16, 17, 35, 53)], 0)
    for i in range(holo.n_ligand_atoms):
        for j in range(holo.n_ligand_atoms, holo.n_atoms):
            pair = (int(holo.element[j]), int(holo.element[i]))
            distance = np.linalg.norm(holo.position[i].astype(float) - holo.position[j].astype(float))
            if distance < 12 and pair in counts:
                counts[pair] += 1
    assert sum(counts.values()) > 20
    assert baselines.contact_counts(holo).tolist() == list(counts.values())


def test_fingerprints_tell_ligands_apart():
    pytest.importorskip("rdkit")
    bits = baselines.fingerprints(["c1ccccc1O", "Oc1ccccc1", "CCCCN", "not a molecule", ""])
    assert np.array_equal(bits[0], bits[1])
    assert not np.array_equal(bits[0], bits[2])
    assert bits[3:].sum() == 0


def test_forests_learn_from_their_features_alone():
    pytest.importorskip("sklearn")
    pytest.importorskip("rdkit")
    rng = np.random.default_rng(0)
    contacts = rng.integers(0, 50, (120, 36)).astype(float)
    pk = contacts[:, 3] / 10
    both = ligands(np.ones(120), contacts)
    predicted = baselines.fit("contacts", both, pk, both, seed=1)
    assert np.corrcoef(predicted, pk)[0, 1] > 0.9
    assert np.array_equal(predicted, baselines.fit("contacts", both, pk, both, seed=1))
    smiles = ("CCO", "c1ccccc1") * 60
    told = ligands(np.ones(120), smiles=smiles)
    predicted = baselines.fit("fingerprints", told, np.array([4.0, 8.0] * 60), told)
    assert predicted == pytest.approx([4, 8] * 60)


def test_an_unknown_name_is_refused():
    with pytest.raises(UsageError, match="fingerprints"):
        baselines.fit("vina", ligands([1]), np.array([5.0]), ligands([1]))


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    return open_dataset(small_dataset(tmp_path_factory.mktemp("baselines")))


def test_only_exact_training_labels_are_learnt_from(dataset):
    train, test = dataset.indices("train"), dataset.indices("test")
    predicted, left_out = baselines.predict_baselines(dataset, train, test, names=("mean", "heavy_atoms"))
    exact = [dataset[int(i)].affinity for i in train]
    mean = np.mean([a.pk for a in exact if a.relation == "="])
    assert any(a.relation == "<" for a in exact)
    assert predicted["mean"] == pytest.approx(np.full(len(test), mean))
    assert not left_out
    heavy = np.array([dataset[int(i)].n_ligand_atoms for i in test])
    assert np.corrcoef(predicted["heavy_atoms"], heavy)[0, 1] == pytest.approx(1)


def test_a_missing_package_leaves_its_baselines_out(dataset, monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.ensemble", None)
    train, test = dataset.indices("train"), dataset.indices("test")
    predicted, left_out = baselines.predict_baselines(dataset, train, test)
    assert set(predicted) == {"mean", "heavy_atoms"}
    assert set(left_out) == {"fingerprints", "contacts"}
    assert "holoshard[bench]" in left_out["contacts"]
    with pytest.raises(MissingExtraError):
        baselines.fit("contacts", ligands([1]), np.array([5.0]), ligands([1]))


def test_without_an_exact_label_there_is_nothing_to_learn(dataset):
    train = np.array([i for i in dataset.indices("train") if dataset[int(i)].affinity.relation == "<"])
    with pytest.raises(UsageError, match="exact labels"):
        baselines.predict_baselines(dataset, train, dataset.indices("test"))
