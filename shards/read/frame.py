"""The index as a table: a row a complex, words instead of codes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..complex import VOCABULARIES
from ..errors import MissingExtraError, UsageError

if TYPE_CHECKING:
    from .dataset import Dataset


def names(dataset: Dataset) -> list[str]:
    """Columns of the index with one value a complex."""
    scalars = [k for k, f in dataset.manifest.fields.items() if f.axis == "complex" and not f.shape]
    return ["id", "split", "n_atoms", "n_bonds", "n_residues", *scalars]


def column(dataset: Dataset, name: str) -> NDArray[Any]:
    """One of them; ids, splits and vocabularies as text."""
    if name == "id":
        return np.array(dataset.ids(), object)
    found = dataset.column(name)
    if name in VOCABULARIES:
        words = np.array(VOCABULARIES[name], object)
        found = words[np.minimum(found, len(words) - 1)]
    return found.astype(object) if found.dtype.kind == "U" else found


def table(dataset: Dataset) -> dict[str, NDArray[Any]]:
    """All of them."""
    return {name: column(dataset, name) for name in names(dataset)}


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
    """Rows of the complexes with the ids ``which``, in their order, or for which a condition holds."""
    if callable(which):
        return _rows_of_mask(dataset, which(_Columns(dataset)))
    if isinstance(which, np.ndarray) and which.dtype == np.bool_:
        return _rows_of_mask(dataset, which)
    if isinstance(which, Sequence | np.ndarray) and not isinstance(which, str | bytes):
        return _rows_of(dataset, [str(name) for name in which])
    try:
        import polars
    except ModuleNotFoundError as error:
        raise MissingExtraError("polars", "ingest") from error
    if not isinstance(which, polars.Expr):
        raise UsageError(
            f"select takes ids, a polars expression, a function or a mask, not {type(which).__name__}"
        )
    try:
        kept = to_polars(dataset).with_row_index("row_of_data_set").filter(which)["row_of_data_set"]
    except polars.exceptions.PolarsError as error:
        raise UsageError(
            f"select: {str(error).splitlines()[0]}; columns: {', '.join(table(dataset))}"
        ) from error
    rows: NDArray[np.int64] = kept.to_numpy().astype(np.int64)
    return rows


class _Columns(Mapping[str, NDArray[Any]]):
    """Columns of :func:`table`, each read when it is asked for."""

    def __init__(self, dataset: Dataset) -> None:
        self._dataset = dataset

    def __getitem__(self, name: str) -> NDArray[Any]:
        return column(self._dataset, name)

    def __iter__(self) -> Iterator[str]:
        return iter(names(self._dataset))

    def __len__(self) -> int:
        return len(names(self._dataset))


def _rows_of_mask(dataset: Dataset, mask: Any) -> NDArray[np.int64]:
    mask = np.asarray(mask)
    if mask.dtype != np.bool_ or mask.shape != (len(dataset),):
        raise UsageError(
            f"select: expected one bool a complex, ({len(dataset)},); found {mask.dtype} {mask.shape}"
        )
    return np.flatnonzero(mask)


def _rows_of(dataset: Dataset, ids: list[str]) -> NDArray[np.int64]:
    place = {name: i for i, name in enumerate(dataset.ids())}
    missing = [name for name in ids if name not in place]
    if missing:
        raise UsageError(f"{len(missing)} of {len(ids)} ids are not in this data set, such as {missing[0]!r}")
    return np.array([place[name] for name in ids], np.int64)
