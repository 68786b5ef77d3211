"""What packed exchange between replicas does to learning: every scheme beside Adam, paired by seed.

Two replicas are threads of one process with models and optimizers of their own; the compressors, their
exchange and the optimizers are those of training. All schemes of a seed see the same first weights, the same
batches and the same clipping rule. The table gives the validation loss over that of Adam with exact
gradients, minus 1, as a mean over seeds with a 95 % interval (Student's t of the paired ratios).

    python benchmarks/compression.py [--data DIR --name NAME] [--schemes adam,1bit] [--out FILE] [--quick]

DIR is a data set; without it the embedded sample is made, ingested and packed.
"""

from __future__ import annotations

import copy
import math
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from _paired import Rows, arguments_of, interval, over, run, small_model
from torch import Tensor, nn

from holoshard.shards.read.dataset import open_dataset
from holoshard.train.compress.adamw import ReplicatedAdamW
from holoshard.train.compress.compressor import Compressor
from holoshard.train.compress.eden import Eden
from holoshard.train.compress.make import is_packed
from holoshard.train.compress.onebit_adam import LATEST, OneBitAdam
from holoshard.train.compress.replicas import Replicas
from holoshard.train.compress.sign import Sign
from holoshard.train.compress.simulated import simulate
from holoshard.train.config import TrainConfig
from holoshard.train.configfile import parse_config
from holoshard.train.data import Tensors, judging_stream, read_labels, to_tensors, training_stream
from holoshard.train.model.loss import affinity_loss, label_weight
from holoshard.train.model.transformer import AffinityTransformer
from holoshard.train.optimizer import learning_rate, make_optimizer
from holoshard.train.parallel.apply import fill
from holoshard.train.parallel.clip import clip_factor

REPLICAS = 2


@dataclass(frozen=True, slots=True)
class Scheme:
    """How replicas exchange."""

    title: str
    compressor: Compressor | None = None
    onebit: bool = False
    feedback: bool = True
    warmup: float = 0.2  # share of the steps; 0 to wait until the variance is steady


SCHEMES = {
    "adam": Scheme("Adam, exact"),
    "1bit": Scheme("1-bit Adam", Sign(), onebit=True),
    "1bit-nofb": Scheme("1-bit Adam, no error feedback", Sign(), onebit=True, feedback=False),
    "sign": Scheme("Gradient signs, error feedback", Sign()),
    "eden1": Scheme("EDEN gradients, 1 bit", Eden(1, 1024), feedback=False),
    "eden2": Scheme("EDEN gradients, 2 bits", Eden(2, 1024), feedback=False),
    "eden4": Scheme("EDEN gradients, 4 bits", Eden(4, 1024), feedback=False),
    "eden8": Scheme("EDEN gradients, 8 bits: how far equal runs drift apart", Eden(8, 1024), feedback=False),
    "1bit-eden1": Scheme("1-bit Adam, EDEN 1 bit for signs", Eden(1, 1024), onebit=True),
    "1bit-auto": Scheme("1-bit Adam, warm-up ends by itself", Sign(), onebit=True, warmup=0.0),
    "1bit-w10": Scheme("1-bit Adam, warm-up 10 %", Sign(), onebit=True, warmup=0.1),
    "1bit-w50": Scheme("1-bit Adam, warm-up 50 %", Sign(), onebit=True, warmup=0.5),
    "1bit-b256": Scheme("1-bit Adam, blocks of 256", Sign(256), onebit=True),
    "1bit-b4096": Scheme("1-bit Adam, blocks of 4,096", Sign(4096), onebit=True),
}


def configuration(data: Path, seed: int, steps: int) -> TrainConfig:
    """A small model that learns something in a few hundred steps."""
    return parse_config(
        f"""
        {small_model(data, seed, heads=4)}
        [optimizer]
        lr = 4e-3
        beta2 = 0.98
        weight_decay = 0.05
        [run]
        steps = {steps}
        """,
        "benchmark",
    )


class Data:
    """Batches of one seed, and those of the validation split, with the weights of their labels."""

    def __init__(self, config: TrainConfig) -> None:
        self.config, self.dataset = config, open_dataset(config.data.path)
        self.labels = read_labels(self.dataset, config)
        self.train = [self.weighed(b) for b in self.batches()]
        alone = SimpleNamespace(data_rank=0, data_size=1)
        stream = judging_stream(self.dataset, config.data, alone, config.data.valid_split)
        self.valid = [self.weighed(to_tensors(b, config.data.inputs)) for b in stream]

    def batches(self) -> Iterator[Tensors]:
        alone, epoch, made = SimpleNamespace(data_rank=0, data_size=1), 0, 0
        while made < self.config.run.steps:
            for batch in training_stream(self.dataset, self.config, alone, epoch, 0):
                if made < self.config.run.steps:
                    yield to_tensors(batch, self.config.data.inputs)
                made += 1
            epoch += 1

    def weighed(self, batch: Tensors) -> Tensors:
        row = torch.from_numpy(self.labels.weight)[batch["index"]]
        batch["weight"] = label_weight(batch["pk"], batch["pk_relation"], row, self.config.loss)
        return batch

    def loss(self, model: nn.Module, batch: Tensors) -> Tensor:
        labels = batch["pk"], batch["pk_relation"], batch["weight"]
        return affinity_loss(model(batch), *labels, self.config.loss)


def optimizer_of(
    scheme: Scheme, model: nn.Module, config: TrainConfig, replicas: Replicas
) -> ReplicatedAdamW:
    """The optimizer of one replica."""
    groups = make_optimizer(model, config.optimizer).param_groups
    matrices = [module.weight for module in model.modules() if isinstance(module, nn.Linear)]
    packed = [p for p in matrices if scheme.compressor and is_packed(p, False)]
    shared = (groups, replicas, packed, scheme.compressor or Sign())
    settings: dict[str, Any] = {
        "lr": config.optimizer.lr, "betas": (config.optimizer.beta1, config.optimizer.beta2),
        "feedback": scheme.feedback,
    }  # fmt: skip
    if scheme.onebit:
        steps = config.run.steps
        return OneBitAdam(
            *shared, **settings, warmup=round(scheme.warmup * steps), latest=round(LATEST * steps)
        )
    return ReplicatedAdamW(*shared, **settings)


def learn(scheme: Scheme, data: Data, model: nn.Module, replicas: Replicas) -> tuple[nn.Module, float, float]:
    """Train as one replica; the model, the mean training loss of the last tenth of the steps, and the
    share of the updates that travelled packed."""
    config, losses = data.config, list[float]()
    optimizer = optimizer_of(scheme, model, config, replicas)
    for step, batch in enumerate(data.train):
        mine = {name: value[replicas.rank :: replicas.size] for name, value in batch.items()}
        loss = data.loss(model, mine) / batch["weight"].sum().clamp(min=1e-12)
        loss.backward()
        # As Trainer.step with replicas apart: root mean square of the replicas' norms.
        norms = torch._foreach_norm([p.grad for p in model.parameters() if p.grad is not None])
        told = torch.stack([torch.stack(norms).square().sum(), loss.detach()])
        replicas.sum(told)
        factor = clip_factor(math.sqrt(replicas.size * float(told[0])), config.optimizer.clip)
        for parameter in model.parameters():
            if parameter.grad is not None:
                parameter.grad *= factor
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(config.optimizer, step, config.run.steps)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(told[1]))
    begun = getattr(optimizer, "frozen_at", 0 if scheme.compressor else len(losses))
    packed = 1 - (len(losses) if begun is None else begun) / len(losses)
    return model, statistics.fmean(losses[-max(1, len(losses) // 10) :]), packed


def measure(name: str, data: Data) -> dict[str, Any]:
    """One scheme, one seed."""
    begin = time.process_time()
    model = AffinityTransformer(data.config.model)
    fill(model, data.config.seed, data.labels.mean, data.labels.sd)
    found = simulate(REPLICAS, lambda r: learn(SCHEMES[name], data, copy.deepcopy(model), r))
    first, train_loss, packed = found[0]
    for other, *_ in found[1:]:
        same = zip(first.parameters(), other.parameters(), strict=True)
        if not all(torch.equal(a, b) for a, b in same):
            raise SystemExit(f"{name}: replicas differ")
    first.eval()
    with torch.no_grad():
        total = sum(float(data.loss(first, batch)) for batch in data.valid)
    weight = sum(float(batch["weight"].sum()) for batch in data.valid)
    return {
        "valid": total / weight, "train": train_loss, "packed": packed,
        "cpu_s": time.process_time() - begin,
    }  # fmt: skip


def saving(scheme: Scheme) -> float:
    """Times fewer bytes than float32, of a long vector."""
    if scheme.compressor is None:
        return 1.0
    block = scheme.compressor.block
    return 4 * block / scheme.compressor.packed_size(block)


def table(rows: Rows) -> str:
    """Markdown."""
    lines = []
    for name in sorted({r["name"] for r in rows}):
        runs = {(r["unit"], r["seed"]): r for r in rows if r["name"] == name}
        seeds = sorted(seed for scheme, seed in runs if scheme == "adam")
        lines += [
            f"**{name}**, {len(seeds)} seeds", "",
            "| scheme | times fewer bytes if packed | updates packed, % | validation loss | over Adam, % "
            "| training loss over Adam, % |",
            "|---|---|---|---|---|---|",
        ]  # fmt: skip
        for key, scheme in SCHEMES.items():
            mine = [s for s in seeds if (key, s) in runs]
            if not mine:
                continue
            cells = [f"{100 * statistics.fmean(runs[key, s]['packed'] for s in mine):.0f}"]
            cells.append(f"{statistics.fmean(runs[key, s]['valid'] for s in mine):.4f}")
            for part in ("valid", "train"):
                ratios = over([runs[key, s][part] for s in mine], [runs["adam", s][part] for s in mine])
                cells.append("0" if key == "adam" else interval(ratios))
            lines.append(f"| {scheme.title} | {saving(scheme):.1f} | {' | '.join(cells)} |")
        lines.append("")
    return "\n".join(lines)


def main() -> None:
    parser = arguments_of(__doc__ or "", steps=300)
    parser.add_argument("--schemes", default=",".join(SCHEMES))
    given = parser.parse_args()
    torch.set_num_threads(1)
    steps = 20 if given.quick else given.steps
    cached: dict[int, Data] = {}

    def work(data: Path, seed: int, scheme: str) -> Rows:
        if seed not in cached:
            cached.clear()
            cached[seed] = Data(configuration(data, seed, steps))
        return [measure(scheme, cached[seed])]

    print(table(run(given, given.schemes.split(","), work)))


if __name__ == "__main__":
    main()
