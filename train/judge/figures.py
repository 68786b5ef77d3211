"""The report's figures, as SVG that stands inside a page: no fonts, no network, the page's own colours.

The same data give the same bytes. Lines and letters that should follow the page's theme are drawn in a
colour of their own, which becomes ``currentColor``.
"""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from typing import Any, Final

import matplotlib
import numpy as np
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator
from numpy.typing import NDArray

from .metrics import exact
from .predictions import PredictionTable
from .runlog import Curve, RunLog

INK: Final = "#0a0b0c"  # stands for the page's text colour
BLUE: Final = "#3d85c6"  # these three are told apart on white and on black
ORANGE: Final = "#e0793a"
GREEN: Final = "#3fa06b"
MAX_POINTS: Final = 1_500  # of a scatter: 110 bytes each
MAX_LINE: Final = 800  # points of a curve, more than a screen shows
RC: Final[Any] = {
    "svg.fonttype": "none", "svg.hashsalt": "holoshard", "font.family": "sans-serif", "font.size": 9,
    "text.color": INK, "axes.edgecolor": INK, "axes.labelcolor": INK, "xtick.color": INK, "ytick.color": INK,
    "axes.spines.top": False, "axes.spines.right": False, "axes.linewidth": 0.7, "axes.titlesize": 9.5,
    "axes.grid": True, "grid.color": INK, "grid.alpha": 0.12, "grid.linewidth": 0.6, "axes.axisbelow": True,
    "legend.frameon": False, "legend.fontsize": 8, "lines.linewidth": 1.4, "figure.facecolor": "none",
    "axes.facecolor": "none", "savefig.facecolor": "none", "text.parse_math": False,
}  # fmt: skip


def render(figure: Figure, name: str, label: str) -> str:
    """The figure as an inline SVG element; ``name`` keeps its ids apart from those of other figures."""
    buffer = io.StringIO()
    nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    figure.savefig(buffer, format="svg", metadata=nothing)
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>\s*", "", text, flags=re.S)
    text = re.sub(r'\bid="([^"]+)"', rf'id="{name}-\1"', text)
    text = re.sub(r"url\(#([^)]+)\)", rf"url(#{name}-\1)", text)
    text = re.sub(r'href="#([^"]+)"', rf'href="#{name}-\1"', text)
    text = text.replace(INK, "currentColor")
    size = re.search(r'viewBox="0 0 ([\d.]+) ', text)
    width = f"max-width:{float(size.group(1)) * 1.45:.0f}px" if size else ""
    head = f'<svg role="img" aria-label="{label}" style="width:100%;height:auto;{width}"'
    return re.sub(r'<svg((?:\s+(?!width=|height=)[\w:]+="[^"]*")*)[^>]*?(\sviewBox="[^"]*")[^>]*>',
                  rf'{head} xmlns:xlink="http://www.w3.org/1999/xlink" xmlns="http://www.w3.org/2000/svg"\2>',
                  text, count=1)  # fmt: skip


def _canvas(width: float, height: float) -> Figure:
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasSVG(figure)
    return figure


def scatter(tables: Sequence[tuple[str, PredictionTable]]) -> str:
    """Predicted against measured pK, a panel a split, with the identity line; bounds as arrows."""
    with matplotlib.rc_context(RC):
        figure = _canvas(*((4.4, 3.6) if len(tables) == 1 else (3.1 * max(len(tables), 1), 3.1)))
        axes = figure.subplots(1, len(tables), squeeze=False)[0]
        low, high = _limits(tables)
        for panel, (split, table) in zip(axes, tables, strict=True):
            panel.plot([low, high], [low, high], color=INK, linewidth=0.8, linestyle=(0, (4, 3)))
            for mask, marker, colour in marks(table):
                rows = _thinned(np.flatnonzero(mask))
                panel.plot(table.pk[rows], table.predicted[rows], marker, color=colour, alpha=0.55,
                           markersize=5 if len(rows) < 200 else 3.6, markeredgewidth=0)  # fmt: skip
            panel.set(xlim=(low, high), ylim=(low, high), aspect="equal", xlabel="measured pK",
                      title=f"{split} (n = {int(np.isfinite(table.pk).sum())})")  # fmt: skip
        axes[0].set_ylabel("predicted pK")
        return render(figure, "scatter", "predicted against measured pK")


def _limits(tables: Sequence[tuple[str, PredictionTable]]) -> tuple[float, float]:
    every = np.concatenate([np.concatenate([t.pk, t.predicted]) for _, t in tables])
    every = every[np.isfinite(every)]
    return (float(np.floor(every.min())), float(np.ceil(every.max()))) if len(every) else (0.0, 1.0)


def marks(table: PredictionTable) -> list[tuple[NDArray[np.bool_], str, str]]:
    """Which complexes are drawn with which marker and colour: measured, upper bounds, lower bounds."""
    relation = np.asarray(table.pk_relation, dtype=object)
    known = np.isfinite(table.pk)
    return [
        (exact(table.pk, table.pk_relation), "o", BLUE),
        (known & np.isin(relation, ("<", "<=")), "<", ORANGE),
        (known & np.isin(relation, (">", ">=")), ">", ORANGE),
    ]


def _thinned(rows: NDArray[np.intp]) -> NDArray[np.intp]:
    if len(rows) <= MAX_POINTS:
        return rows
    return np.sort(np.random.default_rng(0).choice(rows, MAX_POINTS, replace=False))


def residuals(tables: Sequence[tuple[str, PredictionTable]]) -> str:
    """Histogram of predicted minus measured pK, a panel a split."""
    with matplotlib.rc_context(RC):
        figure = _canvas(*((4.4, 3.6) if len(tables) == 1 else (3.1 * max(len(tables), 1), 2.1)))
        axes = figure.subplots(1, len(tables), squeeze=False)[0]
        errors = [(t.predicted - t.pk)[exact(t.pk, t.pk_relation)] for _, t in tables]
        reach = max([float(np.ceil(np.abs(e).max())) for e in errors if len(e)] or [1.0]) or 1.0
        for panel, (split, _), error in zip(axes, tables, errors, strict=True):
            bins = 41 if len(error) > 200 else 21
            panel.hist(error, bins=np.linspace(-reach, reach, bins), color=BLUE, alpha=0.75)
            panel.axvline(0, color=INK, linewidth=0.8, linestyle=(0, (4, 3)))
            panel.set(xlim=(-reach, reach), xlabel="predicted - measured pK", title=split)
        axes[0].set_ylabel("complexes")
        return render(figure, "residuals", "histogram of errors")


def _thin_curve(curve: Curve) -> Curve:
    """Means of as many neighbours as bring a curve under MAX_LINE points."""
    steps, values = curve
    width = -(-len(steps) // MAX_LINE) if len(steps) else 1
    if width == 1:
        return curve
    edges = np.arange(0, len(steps), width)
    size = np.diff(np.append(edges, len(steps)))
    return steps[edges], np.add.reduceat(values, edges) / size


def curves(log: RunLog) -> str:
    """Loss, learning rate, speed and the share of time spent waiting for data, over steps."""
    with matplotlib.rc_context(RC):
        figure = _canvas(9.3, 4.6)
        (loss, metric), (rate, speed) = figure.subplots(2, 2, sharex=True)
        _line(loss, log.series("loss"), "training", BLUE)
        _line(loss, log.evaluated("loss"), "validation", ORANGE, ".-")
        loss.set(title="loss")
        if _positive(log.series("loss")):
            loss.set_yscale("log")
            loss.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            loss.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            loss.yaxis.set_minor_locator(NullLocator())
        _line(metric, log.evaluated("rmse"), "RMSE", ORANGE, ".-")
        _line(metric, log.evaluated("pearson"), "Pearson", GREEN, ".-")
        metric.set(title="validation", ylim=(0, None))
        _line(rate, log.series("lr"), "learning rate", BLUE)
        rate.set(title="learning rate", xlabel="step")
        _line(speed, log.series("samples_per_s"), "complexes/s", BLUE)
        speed.set(title="complexes a second", xlabel="step", ylim=(0, None))
        for panel in (loss, metric):
            if panel.get_legend_handles_labels()[0]:
                panel.legend()
        return render(figure, "curves", "loss, validation, learning rate and speed over training steps")


def _line(panel: Any, curve: Curve, label: str, colour: str, style: str = "-") -> None:
    steps, values = _thin_curve(curve)
    if len(steps):
        panel.plot(steps, values, style, color=colour, label=label, markersize=5)


def _positive(curve: Curve) -> bool:
    return bool(len(curve[1])) and bool((curve[1] > 0).all())


def intervals(rows: Sequence[tuple[str, float | None, Sequence[float] | None]], label: str, name: str) -> str:
    """One figure for several predictors: a dot with its interval, a row a predictor, the first on top."""
    with matplotlib.rc_context(RC):
        figure = _canvas(4.4, 0.55 + 0.3 * len(rows))
        panel = figure.subplots()
        for place, (_, value, interval) in enumerate(rows):
            colour = BLUE if place == 0 else ORANGE
            if value is not None:
                panel.plot([value], [place], "o", color=colour, markersize=5)
            if interval is not None:
                panel.plot(interval, [place, place], "-", color=colour, linewidth=2, alpha=0.6)
        panel.set(yticks=range(len(rows)), yticklabels=[row[0] for row in rows], xlabel=label,
                  ylim=(len(rows) - 0.5, -0.5))  # fmt: skip
        panel.grid(axis="y", visible=False)
        return render(figure, name, label)
