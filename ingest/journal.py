"""Which item a task was reading when its process ended: one bad file must not take its neighbours along.

A task notes each item before it reads it. If the process dies, the note stays; whoever runs the task again
sees where the last attempt ended. An item that ended two attempts is refused, the others are read.

An item that takes too long ends its process too: neither gemmi nor RDKit can be interrupted from Python, so
the alarm clock's default action does it, after the C-level fault handler has noted where Python stood.
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
_ATTEMPT: Final = "attempt\n"


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
        self.isolated = isolated and hasattr(signal, "setitimer")
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
            faulthandler.register(signal.SIGALRM, self.file, all_threads=False, chain=True)
        return self

    def __exit__(self, *_: object) -> None:
        if self.isolated:
            signal.setitimer(signal.ITIMER_REAL, 0)
            faulthandler.unregister(signal.SIGALRM)
            faulthandler.disable()
        os.close(self.file)
        self.path.unlink(missing_ok=True)

    def begin(self, index: int) -> Death | None:
        """Note that an item is read now; the death to record instead, if it has ended too many attempts."""
        mine = [death for death in self.deaths if death.index == index]
        if len(mine) >= STRIKES:
            return mine[-1]
        os.write(self.file, b"%d\n" % index)
        if self.isolated:
            signal.setitimer(signal.ITIMER_REAL, self.timeout)
        return None

    def between(self) -> None:
        """Note that no item is being read."""
        if self.isolated:
            signal.setitimer(signal.ITIMER_REAL, 0)
        os.write(self.file, b"-1\n")


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
