from __future__ import annotations

import subprocess
import sys
import time

from worlds import run_world

from holoshard.train.watchdog import HUNG, Watchdog

SCRIPT = """
import time
from holoshard.train.watchdog import Watchdog
def stuck_here():
    time.sleep(60)
with Watchdog(0.5, 3, lambda: "step 7, after forward"):
    stuck_here()
"""


def test_a_hang_prints_stacks_and_ends():
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=50, check=False
    )
    assert done.returncode == HUNG
    assert "process 3 has made no step" in done.stderr
    assert "step 7, after forward" in done.stderr
    assert "in stuck_here" in done.stderr
    assert "last collectives" in done.stderr


def all_but_one_meet(log):
    """A world in which one process never comes to a sum."""
    import os

    os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND), 2)

    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    with Watchdog(2.0, dist.get_rank(), lambda: "a sum"):
        dist.all_reduce(torch.ones(3))
        if dist.get_rank() == 1:
            print("pid", os.getpid(), flush=True)
            time.sleep(60)
        dist.all_reduce(torch.ones(5))


def test_every_process_tells_its_last_collectives(tmp_path):
    log = tmp_path / "log"
    assert run_world(2, all_but_one_meet, str(log), ok=False) == [HUNG, HUNG]
    err = log.read_text()
    assert "process 0 has made no step" in err
    assert "process 1 has made no step" in err
    # The reports of processes that write to one log do not mix.
    for report in err.split("holoshard: process ")[1:]:
        assert report.startswith(("0 has made", "1 has made"))
        assert report.count("in all_but_one_meet") == 1
        assert report.count("last collectives") == 1
        assert report.splitlines()[-1].startswith("last collectives")
    told = [line for line in err.splitlines() if line.startswith("last collectives")]
    waits, ends = sorted(told, key=len, reverse=True)
    assert "all_reduce [[5]] in group 0, number 2: waits for others" in waits
    assert "all_reduce [[3]] in group 0, number 1: ended" in ends
    assert "waits" not in ends


def test_signs_of_life_keep_it_quiet():
    with Watchdog(0.4, 0, lambda: "") as watchdog:
        for _ in range(12):
            time.sleep(0.1)
            watchdog.beat()


def test_zero_is_never():
    with Watchdog(0, 0, lambda: "") as watchdog:
        assert not watchdog._thread.is_alive()
