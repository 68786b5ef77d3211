from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import psutil
import pytest
from worlds import config, metrics

from holoshard.train.launch import free_port, is_launched, launch
from holoshard.train.loop import REQUEUE


def test_a_call_that_is_wrong_ends_all(tmp_path, capfd):
    assert launch(["train", str(tmp_path / "none.toml")], 2) == 2
    assert capfd.readouterr().err.count("no configuration") == 2


def test_a_launcher_is_noticed(monkeypatch):
    monkeypatch.delenv("RANK", raising=False)
    assert not is_launched()
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert is_launched()


def test_ports_are_free():
    assert 1024 < free_port() < 65536


@pytest.fixture
def running(shards, tmp_path):
    """A run of two processes that would take long, and its folder."""
    run = {"steps": 100000, "hang_seconds": 8}
    (tmp_path / "c.toml").write_text(config(shards, run=run, checkpoint={"every": 50}))
    command = [sys.executable, "-m", "holoshard", "train", str(tmp_path / "c.toml"), "--nodes", "2"]
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen([*command, "--out", str(tmp_path / "run")], stderr=log, stdout=log,
                                   env={**os.environ, "OMP_NUM_THREADS": "1"})  # fmt: skip
        try:
            deadline = time.monotonic() + 120
            while not (tmp_path / "run" / "checkpoints" / "latest").is_file():
                assert process.poll() is None, (tmp_path / "log").read_text()
                assert time.monotonic() < deadline, (tmp_path / "log").read_text()
                time.sleep(0.1)
            yield process, tmp_path
        finally:
            for child in psutil.Process(process.pid).children() if process.poll() is None else []:
                child.kill()
            process.kill()
            process.wait()


def test_sigterm_reaches_the_processes_which_save(running):
    process, folder = running
    children = psutil.Process(process.pid).children()
    assert len(children) == 2
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == REQUEUE
    assert not any(child.is_running() for child in children)
    last = max(metrics(folder / "run"))
    assert (folder / "run" / "checkpoints" / "latest").read_text().strip() == f"step-{last:08d}"


def test_all_end_when_one_is_killed(running):
    process, folder = running
    children = psutil.Process(process.pid).children()
    children[1].kill()
    assert process.wait(90) == 128 + signal.SIGKILL
    assert "of 2 was killed by signal 9: the others are ended" in (folder / "log").read_text()
    assert not any(child.is_running() for child in children)


def test_who_waits_for_a_frozen_process_says_in_which_exchange(running):
    """The watchdog, not the time limit of the exchange, which would say less, ends the wait."""
    process, folder = running
    frozen = psutil.Process(process.pid).children()[1]
    frozen.suspend()
    deadline = time.monotonic() + 60
    while "last collectives" not in (log := (folder / "log").read_text()) and time.monotonic() < deadline:
        time.sleep(0.2)
    frozen.kill()  # the launcher would give it half a minute to end by itself
    assert process.wait(60) != 0
    assert "process 0 has made no step for" in log
    assert "waits for others" in log
