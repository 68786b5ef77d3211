from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from time import monotonic, sleep

import psutil
import pytest
from worlds import config, metrics, run_world, train

# torchrun's shared rendezvous store sometimes leaves gloo hanging after a restart.
SETTINGS = {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
TORCHRUN = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--max-restarts", "3",
            "--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0"]  # fmt: skip


TIMES = int(os.environ.get("HOLOSHARD_RESTARTS", "2"))  # 20 before a release


@pytest.fixture(scope="module")
def straight(shards, tmp_path_factory):
    """The configuration, and the folder of a run that nobody disturbed."""
    text = config(shards, run={"steps": 120}, checkpoint={"every": 10})
    folder = tmp_path_factory.mktemp("straight")
    run_world(2, train, text, str(folder))
    return text, folder


def workers(pid):
    """Processes of the trainer below torchrun; what has ended by now counts for none."""
    found = []
    for child in psutil.Process(pid).children(recursive=True):
        with suppress(psutil.NoSuchProcess):  # a zombie is such a one, too
            if "holoshard" in " ".join(child.cmdline()):
                found.append(child)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("time", range(TIMES))
def test_killed_and_restarted_by_torchrun_goes_on_bit_for_bit(straight, tmp_path, time):
    text, undisturbed = straight
    victim, late = time % 2, time // 2 / 10  # seconds after the first checkpoint
    (tmp_path / "c.toml").write_text(text)
    command = [sys.executable, *TORCHRUN, "-m", "holoshard", "train", str(tmp_path / "c.toml")]
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen([*command, "--out", str(tmp_path / "run")], stdout=log, stderr=log,
                                   env={**os.environ, **SETTINGS})  # fmt: skip
        try:
            deadline = monotonic() + 120
            while not (tmp_path / "run" / "checkpoints" / "latest").is_file():
                assert monotonic() < deadline, (tmp_path / "log").read_text()
                sleep(0.05)
            ranks = workers(process.pid)
            sleep(late)
            ranks[victim].kill()
            assert process.wait(150) == 0, (tmp_path / "log").read_text()
        finally:
            for child in (
                psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
            ):
                child.kill()
            process.kill()
            process.wait()
    whole, broken = metrics(undisturbed), metrics(tmp_path / "run")
    assert "continuing" in (tmp_path / "log").read_text()
    assert {s: m["loss"] for s, m in broken.items()} == {s: m["loss"] for s, m in whole.items()}
    best = "best.safetensors"
    assert (tmp_path / "run" / best).read_bytes() == (undisturbed / best).read_bytes()
