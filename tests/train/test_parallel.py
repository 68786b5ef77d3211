from __future__ import annotations

import pytest
from worlds import config, largest_difference, metrics, run_world, train

from holoshard.shards.errors import ConfigError
from holoshard.train.config import ModelConfig, ParallelConfig
from holoshard.train.configfile import parse_config
from holoshard.train.model.transformer import AffinityTransformer
from holoshard.train.parallel.apply import layers_of, recompute
from holoshard.train.parallel.mesh import axis_sizes


@pytest.fixture(scope="module")
def alone(shards, tmp_path_factory):
    """A run in one process, which all others must equal."""
    folder = tmp_path_factory.mktemp("alone")
    run_world(1, train, config(shards), str(folder))
    return folder


@pytest.mark.parametrize(
    ("size", "parallel"),
    [
        (2, {}),
        (4, {}),
        (2, {"reshard": "grad_op"}),
        (4, {"reshard": "part", "reshard_size": 2}),
        (4, {"replicate": 2}),
        (2, {"accumulate": 2}),
        (1, {"accumulate": 4}),
        (2, {"offload": True, "prefetch": 2}),
        (2, {"tensor": 2}),
        (4, {"tensor": 2}),
        (4, {"tensor": 4, "checkpointing": "full"}),
    ],
    ids=lambda v: "-".join(f"{k}_{x}" for k, x in v.items()) if isinstance(v, dict) else str(v),
)
def test_same_losses_as_one_process(alone, shards, tmp_path, size, parallel):
    run_world(size, train, config(shards, parallel=parallel), str(tmp_path))
    assert largest_difference(alone, tmp_path) <= 1e-5
    assert largest_difference(alone, tmp_path, "grad_norm") <= 1e-5
    assert metrics(tmp_path)[10]["loss"] != metrics(tmp_path)[1]["loss"]


def test_axes_must_make_the_processes():
    sizes = axis_sizes(parse_config("[parallel]\nreplicate = 2", "x"), 8)
    assert sizes == {"pipeline": 1, "replicate": 2, "shard": 4, "tensor": 1}
    with pytest.raises(ConfigError, match="does not make the 6 processes there are; start a multiple of 4"):
        axis_sizes(parse_config("[parallel]\nreplicate = 4", "x"), 6)
    with pytest.raises(ConfigError, match="start 4"):
        axis_sizes(parse_config("[parallel]\nshard = 4", "x"), 2)


@pytest.mark.parametrize(
    ("every", "layers"),
    [(1, [0, 1, 2, 3, 4, 5, 6]), (1.33, [0, 1, 2, 4, 5, 6]), (1.5, [0, 1, 3, 4, 6]), (2, [0, 2, 4, 6]),
     (2.5, [0, 2, 5]), (3, [0, 3, 6]), (1024, [0])],
)  # fmt: skip
def test_layers_that_are_computed_twice_are_spread_evenly(every, layers):
    model = AffinityTransformer(ModelConfig(width=8, layers=7, heads=1))
    plain = layers_of(model)
    recompute(model, ParallelConfig(checkpointing="layers", checkpoint_every=every))
    assert [i for i, layer in enumerate(model.layers.values()) if layer is not plain[i]] == layers
    assert layers_of(model) == plain
