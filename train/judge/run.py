"""What lies in a run's folder: configuration, log, predictions and evaluations."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ...shards.errors import DataError, HoloshardError, UsageError
from ...shards.read.dataset import Dataset, open_dataset
from .predictions import PredictionTable, read_predictions
from .runlog import RunLog, read_log

SPLITS: Final = ("test", "valid", "train")  # the order of a report; others follow by name


@dataclass(frozen=True, slots=True)
class Run:
    """A run's folder, read.

    Attributes
    ----------
    config : text of the configuration
    predictions, evaluations : by split
    dataset : what was judged on, or trained on; None if it is no longer there
    """

    name: str
    config: str
    log: RunLog
    predictions: Mapping[str, PredictionTable]
    evaluations: Mapping[str, Mapping[str, Any]]
    dataset: Dataset | None
    dataset_name: str


def read_run(run_dir: Path) -> Run:
    """Read a run's folder; files it lacks are empty.

    Raises
    ------
    UsageError : the folder is not that of a run
    DataError : one of its files cannot be read
    """
    config_path = run_dir / "config.toml"
    if not config_path.is_file():
        raise UsageError(
            f"{run_dir} has no config.toml, expected the folder of a run; "
            "make one with: holoshard train CONFIG.toml"
        )
    config = config_path.read_text(encoding="utf-8")
    tables = {p.stem.removeprefix("predictions-"): p for p in sorted(run_dir.glob("predictions-*.csv"))}
    found = {p.stem.removeprefix("evaluation-"): p for p in sorted(run_dir.glob("evaluation-*.json"))}
    evaluations = {split: _read_json(found[split]) for split in ordered(found)}
    named = next((str(e["dataset"]) for e in evaluations.values() if "dataset" in e), _data_path(config))
    return Run(
        name=run_dir.resolve().name,
        config=config,
        log=read_log(run_dir),
        predictions={split: read_predictions(tables[split]) for split in ordered(tables)},
        evaluations=evaluations,
        dataset=_open(named),
        dataset_name=named,
    )


def ordered(names: Iterable[str]) -> list[str]:
    """Names of splits in the order of a report."""
    return sorted(names, key=lambda s: (SPLITS.index(s) if s in SPLITS else len(SPLITS), s))


def _read_json(path: Path) -> Mapping[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise DataError(f"{path} is not JSON ({error}); write it again with: holoshard eval") from error
    return value if isinstance(value, dict) else {}


def _data_path(config: str) -> str:
    try:
        return str(tomllib.loads(config).get("data", {}).get("path", ""))
    except tomllib.TOMLDecodeError:
        return ""


def _open(name: str) -> Dataset | None:
    """The data set, None if it is no longer where the run found it: the report is of use without."""
    try:
        return open_dataset(Path(name)) if name else None
    except (HoloshardError, OSError):
        return None
