"""A run that hangs says where, and ends, instead of holding its nodes for a day."""

from __future__ import annotations

import faulthandler
import json
import os
import tempfile
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

HUNG: Final = 70  # exit code: EX_SOFTWARE of sysexits.h
STDERR: Final = 2  # not sys.stderr, which a notebook replaces by an object that is no file


class Watchdog:
    """Ends the process when nothing has beaten for `seconds`; 0 never does.

    Every process has one; `where` says what it was doing. When one hangs the others wait for it in a
    collective, so each prints its own stacks, and the one that does not wait is the culprit.
    """

    def __init__(self, seconds: float, rank: int, where: Callable[[], str]) -> None:
        self.seconds, self.rank, self.where = seconds, rank, where
        self._beat = time.monotonic()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="holoshard-watchdog", daemon=True)

    def __enter__(self) -> Self:
        if self.seconds > 0:
            self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:  # fmt: skip
        self._end.set()
        if self._thread.is_alive():
            self._thread.join()  # a thread that still runs while Python ends can abort the process

    def beat(self) -> None:
        """Show a sign of life."""
        self._beat = time.monotonic()

    def _watch(self) -> None:
        while not self._end.wait(min(self.seconds / 4, 5.0)):
            silent = time.monotonic() - self._beat
            if silent > self.seconds:
                try:
                    # In one piece: the processes of a node write to one log, all at the same moment.
                    os.write(STDERR, self._report(silent).encode())
                finally:
                    os._exit(HUNG)

    def _report(self, silent: float) -> str:
        return (
            f"holoshard: process {self.rank} has made no step for {silent:.0f} s; it was at {self.where()}. "
            "Its stacks follow; raise run.hang_seconds if this is only slow\n"
            f"{stacks()}{last_collectives()}\n"
        )


def stacks() -> str:
    """Where every thread of this process is."""
    with tempfile.TemporaryFile() as file:
        faulthandler.dump_traceback(file, all_threads=True)
        file.seek(0)
        return file.read().decode(errors="replace")


def last_collectives(n: int = 3) -> str:
    """The newest exchanges of this process, as torch's flight recorder has them, with NCCL and with gloo."""
    try:
        from torch._C import _distributed_c10d as c10d

        entries = json.loads(c10d._dump_fr_trace_json())["entries"]  # type: ignore[attr-defined]
    except (ImportError, AttributeError, RuntimeError, ValueError, KeyError):
        return "last collectives: this torch does not record them; the stacks show the call that waits"
    told = [
        f"{e['profiling_name']} {e['input_sizes']} in group {e['process_group'][0]}, number "
        f"{e['collective_seq_id']}: {'ended' if e['retired'] else 'waits for others'}"
        for e in entries[-n:]
    ]
    return "last collectives: " + ("; ".join(told) or "none")
