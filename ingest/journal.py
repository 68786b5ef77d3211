"""Which item a task was reading when its process ended: one bad file must not take its neighbours along.

A task notes each item before it reads it. If the process dies, the note stays; whoever runs the task again
sees where the last attempt ended. An item that ended two attempts is refused, the others are read.

An item that takes too long ends its process too: neither gemmi nor RDKit can be interrupted from Python, so
the alarm clock's default action does it, after the C-level fault handler has noted where Python stood. The
clock counts the process's own work, so that a busy machine refuses nothing that an idle one keeps; one that
waits, for a file system that does not answer, is ended after some times as long by the clock on the wall.
"""

from __future__ import annotations

import faulthandler
import os
import re
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ..shards.errors import DataError

STRIKES: Final = 2  # a process may also be ended by others: by the user, by the kernel for another's memory
PATIENCE: Final = 5  # times the limit by the clock on the wall: of a core that five share, or of waiting
_ATTEMPT: Final = "attempt\n"
_CLOCKS: Final[dict[int, tuple[int, int]]] = {  # signal and factor of each clock
    getattr(signal, clock): (getattr(signal, alarm), times)
    for clock, alarm, times in (("ITIMER_PROF", "SIGPROF", 1), ("ITIMER_REAL", "SIGALRM", PATIENCE))
    if hasattr(signal, clock)
}


@dataclass(frozen=True, slots=True)
class Death:
    """How an earlier attempt ended: at which item, or -1 between items, and why."""

    index: int
    reason: str
    message: str


class Journal:
    """The notes of one task; ``isolated`` says that this process may be ended by the alarm clock."""

    def __init__(self, path: Path, timeout: float, *, isolated: bool) -> None:
        self.path, self.timeout = path, timeout
        self.isolated = isolated and bool(_CLOCKS)
        self.deaths = read_deaths(path, timeout)
        if sum(death.index < 0 for death in self.deaths) > STRIKES:
            raise DataError(
                "a worker was ended three times while it wrote a part: is there memory (--memory) "
                "and room on the disk?"
            )

    def __enter__(self) -> Journal:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.write(self.file, _ATTEMPT.encode())
        if self.isolated:
            faulthandler.enable(self.file, all_threads=False)
            for alarm, _times in _CLOCKS.values():
                faulthandler.register(alarm, self.file, all_threads=False, chain=True)
        return self

    def __exit__(self, *_: object) -> None:
        self._set_clocks(0)
        if self.isolated:
            for alarm, _times in _CLOCKS.values():
                faulthandler.unregister(alarm)
            faulthandler.disable()
        os.close(self.file)
        self.path.unlink(missing_ok=True)

    def begin(self, index: int) -> Death | None:
        """Note that an item is read now; the death to record instead, if it has ended too many attempts."""
        mine = [death for death in self.deaths if death.index == index]
        if len(mine) >= STRIKES:
            return mine[-1]
        os.write(self.file, b"%d\n" % index)
        self._set_clocks(self.timeout)
        return None

    def between(self) -> None:
        """Note that no item is being read."""
        self._set_clocks(0)
        os.write(self.file, b"-1\n")

    def _set_clocks(self, seconds: float) -> None:
        """Let the clocks run for so long, 0 to stop them."""
        for clock, (_alarm, times) in _CLOCKS.items() if self.isolated else ():
            signal.setitimer(clock, seconds * times)


def read_deaths(path: Path, timeout: float) -> list[Death]:
    """The ends of earlier attempts, in order."""
    try:
        text = path.read_text("ascii", "replace")
    except OSError:
        return []
    deaths = []
    for attempt in text.split(_ATTEMPT)[1:]:
        noted = re.findall(r"^(-?\d+)$", attempt, re.MULTILINE)
        index = int(noted[-1]) if noted else -1
        fatal = re.search(r"^Fatal Python error: (.*)$", attempt, re.MULTILINE)
        if fatal:
            deaths.append(Death(index, "crashed", f"reading it ended the process: {fatal[1]}"))
        elif re.search(r"^(Current )?[Tt]hread 0x|^Stack \(most recent", attempt, re.MULTILINE):
            deaths.append(Death(index, "timeout", f"reading it took longer than {timeout:g} s"))
        else:
            said = "reading it ended the process without a word: killed, or out of memory"
            deaths.append(Death(index, "crashed", said))
    return deaths
