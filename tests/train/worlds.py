"""Worlds of several processes on this machine, for tests: they start in a moment and are always ended."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import socket
import time
from contextlib import closing
from pathlib import Path

TIMEOUT_S = 120
PORTS_EACH = 64  # a world may start that many groups, each at a port of its own


def run_world(size, function, *arguments, ok=True):
    """Run a function of an importable module in `size` processes; their exit codes."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["holoshard.train.loop", "holoshard.train.cli"])
    port = first_port()
    processes = [
        context.Process(target=_enter, args=(rank, size, port, function, arguments)) for rank in range(size)
    ]
    for process in processes:
        process.start()
    deadline = time.monotonic() + TIMEOUT_S
    try:
        for process in processes:
            process.join(max(0.0, deadline - time.monotonic()))
        codes = [process.exitcode for process in processes]
    finally:
        for process in processes:
            if process.is_alive():
                process.kill()
                process.join()
    assert not ok or codes == [0] * size, f"exit codes {codes}"
    return codes


def first_port():
    """The first of some free ports, below those that a system deals out for outgoing connections."""
    while True:
        port = random.SystemRandom().randrange(10_000, 32_000, PORTS_EACH)
        try:
            for i in range(PORTS_EACH):
                with closing(socket.socket()) as probe:
                    probe.bind(("127.0.0.1", port + i))
        except OSError:
            continue
        return port


def _enter(rank, size, port, function, arguments):
    import torch

    os.environ.update(
        RANK=str(rank), WORLD_SIZE=str(size), LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE=str(size),
        MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), GLOO_SOCKET_IFNAME="lo",
    )  # fmt: skip
    torch.set_num_threads(1)
    raise SystemExit(function(*arguments) or 0)


def train(text, folder, *settings):
    """Train in one process of a world; its exit code."""
    from holoshard.train.cli import run_here
    from holoshard.train.configfile import parse_config

    return run_here(parse_config(text, "test.toml", settings), Path(folder))["exit_code"]


def train_each(texts, base):
    """Train one configuration after the other in the same processes, each in a folder of its name."""
    first = int(os.environ["MASTER_PORT"])
    for i, (name, text) in enumerate(texts.items()):
        os.environ["MASTER_PORT"] = str(first + i)  # a port of its own: the last may still be closing
        train(text, Path(base) / name)


def config(shards, **tables):
    """A configuration that trains in a second or two."""
    base = {
        "data": {"path": str(shards), "batch_size": 8},
        "model": {"width": 32, "layers": 2, "heads": 4, "rbf": 8, "cutoff": 8.0},
        "run": {"steps": 10, "log_every": 1, "eval_every": 5, "threads": 1, "device": "cpu"},
        "checkpoint": {"every": 5, "keep": 9},
    }
    for table, values in tables.items():
        base[table] = {**base.get(table, {}), **values}
    return "\n".join(
        f"[{table}]\n" + "\n".join(f"{k} = {json.dumps(v)}" for k, v in values.items())
        for table, values in base.items()
    )


def metrics(folder):
    """Lines of metrics by step, the later of two for the same step."""
    from holoshard.train.record import read_record

    return {m["step"]: m for m in read_record(Path(folder)) if "loss" in m}


def largest_difference(a, b, name="loss"):
    """Between two runs, over the steps of both, which must be the same."""
    one, two = metrics(a), metrics(b)
    assert list(one) == list(two)
    assert one
    return max(abs(one[step][name] - two[step][name]) for step in one)
