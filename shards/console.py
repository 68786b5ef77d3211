"""What commands say while they work, and how they end.

Results go to standard output, everything else to standard error. On a terminal long work shows a bar;
elsewhere it logs one line an interval, so that a job's log stays short.
"""

from __future__ import annotations

import logging
import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

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


class HelpPages:
    """How cyclopts shows a command's docstring.

    Prose flows to the width of the terminal; an indented block after "::" keeps its lines, however long, so
    that they can be copied.
    """

    def __init__(self) -> None:
        from cyclopts.help import DefaultFormatter

        self._usual = DefaultFormatter()

    def render_usage(self, console: Any, options: Any, usage: Any) -> None:
        """Show how the command is called."""
        self._usual.render_usage(console, options, usage)

    def render_description(self, console: Any, options: Any, description: Any) -> None:
        """Show the docstring without its parameters."""
        from rich.text import Text

        if isinstance(text := getattr(description, "primary_renderable", None), Text):
            for line in (*flowing(text.plain).split("\n"), ""):
                console.print(Text(line.rstrip()), soft_wrap=line.startswith(" "))

    def __call__(self, console: Any, options: Any, panel: Any) -> None:
        """Show a table of parameters or commands."""
        from rich.text import Text

        for told in (entry.description for entry in panel.entries):
            if isinstance(text := getattr(told, "primary_renderable", None), Text):
                told.primary_renderable = Text(flowing(text.plain))
        self._usual(console, options, panel)


def flowing(text: str) -> str:
    """Each paragraph of a docstring as one line; "::" before a block as a colon."""
    joined = re.sub(r"(?<=\S) *\n(?=[^\s*-])", " ", text)
    return re.sub(r"::$", ":", joined, flags=re.MULTILINE)


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
