"""What a run wrote down while it trained: ``metrics.jsonl``, one JSON object a line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..record import read_record

Curve = tuple[NDArray[np.int64], NDArray[np.float64]]  # steps and values, shapes (n,)


@dataclass(frozen=True, slots=True)
class RunLog:
    """The lines of a run, by what they tell.

    Attributes
    ----------
    starts : what each start or restart ran on
    steps : training measurements by step, ascending
    evaluations : metrics on a held-out split by step, ascending
    events : resumed, preempted, skipped steps, ...
    """

    starts: tuple[Mapping[str, Any], ...]
    steps: Mapping[int, Mapping[str, Any]]
    evaluations: Mapping[int, Mapping[str, Any]]
    events: tuple[Mapping[str, Any], ...]

    def series(self, name: str) -> Curve:
        """Steps and values of one measurement, shapes (n,); steps that lack it are left out."""
        return _series(self.steps, name)

    def evaluated(self, name: str) -> Curve:
        """Steps and values of one figure of the evaluations, shapes (n,)."""
        return _series(self.evaluations, name)


def _series(rows: Mapping[int, Mapping[str, Any]], name: str) -> Curve:
    found = [(step, row[name]) for step, row in rows.items() if isinstance(row.get(name), int | float)]
    steps, values = zip(*found, strict=True) if found else ((), ())
    return np.array(steps, dtype=np.int64), np.array(values, dtype=np.float64)


def read_log(run_dir: Path) -> RunLog:
    """Read the log of a run's folder; a missing file is an empty log.

    A resumed run repeats the steps since its checkpoint: the later line holds.
    """
    starts, events = list[Mapping[str, Any]](), list[Mapping[str, Any]]()
    steps, evaluations = dict[int, Mapping[str, Any]](), dict[int, Mapping[str, Any]]()
    for row in read_record(run_dir) if (run_dir / "metrics.jsonl").is_file() else ():
        if "run" in row:
            starts.append(row["run"])
        elif "event" in row:
            events.append(row)
        elif "eval" in row:
            evaluations[int(row["step"])] = {**row["eval"], "best": row.get("best", False)}
        elif "step" in row:
            steps[int(row["step"])] = row
    return RunLog(
        tuple(starts), dict(sorted(steps.items())), dict(sorted(evaluations.items())), tuple(events)
    )
