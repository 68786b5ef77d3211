from __future__ import annotations

import pytest
import torch
from toy_model import make, random_batch
from worlds import config, largest_difference, run_world, train

from holoshard.train.model.packing import attend_flex, attend_packed, pack
from holoshard.train.model.pairs import near_pairs


def spread_batch():
    batch = random_batch((20, 31, 5), (7, 12, 3))
    batch["bond_atoms"][2] = batch["bond_atoms"][2].clamp(max=4)
    batch["bond_mask"][2, 4:] = False
    batch["position"] = batch["position"] * 2.0
    return batch


def test_packed_and_padded_give_the_same_predictions_and_gradients():
    model, batch = make().train(), spread_batch()
    packed = pack(batch, model.config.cutoff)
    assert packed["position"].shape == (1, 56, 3)
    assert packed["rows"].sizes == (20, 31, 5)
    found, gradients = [], []
    for each in (batch, packed):
        model.zero_grad()
        out = model(each)
        out.square().sum().backward()
        found.append(out.detach())
        gradients.append({n: p.grad.clone() for n, p in model.named_parameters()})
    torch.testing.assert_close(*found, rtol=0, atol=1e-5)
    for name, gradient in gradients[0].items():
        torch.testing.assert_close(gradient, gradients[1][name], rtol=1e-4, atol=2e-5)


def test_a_packed_complex_does_not_see_its_neighbour():
    model, batch = make(), spread_batch()
    with torch.no_grad():
        here = model(pack(batch, 8.0))
        batch["position"][0] += torch.tensor([3.0, 0.0, 0.0]) * torch.arange(31)[:, None]
        there = model(pack(batch, 8.0))
    assert (here - there)[0].abs() > 1e-4
    assert (here - there)[1:].abs().max() < 1e-6


def test_near_pairs_of_a_packed_batch_are_those_of_the_padded():
    batch = spread_batch()
    packed = pack(batch, 8.0)
    assert len(packed["near"]) == len(near_pairs(batch, 8.0))
    assert (packed["near"].diff() > 0).all()
    one, other = packed["near_atoms"]
    assert torch.equal(packed["rows"].segment[one], packed["rows"].segment[other])


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_flex_attention_gives_the_same_numbers():
    generator = torch.Generator().manual_seed(0)
    rows = pack(spread_batch(), 8.0)["rows"]
    q, k, v = (torch.randn(2, 1, 56, 8, generator=generator) for _ in range(3))
    bias = torch.randn(2, 20**2 + 31**2 + 5**2, generator=generator)
    with torch.no_grad():
        flex = attend_flex(q, k, v, bias, rows)
        torch.testing.assert_close(flex, attend_packed(q, k, v, bias, rows), rtol=0, atol=1e-5)


def test_a_packed_run_is_the_padded_run(shards, tmp_path):
    text = config(shards, model={"uncertainty": True, "kind_offsets": True})
    run_world(2, train, text, str(tmp_path / "padded"), "--data.batch_size", "7")
    run_world(2, train, text, str(tmp_path / "packed"), "--data.batch_size", "7", "--data.packed")
    assert largest_difference(tmp_path / "padded", tmp_path / "packed") <= 1e-5
