"""What was seen, kept, refused and why: one row an item, and what the next run may take from it.

``ledger.parquet`` holds the rows of a finished run, in the order of the source, but for the time that each
item took, which stands beside it: the same input gives the same bytes. Until a run has ended, each
task's rows are a *receipt* of their own under ``.work``; a run that was killed leaves them for the next.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import polars as pl

from ..shards.errors import DataError
from .item import Item, Label, Locator, Rejection
from .reasons import REASONS

LEDGER: Final = "ledger.parquet"
TIMES: Final = "timings.parquet"  # the one column that differs from run to run, so that the ledger does not
SUMMARY: Final = "summary.json"
PARTS: Final = "parts"
WORK: Final = ".work"

_COLUMNS: Final[Mapping[str, Any]] = {
    "id": pl.String,  # each once; a repeat of an id stands as "id#2", refused as duplicate_id
    "status": pl.String,  # kept, refused
    "reason": pl.String,  # a code of REASONS, "" if kept
    "message": pl.String,
    "source": pl.String,
    "repairs": pl.List(pl.String),  # codes of REPAIRS
    "files": pl.List(pl.String),  # structure, ligand, alternates
    "sha256": pl.List(pl.String),  # of each as it lies, "" if it cannot be read
    "stamps": pl.List(pl.String),  # size:mtime:ctime of each: equal stamps spare the hashing
    "seconds": pl.Float64,  # wall time to read it; as it was when it was read
    "part": pl.String,  # the file under parts/, "" if refused
    "digest": pl.String,  # of the options and of all that the source said of the item
    "content": pl.String,  # of the files' content, the record and the label
}
SCHEMA: Final = pl.Schema(_COLUMNS)

# Refusals that say nothing of the item's own content: a new run reads such an item again.
ACCIDENTS: Final = ("timeout", "crashed", "internal_error", "file_unreadable", "duplicate_id",
                    "duplicate_content")  # fmt: skip

_PART: Final = r"^(?:part-[0-9a-f]{24}\.h5)?$"  # the names that parts have; a forged one leads nowhere

Row = dict[str, Any]


def fingerprint(options: object, versions: Mapping[str, str]) -> str:
    """SHA-256 of all that decides what a file becomes, other than the file."""
    said = {"options": asdict(options), "versions": dict(versions)}  # type: ignore[call-overload]
    return _sha(said)


def locators(item: Item) -> tuple[Locator, ...]:
    """The files that an item may read, each once."""
    named = (item.structure, item.ligand, *item.alternates)
    return tuple(dict.fromkeys(locator for locator in named if locator is not None))


def item_digest(fingerprint: str, item: Item) -> str:
    """SHA-256 of the options and of what the source said of an item, without where its files lie."""
    marks = [item.synthetic, item.predicted, item.assembly, item.ligand is None, len(locators(item)),
             item.resolution, item.deposited]  # fmt: skip
    measured = [_words(label) for label in item.labels]
    said = [
        fingerprint,
        item.id,
        item.record,
        item.residue,
        item.smiles,
        measured,
        dict(item.columns),
        item.source,
        marks,
    ]
    return _sha(said)


def content_key(item: Item, hashes: Sequence[str]) -> str:
    """Equal for two items with the same files, record, residue and label."""
    return _sha([list(hashes[:2]), item.record, item.residue, [_words(label) for label in item.labels]])


def _words(label: Label) -> list[str]:
    return [label.kind, label.relation, label.value, label.unit, label.text, str(label.temperature)]


def _sha(said: object) -> str:
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()


def frame(rows: Sequence[Row]) -> pl.DataFrame:
    """Rows as a table of the ledger's schema."""
    return pl.DataFrame(rows, schema=SCHEMA, orient="row")


def read(out: Path) -> pl.DataFrame:
    """The ledger of a finished run. Raises DataError if there is none."""
    path = out / LEDGER
    if not path.is_file():
        raise DataError(
            f"{out} has no {LEDGER}: it is no output of ingest, or its run has not ended; run it again"
        )
    try:
        found = _load(path)
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
        raise DataError(f"{path} cannot be read: {error}; remove it and run ingest again") from error
    if found.schema != SCHEMA:
        raise DataError(f"{path} has other columns than this version writes; remove it and run ingest again")
    return found


def place(rows: pl.DataFrame, out: Path) -> None:
    """Write the ledger of a run, and its timings beside it."""
    write_frame(rows.select("id", "seconds"), out / TIMES)
    write_frame(rows.drop("seconds"), out / LEDGER)


def _load(path: Path) -> pl.DataFrame:
    """Receipt or ledger, with its timings; 0 where a kill came between the two."""
    found = pl.read_parquet(path)
    if "seconds" in found.columns or "id" not in found.columns:
        return found
    times = {"id": pl.String, "seconds": pl.Float64}
    try:
        known = pl.read_parquet(path.with_name(TIMES), columns=list(times)).cast(pl.Schema(times))
    except (OSError, pl.exceptions.PolarsError, pl.exceptions.PanicException):
        known = pl.DataFrame(schema=times)
    joined = found.join(known.unique("id"), on="id", how="left", maintain_order="left")
    joined = joined.with_columns(pl.col("seconds").fill_null(0.0))
    return joined.select(SCHEMA.names()) if set(SCHEMA) == set(joined.columns) else joined


def write_frame(rows: pl.DataFrame, path: Path) -> None:
    """Write a table atomically."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with temporary.open("wb") as file:
        rows.write_parquet(file, compression="zstd", statistics=False)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def write_json(said: Mapping[str, Any], path: Path) -> None:
    """Write a mapping atomically."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with temporary.open("w") as file:
        file.write(json.dumps(said, indent=1, sort_keys=True) + "\n")
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


class Prior:
    """What earlier runs found, by id: the finished ledger, and receipts of runs that were killed."""

    def __init__(self, out: Path) -> None:
        frames = [self._read(path) for path in [out / LEDGER, *self._receipts(out)]]
        rows = pl.concat([found for found in frames if found is not None] or [SCHEMA.to_frame()])
        rows = rows.unique("id", keep="last", maintain_order=True).with_row_index("place")
        self.rows = rows.sort("id")
        self._ids = self.rows["id"]

    @staticmethod
    def _receipts(out: Path) -> list[Path]:
        found = (out / WORK).glob("*/*.parquet")
        return sorted(found, key=lambda path: (path.stat().st_mtime_ns, path))

    @staticmethod
    def _read(path: Path) -> pl.DataFrame | None:
        """A table, or None: what cannot be read is read anew from the source, and so is a complex of which
        it says that it lies elsewhere than in a part of ours.
        """
        try:
            found = _load(path) if path.is_file() else SCHEMA.to_frame()
        except (OSError, pl.exceptions.PolarsError, pl.exceptions.PanicException):
            return None
        return found.filter(pl.col("part").str.contains(_PART)) if found.schema == SCHEMA else None

    @property
    def n_kept(self) -> int:
        """Complexes that earlier runs kept."""
        return int((self.rows["status"] == "kept").sum())

    def n_kept_beside(self, ids: pl.Series) -> int:
        """Complexes that earlier runs kept and whose ids are not among these."""
        kept = self.rows.filter(pl.col("status") == "kept")["id"]
        return int((~kept.is_in(ids.implode())).sum())

    def of(self, items: Sequence[Item | Rejection]) -> dict[str, Row]:
        """The rows of these items, and of the sites of those that are read for all their sites."""
        if not len(self.rows):
            return {}
        starts = [item.id for item in items]
        ends = [f"{item.id};" if isinstance(item, Item) and item.sites else f"{item.id}\0" for item in items]
        first = self._ids.search_sorted(pl.Series(starts, dtype=pl.String), side="left")
        last = self._ids.search_sorted(pl.Series(ends, dtype=pl.String), side="left")
        wanted = {place for a, b in zip(first, last, strict=True) for place in range(a, b)}
        found = self.rows[sorted(wanted)].sort("place").drop("place")
        return {row["id"]: row for row in found.iter_rows(named=True)}


def duplicates(rows: pl.DataFrame) -> dict[str, str]:
    """Kept items whose content an earlier one has: id -> id of the first."""
    kept = rows.filter(pl.col("status") == "kept")
    first = kept.group_by("content", maintain_order=True).agg(pl.col("id").first().alias("first"))
    joined = kept.join(first, on="content", how="left", maintain_order="left")
    again = joined.filter(pl.col("id") != pl.col("first"))
    return dict(again.select("id", "first").iter_rows())


def account(rows: pl.DataFrame) -> dict[str, Any]:
    """Seen, kept, refused and the count of each reason. Raises DataError if they do not balance."""
    reasons = Counter(rows.filter(pl.col("status") == "refused")["reason"].to_list())
    kept = int((rows["status"] == "kept").sum())
    repairs = Counter(rows["repairs"].explode().drop_nulls().to_list())
    seen, refused = len(rows), sum(reasons.values())
    if rows["id"].n_unique() != seen:
        twice = rows["id"].filter(rows["id"].is_duplicated())[0]
        raise DataError(f"two complexes have the id {twice!r}: a site of a structure and an item; rename one")
    if seen != kept + refused or set(reasons) - set(REASONS):
        raise DataError(f"the ledger does not balance: {seen=} {kept=} {refused=} {sorted(reasons)}")
    return {
        "seen": seen,
        "kept": kept,
        "refused": refused,
        "reasons": dict(sorted(reasons.items())),
        "repairs": dict(sorted(repairs.items())),
    }
