from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from judged_run import FormulaPredictor, run_folder, small_dataset

from holoshard.shards.complex import Flag
from holoshard.shards.errors import DataError, UsageError
from holoshard.shards.read.dataset import open_dataset
from holoshard.train import predictor
from holoshard.train.judge import baselines, metrics
from holoshard.train.judge.evaluate import evaluate, groups_of, judge, table_of
from holoshard.train.judge.predictions import COLUMNS, PredictionTable, read_predictions, write_predictions


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return small_dataset(tmp_path_factory.mktemp("evaluate"))


@pytest.fixture(scope="module")
def dataset(data):
    return open_dataset(data)


@pytest.fixture
def run(data, tmp_path, monkeypatch):
    monkeypatch.setattr(predictor, "Predictor", FormulaPredictor)
    monkeypatch.setattr(baselines, "N_TREES", 20)
    return run_folder(tmp_path / "run", data)


def table(n=40, seed=0):
    rng = np.random.default_rng(seed)
    pk = rng.normal(6, 1, n)
    return PredictionTable(
        id=tuple(f"x{i}" for i in range(n)), pk=pk, pk_relation=("=",) * n, kind=("Kd", "Ki") * (n // 2),
        predicted=pk + rng.normal(0, 0.5, n), target=("a", "b") * (n // 2), cluster=("",) * n,
    )  # fmt: skip


def test_what_is_written_is_what_was_predicted(run, dataset):
    result = evaluate(run, "test", n_boot=50)
    stored = read_predictions(run / "predictions-test.csv")
    where = dataset.indices("test")
    assert list(stored.id) == [dataset[int(i)].id for i in where]
    truth = [dataset[int(i)] for i in where]
    assert stored.pk == pytest.approx([c.affinity.pk for c in truth], abs=1e-6)
    assert stored.predicted == pytest.approx([4.1 + 0.1 * c.n_ligand_atoms for c in truth], abs=1e-6)
    assert list(stored.pk_relation) == [c.affinity.relation for c in truth]
    assert list(stored.target) == [c.text["columns"]["target"] for c in truth]
    assert json.loads((run / "evaluation-test.json").read_text()) == result
    assert (result["n_predicted"], result["n_synthetic"], result["step"]) == (len(where), 0, 40)
    exact = [c for c in truth if c.affinity.relation == "="]
    error = [4.1 + 0.1 * c.n_ligand_atoms - c.affinity.pk for c in exact]
    assert result["rmse"] == pytest.approx(np.sqrt(np.mean(np.square(error))))
    assert result["n_censored"] == len(truth) - len(exact) > 0
    assert result["unit"] == "cluster"
    assert result["pearson"] > 0.8


def test_the_mean_is_always_beside(run):
    result = evaluate(run, n_boot=50)
    assert list(result["baselines"]) == ["mean"]
    mean = result["baselines"]["mean"]
    assert mean["pearson"] is None
    assert mean["difference"]["rmse"] == pytest.approx(result["rmse"] - mean["rmse"])
    assert mean["difference"]["rmse_ci"][1] < 0  # the formula is better than the mean


def test_all_baselines_and_another_run(run, tmp_path, data, monkeypatch):
    other = run_folder(tmp_path / "other", data)
    monkeypatch.setattr(FormulaPredictor, "offset", 1.1)
    evaluate(other, n_boot=0)
    monkeypatch.setattr(FormulaPredictor, "offset", 0.1)
    result = evaluate(run, n_boot=50, baselines=True, against=[other])
    assert list(result["baselines"]) == list(baselines.BASELINES)
    difference = result["against"]["other"]["difference"]
    assert difference["bias"] == pytest.approx(-1, abs=1e-5)
    assert difference["bias_ci"] == pytest.approx([-1, -1], abs=1e-5)
    shown = table_of(result)
    for word in ("RMSE", "mean", "heavy_atoms", "fingerprints", "contacts", "other", "clusters", "bounds:"):
        assert word in shown
    assert "nan" not in shown.lower()


def test_an_evaluation_is_the_same_again(run):
    first = evaluate(run, n_boot=20, baselines=True)
    written = (run / "evaluation-test.json").read_bytes()
    assert evaluate(run, n_boot=20, baselines=True) == first
    assert (run / "evaluation-test.json").read_bytes() == written


def test_synthetic_complexes_are_counted(tmp_path, monkeypatch):
    monkeypatch.setattr(predictor, "Predictor", FormulaPredictor)
    made = small_dataset(tmp_path, 40, flags=Flag.SYNTHETIC)
    result = evaluate(run_folder(tmp_path / "run", made), n_boot=10)
    assert result["n_synthetic"] == result["n_predicted"] == 16
    assert "synthetic: 16 of 16" in table_of(result)


def test_a_split_that_is_not_there(run):
    with pytest.raises(UsageError, match=r"no split 'holdout'.*train \("):
        evaluate(run, "holdout")


def test_another_run_without_predictions(run, tmp_path):
    with pytest.raises(UsageError, match=r"predictions-test\.csv"):
        evaluate(run, n_boot=0, against=[tmp_path])


def test_what_is_resampled():
    told = table()
    assert groups_of(told) == ("target", told.target)  # no clusters: targets
    assert groups_of(told, "none") == ("complex", None)
    assert judge(told, {}, n_boot=30)["n_units"] == 2
    assert judge(told, {}, n_boot=30, group="none")["n_units"] == 40


@pytest.mark.parametrize(
    ("n", "words"),
    [(2, "drawn from 2 clusters: too few for an interval"), (4, "4 clusters: too few for an interval"),
     (5, "5 clusters: too few for an interval to be trusted"), (9, "to be trusted"), (10, None)],
)  # fmt: skip
def test_few_clusters_are_warned_of(n, words):
    labels = tuple(f"c{i % n}" for i in range(40))
    result = judge(replace(table(), cluster=labels), {"zero": np.zeros(40)}, n_boot=50)
    assert result["n_units"] == n
    assert (result["rmse_ci"] is None) is (n < 5)
    assert (result["baselines"]["zero"]["difference"]["rmse_ci"] is None) is (n < 5)
    told = {"run": "r", "split": "test", "n_synthetic": 0, "baselines_left_out": {}, "against": {}}
    shown = table_of({**result, **told})
    assert ("95 % intervals" in shown) is (n >= 5)
    if words is None:
        assert result["warning"] is None
        assert "warning" not in shown
    else:
        assert result["warning"].endswith(words)
        assert shown.endswith(f"warning: {result['warning']}")


def test_by_kind_and_by_target():
    told = table()
    result = judge(told, {}, n_boot=0)
    even = np.arange(0, 40, 2)
    alone = metrics.summarise(told.pk[even], told.predicted[even], n_boot=0)
    assert result["by_kind"]["Kd"]["rmse"] == alone["rmse"]
    assert result["by_target"]["a"]["spearman"] == alone["spearman"]
    assert result["casf"]["scoring_power"]["pearson"] == result["pearson"]


def test_predictions_survive_the_file(tmp_path):
    told = table(6)
    told.pk[2] = np.nan
    odd = ('say "x", y', "new\nline", "é", "", "=1+1", " spaced ")
    told = PredictionTable(
        odd, told.pk, told.pk_relation, told.kind, told.predicted, told.target, told.cluster
    )
    write_predictions(tmp_path / "p.csv", told)
    read = read_predictions(tmp_path / "p.csv")
    assert read.id == odd
    assert read.pk == pytest.approx(told.pk, abs=1e-6, nan_ok=True)
    assert (read.target, read.kind) == (told.target, told.kind)
    assert [p.name for p in tmp_path.iterdir()] == ["p.csv"]


@pytest.mark.parametrize(
    ("text", "message"),
    [("id,pk\nx,1\n", "no column cluster, kind"), (",".join(COLUMNS) + "\nx,many,=,Kd,5,,\n", "column pk")],
)
def test_a_broken_table_is_refused(tmp_path, text, message):
    (tmp_path / "p.csv").write_text(text)
    with pytest.raises(DataError, match=message):
        read_predictions(tmp_path / "p.csv")
