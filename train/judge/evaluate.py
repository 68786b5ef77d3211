"""Judge a run on one split: predict, compare with the measurements and with simpler predictors, write down.

Writes two files in the run's folder: ``predictions-<split>.csv`` and ``evaluation-<split>.json``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np

from ...shards.complex import Flag
from ...shards.errors import UsageError
from ...shards.read.dataset import Dataset, open_dataset
from .atomic import write_text
from .baselines import BASELINES, predict_baselines
from .bootstrap import FEWEST, Floats, counted, doubt
from .metrics import TARGET_SIZES, by_label, casf, paired, summarise
from .predictions import PredictionTable, labels_of, read_predictions, write_predictions

Group = Literal["auto", "cluster", "target", "none"]

SHOWN: Final = {
    "rmse": "RMSE", "mae": "MAE", "pearson": "Pearson", "spearman": "Spearman",
    "within_target": "within targets",
}  # fmt: skip


def evaluate(run: Path, split: str = "test", dataset: Path | None = None, n_boot: int = 1000, *,
             baselines: bool = False, against: Sequence[Path] = (), group: Group = "auto", seed: int = 0
             ) -> dict[str, Any]:  # fmt: skip
    """Predict a split with the run's model and judge it; returns what ``evaluation-<split>.json`` holds.

    Parameters
    ----------
    run : run folder
    dataset : data set to judge on; the one the run was trained on if None
    n_boot : bootstrap replicates
    baselines : fit all baselines on the training split and compare, not only the mean
    against : other runs that were evaluated on the same split, compared pair by pair
    group : what is resampled whole: clusters if the source names at least two, else targets, else complexes

    Raises
    ------
    UsageError : the data set has no such split, or another run no predictions of it
    """
    from ..predictor import Predictor  # brings torch

    predictor = Predictor.load(run)
    data = predictor.config.data
    source = Path(dataset if dataset is not None else data.path)
    holos = open_dataset(source)
    if not holos.splits.get(split):
        known = ", ".join(f"{name} ({n})" for name, n in holos.splits.items())
        raise UsageError(f"{source} has no split {split!r}; it has {known}: choose one of them")
    guess = predictor.predict(holos, split)
    table = labels_of(
        holos, guess.index, guess.pk, target_column=data.target_column, cluster_column=data.cluster_column
    )
    write_predictions(run / f"predictions-{split}.csv", table)
    simpler, left_out = _simpler(holos, split, baselines, seed)
    simpler = {name: pk[np.searchsorted(holos.indices(split), guess.index)] for name, pk in simpler.items()}
    flags = np.asarray(holos.column("flags"))[guess.index]
    result = {
        "run": run.name,
        "split": split,
        "dataset": str(source),
        "step": predictor.step,
        "n_predicted": len(table),
        "n_synthetic": int(np.count_nonzero(flags & int(Flag.SYNTHETIC))),
        **judge(table, simpler, group=group, n_boot=n_boot, seed=seed),
        "baselines_left_out": left_out,
        "against": {_name(other): _against(table, other, split, group, n_boot, seed) for other in against},
        "predictions": f"predictions-{split}.csv",
    }
    write_text(run / f"evaluation-{split}.json", json.dumps(result, indent=1, allow_nan=False) + "\n")
    return result


def judge(table: PredictionTable, simpler: Mapping[str, Floats], *, group: Group = "auto",
          n_boot: int = 1000, seed: int = 0) -> dict[str, Any]:  # fmt: skip
    """Everything that can be said of predictions: overall, by kind, by target, beside simpler predictors.

    ``simpler`` maps a name to predicted pK, shape (n,). A baseline's ``difference`` is the model minus the
    baseline, from the same resamples.
    """
    unit, groups = groups_of(table, group)
    same: dict[str, Any] = {"relations": table.pk_relation, "n_boot": n_boot, "seed": seed}
    whole = {**same, "groups": groups, "targets": table.target}
    summary = summarise(table.pk, table.predicted, **whole)
    targets = by_label(table.target, table.pk, table.predicted, **same)
    return {
        **summary,
        "unit": unit,
        "warning": doubt(summary["n_units"], unit),
        "casf": casf(summary),
        "by_kind": by_label(table.kind, table.pk, table.predicted, **whole),
        "by_target": {t: s for t, s in targets.items() if s["n_exact"] >= TARGET_SIZES["within_target"]},
        "baselines": {
            name: {
                **summarise(table.pk, pk, **whole),
                "difference": paired(table.pk, table.predicted, pk, **whole),
            }
            for name, pk in simpler.items()
        },
    }


def groups_of(table: PredictionTable, group: Group = "auto") -> tuple[str, Sequence[str] | None]:
    """What is resampled whole: its name and the label of each row."""
    columns = {"cluster": table.cluster, "target": table.target}
    if group in columns:
        return group, columns[group]
    for name, labels in columns.items():
        if group == "auto" and len(set(labels) - {""}) > 1:
            return name, labels
    return "complex", None


def _simpler(dataset: Dataset, split: str, all_of_them: bool, seed: int
             ) -> tuple[dict[str, Floats], dict[str, str]]:  # fmt: skip
    train = dataset.indices("train") if dataset.splits.get("train") else np.zeros(0, dtype=np.int64)
    if not len(train) and not all_of_them:
        return {}, dict.fromkeys(BASELINES, "the data set has no training split")
    names = BASELINES if all_of_them else BASELINES[:1]
    return predict_baselines(dataset, train, dataset.indices(split), seed, names)


def _name(run: Path) -> str:
    return run.resolve().name


def _against(table: PredictionTable, run: Path, split: str, group: Group, n_boot: int, seed: int
             ) -> dict[str, Any]:  # fmt: skip
    """Compare with another run on the complexes that both predicted."""
    path = run / f"predictions-{split}.csv"
    if not path.is_file():
        raise UsageError(f"{run} has no {path.name}, expected the predictions of the same split; "
                         f"write them with: holoshard eval {run} --split {split}")  # fmt: skip
    other = read_predictions(path)
    row = {name: i for i, name in enumerate(other.id)}
    ours = [i for i, name in enumerate(table.id) if name in row]
    if not ours:
        raise UsageError(f"{path} shares no complex with this run; compare runs on the same data set")
    common = table.select(ours)
    theirs = other.predicted[[row[name] for name in common.id]]
    return judge(common, {"other": theirs}, group=group, n_boot=n_boot, seed=seed)["baselines"]["other"]  # type: ignore[no-any-return]


def table_of(result: Mapping[str, Any]) -> str:
    """The evaluation as text for a terminal."""
    bounds = f" and {result['n_censored']} bounds" if result["n_censored"] else ""
    head = f"{result['run']}, {result['split']}: {result['n_exact']} measured{bounds}"
    if result["n_units"] >= FEWEST:
        drawn = counted(result["n_units"], result["unit"])
        head += f"; 95 % intervals from {result['n_boot']} draws of {drawn}"
    rows = [("", list(SHOWN.values())), ("model", _figures(result))]
    for name, other in {**result["baselines"], **result["against"]}.items():
        rows += [(name, _figures(other)), ("  model - it", _figures(other["difference"], sign="+"))]
    widths = [max(len(cells[i]) for _, cells in rows) for i in range(len(SHOWN))]
    margin = max(len(name) for name, _ in rows)
    lines = [
        f"{name:<{margin}}  " + "  ".join(f"{c:<{w}}" for c, w in zip(cells, widths, strict=True))
        for name, cells in rows
    ]
    notes = [f"{name} left out: {why}" for name, why in result["baselines_left_out"].items()]
    if result["n_censored"]:
        bound = result["censored"]
        notes.append(f"bounds: {bound['violated']} of {bound['n']} predicted on the wrong side")
    if result["n_synthetic"]:
        notes.append(
            f"synthetic: {result['n_synthetic']} of {result['n_predicted']} complexes were not measured"
        )
    if result["warning"]:
        notes.append(f"warning: {result['warning']}")
    return "\n".join([head, *(line.rstrip() for line in lines), *notes])


def _figures(summary: Mapping[str, Any], sign: str = "") -> list[str]:
    return [figure_text(summary[name], summary[f"{name}_ci"], sign) for name in SHOWN]


def figure_text(value: float | None, interval: Sequence[float] | None, sign: str = "") -> str:
    """A figure with its interval, "-" where it is not defined."""
    if value is None:
        return "-"
    text = f"{value:{sign}.2f}"
    return text if interval is None else f"{text} [{interval[0]:{sign}.2f}, {interval[1]:{sign}.2f}]"
