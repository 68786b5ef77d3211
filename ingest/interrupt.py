"""Ctrl-C and SIGTERM while other processes work: an orderly end, in a bounded time whatever they do.

A terminal sends Ctrl-C to every process of the command. A worker that it ends while it starts leaves a parent
that waits for it, so workers never see it: they are started where it is blocked, which a child inherits. The
parent ends them.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import resource_tracker
from typing import Any, Final, TypeVar

GRACE: Final = 15.0  # seconds from the signal to the end
EXIT_CODE: Final = 130  # as shells have it for Ctrl-C
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
_T = TypeVar("_T")


class Interrupts:
    """The handler of both signals: the first raises KeyboardInterrupt, the second ends everything at once."""

    def __init__(self) -> None:
        self.told = False
        self.held = False
        self.timer = threading.Timer(GRACE, end_at_once)
        self.timer.daemon = True

    def __call__(self, *_: Any) -> None:
        """Take a signal."""
        if self.told:
            end_at_once()
        self.told = True
        self.timer.start()
        if not self.held:
            raise KeyboardInterrupt

    def shielded(self, make: Callable[[], _T]) -> _T:
        """What ``make`` returns, which may start processes; a signal meanwhile raises when it is done.

        It runs in a thread that Ctrl-C does not reach, and so do the processes that it starts.
        """
        made: list[_T] = []
        faults: list[BaseException] = []

        def run() -> None:
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
            try:
                made.append(make())
            except BaseException as error:
                faults.append(error)

        self.held = True
        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        while thread.is_alive():
            thread.join(0.2)  # without a limit, the handler would wait for it, too
        self.held = False
        if faults:
            raise faults[0]
        return made[0]

    def raise_if_told(self) -> None:
        """Raise the interrupt that came while something was shielded."""
        if self.told:
            raise KeyboardInterrupt


@contextmanager
def interruptible() -> Iterator[Interrupts]:
    """Handle both signals inside the block, if this is the main thread; none of our processes outlives it."""
    handler = Interrupts()
    main = threading.current_thread() is threading.main_thread()
    before = {number: signal.signal(number, handler) for number in _SIGNALS} if main else {}
    try:
        yield handler
    finally:
        if handler.told:
            for child in multiprocessing.active_children():
                child.kill()
        handler.timer.cancel()
        for number, action in before.items():
            signal.signal(number, action)


def end_at_once() -> None:
    """End the processes that this one has started, and itself, with no more words."""
    for child in multiprocessing.active_children():
        child.kill()
    os.write(2, b"holoshard: interrupted; run the same command again to go on\n")
    os._exit(EXIT_CODE)


def end_with_parent() -> None:
    """Let a child process end when its parent has gone, killed without a chance to end it."""
    parent = multiprocessing.parent_process()

    def watch() -> None:
        if parent is not None:
            parent.join()
            os._exit(EXIT_CODE)

    threading.Thread(target=watch, daemon=True).start()


def quiet_tracker() -> None:
    """Start Python's tracker of semaphores so that it cleans up after a kill without a warning.

    It removes what a killed process has left either way; the warning only alarms.
    """
    sys.warnoptions.append("ignore:resource_tracker:UserWarning")  # the tracker is started with these
    try:
        resource_tracker.ensure_running()
    finally:
        sys.warnoptions.pop()
