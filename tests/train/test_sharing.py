from __future__ import annotations

import pytest
from worlds import config, largest_difference, metrics, run_world, train

from holoshard.shards.errors import ConfigError
from holoshard.train.config import ModelConfig
from holoshard.train.configfile import parse_config
from holoshard.train.model.sharing import group_sizes
from holoshard.train.model.transformer import parameter_count

FOUR = {"layers": 4}


@pytest.mark.parametrize(
    ("spec", "sizes"),
    [
        ("none", [1] * 5),
        ("all", [5]),
        ("pairs", [2, 2, 1]),
        ("1, 3,1", [1, 3, 1]),
        ("2x2, 1", [2, 2, 1]),
    ],
)
def test_groups(spec, sizes):
    assert group_sizes(spec, 5) == sizes


@pytest.mark.parametrize("spec", ["some", "2,2", "2x2, 2", "0, 5", "-1, 6", ""])
def test_wrong_groups_are_refused(spec):
    with pytest.raises(ConfigError, match=r"x\.toml: model\.share_ffn_out"):
        parse_config(f'[model]\nlayers = 5\nshare_ffn_out = "{spec}"', "x.toml")


@pytest.mark.parametrize(("spec", "groups"), [("all", 1), ("pairs", 6), ("5x2, 2x1", 7)])
def test_sharing_saves_what_arithmetic_says(spec, groups):
    plain = ModelConfig(width=48, layers=12, heads=4, hidden=100)
    shared = ModelConfig(width=48, layers=12, heads=4, hidden=100, share_ffn_out=spec)
    assert parameter_count(plain) - parameter_count(shared) == (12 - groups) * (100 * 48 + 48)


@pytest.fixture(scope="module")
def alone(shards, tmp_path_factory):
    """A run in one process whose layers share in pairs."""
    folder = tmp_path_factory.mktemp("alone")
    run_world(1, train, config(shards, model={**FOUR, "share_ffn_out": "pairs"}), str(folder))
    return folder


@pytest.mark.parametrize(
    ("size", "parallel"),
    [
        (2, {}),
        (2, {"tensor": 2}),
        (2, {"pipeline": 2}),
        (4, {"tensor": 2, "reshard": "grad_op"}),
        (4, {"replicate": 2, "accumulate": 2, "checkpointing": "full"}),
    ],
    ids=str,
)
def test_shared_layers_train_the_same_in_every_mode(alone, shards, tmp_path, size, parallel):
    text = config(shards, model={**FOUR, "share_ffn_out": "pairs"}, parallel=parallel)
    run_world(size, train, text, str(tmp_path))
    assert largest_difference(alone, tmp_path) <= 1e-5
    assert largest_difference(alone, tmp_path, "grad_norm") <= 1e-5


def test_sharing_is_another_model(alone, shards, tmp_path):
    run_world(1, train, config(shards, model=FOUR), str(tmp_path))
    assert metrics(tmp_path)[10]["loss"] != metrics(alone)[10]["loss"]
