"""The commands of this room: ``ingest``, ``ledger`` and ``sample``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import polars as pl
from cyclopts import Parameter

from ..shards.console import Output
from ..shards.errors import NothingKeptError, UsageError
from .engine import EngineOptions, run
from .ledger import SCHEMA, account, read
from .pipeline import IngestOptions, process
from .reasons import REASONS
from .refused import collect
from .sites import find_sites
from .sources.layouts import choose, items
from .survey import refuse_another_source, survey
from .warm import warm


def ingest(
    sources: Annotated[list[Path], Parameter(negative=())],
    /,
    *,
    out: Path,
    layout: str = "auto",
    labels: Path | None = None,
    collect_refused: bool = False,
    replace: Annotated[bool, Parameter(negative=())] = False,
    options: Annotated[IngestOptions | None, Parameter(name="*")] = None,
    engine: Annotated[EngineOptions | None, Parameter(name="*")] = None,
    output: Annotated[Output | None, Parameter(name="*")] = None,
) -> dict[str, Any]:
    """Read structures, ligands and labels into parts, and account for each of them.

    Run it again over the same and more files: only what is new or changed is read, what is gone is removed.

    Examples::
        holoshard ingest structures/ --labels labels.csv --out data/parts

        holoshard ingest pdbbind/ --out data/parts --pocket 10 --workers 8

        holoshard ingest systems.tar more/ --out data/parts --collect-refused

    Parameters
    ----------
    sources
        Folders, tables or archives (tar, tar.gz, zip; read in place), of one layout each.
    out
        Folder for the parts, ledger.parquet, timings.parquet and summary.json: new, empty, or of an earlier
        ingest.
    layout
        What lies there: auto, table, pdbbind, plinder, sair, crossdocked, posebusters, dude, openfe, rcsb,
        predicted, pairs; or a class of your own, package.module:Class. auto says what it chose, and why.
    labels
        Table (CSV, TSV, Parquet): with file columns it is the list of complexes, else labels by id.
    collect_refused
        Copy the files of what is refused to OUT/refused, by reason.
    replace
        Go on where the sources name nothing that an earlier ingest into OUT did, and remove all of that.
    """
    if not sources:
        raise UsageError(
            "no source given; expected folders, tables or archives, as in: "
            "holoshard ingest structures/ --out parts"
        )
    chosen = [choose(path, layout, labels) for path in sources]
    options = options or IngestOptions()
    apart = options.merge == "separate"
    if not replace:
        refuse_another_source(items(chosen, apart=apart), out)
    found = survey(chosen, apart=apart)
    summary = run(
        items(chosen, apart=apart),
        out,
        process=process,
        expand=find_sites,
        prepare=warm,
        options=options,
        engine=engine,
        total=found.n_items,
        notes={"unused_files": found.unused},
    )
    layouts = {str(one.request.tree.path): one.source.name for one in chosen}
    unread = [str(one.request.tree.path / name) for one in chosen for name in one.unread]
    result = {**summary, "layouts": layouts, "unread_tables": unread, "out": str(out)}
    result["labels_unused"] = len(found.unmet)
    if collect_refused:
        result["collected"] = collect(read(out), out)
    print("\n".join(_lines(result, out, found.unmet)))
    if not summary["kept"]:
        why = f"holoshard ledger {out} says why, one by one"
        if not summary["seen"]:
            why = "the source names none; look at its files, or name another --layout"
        error = NothingKeptError(f"nothing was kept of {summary['seen']} items; {why}")
        print(f"holoshard: {error}", file=sys.stderr)
        return {**result, "error": str(error), "exit_code": error.exit_code}
    return result


def _lines(summary: dict[str, Any], out: Path, unmet: Sequence[str]) -> list[str]:
    """The end of a run, for people."""
    rate = summary["seen"] / max(summary["seconds"], 1e-9)
    labelled = f": {summary['labelled']} labelled, {summary['kept'] - summary['labelled']} without a pK"
    again = f", {summary['reused']} of them from an earlier run" if summary["reused"] else ""
    lines = [
        f"{summary['seen']} seen in {summary['seconds']:.1f} s ({rate:.0f}/s)",
        f"{summary['kept']:>8} kept{labelled if summary['kept'] else ''}{again}",
        f"{summary['refused']:>8} refused",
    ]
    if summary["removed"]:
        lines.append(f"{summary['removed']:>8} of an earlier run here removed: the source names them no more")
    for reason, count in sorted(summary["reasons"].items(), key=lambda pair: (-pair[1], pair[0])):
        lines.append(f"{count:>12} {reason:<26} {REASONS[reason]}")
    if summary["repairs"]:
        said = ", ".join(f"{code} {count}" for code, count in summary["repairs"].items())
        lines.append(f"repairs: {said}")
    if summary["unused_files"]:
        said = ", ".join(f"{count} {end}" for end, count in summary["unused_files"].items())
        lines.append(
            f"warning: {sum(summary['unused_files'].values())} files belong to no complex: {said}; "
            "ingest them apart, or name another --layout"
        )
    if unmet:
        said = ", ".join(unmet[:3]) + ", ..." * (len(unmet) > 3)
        lines.append(f"warning: {len(unmet)} ids of the labels are no complex here: {said}")
    if summary["unread_tables"]:
        lines.append(f"tables not read (why: see above): {', '.join(summary['unread_tables'])}")
    return [*lines, f"ledger: {out / 'ledger.parquet'}"]


def ledger(
    out: Path,
    /,
    *,
    reason: str = "",
    status: Literal["all", "kept", "refused"] = "refused",
    csv: bool = False,
    limit: int = 50,
    output: Annotated[Output | None, Parameter(name="*")] = None,
) -> dict[str, Any]:
    """Show what an ingest kept and refused, and why.

    Examples::
        holoshard ledger data/parts

        holoshard ledger data/parts --reason ligand_unreadable

        holoshard ledger data/parts --status all --csv > ledger.csv

    Parameters
    ----------
    out
        Output folder of ingest.
    reason
        Only rows with this code; a wrong one lists all codes.
    status
        Which rows: refused, kept or all.
    csv
        Every column of every row as CSV, lists joined by "|".
    limit
        Rows to show without --csv; 0 for all.
    """
    rows = read(out)
    if limit < 0:
        raise UsageError(f"--limit is {limit}; expected a number of rows, 0 for all")
    if reason and reason not in REASONS:
        raise UsageError(f"there is no reason {reason!r}; known are {', '.join(REASONS)}")
    account_ = account(rows)
    if reason or status != "all":
        rows = rows.filter(pl.col("reason") == reason if reason else pl.col("status") == status)
    if csv:
        lists = [name for name, kind in SCHEMA.items() if kind == pl.List(pl.String)]
        print(rows.with_columns(pl.col(lists).list.join("|")).write_csv(), end="")
    else:
        shown = rows.head(limit) if limit else rows
        for row in shown.iter_rows(named=True):
            print(f"{row['id']}\t{row['reason'] or 'kept'}\t{row['message'] or row['part']}")
        if len(shown) < len(rows):
            print(f"... {len(rows) - len(shown)} more; --limit 0 shows all")
        print(f"{account_['seen']} seen, {account_['kept']} kept, {account_['refused']} refused")
    return {**account_, "shown": len(rows)}


def sample(
    *,
    out: Path,
    n: int = 256,
    seed: int = 0,
    dirty: float = 0.0,
    archive: Annotated[bool, Parameter(negative=())] = False,
    workers: int = 1,
    output: Annotated[Output | None, Parameter(name="*")] = None,
) -> dict[str, Any]:
    """Write the embedded sample: real files of made-up complexes with labels from a known formula.

    Examples::
        holoshard sample --out data/sample

        holoshard sample --out data/dirty --n 1000 --dirty 0.05

        holoshard sample --out data/large --n 200000 --archive --workers 8

    Parameters
    ----------
    out
        Folder for the structures and labels.csv.
    n
        Complexes.
    seed
        The same seed, the same files.
    dirty
        Share of the complexes that are made bad in known ways.
    archive
        Write the structures into tar archives of some thousand complexes, not into files of their own.
    workers
        Processes; they do not change a byte.
    """
    from .sample import write_sample

    result = write_sample(out, n=n, seed=seed, dirty=dirty, archive=archive, workers=workers)
    print(f"{n} complexes in {out}; next: holoshard ingest {out} --out parts")
    return result
