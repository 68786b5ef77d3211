"""Predictions for a user's complexes, as a CSV file."""

from __future__ import annotations

import csv
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ..shards.errors import UsageError
from ..shards.read.dataset import open_dataset
from .predictor import Predictor

if TYPE_CHECKING:
    from ..shards.read.dataset import Dataset

TWO_SIDED_95: Final = 1.96  # standard deviations of a normal distribution


def write_answers(predictor: Predictor, source: Path, out: Path, split: str | None = None) -> int:
    """Predict all complexes of `source`, or those of a split; how many there were.

    Parameters
    ----------
    source : data set, shard, part, or a folder of parts such as the --out folder of ingest
    out : CSV with the columns id and pk, and low and high from a model with uncertainty

    Raises
    ------
    UsageError : there is nothing at `source`, or no such split
    """
    n, partial = 0, out.with_name(f".{out.name}.partial")
    try:
        with partial.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(
                ["id", "pk", "low", "high"] if predictor.config.model.uncertainty else ["id", "pk"]
            )
            for opened in sources(source):
                if split is not None and not opened.splits.get(split):
                    raise UsageError(f"{source} has no split {split!r}; it has {', '.join(opened.splits)}")
                rows = answers(predictor, opened, split)
                writer.writerows(rows)
                n += len(rows)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, out)
    finally:
        partial.unlink(missing_ok=True)
    return n


def sources(path: Path) -> list[Dataset]:
    """A data set or a part alone, or every part of a folder in the order of names."""
    if path.is_dir() and not (path / "manifest.json").is_file():
        inner = path / "parts" if (path / "parts").is_dir() else path
        if parts := sorted(inner.glob("*.h5")):
            return [open_dataset(part) for part in parts]
    return [open_dataset(path)]


def answers(predictor: Predictor, dataset: Dataset, split: str | None) -> list[list[Any]]:
    """Rows of the file."""
    found, ids = predictor.predict(dataset, split), dataset.ids()
    rows: list[list[Any]] = []
    for i, row in enumerate(found.index):
        interval = []
        if found.sd is not None:
            half = TWO_SIDED_95 * found.sd[i]
            interval = [f"{found.pk[i] - half:.4f}", f"{found.pk[i] + half:.4f}"]
        rows.append([ids[row], f"{found.pk[i]:.4f}", *interval])
    return rows
