"""The commands that look at data sets: info, show, leakage, export; make/cli.py has those that make them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from .console import Output
from .export.folder import Format
from .export.folder import export as write_export
from .make.mmseqs import ClusterWith
from .read.dataset import open_dataset
from .read.describe import describe_complex, find, info_text, summarise

OUTPUT = Output()
Out = Annotated[Output, Parameter(name="*")]


def info(data: Path, *, output: Out = OUTPUT) -> dict[str, Any]:
    """Say what a data set, a part or a shard file holds: counts, splits, sizes, labels.

    Examples::
        holoshard info data/shards

        holoshard info data/parts/part-0000.h5 --json

    Parameters
    ----------
    data
        Folder of a data set, or one shard or part file.
    """
    summary = summarise(open_dataset(data))
    print(info_text(str(data), summary))
    return summary


def show(data: Path, which: str, *, output: Out = OUTPUT) -> dict[str, Any]:
    """Say in words what one complex is: its ligand, pocket, label, and where it came from.

    Examples::
        holoshard show data/shards 0

        holoshard show data/shards 10gs

    Parameters
    ----------
    data
        Folder of a data set, or one shard or part file.
    which
        An id, or a row (negative: from the end). A complex whose id looks like a row is found by its id.
    """
    dataset = open_dataset(data)
    text, result = describe_complex(dataset, which)
    print(text)
    return result


def leakage(
    data: Path,
    *,
    train: str = "train",
    test: str = "test",
    compare_with: ClusterWith = "auto",
    csv: Path | None = None,
    output: Out = OUTPUT,
) -> dict[str, Any]:
    """Say how much of the test split was seen in training: nearest proteins and ligands, and one number.

    The number is a lower bound: proteins less than about 30 % identical often count as 0, related or not.
    Needs RDKit, for the ligands' fingerprints.

    Examples::
        holoshard leakage data/shards

        holoshard leakage data/shards --test valid --csv nearest.csv

    Parameters
    ----------
    data
        Folder of a data set.
    train
        The split that was trained on.
    test
        The split that judges.
    compare_with
        What compares protein sequences: mmseqs, built-in, or auto: MMseqs2 where it is installed.
    csv
        Write the nearest training complexes of each test complex there.
    """
    from .make.leakage import LIMIT, NEAREST, write_table
    from .make.leakage import leakage as compare

    found = compare(open_dataset(data), train, test, compare_with)
    if csv is not None:
        write_table(csv, [NEAREST, *found.rows()])
    print("\n".join(found.lines()))
    return {
        "leakage": round(found.leakage, 4), "by": found.by, "limit": LIMIT, "n_test": len(found.ids),
        "histograms": found.histograms(),
    }  # fmt: skip


def export(
    data: Path,
    which: Annotated[tuple[str, ...], Parameter(negative=())] = (),
    *,
    out: Path,
    format: Annotated[Format, Parameter(name="--format")] = "sdf",
    split: str | None = None,
    output: Out = OUTPUT,
) -> dict[str, Any]:
    """Write complexes in a format that others read: structures with their labels, or records of arrays.

    sdf: SDF (ligand) and PDB (pocket) with labels.csv, coordinates those of the source to 0.001 angstrom;
    holoshard ingest reads the folder. mds: MosaicML Streaming. webdataset: tar files of .npz and .json.
    lmdb: .npz and JSON by row. parquet: a row a complex. fields.json beside them says what the names mean.

    Examples::
        holoshard export data/shards 10gs 1a30 --out found

        holoshard export data/shards --split test --out test-structures

        holoshard export data/shards --format parquet --out tables

    Parameters
    ----------
    data
        Folder of a data set, or one shard or part file.
    which
        Ids or rows; all of the split if none is given.
    out
        Folder to make.
    format
        sdf, mds, webdataset, lmdb or parquet.
    split
        All of this split; all complexes if neither this nor an id is given.
    """
    dataset = open_dataset(data)
    rows = [find(dataset, w) for w in which] if which else dataset.indices(split).tolist()
    n = write_export(dataset, rows, out, format)
    print(f"{out}: {n} complexes as {format}")
    return {"out": str(out), "n_complexes": n, "format": format}
