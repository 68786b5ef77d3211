"""Heads cut from a trained model in four orders, before and after fine-tuning, beside the whole model.

For each seed a model is trained, cut by norm, Taylor, random and reversed importance, and each trained on for
as many steps as the whole model is trained on. The table gives validation losses over those of the whole
model, minus 1, as a mean over seeds with a 95 % interval (Student's t of the paired ratios), and the share of
parameters, operations and CPU time of a step that is left.

    python benchmarks/pruning.py [--data DIR --name NAME] [--seeds 5] [--keep 0.7] [--out FILE] [--quick]

DIR is a data set; without it the embedded sample is made, ingested and packed.
"""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path

import torch
from _paired import Rows, arguments_of, interval, over, run, small_model

from holoshard.shards.read.dataset import open_dataset
from holoshard.train.config import TrainConfig
from holoshard.train.configfile import load_config, parse_config
from holoshard.train.loop import Trainer
from holoshard.train.model.loss import affinity_loss
from holoshard.train.prune.prune import alone, labelled_batches, load_run, prune

ORDERS = ("norm", "taylor", "random", "reversed")


def configuration(data: Path, seed: int, steps: int) -> str:
    """A model of two layers of eight heads."""
    return f"""
        {small_model(data, seed, heads=8)}
        [optimizer]
        lr = 4e-3
        weight_decay = 0.05
        [checkpoint]
        every = 0
        keep = 1
        [run]
        steps = {steps}
        log_every = 50
        eval_every = 1000000
        threads = 1
        device = "cpu"
        """


def train(config: TrainConfig, folder: Path) -> None:
    """Train to the end of its configuration, in this process."""
    Trainer(config, folder, alone()).run()


def valid_loss(folder: Path) -> float:
    """Mean loss of the validation split by the newest checkpoint of a run."""
    loaded = load_run(folder)
    config, total, weight = loaded.config, 0.0, 0.0
    loaded.model.eval()
    with torch.no_grad():
        for batch in labelled_batches(open_dataset(config.data.path), config, 10**6, config.data.valid_split):
            labels = batch["pk"], batch["pk_relation"], batch["weight"]
            total += float(affinity_loss(loaded.model(batch), *labels, config.loss))
            weight += float(batch["weight"].sum())
    return total / weight


def go_on(folder: Path, steps: int) -> TrainConfig:
    """The configuration of a run's folder, to be trained until `steps`."""
    return load_config(folder / "config.toml", ("--run.steps", str(steps)))


def measure(data: Path, seed: int, steps: int, more: int, keep: float) -> Rows:
    """The whole model and four cut ones, of one seed."""
    found: Rows = []
    with tempfile.TemporaryDirectory() as temporary:
        whole = Path(temporary) / "whole"
        train(parse_config(configuration(data, seed, steps), "benchmark"), whole)
        before = valid_loss(whole)
        for by in ORDERS:
            out = Path(temporary) / by
            report = prune(whole, out, keep=keep, by=by, complexes=256, seed=seed)  # type: ignore[arg-type]
            cut = valid_loss(out)
            train(go_on(out, steps + more), out)
            shares = {n: report[n][1] / report[n][0] for n in ("parameters", "flops", "step_seconds")}
            heads = report["heads_after"]
            found.append({"order": by, "cut": cut, "tuned": valid_loss(out), "heads": heads, **shares})
        train(go_on(whole, steps + more), whole)
        found.append({"order": "whole", "cut": before, "tuned": valid_loss(whole)})
    return found


def table(rows: Rows) -> str:
    """Markdown."""
    lines = []
    for name in sorted({r["name"] for r in rows}):
        runs = {(r["order"], r["seed"]): r for r in rows if r["name"] == name}
        seeds = sorted(seed for order, seed in runs if order == "whole")
        losses = {
            (order, when): [runs[order, s][when] for s in seeds]
            for order in (*ORDERS, "whole") for when in ("cut", "tuned")
        }  # fmt: skip
        whole = [statistics.fmean(losses["whole", when]) for when in ("cut", "tuned")]
        lines += [
            f"**{name}**, {len(seeds)} seeds; loss of the whole model {whole[0]:.4f}, later {whole[1]:.4f}",
            "",
            "| order | after the cut, % | after fine-tuning, % | that over random, % | heads of the layers |",
            "|---|---|---|---|---|",
        ]
        for order in ORDERS:
            heads = [statistics.fmean(h) for h in zip(*(runs[order, s]["heads"] for s in seeds), strict=True)]
            cells = [interval(over(losses[order, w], losses["whole", w])) for w in ("cut", "tuned")]
            control = interval(over(losses[order, "tuned"], losses["random", "tuned"]))
            cells += ["0" if order == "random" else control, ", ".join(f"{h:.1f}" for h in heads)]
            lines.append(f"| {order} | {' | '.join(cells)} |")
        left = {
            n: statistics.median(r[n] for (order, _), r in runs.items() if order != "whole")
            for n in ("parameters", "flops", "step_seconds")
        }
        lines += ["", "Left: " + ", ".join(f"{n} {share:.3f}" for n, share in left.items()), ""]
    return "\n".join(lines)


def main() -> None:
    parser = arguments_of(__doc__ or "", steps=300)
    parser.add_argument("--more", type=int, default=100, help="steps of fine-tuning")
    parser.add_argument("--keep", type=float, default=0.7)
    given = parser.parse_args()
    torch.set_num_threads(1)
    steps, more = (20, 10) if given.quick else (given.steps, given.more)
    print(table(run(given, ["all"], lambda data, seed, _: measure(data, seed, steps, more, given.keep))))


if __name__ == "__main__":
    main()
