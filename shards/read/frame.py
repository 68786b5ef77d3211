"""The index as a table: a row a complex, words instead of codes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..complex import VOCABULARIES
from ..errors import MissingExtraError, UsageError

if TYPE_CHECKING:
    from .dataset import Dataset


def table(dataset: Dataset) -> dict[str, NDArray[Any]]:
    """Every column of the index with one value a complex; ids, splits and vocabularies as text."""
    fields = dataset.manifest.fields
    scalars = [k for k, f in fields.items() if f.axis == "complex" and not f.shape]
    found: dict[str, NDArray[Any]] = {"id": np.array(dataset.ids(), object)}
    for name in ("split", "n_atoms", "n_bonds", "n_residues", *scalars):
        column = dataset.column(name)
        if name in VOCABULARIES:
            words = np.array(VOCABULARIES[name], object)
            column = words[np.minimum(column, len(words) - 1)]
        found[name] = column.astype(object) if column.dtype.kind == "U" else column
    return found


def to_polars(dataset: Dataset) -> Any:
    """:func:`table` as a polars DataFrame."""
    try:
        import polars
    except ModuleNotFoundError as error:
        raise MissingExtraError("polars", "ingest") from error
    columns = table(dataset)
    return polars.DataFrame([
        polars.Series(k, a.tolist(), polars.String) if a.dtype == object else polars.Series(k, a)
        for k, a in columns.items()
    ])  # fmt: skip


def to_pandas(dataset: Dataset) -> Any:
    """:func:`table` as a pandas DataFrame; pandas is not part of any extra."""
    try:
        import pandas  # type: ignore[import-untyped,unused-ignore]
    except ModuleNotFoundError as error:
        raise UsageError("to_pandas needs pandas; install it with: pip install pandas") from error
    return pandas.DataFrame(table(dataset))


def rows_where(dataset: Dataset, which: Any) -> NDArray[np.int64]:
    """Rows of the complexes with the ids ``which``, in their order, or for which an expression holds."""
    if isinstance(which, Sequence | np.ndarray) and not isinstance(which, str | bytes):
        return _rows_of(dataset, [str(name) for name in which])
    try:
        import polars
    except ModuleNotFoundError as error:
        raise MissingExtraError("polars", "ingest") from error
    if not isinstance(which, polars.Expr):
        raise UsageError(f"select takes ids or a polars expression, not {type(which).__name__}")
    try:
        kept = to_polars(dataset).with_row_index("row_of_data_set").filter(which)["row_of_data_set"]
    except polars.exceptions.PolarsError as error:
        raise UsageError(
            f"select: {str(error).splitlines()[0]}; columns: {', '.join(table(dataset))}"
        ) from error
    rows: NDArray[np.int64] = kept.to_numpy().astype(np.int64)
    return rows


def _rows_of(dataset: Dataset, ids: list[str]) -> NDArray[np.int64]:
    place = {name: i for i, name in enumerate(dataset.ids())}
    missing = [name for name in ids if name not in place]
    if missing:
        raise UsageError(f"{len(missing)} of {len(ids)} ids are not in this data set, such as {missing[0]!r}")
    return np.array([place[name] for name in ids], np.int64)
