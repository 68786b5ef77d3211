"""Being told to stop: a signal becomes a flag that the loop looks at between steps."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any, Self


class StopSignals:
    """Catches SIGTERM, SIGUSR1 and SIGINT while it is entered; `received` is True after one of them.

    A second SIGINT (Ctrl-C) is for those who do not want to wait: it interrupts at once.

    Outside the main thread Python takes no signals, and none are caught.
    """

    def __init__(self) -> None:
        self.received = False
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT):
                self._before[number] = signal.signal(number, self._receive)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:  # fmt: skip
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT and self.received:
            raise KeyboardInterrupt
        self.received = True
