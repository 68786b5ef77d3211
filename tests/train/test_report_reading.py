"""The report's tables of waiting and of caches, from the lines of a log."""

from __future__ import annotations

import json

import pytest
from worlds import config

from holoshard.train.configfile import parse_config
from holoshard.train.judge.reading import reading
from holoshard.train.judge.report import write_report
from holoshard.train.judge.runlog import read_log
from holoshard.train.loop import Trainer
from holoshard.train.parallel.mesh import start, stop


def logged(folder, *lines):
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return "\n".join(reading(read_log(folder)))


def test_waiting_is_weighed_by_time_and_names_the_worst_part(tmp_path):
    html = logged(
        tmp_path,
        {"step": 1, "seconds": 1.0, "io_wait": [0.5, 0.1]},
        {"step": 2, "seconds": 9.0, "io_wait": [0.0, 0.1]},
    )
    assert "7.50%" in html  # the mean of 5 % and 10 %
    assert "10.00%" in html
    assert "number 1 of 2" in html
    assert "cache advise" in html
    calm = logged(tmp_path, {"step": 1, "seconds": 1.0, "io_wait": [0.001, 0.002]})
    assert "cache advise" not in calm
    changed = logged(
        tmp_path,
        {"step": 1, "seconds": 1, "io_wait": [0.9]},
        {"step": 2, "seconds": 1, "io_wait": [0.0, 0.0]},
    )
    assert "0.00%" in changed


def test_a_log_without_either_shows_nothing(tmp_path):
    assert logged(tmp_path, {"step": 1, "loss": 1.0}) == ""


def test_a_run_through_caches_has_its_tiers_in_the_report(shards, tmp_path):
    pytest.importorskip("matplotlib")
    cache = {"tiers": ["memory:1MiB"], "decoded": "memory:1MiB", "prefetch": "1MiB"}
    checked = parse_config(config(shards, cache=cache, run={"steps": 12}), "test.toml")
    try:
        Trainer(checked, tmp_path / "run", start(checked)).run()
    finally:
        stop()
    html = write_report(tmp_path / "run").read_text()
    for words in (
        "io_wait by part of the batch",
        ">memory<",
        ">decoded<",
        "From the data set itself",
        "Read ahead",
    ):
        assert words in html
