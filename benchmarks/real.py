"""What the model is worth on real complexes: a random and a cluster split, beside simpler predictors.

For each split and seed: pack, train configs/real.toml as it is, and again with the pocket hidden, predict the
test split. The predictions of all seeds are judged together; intervals come from drawing whole protein
clusters. Ratios are of RMSE: under 1 the model with the pocket is better.

vs_mean_random, vs_mean_cluster        model over the mean of the training labels
vs_ligand_random, vs_ligand_cluster    model over the same model that sees the ligand alone

    python benchmarks/real.py --data DIR [--labels complexes.csv] [--out runs/real] [--seeds 3] [--quick]

DIR is anything that `holoshard ingest` reads whose label table has the columns `target` and `cluster`.
With --out a run that was finished is not trained again.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from holoshard.train.judge.evaluate import figure_text
from holoshard.train.judge.metrics import paired, summarise
from holoshard.train.judge.predictions import PredictionTable, read_predictions

CONFIG = Path(__file__).parent.parent / "configs" / "real.toml"
SPLITS = ("random", "cluster")
SEES = {"model": "complex", "pocket hidden": "ligand"}
SHOWN = ("rmse", "mae", "pearson", "spearman", "within_target")


def holoshard(*arguments: object) -> dict[str, Any]:
    """Run one command; its JSON line."""
    command = [sys.executable, "-m", "holoshard", *map(str, arguments), "--json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])  # type: ignore[no-any-return]


def train(shards: Path, run: Path, sees: str, seed: int, quick: bool) -> None:
    """Train and judge one model, unless it is there already."""
    if (run / "predictions-test.csv").exists():
        return
    short = ("--run.epochs", 1) if quick else ()
    how = ("--data.path", shards, "--data.inputs", sees, "--seed", seed, "--run.threads", 1, *short)
    holoshard("train", CONFIG, *how, "--out", run)
    holoshard("eval", run, "--split", "test")


def judge(tables: dict[str, list[PredictionTable]], mean: list[float]) -> dict[str, Any]:
    """Figures of the model, of the one that sees the ligand alone, and of the mean; and their differences."""
    model = tables["model"]
    true = np.concatenate([t.pk for t in model])
    predicted = {name: np.concatenate([t.predicted for t in each]) for name, each in tables.items()}
    predicted["mean"] = np.concatenate([np.full(len(t), m) for t, m in zip(model, mean, strict=True)])
    same: dict[str, Any] = {
        "groups": [c for t in model for c in t.cluster],
        "relations": [r for t in model for r in t.pk_relation],
        # a target counts once a seed: predictions of different models do not rank together
        "targets": [f"{seed}:{x}" for seed, t in enumerate(model) for x in t.target],
    }
    figures: dict[str, Any] = {name: summarise(true, pk, **same) for name, pk in predicted.items()}
    for name in ("pocket hidden", "mean"):
        figures[f"model - {name}"] = paired(true, predicted["model"], predicted[name], **same)
    return figures


def table(split: str, figures: dict[str, Any]) -> str:
    """Rows of a Markdown table."""
    n = figures["model"]["n_exact"], figures["model"]["n_units"]
    lines = [
        f"{split} split: {n[0]} test complexes of {n[1]} clusters",
        "",
        "| | " + " | ".join(SHOWN) + " |",
    ]
    lines.append("|---" * (len(SHOWN) + 1) + "|")
    for name, row in figures.items():
        sign = "+" if " - " in name else ""
        cells = (figure_text(row[key], row[f"{key}_ci"], sign) for key in SHOWN)
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def mean_label(shards: Path) -> float:
    """Mean exact pK of the training split."""
    import holoshard as package

    dataset = package.open_dataset(shards)
    rows = dataset.indices("train")
    pk = dataset.column("pk")[rows]
    exact = dataset.column("pk_relation")[rows] == 1
    return float(np.mean(pk[exact & np.isfinite(pk)], dtype=np.float64))


def main() -> None:
    """Everything, then the tables and the ratios."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    shared = os.environ.get("HOLOSHARD_SHARED")
    parser.add_argument("--data", type=Path, default=Path(shared, "data", "real") if shared else None)
    parser.add_argument("--labels", default="complexes.csv")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=2, help="trainings side by side")
    parser.add_argument("--quick", action="store_true", help="one seed, one epoch: the way, not the figures")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    if given.data is None:
        sys.exit("name a folder of labelled complexes: --data DIR")
    seeds = range(1 if given.quick else given.seeds)
    with tempfile.TemporaryDirectory() as temporary:
        out = given.out or Path(temporary)
        holoshard("ingest", given.data, "--labels", given.labels, "--out", out / "parts")
        for split in SPLITS:
            for seed in seeds:
                shards = out / f"{split}-{seed}"
                if not shards.exists():
                    holoshard("shard", out / "parts", "--out", shards, "--split", split, "--seed", seed)
        jobs = [(split, seed, name) for split in SPLITS for seed in seeds for name in SEES]
        runs = {job: out / "{}-{}-{}".format(*job).replace(" ", "-") for job in jobs}
        with ThreadPoolExecutor(given.jobs) as pool:
            done = [
                pool.submit(train, out / f"{job[0]}-{job[1]}", runs[job], SEES[job[2]], job[1], given.quick)
                for job in jobs
            ]
        for each in done:
            each.result()
        ratios: dict[str, float] = {}
        for split in SPLITS:
            tables = {
                name: [read_predictions(runs[split, seed, name] / "predictions-test.csv") for seed in seeds]
                for name in SEES
            }
            figures = judge(tables, [mean_label(out / f"{split}-{seed}") for seed in seeds])
            print(table(split, figures), end="\n\n")
            for key, other in (("vs_mean", "mean"), ("vs_ligand", "pocket hidden")):
                ratios[f"{key}_{split}"] = round(figures["model"]["rmse"] / figures[other]["rmse"], 3)
    print(json.dumps(ratios) if given.json else ratios)


if __name__ == "__main__":
    main()
