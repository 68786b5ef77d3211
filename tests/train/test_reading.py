"""Training through caches: the same run, their counters in the log, errors in the configuration."""

from __future__ import annotations

import pytest
from worlds import config, metrics

from holoshard.shards.errors import ConfigError
from holoshard.train.configfile import dump_config, parse_config
from holoshard.train.loop import Trainer
from holoshard.train.parallel.mesh import start, stop


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


@pytest.mark.parametrize(
    ("text", "words"),
    [('tiers = ["nvme"]', "memory:2GiB"), ("tiers = 3", "a list"), ("tiers = [3]", r"cache.tiers\[0\]"),
     ('prefetch = "lots"', "not a size"), ("readers = 0", "at least 1")],
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
