"""Layers that share the second linear of their feed-forward part, beside layers that do not.

At equal steps: the same model with sharing in pairs or over all layers. At equal parameters: a model without
sharing whose feed-forward part is so much narrower. The table gives validation losses over those of the model
without sharing, minus 1, as a mean over seeds with a 95 % interval (Student's t of the paired ratios).

    python benchmarks/sharing.py [--data DIR --name NAME] [--seeds 5] [--out FILE] [--quick]

DIR is a data set; without it the embedded sample is made, ingested and packed.
"""

from __future__ import annotations

import statistics
import tempfile
from dataclasses import replace
from pathlib import Path

import torch
from _paired import Rows, arguments_of, interval, over, run
from pruning import configuration, train, valid_loss

from holoshard.train.config import ModelConfig
from holoshard.train.configfile import parse_config
from holoshard.train.model.transformer import parameter_count

VARIANTS = {
    "none": "no sharing",
    "pairs": "in pairs",
    "narrow-pairs": "no sharing, as narrow as pairs save",
    "all": "over all layers",
    "narrow-all": "no sharing, as narrow as that saves",
}


def variant(model: ModelConfig, name: str) -> ModelConfig:
    """The model of a row of the table."""
    shared = replace(model, layers=4, hidden=128, share_ffn_out=name.removeprefix("narrow-"))
    if not name.startswith("narrow-"):
        return shared
    plain = replace(shared, share_ffn_out="none")
    wanted = parameter_count(shared)
    widths = range(8, 128)
    return min(
        (replace(plain, hidden=hidden) for hidden in widths), key=lambda m: abs(parameter_count(m) - wanted)
    )


def measure(data: Path, seed: int, name: str, steps: int) -> Rows:
    """One model of one seed."""
    config = parse_config(configuration(data, seed, steps), "benchmark")
    config = replace(config, model=variant(config.model, name))
    with tempfile.TemporaryDirectory() as temporary:
        train(config, Path(temporary))
        loss = valid_loss(Path(temporary))
    return [{"valid": loss, "parameters": parameter_count(config.model), "hidden": config.model.hidden}]


def table(rows: Rows) -> str:
    """Markdown."""
    lines = []
    for name in sorted({r["name"] for r in rows}):
        runs = {(r["unit"], r["seed"]): r for r in rows if r["name"] == name}
        seeds = sorted(seed for unit, seed in runs if unit == "none")
        lines += [
            f"**{name}**, {len(seeds)} seeds", "",
            "| second linear | hidden | parameters | validation loss | over no sharing, % |",
            "|---|---|---|---|---|",
        ]  # fmt: skip
        for unit, title in VARIANTS.items():
            mine = [runs[unit, s] for s in seeds if (unit, s) in runs]
            if len(mine) < len(seeds):
                continue
            losses = [r["valid"] for r in mine]
            against = interval(over(losses, [runs["none", s]["valid"] for s in seeds]))
            cells = [f"{mine[0]['hidden']}", f"{mine[0]['parameters']:,}", f"{statistics.fmean(losses):.4f}"]
            lines.append(f"| {title} | {' | '.join(cells)} | {'0' if unit == 'none' else against} |")
        lines.append("")
    return "\n".join(lines)


def main() -> None:
    given = arguments_of(__doc__ or "", steps=300).parse_args()
    torch.set_num_threads(1)
    steps = 20 if given.quick else given.steps
    print(table(run(given, list(VARIANTS), lambda data, seed, unit: measure(data, seed, unit, steps))))


if __name__ == "__main__":
    main()
