"""Parquet: a row a complex; atoms, bonds and residues as lists, vectors as fixed-size lists within them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from ..complex import VOCABULARIES, Field
from ..errors import MissingExtraError
from .records import Record

FILE_ROWS: Final = 4096  # complexes a file: what is held in memory
WORDS: Final = ("pk_relation", "pk_kind")  # of one complex: words rather than codes


def write_parquet(folder: Path, records: Iterable[Record], fields: Mapping[str, Field]) -> None:
    """Write ``part-00000.parquet`` and on, packed with zstd."""
    try:
        import polars
    except ModuleNotFoundError as error:
        raise MissingExtraError("polars", "ingest") from error
    for number, group in enumerate(_groups(records)):
        columns = [
            polars.Series("id", [r.text["id"] for r in group]),
            polars.Series("split", [r.text["split"] for r in group]),
            *(_series(polars, key, field, group) for key, field in fields.items()),
            polars.Series("json", [r.json().decode() for r in group]),
        ]
        path = folder / f"part-{number:05d}.parquet"
        polars.DataFrame(columns).write_parquet(path, compression="zstd")


def _groups(records: Iterable[Record]) -> Iterator[list[Record]]:
    group: list[Record] = []
    for record in records:
        group.append(record)
        if len(group) == FILE_ROWS:
            yield group
            group = []
    if group:
        yield group


def _series(polars: Any, key: str, field: Field, group: list[Record]) -> Any:
    arrays = [record.arrays[key] for record in group]
    if key in WORDS:
        return polars.Series(key, [VOCABULARIES[key][int(a)] for a in arrays])
    if field.axis == "complex":
        return polars.Series(key, np.stack(arrays))
    flat = polars.Series(key, np.concatenate(arrays))
    ends = np.cumsum([len(a) for a in arrays]).tolist()
    # One list a complex, put together by polars: from a list of series it would go through each number.
    return polars.concat([flat[a:b].implode() for a, b in zip([0, *ends], ends, strict=False)])
