from __future__ import annotations

import json

import pytest
import torch
from toy_model import TINY, make, random_batch
from worlds import config, metrics, run_world, train

from holoshard.__main__ import main
from holoshard.shards.errors import UsageError
from holoshard.train.config import ModelConfig
from holoshard.train.model.transformer import AffinityTransformer, parameter_count
from holoshard.train.predictor import Predictor
from holoshard.train.prune.choose import choose
from holoshard.train.prune.cut import cut_config, cut_tensors, silence
from holoshard.train.prune.importance import HeadWatch, importance, norms
from holoshard.train.prune.prune import load_run

KEPT = [[1], [0, 2, 3]]


def squared(prediction, batch):
    return prediction.square().sum()


def cut_model(model, kept):
    smaller = AffinityTransformer(cut_config(model.config, kept))
    smaller.load_state_dict(cut_tensors(model.state_dict(), model.config, kept))
    return smaller.eval()


def test_cut_equals_silent():
    model = make()
    cut = cut_model(model, KEPT)
    with torch.no_grad():
        whole = model(random_batch())
        silence(model.state_dict(), TINY, KEPT)
        torch.testing.assert_close(cut(random_batch()), model(random_batch()), atol=1e-6, rtol=1e-6)
        assert (cut(random_batch()) - whole).abs().max() > 1e-3
    assert sum(p.numel() for p in cut.parameters()) == parameter_count(cut.config)
    assert [layer.attention.query.out_features for layer in cut.layers.values()] == [8, 24]


def test_cut_twice_equals_cut_once():
    model = make()
    twice = cut_model(cut_model(model, [[0, 1], [0, 2, 3]]), [[1], [0, 1]])
    once = cut_model(model, [[1], [0, 2]])
    assert all(
        torch.equal(a, b)
        for a, b in zip(once.state_dict().values(), twice.state_dict().values(), strict=True)
    )


def test_norm_is_the_mean_of_frobenius_norms():
    """By hand, from the input of the output map; padding and company in the batch do not matter."""
    model, seen = make(), []
    hook = model.layers["1"].attention.out.register_forward_pre_hook(lambda m, x: seen.append(x[0]))
    batch = random_batch((20, 31))
    model(batch)
    hook.remove()
    by_hand = [
        torch.stack([seen[0][b, :n, 8 * h : 8 * h + 8].norm() for h in range(4)])
        for b, n in enumerate((20, 31))
    ]
    expected = torch.stack(by_hand).mean(0).double()
    found = importance(model, [batch], squared, "norm")[1]
    torch.testing.assert_close(found, expected / expected.square().mean().sqrt(), atol=1e-6, rtol=1e-5)
    alone = importance(model, [{k: v[i : i + 1] for k, v in batch.items()} for i in (0, 1)], squared, "norm")
    torch.testing.assert_close(alone[1], found, atol=1e-6, rtol=1e-5)


def test_packed_complexes_have_the_same_norms():
    mask = torch.arange(5) < torch.tensor([[3], [5]])
    output = torch.randn(2, 5, 4 * 8)
    packed = norms(output[mask][None], mask, 8)
    assert packed.shape == (2, 4)
    torch.testing.assert_close(packed, norms(output, mask, 8))
    torch.testing.assert_close(packed[0, 1], output[0, :3, 8:16].norm())


def test_taylor_is_what_silence_would_change():
    """To first order: scale a head's output by 1 - t and look at the loss."""
    model, t = make(), 1e-2
    batch = random_batch((24,), (9,))
    with HeadWatch(model, taylor=True) as watch:
        watch.mask, watch.complexes = batch["atom_mask"], 1
        squared(model(batch), batch).backward()
    means = watch.means()
    for layer in range(2):
        for head in range(4):
            losses = []
            for sign in (-1, 1):
                other = make()
                with torch.no_grad():
                    other.layers[str(layer)].attention.out.weight[:, 8 * head : 8 * head + 8] *= 1 + sign * t
                    losses.append(float(squared(other(batch), batch)))
            slope = abs(losses[1] - losses[0]) / (2 * t)
            assert float(means[layer][head]) == pytest.approx(slope, rel=0.05, abs=2e-3)


def test_layers_are_compared_by_rank_of_their_own_scale():
    model = make()
    with torch.no_grad():
        for name in ("weight", "bias"):
            getattr(model.layers["1"].attention.value, name).mul_(100)
    scores = importance(model, [random_batch()], squared, "norm")
    assert all(layer.square().mean() == pytest.approx(1.0) for layer in scores)
    assert len(choose(scores, 0.5, "norm")[0]) >= 1


def test_choice():
    scores = [torch.tensor([0.1, 0.9, 0.5, 0.4]), torch.tensor([3.0, 2.0, 1.0, 0.05])]
    assert choose(scores, 0.5, "norm") == [[1], [0, 1, 2]]
    assert choose(scores, 0.25, "norm") == [[1], [0]]
    assert choose(scores, 1e-9, "norm") == [[1], [0]]  # at least one a layer
    assert choose(scores, 1.0, "norm") == [[0, 1, 2, 3]] * 2
    assert choose(scores, 0.5, "reversed") == [[0, 2, 3], [3]]
    assert choose(scores, 0.75, "norm", multiple=2) == [[1, 2], [0, 1, 2, 3]]
    random = {str(choose(scores, 0.5, "random", seed=seed)) for seed in range(9)}
    assert len(random) > 4
    assert choose(scores, 0.5, "random", seed=3) == choose(scores, 0.5, "random", seed=3)
    with pytest.raises(UsageError, match=r"--keep 1\.5, expected a share"):
        choose(scores, 1.5, "norm")
    with pytest.raises(UsageError, match="--multiple 3, expected a divisor of the 4 heads"):
        choose(scores, 0.5, "norm", multiple=3)


@pytest.fixture(scope="module")
def trained(shards, tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    run_world(1, train, config(shards, model={"layers": 2, "share_ffn_out": "all"}), str(folder))
    return folder


@pytest.mark.parametrize("by", ["norm", "taylor", "random", "reversed"])
def test_command(trained, tmp_path, capsys, by):
    out = tmp_path / "pruned"
    assert main(["prune", str(trained), "--keep", "0.5", "--by", by, "--out", str(out), "--json"]) == 0
    report = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert sum(report["heads_after"]) == 4
    assert report["parameters"][1] < report["parameters"][0]
    assert report["flops"][1] < report["flops"][0]
    assert report["rmse"][0] > 0
    assert Predictor.load(out).config.model.layer_heads == tuple(report["heads_after"])
    before, after = load_run(trained), load_run(out)
    expected = cut_tensors(before.tensors, before.config.model, report["kept"])
    assert expected.keys() == after.tensors.keys()
    assert all(torch.equal(expected[name], after.tensors[name]) for name in expected)
    assert after.tensors["exp_avg_sq.layers.1.attention.out.weight"].any()


@pytest.mark.parametrize(("size", "parallel"), [(1, {}), (2, {}), (4, {"replicate": 2}), (2, {"tensor": 2})])
def test_the_pruned_run_trains_on(trained, shards, tmp_path, size, parallel):
    out = tmp_path / "pruned"
    multiple = parallel.get("tensor", 1)
    main(["prune", str(trained), "--keep", "0.6", "--multiple", str(multiple), "--out", str(out)])
    heads = load_run(out).config.model.layer_heads
    assert sum(heads) < 8
    model = {"layers": 2, "share_ffn_out": "all", "layer_heads": list(heads)}
    text = config(shards, model=model, parallel=parallel, run={"steps": 14})
    run_world(size, train, text, str(out))
    found = metrics(out)
    assert min(found) == 11
    assert max(found) == 14
    assert found[14]["loss"] < metrics(trained)[1]["loss"]


def test_what_is_no_run_or_in_use_is_refused(trained, tmp_path, capsys):
    assert main(["prune", str(tmp_path), "--out", str(tmp_path / "x")]) == 2
    assert f"no run in {tmp_path}: it has no config.toml" in capsys.readouterr().err
    assert main(["prune", str(trained), "--out", str(trained)]) == 2
    assert "is not empty" in capsys.readouterr().err
    assert main(["prune", str(trained), "--complexes", "0", "--out", str(tmp_path / "x")]) == 2
    assert "--complexes 0, expected at least 1" in capsys.readouterr().err
    assert main(["prune", str(trained), "--out", str(trained / "config.toml")]) == 2
    assert "config.toml is a file, expected a folder" in capsys.readouterr().err


def test_a_prune_that_was_cut_short_is_begun_anew(trained, tmp_path, monkeypatch):
    from holoshard.train.prune import prune as module

    out = tmp_path / "pruned"

    def cut_short(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(module, "export", cut_short)
        with pytest.raises(KeyboardInterrupt):
            module.prune(trained, out, keep=0.5, by="norm", complexes=8)
    assert not list(tmp_path.iterdir())
    (tmp_path / ".pruned.partial").mkdir()  # as a kill leaves it
    (tmp_path / ".pruned.partial" / "rubbish").write_text("x")
    module.prune(trained, out, keep=0.5, by="norm", complexes=8)
    assert [path.name for path in tmp_path.iterdir()] == ["pruned"]
    assert not (out / "rubbish").exists()
    assert load_run(out).config.model.layer_heads


def test_fewer_heads_compute_less():
    from holoshard.train.flops import training_flops

    whole = ModelConfig(width=64, layers=2, heads=8)
    cut = ModelConfig(width=64, layers=2, heads=8, layer_heads=(4, 8))
    spared = training_flops(whole, 100, 10_000) - training_flops(cut, 100, 10_000)
    P = whole.rbf + 5
    assert spared == pytest.approx(6 * (4 * 64 * 32 * 100 + (2 * 32 + 4 * P) * 10_000), rel=0.1)
