from __future__ import annotations

import math

import pytest
import torch

from holoshard.shards.complex import RELATIONS
from holoshard.train.config import LossConfig
from holoshard.train.model.loss import affinity_loss, label_weight

HUBER = LossConfig()


def loss(predicted, pk, relation, config=HUBER, weight=1.0, log_sd=None):
    prediction = torch.tensor([[predicted] + ([] if log_sd is None else [log_sd])], requires_grad=True)
    r = torch.tensor([RELATIONS.index(relation)])
    w = label_weight(torch.tensor([pk]), r, torch.tensor([weight]), config)
    value = affinity_loss(prediction, torch.tensor([pk]), r, w, config)
    (gradient,) = torch.autograd.grad(value, prediction)
    return value.item(), gradient[0, 0].item(), w.item()


@pytest.mark.parametrize("relation", ["=", "~"])
def test_exact_labels_pull_from_both_sides(relation):
    assert loss(6.5, 6.0, relation)[:2] == pytest.approx((0.125, 0.5))
    assert loss(5.5, 6.0, relation)[:2] == pytest.approx((0.125, -0.5))
    assert loss(9.0, 6.0, relation)[:2] == pytest.approx((2.5, 1.0))  # linear beyond delta = 1


@pytest.mark.parametrize("relation", ["<", "<="])
def test_upper_bounds_pull_down_only(relation):
    assert loss(6.5, 6.0, relation)[:2] == pytest.approx((0.125, 0.5))
    assert loss(3.0, 6.0, relation)[:2] == (0.0, 0.0)


@pytest.mark.parametrize("relation", [">", ">="])
def test_lower_bounds_pull_up_only(relation):
    assert loss(5.5, 6.0, relation)[:2] == pytest.approx((0.125, -0.5))
    assert loss(9.0, 6.0, relation)[:2] == (0.0, 0.0)


def test_bounds_can_be_left_out():
    assert loss(6.5, 6.0, "<", LossConfig(censored=False)) == (0.0, 0.0, 0.0)


@pytest.mark.parametrize(("pk", "relation"), [(math.nan, "none"), (math.nan, "="), (6.0, "none")])
def test_rows_without_a_label_say_nothing(pk, relation):
    assert loss(9.0, pk, relation) == (0.0, 0.0, 0.0)


def test_weights_multiply():
    assert loss(6.5, 6.0, "=", weight=3.0)[0] == pytest.approx(0.375)


def test_squared_error():
    assert loss(9.0, 6.0, "=", LossConfig(kind="mse"))[0] == pytest.approx(9.0)


def test_likelihood_is_the_gaussian():
    expected = 0.5 * (1.0 / 2.0) ** 2 + math.log(2.0) + 0.5 * math.log(2 * math.pi)
    assert loss(7.0, 6.0, "=", log_sd=math.log(2.0))[0] == pytest.approx(expected)


@pytest.mark.parametrize(("relation", "z"), [("<", -0.5), (">", 0.5)])
def test_likelihood_of_a_bound_is_its_side(relation, z):
    expected = -math.log(0.5 * (1 + math.erf(z / math.sqrt(2))))
    assert loss(7.0, 6.0, relation, log_sd=math.log(2.0))[0] == pytest.approx(expected, rel=1e-5)


def test_a_batch_is_the_sum_of_its_rows():
    torch.manual_seed(0)
    p, pk, r = torch.randn(16, 1), torch.randn(16), torch.randint(0, len(RELATIONS), (16,))
    w = label_weight(pk, r, torch.ones(16), LossConfig())
    whole = affinity_loss(p, pk, r, w, LossConfig())
    rows = sum(
        affinity_loss(p[i : i + 1], pk[i : i + 1], r[i : i + 1], w[i : i + 1], LossConfig())
        for i in range(16)
    )
    torch.testing.assert_close(whole, rows)
