"""The table that a run's judgement is made of: one row a complex, as a CSV file that anyone can read."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from ...shards.complex import KINDS, RELATIONS
from ...shards.errors import DataError
from .atomic import write_text

if TYPE_CHECKING:
    from ...shards.read.dataset import Dataset

DECIMALS: Final = 6  # of a pK: a rotated input may change the seventh


@dataclass(frozen=True, slots=True)
class PredictionTable:
    """Measured and predicted affinities of some complexes.

    Attributes
    ----------
    id : identifiers
    pk : measured, -log10(mol/L), shape (n,); NaN where there is no label
    pk_relation, kind : words of RELATIONS and KINDS
    predicted : -log10(mol/L), shape (n,)
    target, cluster : labels of the source, "" where it has none
    """

    id: tuple[str, ...]
    pk: NDArray[np.float64]
    pk_relation: tuple[str, ...]
    kind: tuple[str, ...]
    predicted: NDArray[np.float64]
    target: tuple[str, ...]
    cluster: tuple[str, ...]

    def __len__(self) -> int:
        """Complexes."""
        return len(self.id)

    def select(self, rows: Sequence[int] | NDArray[np.int64]) -> PredictionTable:
        """Some rows, in the order given."""

        def pick(words: tuple[str, ...]) -> tuple[str, ...]:
            return tuple(words[i] for i in rows)

        return PredictionTable(
            id=pick(self.id),
            pk=self.pk[rows],
            pk_relation=pick(self.pk_relation),
            kind=pick(self.kind),
            predicted=self.predicted[rows],
            target=pick(self.target),
            cluster=pick(self.cluster),
        )


COLUMNS: Final = tuple(f.name for f in fields(PredictionTable))
NUMBERS: Final = ("pk", "predicted")


def labels_of(dataset: Dataset, rows: NDArray[np.int64], predicted: NDArray[Any], *,
              target_column: str = "target", cluster_column: str = "cluster") -> PredictionTable:  # fmt: skip
    """The table of these rows of a data set; target and cluster are columns of the source."""
    ids = dataset.ids()
    columns = [dataset[int(row)].text.get("columns", {}) for row in rows]
    relation, kind = dataset.column("pk_relation"), dataset.column("pk_kind")
    return PredictionTable(
        id=tuple(ids[row] for row in rows),
        pk=np.asarray(dataset.column("pk"), dtype=np.float64)[rows],
        pk_relation=tuple(RELATIONS[relation[row]] for row in rows),
        kind=tuple(KINDS[kind[row]] for row in rows),
        predicted=np.asarray(predicted, dtype=np.float64),
        target=tuple(str(c.get(target_column, "")) for c in columns),
        cluster=tuple(str(c.get(cluster_column, "")) for c in columns),
    )


def write_predictions(path: Path, table: PredictionTable) -> None:
    """Write the table as CSV, whole or not at all; an unknown pK is an empty cell."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows(zip(*(_cells(table, name) for name in COLUMNS), strict=True))
    write_text(path, text.getvalue())


def _cells(table: PredictionTable, name: str) -> Sequence[str]:
    values = getattr(table, name)
    if name not in NUMBERS:
        return tuple(values)
    return ["" if np.isnan(v) else f"{v:.{DECIMALS}f}" for v in values]


def read_predictions(path: Path) -> PredictionTable:
    """Read what :func:`write_predictions` wrote; columns in any order, further ones ignored.

    Raises
    ------
    DataError : a column is missing, or a cell that should be a number is none
    """
    with path.open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        missing = sorted(set(COLUMNS) - set(reader.fieldnames or ()))
        if missing:
            raise DataError(
                f"{path} has no column {', '.join(missing)}, expected {', '.join(COLUMNS)}; "
                "write it again with: holoshard eval"
            )
        cells = list(reader)
    columns: dict[str, Any] = {name: tuple(row[name] or "" for row in cells) for name in COLUMNS}
    for name in NUMBERS:
        try:
            columns[name] = np.array([float(v) if v else np.nan for v in columns[name]], dtype=np.float64)
        except ValueError as error:
            raise DataError(f"{path}, column {name}: {error}, expected a number or an empty cell") from error
    return PredictionTable(**columns)
