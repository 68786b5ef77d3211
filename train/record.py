"""What a run writes down while it goes: JSON lines, curves for TensorBoard, and where its time went."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self


class Record:
    """The file ``metrics.jsonl`` of a run, and TensorBoard's folder beside it by option.

    Only the first process writes; in the others every call does nothing.
    """

    def __init__(self, folder: Path, writes: bool = True, tensorboard: bool = False) -> None:
        self._file = (folder / "metrics.jsonl").open("a", encoding="utf-8") if writes else None
        self._board: Any = None
        if writes and tensorboard:
            from torch.utils.tensorboard.writer import SummaryWriter

            self._board = SummaryWriter(str(folder / "tensorboard"))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:  # fmt: skip
        if self._file is not None:
            self._file.close()
        if self._board is not None:
            self._board.close()

    def write(self, **values: Any) -> None:
        """Append one line; numbers that are not finite become null."""
        if self._file is None:
            return
        self._file.write(json.dumps(plain(values), allow_nan=False) + "\n")
        self._file.flush()
        if self._board is not None and "step" in values:
            judged = values.get("eval", {})
            curves = {**values, **{f"{judged.get('split', 'eval')}/{k}": v for k, v in judged.items()}}
            for name, value in curves.items():
                if isinstance(value, float) and math.isfinite(value):
                    self._board.add_scalar(name, value, values["step"])


def plain(value: Any) -> Any:
    """A value that JSON can hold."""
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if isinstance(value, float):
        return float(f"{value:.8g}") if math.isfinite(value) else None
    return value


def read_record(folder: Path) -> list[dict[str, Any]]:
    """The lines of ``metrics.jsonl``; a line that a crash cut short, or that is no table, is left out."""
    lines = []
    for line in (folder / "metrics.jsonl").read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            values = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(values, dict):
            lines.append(values)
    return lines


class Clock:
    """Seconds by part since the last reading: each lap goes to the part that it is named for."""

    def __init__(self) -> None:
        self.part = "the start"  # that ended last
        self._parts: dict[str, float] = {}
        self._start = self._last = time.perf_counter()

    def lap(self, part: str) -> None:
        """End a part that began at the lap before."""
        now = time.perf_counter()
        self._parts[part] = self._parts.get(part, 0.0) + now - self._last
        self._last, self.part = now, part

    def skip(self) -> None:
        """Count the time since the last lap for nothing (a validation, a checkpoint)."""
        now = time.perf_counter()
        self._start += now - self._last
        self._last = now

    def read(self) -> tuple[float, dict[str, float]]:
        """Seconds in all and by part since the last reading; begins anew."""
        elapsed, parts = self._last - self._start, self._parts
        self._start, self._parts = self._last, {}
        return elapsed, parts
