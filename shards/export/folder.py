"""An export of a data set: a folder in some format, that appears when it is complete."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, Literal, get_args

from ..console import progress
from ..errors import UsageError
from ..make.owner import beside, said_of
from ..read.dataset import Dataset
from .labelled import write_structures
from .lmdb import write_lmdb
from .mds import write_mds
from .parquet import write_parquet
from .records import ABOUT, Record, about, fields_of, records
from .tar import write_webdataset

Format = Literal["sdf", "mds", "webdataset", "lmdb", "parquet"]
FORMATS: Final[tuple[str, ...]] = get_args(Format)


def export(dataset: Dataset, rows: Iterable[int], out: Path, form: Format = "sdf") -> int:
    """Write complexes to the folder ``out`` in the order of ``rows``; return how many.

    Raises
    ------
    UsageError : ``out`` exists, or there is no such format
    MissingExtraError : the format needs a package that is not installed
    DataError : a complex does not fit the columns of PDB or SDF
    WriteError : ``out`` cannot be written, or the disk is full
    """
    if os.path.lexists(out):
        raise UsageError(f"{out} exists; choose another --out, or remove it")
    chosen = [int(row) for row in rows]
    with beside(out) as folder, said_of(out):
        folder.mkdir()
        _write(dataset, chosen, folder, form)
        for path in folder.rglob("*"):
            if path.is_file():
                _sync(path)
        os.rename(folder, out)
        _sync(out.parent)
    return len(chosen)


def _write(dataset: Dataset, rows: Sequence[int], folder: Path, form: Format) -> None:
    if form == "sdf":
        write_structures(dataset, _counted(rows, len(rows)), folder)
        return
    some: Iterator[Record] = records(dataset, _counted(rows, len(rows)))
    if form == "mds":
        write_mds(folder, some, fields_of(dataset))
    elif form == "parquet":
        write_parquet(folder, some, fields_of(dataset))
    elif form == "webdataset":
        write_webdataset(folder, some)
    elif form == "lmdb":
        write_lmdb(folder, some)
    else:
        raise UsageError(f"unknown format {form!r}; one of: {', '.join(FORMATS)}")
    (folder / ABOUT).write_text(about(dataset), encoding="utf-8")


def _counted(rows: Iterable[int], n: int) -> Iterator[int]:
    with progress("export", n) as bar:
        for row in rows:
            yield row
            bar.advance()


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
