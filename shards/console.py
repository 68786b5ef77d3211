"""What commands say while they work, and how they end.

Results go to standard output, everything else to standard error. On a terminal long work shows a bar;
elsewhere it logs one line an interval, so that a job's log stays short.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

log = logging.getLogger("holoshard")

INTERVAL_S = 10.0  # between progress lines where there is no terminal


@dataclass(frozen=True, slots=True)
class Output:
    """How a command reports.

    Parameters
    ----------
    json
        Print one JSON object as the last line of standard output.
    debug
        Show the traceback of an error.
    """

    json: bool = False
    debug: bool = False


class Progress(Protocol):
    """Advances by so many items; ``counts`` are shown beside the bar."""

    def advance(self, n: int = 1, **counts: int) -> None:
        """Count n items done."""


class _Lines:
    """One log line an interval."""

    def __init__(self, what: str, total: int | None, unit: str) -> None:
        self.what, self.total, self.unit = what, total, unit
        self.done, self.counts = 0, dict[str, int]()
        self.start = self.last = time.monotonic()

    def advance(self, n: int = 1, **counts: int) -> None:
        self.done += n
        self.counts.update(counts)
        now = time.monotonic()
        if now - self.last >= INTERVAL_S:
            self.last = now
            log.info(self.line(now))

    def line(self, now: float) -> str:
        rate = self.done / max(now - self.start, 1e-9)
        of = f" of {self.total}" if self.total else ""
        left = f", {(self.total - self.done) / rate:.0f} s left" if self.total and rate else ""
        counts = "".join(f", {k} {v}" for k, v in self.counts.items())
        return f"{self.what}: {self.done}{of} {self.unit}, {rate:.1f}/s{counts}{left}"


class _Bar:
    """A bar on a terminal."""

    def __init__(self, what: str, total: int | None, unit: str) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
        )

        self.bar = Progress(
            TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn(unit),
            TextColumn("{task.fields[rate]}"), TextColumn("{task.fields[counts]}"),
            TextColumn("{task.fields[left]}"),
            console=Console(stderr=True), transient=True,
        )  # fmt: skip
        self.task = self.bar.add_task(what, total=total, counts="", rate="", left="")
        self.total, self.done, self.start = total, 0, time.monotonic()
        self.bar.start()

    def advance(self, n: int = 1, **counts: int) -> None:
        self.done += n
        rate = self.done / max(time.monotonic() - self.start, 1e-9)
        text = " ".join(f"{k} {v}" for k, v in counts.items())
        left = f"{(self.total - self.done) / rate:.0f} s left" if self.total and rate else ""
        self.bar.update(self.task, advance=n, counts=text, rate=f"{rate:.1f}/s", left=left)


@contextmanager
def progress(what: str, total: int | None = None, unit: str = "complexes") -> Iterator[Progress]:
    """Show how far a piece of work has come."""
    if sys.stderr.isatty():
        bar = _Bar(what, total, unit)
        try:
            yield bar
        finally:
            bar.bar.stop()
    else:
        yield _Lines(what, total, unit)
