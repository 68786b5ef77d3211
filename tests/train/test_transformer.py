from __future__ import annotations

import pytest
import torch
from toy_model import TINY, make, random_batch, rotation

from holoshard.shards.complex import KINDS
from holoshard.train.config import ModelConfig
from holoshard.train.data import empty_tensors
from holoshard.train.model.pairs import near_pairs, pair_features
from holoshard.train.model.transformer import (
    AffinityTransformer,
    first_weights,
    parameter_count,
)


@pytest.mark.parametrize("seed", range(5))
def test_rotation_and_shift_change_nothing(seed):
    model, batch = make(), random_batch(seed=seed)
    with torch.no_grad():
        here = model(batch)
        batch["position"] = batch["position"] @ rotation(seed).T + torch.tensor([70.0, -40.0, 55.0])
        there = model(batch)
    assert here.abs().max() > 0.1
    assert (here - there).abs().max() < 1e-4


def test_distance_matters():
    model, batch = make(), random_batch()
    with torch.no_grad():
        here = model(batch)
        batch["position"][:, 25:] += 1.0
        moved = model(batch)
    assert (here - moved)[1].abs() > 1e-4
    assert (here - moved)[0].abs() < 1e-6  # it has 20 atoms: only padding moved


def test_padding_changes_nothing():
    model = make()
    short, long = random_batch((20, 31), (7, 12)), random_batch((20, 31), (7, 12), N=31)
    padded = {
        k: torch.nn.functional.pad(v, (0, 0) * (v.ndim - 2) + (0, 9))
        if v.ndim > 1 and v.shape[1] == 31
        else v
        for k, v in long.items()
    }
    with torch.no_grad():
        torch.testing.assert_close(model(short), model(padded), rtol=0, atol=1e-5)


def test_order_of_atoms_does_not_matter():
    model, batch = make(), random_batch((30, 30), (9, 9))
    order = torch.randperm(30, generator=torch.Generator().manual_seed(3))
    place = torch.argsort(order)
    moved = {k: v[:, order] if v.ndim > 1 and v.shape[1] == 30 else v for k, v in batch.items()}
    moved["bond_atoms"] = place[batch["bond_atoms"]]
    with torch.no_grad():
        torch.testing.assert_close(model(batch), model(moved), rtol=0, atol=1e-5)


def test_bonds_matter():
    model, batch = make(), random_batch()
    with torch.no_grad():
        here = model(batch)
        batch["bond_order"][0, 0] = batch["bond_order"][0, 0] % 4 + 1
        there = model(batch)
    assert (here - there)[0].abs() > 1e-6
    assert (here - there)[1].abs() == 0


def test_pair_features_at_known_distances():
    batch = random_batch((3,), (3,))
    batch["position"] = torch.tensor([[[0.0, 0, 0], [4.0, 0, 0], [0, 9.0, 0]]])
    batch["bond_atoms"] = torch.tensor([[[0, 1]]])
    batch["bond_order"], batch["bond_mask"] = torch.tensor([[2]]), torch.tensor([[True]])
    pairs = pair_features(batch, rbf=5, cutoff=8.0)
    f = pairs.dense(pairs.features, 1, 3)[:, 0]
    gauss = torch.exp(-0.5 * ((4.0 - torch.linspace(0, 8, 5)) / 2.0) ** 2) * 0.5  # switch at half the cutoff
    torch.testing.assert_close(f[:5, 0, 1], gauss)
    assert f[:5, 0, 2].abs().max() == 0  # beyond the cutoff
    assert f[5:, 0, 1].tolist() == [0, 0, 1, 0, 0, 0, 0]
    assert torch.equal(f, f.transpose(1, 2))
    assert f[5:, 0, 2].abs().max() == 0


def test_near_pairs_are_all_that_count():
    batch = random_batch()
    batch["position"] = batch["position"] * 2.5  # so that most pairs are beyond 8 angstrom
    batch["position"][1, 1] = batch["position"][1, 0] + 9.0  # a bond longer than the cutoff
    near = batch | {"near": near_pairs(batch, 8.0)}
    assert 0.05 < len(near["near"]) / (2 * 31 * 31) < 0.5
    ours, theirs = (pair_features(b, rbf=8, cutoff=8.0) for b in (near, batch))
    real = (batch["atom_mask"][:, :, None] & batch["atom_mask"][:, None, :])[None]
    every = theirs.dense(theirs.features, 2, 31)
    torch.testing.assert_close(ours.dense(ours.features, 2, 31), every * real, rtol=0, atol=1e-7)
    model = make().train()
    gradients = []
    for b in (near, batch):
        model.zero_grad()
        model(b).sum().backward()
        gradients.append({n: p.grad.clone() for n, p in model.named_parameters()})
    for name, gradient in gradients[0].items():
        torch.testing.assert_close(gradient, gradients[1][name], rtol=1e-4, atol=1e-5)


def test_attention_that_learns_equals_attention_that_does_not():
    model, batch = make(), random_batch()
    with torch.no_grad():
        fast = model(batch)
    torch.testing.assert_close(model(batch).detach(), fast, rtol=0, atol=1e-5)


def test_low_precision_weights_keep_distances_in_float32():
    batch = random_batch()
    exact, low = make(), make().to(torch.bfloat16)
    batch["position"] = batch["position"] + 900.0  # bf16 positions would be 4 angstrom apart here
    with torch.no_grad():
        a, b = exact(batch), low(batch)
    assert b.dtype == torch.float32
    assert (a - b).abs().max() < 0.1 * a.abs().max()


def test_uncertainty_and_kind_offsets():
    config = ModelConfig(width=32, layers=1, heads=2, rbf=4, uncertainty=True, kind_offsets=True)
    model, batch = make(config), random_batch()
    with torch.no_grad():
        model.target_mean.fill_(6.0)
        model.target_sd.fill_(2.0)
        model.kind.weight[:, 0] = torch.arange(len(KINDS)) * 0.1
        first = model(batch)
        batch["pk_kind"] = batch["pk_kind"] + 1
        second = model(batch)
    assert first.shape == (2, 2)
    torch.testing.assert_close(second[:, 0] - first[:, 0], torch.full((2,), 0.1), rtol=0, atol=1e-5)
    torch.testing.assert_close(second[:, 1], first[:, 1])


def test_first_prediction_is_the_mean():
    model = AffinityTransformer(TINY)
    with torch.no_grad():
        for parameter, value in first_weights(model, 0):
            parameter.copy_(value)
        model.target_mean.fill_(6.5)
        torch.testing.assert_close(model(random_batch()), torch.full((2, 1), 6.5))


def test_first_weights_follow_the_seed_and_the_name():
    a, b, c = (dict(zip_names(AffinityTransformer(TINY), seed)) for seed in (0, 0, 1))
    assert all(torch.equal(a[k], b[k]) for k in a)
    assert not torch.equal(a["layers.0.attention.query.weight"], c["layers.0.attention.query.weight"])
    assert not torch.equal(a["layers.0.attention.query.weight"], a["layers.1.attention.query.weight"])
    deep = dict(zip_names(AffinityTransformer(ModelConfig(width=32, layers=3, heads=4, rbf=8)), 0))
    assert torch.equal(a["layers.1.attention.query.weight"], deep["layers.1.attention.query.weight"])
    assert a["layers.0.attention.query.weight"].std() == pytest.approx(32**-0.5, rel=0.1)


def zip_names(model, seed):
    names = {id(p): n for n, p in model.named_parameters()}
    return [(names[id(p)], value) for p, value in first_weights(model, seed)]


def test_a_process_without_a_share_computes_something_finite():
    with torch.no_grad():
        assert make()(empty_tensors()).isfinite().all()


def test_gradients_reach_every_parameter():
    model, batch = make().train(), random_batch()
    model(batch).square().sum().backward()
    missing = [n for n, p in model.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0]
    # A bias of the keys shifts all scores of a query alike: its gradient is zero by nature.
    assert [n for n in missing if not n.endswith("key.bias")] == []


def test_parameter_count_on_the_meta_device():
    assert parameter_count(TINY) == sum(p.numel() for p in make().parameters())
