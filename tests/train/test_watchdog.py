from __future__ import annotations

import subprocess
import sys
import time

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


def test_signs_of_life_keep_it_quiet():
    with Watchdog(0.4, 0, lambda: "") as watchdog:
        for _ in range(12):
            time.sleep(0.1)
            watchdog.beat()


def test_zero_is_never():
    with Watchdog(0, 0, lambda: "") as watchdog:
        assert not watchdog._thread.is_alive()
