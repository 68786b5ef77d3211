"""One page about one run, from the files in its folder: ``report.html``.

The page stands alone: it can be sent by mail and opened without a network. What a run lacks is left out,
and the same folder gives the same bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from ... import __version__
from ...shards.complex import KINDS, Flag
from . import figures, page
from .atomic import write_text
from .bootstrap import FEWEST, counted, doubt
from .evaluate import SHOWN, figure_text
from .pocket import pockets
from .predictions import PredictionTable
from .reading import reading
from .run import Run, ordered, read_run
from .runlog import RunLog

N_WORST: Final = 15
N_TARGETS: Final = 25


def write_report(run_dir: Path) -> Path:
    """Write ``report.html`` into a run's folder and return its path.

    Raises
    ------
    UsageError : the folder is not that of a run
    DataError : one of its files cannot be read
    """
    run = read_run(run_dir)
    path = run_dir / "report.html"
    write_text(path, page.page(f"holoshard: {run.name}", compose(run)))
    return path


def compose(run: Run) -> list[str]:
    """The page's parts from top to bottom."""
    tables = list(run.predictions.items())
    return [
        f"<h1>{page.text(run.name)}</h1>",
        _summary(run),
        _banner(run),
        _headline(run),
        page.section("Predicted against measured", *_scatters(tables)),
        page.section("Figures by split", _by_split(run)),
        page.section("Beside simpler predictors", *_baselines(run)),
        page.section("By kind of measurement", *_by_label(run, "by_kind", "kind")),
        page.section("Within targets", *_by_label(run, "by_target", "target")),
        page.section("Training", *_training(run.log)),
        page.section("Worst predictions", *_worst(run)),
        page.section("Pockets", *pockets(run.dataset, run.predictions)),
        page.section("Data set", *_dataset(run)),
        page.section("Configuration and versions", *_configuration(run)),
    ]


def _summary(run: Run) -> str:
    parts = [f"holoshard {__version__}"]
    if run.log.starts:
        start = run.log.starts[-1]
        if "parameters" in start:
            parts.append(f"{start['parameters']:,} parameters")
        parts += [str(start[key]) for key in ("device", "precision") if key in start]
    if run.log.steps:
        parts.append(f"{max(run.log.steps):,} steps")
    return page.paragraph(", ".join(parts), "quiet")


def _banner(run: Run) -> str:
    counts = [(e.get("n_synthetic", 0), e.get("n_predicted", 0)) for e in run.evaluations.values()]
    synthetic, total = (sum(column) for column in zip(*counts, strict=True)) if counts else (0, 0)
    if run.dataset is not None and not synthetic:
        flags = np.asarray(run.dataset.column("flags"))
        synthetic, total = int(np.count_nonzero(flags & int(Flag.SYNTHETIC))), len(flags)
    if not synthetic:
        return ""
    share = "All" if synthetic >= total else f"{synthetic} of {total}"
    return page.paragraph(
        f"Synthetic data. {share} of these complexes were written by holoshard sample, with labels from a "
        "formula. The figures show that the line works; they say nothing about real affinities.",
        "banner",
    )


def _headline(run: Run) -> str:
    for split, result in run.evaluations.items():
        names = {name: SHOWN[name] for name in ("pearson", "spearman", "rmse", "mae", "within_target")}
        items = [
            (f"{label} ({split})", _value(result.get(name)), _span(result.get(f"{name}_ci")))
            for name, label in names.items()
            if result.get(name) is not None
        ]
        brackets = f" Brackets are 95 % bootstrap intervals: {_resampling(result)}."
        doubtful = _doubt(result)
        note = (
            f"{result.get('n_exact', 0)} measured complexes of the {split} split."
            f"{brackets if result.get('n_units', 0) >= FEWEST else ''} RMSE and MAE in pK units."
            f"{f' Warning: {doubtful}.' if doubtful else ''}"
        )
        return page.tiles(items) + page.paragraph(note, "quiet")
    return page.paragraph("This run has not been evaluated; do so with: holoshard eval", "quiet")


def _resampling(result: Mapping[str, Any]) -> str:
    unit = str(result.get("unit", "complex"))
    whole = "" if unit == "complex" else ", each drawn whole"
    return f"{result.get('n_boot', 0)} draws of {counted(result.get('n_units', 0), unit)}{whole}"


def _doubt(result: Mapping[str, Any]) -> str | None:
    return doubt(result.get("n_units", 0), str(result.get("unit", "complex")))


def _value(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _span(interval: Sequence[float] | None) -> str:
    return "" if interval is None else f"[{interval[0]:.2f}, {interval[1]:.2f}]"


def _scatters(tables: Sequence[tuple[str, PredictionTable]]) -> list[str]:
    if not tables:
        return []
    thinned = [split for split, table in tables if len(table) > figures.MAX_POINTS]
    note = f" Of {', '.join(thinned)}, {figures.MAX_POINTS} complexes are drawn." if thinned else ""
    bounds = any(mask.any() for _, t in tables for mask, _, _ in figures.marks(t)[1:])
    arrows = " Arrows are bounds: the true pK lies on the side they point to." if bounds else ""
    drawn = [
        page.figure(figures.scatter(tables), f"The dashed line is perfect prediction.{arrows}{note}"),
        page.figure(figures.residuals(tables), "Errors: right of the line the affinity is overestimated."),
    ]
    return [page.side(*drawn)] if len(tables) == 1 else drawn


def _row(name: str, result: Mapping[str, Any], sign: str = "") -> list[str]:
    return [name, *(figure_text(result.get(key), result.get(f"{key}_ci"), sign) for key in SHOWN)]


def _by_split(run: Run) -> str:
    rows = [
        [*_row(split, result), result.get("n_exact", 0), _bounds(result.get("censored", {}))]
        for split, result in run.evaluations.items()
    ]
    return page.table(["split", *SHOWN.values(), "measured", "bounds broken"], rows)


def _bounds(censored: Mapping[str, Any]) -> str:
    return f"{censored['violated']} of {censored['n']}" if censored.get("n") else "-"


def _baselines(run: Run) -> list[str]:
    parts, doubtful = list[str](), False
    for split, result in run.evaluations.items():
        others = {**result.get("baselines", {}), **result.get("against", {})}
        if not others:
            continue
        doubtful |= _doubt(result) is not None
        rows = [_row("this run", result)]
        for name, other in others.items():
            rows += [_row(name, other), _row(f"this run - {name}", other["difference"], "+")]
        parts.append(page.table(["predictor", *SHOWN.values()], rows, f"{split} split"))
        if len(others) > 1:
            parts.append(_drawn(split, [("this run", result), *others.items()]))
        missing = result.get("baselines_left_out", {})
        parts += [page.paragraph(f"{name} left out: {why}", "quiet") for name, why in missing.items()]
    if parts:
        differ = "" if doubtful else "An interval that leaves out 0 says they differ. "
        note = (
            f"Differences are paired: both predictors are judged on the same resamples. {differ}"
            "Lower RMSE and MAE, higher correlations are better."
        )
        parts.append(page.paragraph(note, "quiet"))
    return parts


def _drawn(split: str, judged: Sequence[tuple[str, Mapping[str, Any]]]) -> str:
    svgs = (
        figures.intervals([(name, r.get(key), r.get(f"{key}_ci")) for name, r in judged], SHOWN[key],
                          f"{page.slug(split)}-{key}")
        for key in ("rmse", "pearson")
    )  # fmt: skip
    return page.side(*(page.figure(svg, "") for svg in svgs))


def _by_label(run: Run, key: str, label: str) -> list[str]:
    parts = list[str]()
    for split, result in run.evaluations.items():
        found = list(result.get(key, {}).items())
        names = {name: title for name, title in SHOWN.items() if name != "within_target"}
        rows = [
            [name, r["n_exact"], *(figure_text(r.get(n), r.get(f"{n}_ci")) for n in names)]
            for name, r in found[:N_TARGETS]
            if r["n_exact"]
        ]
        more = f", the {N_TARGETS} largest of {len(found)}" if len(found) > N_TARGETS else ""
        body = page.table([label, "measured", *names.values()], rows, f"{split} split{more}")
        parts.append(body if not parts or not body else page.folded(f"{split} split", body))
    return parts


def _training(log: RunLog) -> list[str]:
    if not log.steps:
        return []
    parts = [page.figure(figures.curves(log), "Left: training and validation loss, and the learning rate. "
                         "Right: figures on the validation split, and speed.")]  # fmt: skip
    shares = _time_shares(log)
    unusual = [e for e in log.events if e["event"] not in ("done",)]
    events = [[e["event"], e.get("step", "-")] for e in unusual[-20:]]
    parts.append(page.row(
        page.table(["time of a step", "seconds", "share"], shares, "sums over the run"),
        page.table(["event", "step"], events, "what was unusual"), *reading(log),
    ))  # fmt: skip
    for start in log.starts[:1] + log.starts[1:][-1:]:
        parts.append(page.folded("started on", page.table(["", ""], list(start.items()), words=2)))
    return parts


def _time_shares(log: RunLog) -> list[list[str]]:
    names = {"data_wait": "waiting for data", "forward": "forward", "backward": "backward",
             "communication": "communication", "pipeline": "pipeline", "optimizer": "optimizer"}  # fmt: skip
    series = {title: log.series(name)[1] for name, title in names.items()}
    sums = {title: float(values.sum()) for title, values in series.items() if len(values)}
    total = sum(sums.values()) or 1.0
    return [[title, f"{value:.1f}", f"{value / total:.1%}"] for title, value in sums.items()]


def _worst(run: Run) -> list[str]:
    for split, table in run.predictions.items():
        error = table.predicted - table.pk
        exact, *_ = figures.marks(table)
        size = np.where(exact[0], np.abs(error), -1)
        order = np.argsort(-size, kind="stable")[:N_WORST]
        rows = [
            [table.id[i], table.target[i], table.kind[i], f"{table.pk[i]:.2f}", f"{table.predicted[i]:.2f}",
             f"{error[i]:+.2f}"]
            for i in order if size[i] >= 0
        ]  # fmt: skip
        head = ["id", "target", "kind", "measured", "predicted", "error"]
        return [page.table(head, rows, f"{split} split, largest error first", words=3)]
    return []


def _dataset(run: Run) -> list[str]:
    if run.dataset is None:
        where = run.dataset_name or "unknown"
        return [page.paragraph(f"{where}: no longer there, so that its facts are not shown.", "quiet")]
    data = run.dataset
    atoms, pk = np.asarray(data.column("n_atoms")), np.asarray(data.column("pk"), dtype=np.float64)
    flags, kinds = np.asarray(data.column("flags")), np.asarray(data.column("pk_kind"))
    rows = []
    for split in ordered(data.splits):
        within = data.indices(split)
        known = pk[within][np.isfinite(pk[within])]
        spread = f"{known.mean():.2f} ± {known.std():.2f}" if len(known) else "-"
        size = f"{np.median(atoms[within]):.0f}" if len(within) else "-"
        rows.append([split, len(within), len(known), spread, size])
    counted = zip(*np.unique(kinds, return_counts=True), strict=True)
    marks = [(f.name or "").lower().replace("_", " ") for f in Flag]
    marked = [int(np.count_nonzero(flags & int(f))) for f in Flag]
    return [
        page.paragraph(f"{run.dataset_name}: {len(data):,} complexes."),
        page.row(
            page.table(["split", "complexes", "with a pK", "pK, mean ± SD", "atoms, median"], rows),
            page.table(["kind of measurement", "complexes"], [[KINDS[k], int(n)] for k, n in counted]),
            page.table(["mark", "complexes"], [[m, n] for m, n in zip(marks, marked, strict=True) if n]),
        ),
    ]


def _configuration(run: Run) -> list[str]:
    splits = list(run.evaluations) or ["test"]
    commands = [f"holoshard train {run.name}/config.toml"]
    for split in splits:
        more = " --baselines" if len(run.evaluations.get(split, {}).get("baselines", {})) > 1 else ""
        commands.append(f"holoshard eval {run.name} --split {split}{more}")
    start = run.log.starts[-1] if run.log.starts else {}
    versions = {"holoshard": __version__, **{k: start[k] for k in ("torch", "numpy", "python") if k in start}}
    return [
        page.paragraph("To make this run and this page again:"),
        page.code("\n".join(commands)),
        page.paragraph(", ".join(f"{name} {version}" for name, version in versions.items()), "quiet"),
        page.folded("config.toml", page.code(run.config)),
    ]
