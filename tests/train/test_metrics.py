"""Every figure against an independent definition; intervals against exact enumeration."""

from __future__ import annotations

import itertools
import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from holoshard.shards.errors import DataError
from holoshard.train.judge import bootstrap, correlation, metrics


def sample(seed=0, n=200, noise=0.8, decimals=None):
    rng = np.random.default_rng(seed)
    true = rng.normal(6.5, 1.4, n)
    pred = 0.7 * true + 1.5 + noise * rng.normal(size=n)
    return (true, pred) if decimals is None else (true.round(decimals), pred.round(decimals))


@pytest.mark.parametrize("decimals", [None, 0, 1])
@pytest.mark.parametrize("seed", range(5))
def test_figures_agree_with_scipy(seed, decimals):
    true, pred = sample(seed, decimals=decimals)
    result = metrics.summarise(true, pred, n_boot=0)
    line = stats.linregress(pred, true)
    assert result["pearson"] == pytest.approx(stats.pearsonr(true, pred).statistic, abs=1e-12)
    assert result["spearman"] == pytest.approx(stats.spearmanr(true, pred).statistic, abs=1e-12)
    assert result["rmse"] == pytest.approx(math.sqrt(np.mean((true - pred) ** 2)), abs=1e-12)
    assert result["mae"] == pytest.approx(np.abs(true - pred).mean(), abs=1e-12)
    assert result["bias"] == pytest.approx((pred - true).mean(), abs=1e-12)
    residual = true - line.intercept - line.slope * pred
    assert result["sd"] == pytest.approx(math.sqrt((residual**2).sum() / (len(true) - 1)), abs=1e-12)
    assert result["rmse_ci"] is None


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6), st.integers(0, 4)), min_size=3, max_size=30))
def test_weights_are_repeats(rows):
    x, y, w = (np.array(column, dtype=float) for column in zip(*rows, strict=True))
    repeated_x, repeated_y = np.repeat(x, w.astype(int)), np.repeat(y, w.astype(int))
    r, rho = correlation.pearson(x, y, w[None])[0], correlation.spearman(x, y, w[None])[0]
    if len(set(repeated_x)) < 2 or len(set(repeated_y)) < 2:
        assert np.isnan(r)
        assert np.isnan(rho)
    else:
        assert r == pytest.approx(stats.pearsonr(repeated_x, repeated_y).statistic, abs=1e-9)
        assert rho == pytest.approx(stats.spearmanr(repeated_x, repeated_y).statistic, abs=1e-9)


def test_far_from_zero_loses_no_digits():
    true, pred = sample()
    r = correlation.pearson(true + 1e6, pred + 1e6, np.ones((1, len(true))))[0]
    assert r == pytest.approx(stats.pearsonr(true, pred).statistic, abs=1e-8)


def test_drawing_groups_gives_the_exact_distribution():
    # Three groups: all 27 ordered draws can be written down, each as likely as the next.
    true = np.array([5.0, 6.0, 7.0, 8.0, 4.0, 9.0])
    pred = np.array([5.5, 5.0, 7.5, 6.0, 4.5, 9.5])
    groups = ["a", "a", "b", "b", "b", "c"]
    error = {g: (pred - true)[[x == g for x in groups]] for g in "abc"}
    exact = [
        math.sqrt(np.mean(np.concatenate([error[g] for g in draw]) ** 2))
        for draw in itertools.product("abc", repeat=3)
    ]
    rows = metrics._rows(true, np.ones(6, dtype=bool), groups, None)
    drawn = np.concatenate(
        [metrics.statistics(rows, pred, w)["rmse"] for w in bootstrap.weights(rows.unit, 20_000, 0)]
    )
    values, counts = np.unique(drawn.round(9), return_counts=True)
    expected, expected_counts = np.unique(np.round(exact, 9), return_counts=True)
    assert values == pytest.approx(expected)
    assert counts / 20_000 == pytest.approx(expected_counts / 27, abs=0.012)  # 4 standard errors


def test_groups_are_drawn_whole_and_as_many_as_there_are():
    unit = bootstrap.units(["a", "b", "a", "", "c", "", None], 7)
    assert unit.tolist() == [0, 1, 0, 2, 3, 4, 5]  # rows of an unknown group stand alone
    drawn = np.concatenate(list(bootstrap.weights(unit, 50, 0)))
    assert (drawn[:, 0] == drawn[:, 2]).all()
    assert (drawn[:, [0, 1, 3, 4, 5, 6]].sum(axis=1) == 6).all()


def test_pieces_do_not_change_the_draws(monkeypatch):
    unit = bootstrap.units(None, 31)
    whole = np.concatenate(list(bootstrap.weights(unit, 40, 3)))
    monkeypatch.setattr(bootstrap, "ELEMENTS", 31 * 7)
    pieces = list(bootstrap.weights(unit, 40, 3))
    assert len(pieces) == 6
    assert np.array_equal(np.concatenate(pieces), whole)


def test_interval_of_independent_rows_agrees_with_scipy():
    true, pred = sample(n=150)
    ours = metrics.summarise(true, pred, n_boot=4000)["mae_ci"]
    theirs = stats.bootstrap(
        (np.abs(true - pred),), np.mean, n_resamples=4000, method="percentile", rng=np.random.default_rng(1)
    ).confidence_interval
    assert ours == pytest.approx([theirs.low, theirs.high], abs=0.01)


def test_groups_that_err_together_widen_the_interval():
    rng = np.random.default_rng(0)
    groups = np.repeat(np.arange(12), 20).astype(str)
    true = rng.normal(6, 1, 240)
    pred = true + np.repeat(rng.normal(0, 1, 12), 20)
    alone = metrics.summarise(true, pred)["bias_ci"]
    together = metrics.summarise(true, pred, groups)["bias_ci"]
    # Errors are equal within a group, so the standard error grows by the root of the group's size.
    assert (together[1] - together[0]) / (alone[1] - alone[0]) == pytest.approx(math.sqrt(20), rel=0.25)


def test_cover_of_the_interval():
    rng = np.random.default_rng(5)
    hits = 0
    for trial in range(150):
        error = rng.normal(0.3, 1, 80)
        low, high = metrics.summarise(np.zeros(80), error, n_boot=300, seed=trial)["bias_ci"]
        hits += low <= 0.3 <= high
    assert 0.88 <= hits / 150 <= 0.99


def test_seed_decides():
    true, pred = sample(n=40)
    again = [metrics.summarise(true, pred, seed=s, n_boot=100) for s in (1, 1, 2)]
    assert again[0] == again[1]
    assert again[0]["rmse_ci"] != again[2]["rmse_ci"]


@pytest.mark.parametrize("constant", [6.3, 0.1, 1e6 / 3, 0.0])
def test_constant_predictions_have_no_correlation(constant):
    true, _ = sample(n=50)
    result = metrics.summarise(true, np.full(50, constant), targets=["t"] * 50, n_boot=50)
    assert [result[name] for name in ("pearson", "spearman", "within_target")] == [None, None, None]
    assert result["pearson_ci"] is None
    assert result["sd"] == pytest.approx(true.std(ddof=1))
    assert result["rmse"] == pytest.approx(math.sqrt(np.mean((true - constant) ** 2)))
    json.loads(json.dumps(result, allow_nan=False))


@pytest.mark.parametrize("n", [0, 1, 2])
def test_few_rows(n):
    result = metrics.summarise(np.arange(n) + 5.0, np.arange(n) + 5.5, n_boot=20)
    assert result["n"] == n
    assert result["rmse"] == (None if n == 0 else pytest.approx(0.5))
    assert result["pearson"] == (pytest.approx(1.0) if n == 2 else None)
    json.dumps(result, allow_nan=False)


def test_one_group_alone_has_no_interval():
    true, pred = sample(n=30)
    result = metrics.summarise(true, pred, ["kinase"] * 30)
    assert result["rmse"] is not None
    assert result["rmse_ci"] is None


def test_bounds_count_only_on_the_wrong_side():
    true = np.array([5.0, 5.0, 9.0, 9.0, 6.0, 7.0, np.nan])
    pred = np.array([4.0, 6.5, 9.5, 8.0, 6.2, 6.8, 5.0])
    relations = ["<", "<=", ">", ">=", "=", "~", "none"]
    result = metrics.summarise(true, pred, relations=relations, n_boot=0)
    assert (result["n"], result["n_exact"], result["n_censored"]) == (6, 2, 4)
    assert result["censored"] == {
        "n": 4, "violated": 2, "mean_violation": pytest.approx(2.5 / 4), "largest_violation": 1.5,
    }  # fmt: skip
    assert result["rmse"] == pytest.approx(0.2)


def test_within_targets():
    rng = np.random.default_rng(2)
    size = {"a": 9, "b": 8, "c": 7, "d": 4, "": 20}
    targets = np.repeat(list(size), list(size.values()))
    true, pred = rng.normal(size=len(targets)), rng.normal(size=len(targets))
    result = metrics.summarise(true, pred, targets=targets, n_boot=0)
    rho = {t: stats.spearmanr(true[targets == t], pred[targets == t]).statistic for t in "abc"}
    assert result["within_target"] == pytest.approx((rho["a"] + rho["b"]) / 2)
    assert result["ranking"] == pytest.approx(np.mean(list(rho.values())))
    assert result["n_targets"] == {"within_target": 2, "ranking": 3}
    power = metrics.casf(result)
    assert power["ranking_power"]["spearman"] == result["ranking"]
    assert power["scoring_power"]["sd"] == result["sd"]


def test_a_target_counts_as_often_as_its_group_is_drawn():
    true = np.tile(np.arange(8.0), 2)
    pred = np.concatenate([np.arange(8.0), -np.arange(8.0)])  # rho 1 in a, -1 in b
    targets = ["a"] * 8 + ["b"] * 8
    rows = metrics._rows(true, np.ones(16, dtype=bool), targets, targets)
    w = np.repeat(np.array([[2.0, 0.0], [1.0, 1.0], [0.0, 2.0]]), 8, axis=1)
    assert metrics.statistics(rows, pred, w)["within_target"] == pytest.approx([1, 0, -1])


def test_predictions_constant_within_a_target_rank_nothing_there():
    true = np.tile(np.arange(8.0), 2)
    pred = np.concatenate([np.arange(8.0), np.full(8, 3.0)])
    result = metrics.summarise(true, pred, targets=["a"] * 8 + ["b"] * 8, n_boot=0)
    assert result["within_target"] == pytest.approx(0.5)


def test_paired_differences():
    true, pred = sample(3)
    other = pred + np.random.default_rng(9).normal(0, 0.05, len(pred)) + 0.2
    result = metrics.paired(true, pred, other)
    a, b = (metrics.summarise(true, p) for p in (pred, other))
    for name in ("rmse", "mae", "bias", "pearson", "spearman", "sd"):
        assert result[name] == pytest.approx(a[name] - b[name], abs=1e-12)
        low, high = result[f"{name}_ci"]
        assert low <= result[name] <= high
    # Nearly the same errors: the difference is known far better than either.
    width = [hi - lo for lo, hi in (result["rmse_ci"], a["rmse_ci"])]
    assert width[0] < width[1] / 3
    same = metrics.paired(true, pred, pred)
    assert same["rmse"] == 0
    assert same["rmse_ci"] == [0, 0]


def test_by_label():
    true, pred = sample(n=30)
    kinds = np.array(["Ki"] * 5 + ["Kd"] * 20 + [""] * 5)
    result = metrics.by_label(kinds, true, pred, n_boot=0)
    assert list(result) == ["Kd", "Ki"]
    assert result["Ki"] == metrics.summarise(true[:5], pred[:5], n_boot=0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([1.0, 2.0], [1.0]), "shape"),
        (([1.0, 2.0], [1.0, np.nan]), "not finite"),
        (([1.0, 2.0], [1.0, 2.0], ["a"]), "groups"),
        (([[1.0]], [[1.0]]), "one dimension"),
    ],
)
def test_wrong_input_is_refused(arguments, message):
    with pytest.raises(DataError, match=message):
        metrics.summarise(*arguments)
