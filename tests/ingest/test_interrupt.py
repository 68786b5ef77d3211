"""Ctrl-C and SIGTERM: a bounded end at any moment, and no process left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from test_engine import PLACES
from toy import toy_items


def start(folder: Path, *lines: str) -> subprocess.Popen[str]:
    """A script of these lines in a session of its own, as a shell starts one."""
    script = folder / "script.py"
    script.write_text("\n".join([f"import sys; sys.path[:0] = {PLACES!r}", *lines, ""]))
    command = [sys.executable, str(script)]
    return subprocess.Popen(
        command, start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def others_of(session: int) -> list[str]:
    """Processes that are still there."""
    found = []
    for process in psutil.process_iter(["status", "cmdline"]):
        try:
            if os.getsid(process.pid) == session and process.info["status"] != psutil.STATUS_ZOMBIE:
                found.append(" ".join(process.info["cmdline"] or []))
        except (ProcessLookupError, psutil.Error):
            continue
    return found


def ended(child: subprocess.Popen[str]) -> tuple[int, str, str]:
    """What the process said; fails if it or a child of it stays."""
    out, err = child.communicate(timeout=40)
    deadline = time.monotonic() + 10
    while others_of(child.pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert others_of(child.pid) == []
    return child.returncode, out, err


@pytest.mark.parametrize("moment", ["start", "run"])
def test_a_run_ends_and_leaves_no_process(tmp_path, moment):
    toy_items(tmp_path / "in", {f"i{k:03d}": "slow" for k in range(400)})
    child = start(
        tmp_path,
        "from pathlib import Path; from toy import run_slowly",
        "if __name__ == '__main__':",
        f"    run_slowly(Path({str(tmp_path / 'in')!r}), 400, 2, Path({str(tmp_path / 'out')!r}))",
    )
    if moment == "start":  # workers are being made
        while len(psutil.Process(child.pid).children()) < 2:
            time.sleep(0.005)
            assert child.poll() is None
        os.killpg(child.pid, signal.SIGINT)
    else:
        while not list((tmp_path / "out" / ".work").glob("*/*.parquet")):
            time.sleep(0.02)
            assert child.poll() is None
        os.kill(child.pid, signal.SIGTERM)
    code, _, err = ended(child)
    assert code != 0
    assert "KeyboardInterrupt" in err
    assert "leaked" not in err


def test_a_start_is_waited_for_and_then_given_up(tmp_path):
    child = start(
        tmp_path,
        "import os, signal, threading, time",
        "from holoshard.ingest.interrupt import interruptible",
        "threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()",
        "with interruptible() as interrupts:",
        "    made = interrupts.shielded(lambda: time.sleep(0.6) or 'made')",
        "    print(made, flush=True)",
        "    try:",
        "        interrupts.raise_if_told()",
        "    except KeyboardInterrupt:",
        "        print('told', flush=True)",
        "signal.raise_signal(signal.SIGTERM)",  # the block is over: the usual end
    )
    assert ended(child)[:2] == (-signal.SIGTERM, "made\ntold\n")


@pytest.mark.parametrize("second", [True, False])
def test_what_does_not_end_is_ended(tmp_path, second):
    child = start(
        tmp_path,
        "import multiprocessing, os, signal, time",
        "import holoshard.ingest.interrupt as it",
        f"it.GRACE = {60 if second else 0.3}",
        "if __name__ == '__main__':",
        "    with it.interruptible():",
        "        worker = multiprocessing.get_context('spawn').Process(target=time.sleep, args=(99,))",
        "        worker.start()",
        "        try:",
        "            signal.raise_signal(signal.SIGINT)",
        "        except KeyboardInterrupt:",
        f"            {'signal.raise_signal(signal.SIGTERM)' if second else 'time.sleep(99)'}",
    )
    code, _, err = ended(child)
    assert (code, "interrupted" in err) == (130, True)


def test_an_import_is_never_stopped_half_way(tmp_path):
    (tmp_path / "large.py").write_text(
        "import signal\nsignal.raise_signal(signal.SIGINT)\nprint('imported')\ndef command(): print(1)\n"
    )
    child = start(
        tmp_path,
        "from holoshard.__main__ import COMMANDS, main",
        "COMMANDS['ledger'] = ('large:command', '')",
        "sys.exit(main(['ledger']))",
    )
    code, out, err = ended(child)
    assert (code, out, "interrupted" in err) == (130, "imported\n", True)
