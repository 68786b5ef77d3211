"""Training through caches: the same run, their counters in the log, errors in the configuration."""

from __future__ import annotations

import numpy as np
import pytest
from worlds import config, metrics, run_world, train

from holoshard.cache.extents import read_extents
from holoshard.cache.policy import policy_named
from holoshard.shards.errors import ConfigError
from holoshard.shards.read.dataset import open_dataset
from holoshard.train.configfile import dump_config, parse_config
from holoshard.train.data import sampling_weights, training_stream
from holoshard.train.loop import Trainer
from holoshard.train.parallel.mesh import start, stop
from holoshard.train.placement import Part


def run(text, folder):
    checked = parse_config(text, "test.toml")
    try:
        return Trainer(checked, folder, start(checked)).run()
    finally:
        stop()


def test_caches_change_nothing_but_where_bytes_come_from(shards, tmp_path):
    (tmp_path / "nvme").mkdir()
    settings = {"run": {"epochs": 3, "steps": 0, "eval_every": 0}}
    run(config(shards, **settings), tmp_path / "plain")
    tiers = ["memory:1MiB", f"{tmp_path / 'nvme'}:64MiB"]
    text = config(shards, **settings, cache={"tiers": tiers, "prefetch": "8MiB"})
    run(text, tmp_path / "cached")
    plain, cached = metrics(tmp_path / "plain"), metrics(tmp_path / "cached")
    assert [m["loss"] for m in plain.values()] == [m["loss"] for m in cached.values()]
    last = max(cached)
    assert "cache" not in plain[last]
    told = cached[last]["cache"]
    assert set(told) == {"memory", str(tmp_path / "nvme"), "source", "prefetch"}
    assert told["source"]["fetches"] > 0
    assert told["prefetch"]["requests"] > 0
    run(text, tmp_path / "again")  # another job on the node finds all in the folder
    assert metrics(tmp_path / "again")[last]["cache"]["source"]["fetches"] == 0


def test_decoded_blocks_and_whole_shards_change_nothing_either(shards, tmp_path):
    (tmp_path / "nvme").mkdir()
    settings = {"run": {"epochs": 4, "steps": 0, "eval_every": 0}, "data": {"shuffle": "local"}}
    run(config(shards, **settings), tmp_path / "plain")
    cache = {
        "tiers": [f"{tmp_path / 'nvme'}:64MiB"],
        "decoded": "memory:64MiB",
        "prefetch": "8MiB",
        "whole": True,
    }
    run(config(shards, **settings, cache=cache), tmp_path / "cached")
    plain, cached = metrics(tmp_path / "plain"), metrics(tmp_path / "cached")
    assert [m["loss"] for m in plain.values()] == [m["loss"] for m in cached.values()]
    told = cached[max(cached)]["cache"]
    blocks = told["decoded"]["misses"]
    assert 0 < blocks == told["decoded"]["fills"]
    assert told["decoded"]["hits"] >= 2 * blocks
    assert told["source"]["fetches"] <= blocks
    assert told["prefetch"]["requests"] == blocks


def test_counters_and_waiting_of_all_processes_are_in_the_log(shards, tmp_path):
    (tmp_path / "nvme").mkdir()
    cache = {"tiers": [f"{tmp_path / 'nvme'}:64MiB"], "decoded": "shared:64MiB"}
    text = config(shards, run={"epochs": 2, "steps": 0, "eval_every": 0}, cache=cache)
    run_world(2, train, text, str(tmp_path / "run"))
    last = list(metrics(tmp_path / "run").values())[-1]
    assert len(last["io_wait"]) == 2
    assert all(0 <= wait < 1 for wait in last["io_wait"])
    decoded, source = last["cache"]["decoded"], last["cache"]["source"]
    blocks = len(read_extents(shards).files["train-00000.h5"])
    assert decoded["hits"] + decoded["misses"] == 2 * 2 * blocks  # both ranks read the one lane, twice
    assert decoded["misses"] == source["fetches"] == blocks  # of all processes: once a node


@pytest.mark.parametrize(
    ("data", "cache", "policy"),
    [
        ({}, {}, "never"),
        ({"shuffle": "local"}, {}, "clairvoyant"),
        ({"sample_column": "weight"}, {}, "clairvoyant"),
        ({"shuffle": "local"}, {"policy": "lru"}, "lru"),
        ({"shuffle": "local"}, {"tiers": ["memory:1GiB"], "decoded": "memory:1GiB"}, "never"),
    ],
)
def test_the_policy_follows_from_how_the_data_is_drawn(shards, tmp_path, data, cache, policy):
    cache = {"tiers": ["memory:20KiB"], "decoded": "memory:40KiB", **cache}
    text = config(shards, data=data, cache=cache, run={"epochs": 3, "steps": 0, "eval_every": 0})
    checked = parse_config(text, "test.toml")
    try:
        trainer = Trainer(checked, tmp_path / "run", start(checked))
        tiers = [trainer.reading.cache.tiers[0], trainer.reading.kept.tier]
        assert [type(tier.policy) for tier in tiers] == [type(policy_named(policy))] * 2
        trainer.run()
    finally:
        stop()
    told = metrics(tmp_path / "run")[trainer.last_step]["cache"]
    if policy == "lru":  # the order of reading is the threads', and so is what it forgets
        assert told["decoded"]["evictions"] > 0
    else:
        assert told["decoded"]["hits"] > 0
    if policy == "never":
        assert told["decoded"]["evictions"] == 0


def test_weights_of_a_column_draw_the_complexes(shards):
    checked = parse_config(config(shards, data={"sample_column": "weight"}), "test.toml")
    dataset = open_dataset(shards)
    assert set(sampling_weights(dataset, checked.data).tolist()) == {2.0}
    assert sampling_weights(dataset, parse_config("", "test.toml").data) is None
    weights = np.zeros(dataset.splits["train"], np.float32)
    weights[:5] = 1
    drawn = training_stream(dataset, checked, Part(0, 1), 0, 0, weights=weights)
    assert {int(i) for batch in drawn for i in batch.index} == set(dataset.indices("train")[:5].tolist())


@pytest.mark.parametrize(
    ("text", "value"), [('"global"', True), ('"local"', "local"), ("true", True), ("false", False)]
)
def test_the_shuffle_by_name(text, value):
    made = parse_config(f"[data]\nshuffle = {text}", "test.toml")
    assert made.data.shuffle == value
    assert parse_config(dump_config(made), "again.toml") == made
    assert parse_config("", "test.toml", ["--data.shuffle", text.strip('"')]) == made


@pytest.mark.parametrize(
    ("text", "words"),
    [('tiers = ["nvme"]', "memory:2GiB"), ("tiers = 3", "a list"), ("tiers = [3]", r"cache.tiers\[0\]"),
     ('prefetch = "lots"', "not a size"), 
     ('decoded = "nvme"', "memory:2GiB"), ('policy = "best"', "clairvoyant"), ("whole = true", "cache.tiers"),
     ("readers = 0", "at least 1")],
)  # fmt: skip
def test_wrong_tables_are_named(text, words):
    with pytest.raises(ConfigError, match=words):
        parse_config(f"[cache]\n{text}", "test.toml")


def test_tiers_are_written_and_read_back():
    text = '[cache]\ntiers = ["memory:2GiB", "/local/nvme:256GiB"]'
    made = parse_config(text, "test.toml")
    assert made.cache.tiers == ("memory:2GiB", "/local/nvme:256GiB")
    assert parse_config(dump_config(made), "again.toml") == made


def test_a_data_set_elsewhere_is_read_through_tiers(shards, tmp_path):
    fsspec = pytest.importorskip("fsspec")
    system = fsspec.filesystem("memory")
    for path in shards.iterdir():
        system.pipe_file(f"/reading/{path.name}", path.read_bytes())
    (tmp_path / "nvme").mkdir()
    settings = {"data": {"path": "memory://reading"}, "run": {"epochs": 2, "steps": 0, "eval_every": 0}}
    text = config(shards, **settings, cache={"tiers": [f"{tmp_path / 'nvme'}:64MiB"], "prefetch": "8MiB"})
    for name in ("first", "second"):
        run(text, tmp_path / name)
    first, second = (list(metrics(tmp_path / name).values())[-1] for name in ("first", "second"))
    assert first["loss"] == second["loss"]
    assert first["cache"]["source"]["fetches"] > 0
    assert second["cache"]["source"]["fetches"] == 0


def test_a_shuffle_that_does_not_exist_is_refused():
    for text in ("1", '"sideways"'):
        with pytest.raises(ConfigError, match=r'data.shuffle.*"local"'):
            parse_config(f"[data]\nshuffle = {text}", "test.toml")
