"""Start the processes of a run on this machine, and end all of them when one fails.

Under torchrun or a cluster's launcher, which set RANK and WORLD_SIZE, nothing is started here: the
process is one of a world already.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Final

from .stop import StopSignals

log = logging.getLogger("holoshard")

GRACE_S: Final = 30.0  # for the others to end after the first
POLL_S: Final = 0.1


def is_launched() -> bool:
    """True in a process that a launcher started."""
    return "RANK" in os.environ and "WORLD_SIZE" in os.environ


def launch(arguments: Sequence[str], nodes: int, per_node: int = 1) -> int:
    """Run ``python -m holoshard ARGUMENTS`` as nodes * per_node processes that find each other.

    SIGTERM, SIGUSR1 and SIGINT are handed on as SIGTERM, so that the processes save and end by themselves.

    Returns
    -------
    0 if all ended well, else the exit code of the first that did not, 128 + N if signal N ended it
    """
    size = nodes * per_node
    common = {
        **os.environ,
        "WORLD_SIZE": str(size), "LOCAL_WORLD_SIZE": str(size),
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()),
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // size))),
        **loopback(),
    }  # fmt: skip
    command = [sys.executable, "-m", "holoshard", *arguments]
    with StopSignals() as signals:
        processes = [
            subprocess.Popen(command, env={**common, "RANK": str(rank), "LOCAL_RANK": str(rank)})
            for rank in range(size)
        ]
        try:
            return wait(processes, signals)
        finally:
            end(processes)


def wait(processes: Sequence[subprocess.Popen[bytes]], signals: StopSignals) -> int:
    """Wait until all have ended or one has failed; hand on a signal once."""
    handed_on = False
    while True:
        codes = [process.poll() for process in processes]
        failed = [(code, rank) for rank, code in enumerate(codes) if code]
        if failed:
            code, rank = min(failed)  # a signal's is below 0: others fail because of who was killed
            how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
            log.error("process %d of %d %s: the others are ended", rank, len(codes), how)
            return code if code > 0 else 128 - code  # as shells tell a signal
        if all(code == 0 for code in codes):
            return 0
        if signals.received and not handed_on:
            handed_on = True
            for process in processes:
                process.send_signal(signal.SIGTERM)
        time.sleep(POLL_S)


def end(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """Give those that still run time to save or to notice that another is gone, then kill them."""
    deadline = time.monotonic() + GRACE_S
    for process in processes:
        try:
            process.wait(timeout=max(deadline - time.monotonic(), 0.0))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def loopback() -> Mapping[str, str]:
    """Tell gloo to talk over the loopback device, which needs no host name that resolves."""
    names = {name for _, name in socket.if_nameindex()}
    return {"GLOO_SOCKET_IFNAME": "lo"} if "lo" in names and "GLOO_SOCKET_IFNAME" not in os.environ else {}


def free_port() -> int:
    """A TCP port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
