"""What the model is worth on real complexes: a random and a cluster split, beside simpler predictors.

Of each compound and target one row is kept. For each split and seed: pack, train configs/real.toml as it is,
and again with the pocket hidden, fit the baselines of `holoshard eval --baselines`, predict the test split.
The predictions of all seeds are judged together; intervals come from drawing whole protein clusters. Ratios
are of RMSE: under 1 the model with the pocket is better.

vs_mean_random, vs_mean_cluster        model over the mean of the training labels
vs_ligand_random, vs_ligand_cluster    model over the same model that sees the ligand alone

    python benchmarks/real.py --data DIR [--labels complexes.csv] [--out runs/real] [--seeds 3] [--quick]

DIR is anything that `holoshard ingest` reads whose label table has the columns `target`, `cluster`, `smiles`.
With --out a run that was finished is not trained again.
"""

from __future__ import annotations

import argparse
import csv
import json
import multiprocessing
import os
import re
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

from holoshard import open_dataset
from holoshard.__main__ import main as holoshard
from holoshard.train.judge.baselines import BASELINES, predict_baselines
from holoshard.train.judge.evaluate import figure_text
from holoshard.train.judge.metrics import paired, summarise
from holoshard.train.judge.predictions import PredictionTable, read_predictions

CONFIG = Path(__file__).parent.parent / "configs" / "real.toml"
SPLITS = ("random", "cluster")
SEES = {"model": "complex", "pocket hidden": "ligand"}
SHOWN = ("rmse", "mae", "pearson", "spearman", "within_target")


# Names of one protein in the sources of the pack, folded as `folded` does.
SAME = {
    "hif2alpha": "hif2a", "f2": "thrombin", "f10": "factorxa", "mapk14": "p38", "mapk8": "jnk1",
    "chek1": "chk1",
    "ptpn1": "ptp1b", "pde2a": "pde2", "kif11": "eg5", "hsp90aa1": "hsp90", "met": "cmet", "brd41": "brd4",
    "plau": "urokinase",
}  # fmt: skip
QUICK = 4  # every fourth row


def run(*arguments: object) -> None:
    """One command, here."""
    if code := holoshard([str(a) for a in arguments]):
        raise SystemExit(code)


def folded(target: str) -> str:
    """A target's name without case and signs, one name a protein."""
    word = re.sub("[^a-z0-9]", "", target.lower())
    return SAME.get(word, word)


def unique_rows(labels: Path, out: Path, every: int = 1) -> int:
    """Write a table with one row a compound (connectivity, InChIKey's first block) and target that has a pK.

    Rows whose pose clashes with the protein come last, so that another one of the compound is kept.
    """
    from rdkit import Chem, rdBase

    with labels.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    kept: dict[tuple[str, str], dict[str, str]] = {}
    with rdBase.BlockLogs():
        for row in sorted((r for r in rows if r.get("pK")), key=lambda r: "CLASH" in r.get("note", "")):
            molecule = Chem.MolFromSmiles(row["smiles"])
            compound = (Chem.MolToInchiKey(molecule)[:14] if molecule else "") or row["smiles"]
            row["target"] = folded(row["target"])
            kept.setdefault((row["target"], compound), row)
    chosen = list(kept.values())[::every]
    with out.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(chosen)
    return len(chosen)


def train(shards: Path, folder: Path, sees: str, seed: int, quick: bool) -> None:
    """Train one model and predict the test split, unless that is done already."""
    if (folder / "predictions-test.csv").exists():
        return
    short = ("--run.epochs", 1) if quick else ()
    how = ("--data.path", shards, "--data.inputs", sees, "--seed", seed, "--run.threads", 1, *short)
    run("train", CONFIG, *how, "--out", folder)
    run("eval", folder, "--split", "test", "--no-report")


def simpler(shards: Path, seed: int, ids: tuple[str, ...]) -> dict[str, Any]:
    """What each baseline predicts for the test split, in the order of `ids`."""
    dataset = open_dataset(shards)
    rows = dataset.indices("test")
    found, missing = predict_baselines(dataset, dataset.indices("train"), rows, seed)
    if missing:
        sys.exit("; ".join(missing.values()))
    every = dataset.ids()
    place = {every[row]: i for i, row in enumerate(rows)}
    order = [place[name] for name in ids]
    return {name: pk[order] for name, pk in found.items()}


def judge(model: list[PredictionTable], others: dict[str, list[Any]]) -> dict[str, Any]:
    """Figures of the model and of each other predictor (pK, an array a seed), and the differences."""
    true = np.concatenate([t.pk for t in model])
    predicted = {"model": np.concatenate([t.predicted for t in model])}
    predicted |= {name: np.concatenate(each) for name, each in others.items()}
    same: dict[str, Any] = {
        "groups": [c for t in model for c in t.cluster],
        "relations": [r for t in model for r in t.pk_relation],
        # a target counts once a seed: predictions of different models do not rank together
        "targets": [f"{seed}:{x}" for seed, t in enumerate(model) for x in t.target],
    }
    figures: dict[str, Any] = {name: summarise(true, pk, **same) for name, pk in predicted.items()}
    for name in others:
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


def main() -> None:
    """Everything, then the tables and the ratios."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    shared = os.environ.get("HOLOSHARD_SHARED")
    parser.add_argument("--data", type=Path, default=Path(shared, "data", "real") if shared else None)
    parser.add_argument("--labels", default="complexes.csv")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=2, help="trainings side by side")
    parser.add_argument(
        "--quick", action="store_true", help="some rows, one seed, one epoch: the way, not the figures"
    )
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    if given.data is None:
        sys.exit("name a folder of labelled complexes: --data DIR")
    seeds = range(1 if given.quick else given.seeds)
    with tempfile.TemporaryDirectory() as temporary:
        out = given.out or Path(temporary)
        out.mkdir(parents=True, exist_ok=True)
        n = unique_rows(given.data / given.labels, out / "unique.csv", QUICK if given.quick else 1)
        print(f"{n} complexes, one a compound and target")
        run("ingest", given.data, "--labels", out / "unique.csv", "--out", out / "parts", "--workers", 1)
        sets = {(split, seed): out / f"{split}-{seed}" for split in SPLITS for seed in seeds}
        for (split, seed), shards in sets.items():
            if not shards.exists():
                run("shard", out / "parts", "--out", shards, "--split", split, "--seed", seed)
        runs = {(*key, sees): out / "{}-{}-{}".format(*key, sees) for key in sets for sees in SEES.values()}
        with ProcessPoolExecutor(given.jobs, multiprocessing.get_context("spawn")) as pool:
            done = [
                pool.submit(train, sets[split, seed], folder, sees, seed, given.quick)
                for (split, seed, sees), folder in runs.items()
            ]
            for each in done:
                each.result()
        ratios: dict[str, float] = {}
        for split in SPLITS:
            model, hidden = (
                [read_predictions(runs[split, seed, sees] / "predictions-test.csv") for seed in seeds]
                for sees in SEES.values()
            )
            others = {"pocket hidden": [t.predicted for t in hidden]}
            fitted = [simpler(sets[split, seed], seed, t.id) for seed, t in zip(seeds, model, strict=True)]
            others |= {name: [each[name] for each in fitted] for name in BASELINES}
            figures = judge(model, others)
            print(table(split, figures), end="\n\n")
            for key, other in (("vs_mean", "mean"), ("vs_ligand", "pocket hidden")):
                ratios[f"{key}_{split}"] = round(figures["model"]["rmse"] / figures[other]["rmse"], 3)
    print(json.dumps(ratios) if given.json else ratios)


if __name__ == "__main__":
    main()
