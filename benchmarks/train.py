"""The trainer beside the bare loop of forward, backward and optimizer: CPU time, interleaved, medians.

over_bare_loop           a step of the Trainer over the bare step, one process
fsdp2_over_bare          the same in each of two processes with FSDP2, over the bare step on the same rows: 16
                         each, of the default batch of 32
fsdp2_over_bare_at_8     with 8 rows each: what FSDP does is the same for all numbers of rows
of_matmul_peak           forward and backward at 512 channels, float32, of the speed of a bare matrix product
checkpoint_memory_saved  share of the peak memory saved by recomputing two layers of three; _second: every
                         second, _full: all, _selective: all but linear maps that widen nothing
checkpoint_time          and its time, over that without; likewise
padding                  places of an epoch's batches over the atoms in them
data_wait                share of a run's time spent waiting for batches

    python benchmarks/train.py [--data DIR] [--quick] [--json]

DIR is a data set; without it the embedded sample is made, ingested and packed.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch

from holoshard.__main__ import main as holoshard
from holoshard.train.config import ModelConfig, OptimizerConfig, ParallelConfig, TrainConfig
from holoshard.train.configfile import parse_config
from holoshard.train.data import Tensors
from holoshard.train.flops import training_flops
from holoshard.train.launch import free_port, loopback
from holoshard.train.loop import Trainer
from holoshard.train.model.loss import affinity_loss
from holoshard.train.model.pairs import with_near
from holoshard.train.model.transformer import AffinityTransformer
from holoshard.train.optimizer import make_optimizer
from holoshard.train.parallel.apply import build_model
from holoshard.train.parallel.mesh import start, stop
from holoshard.train.record import Record, read_record

WARMUP = 2


def configuration(data: Path, batch_size: int = 8) -> TrainConfig:
    """A model large enough that arithmetic, not Python, takes the time."""
    text = f"""
        [data]
        path = {json.dumps(str(data))}
        batch_size = {batch_size}
        max_atoms = 160
        [model]
        width = 192
        layers = 4
        heads = 6
        rbf = 32
        [checkpoint]
        every = 0
        [run]
        steps = 100000
        eval_every = 100000
        threads = 1
        device = "cpu"
    """
    return parse_config(text, "benchmark")


def sample(folder: Path, n: int) -> Path:
    """The embedded sample as a data set."""
    for arguments in (
        ["sample", "--out", str(folder / "sample"), "--n", str(n)],
        ["ingest", str(folder / "sample"), "--out", str(folder / "parts"), "--workers", "1"],
        ["shard", str(folder / "parts"), "--out", str(folder / "shards")],
    ):
        if holoshard(arguments):
            raise SystemExit(f"holoshard {arguments[0]} failed")
    return folder / "shards"


def cpu(work: Callable[[], object]) -> float:
    """CPU seconds of one call."""
    begin = time.process_time()
    work()
    return time.process_time() - begin


class Steps:
    """Steps of the Trainer, and bare ones, on the same batches."""

    def __init__(self, config: TrainConfig, folder: Path) -> None:
        self.world = start(config)
        self.trainer = Trainer(config, folder, self.world)
        self.trainer.prepare_folder()
        self.trainer.record = Record(folder, self.world.is_first)
        self.batches = self.trainer.batches()
        self.model = AffinityTransformer(config.model)
        self.optimizer = make_optimizer(self.model, OptimizerConfig())

    def ours(self, batch: Tensors) -> None:
        """All that the Trainer does in a step but read the batch."""
        weight, _ = self.trainer.agree(batch, False)
        self.trainer.step(batch, weight)
        if self.trainer.at.step % 10 == 0:
            self.trainer.write_metrics()

    def bare(self, batch: Tensors) -> None:
        """Forward, backward and optimizer, and nothing else."""
        labels = batch["pk"], batch["pk_relation"], batch["weight"]
        batch = with_near(batch, self.trainer.config.model.cutoff)
        loss = affinity_loss(self.model(batch), *labels, self.trainer.config.loss)
        (loss / batch["weight"].sum()).backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)


def over_bare(steps: Steps, n: int) -> float:
    """Median of our step's CPU time over that of the bare step, on the same batch, one after the other."""
    ratios = []
    # All of them first: who makes the next one while a step is timed would be counted with it.
    batches = list(itertools.islice(steps.batches, n + WARMUP))
    for i, batch in enumerate(batches):
        order = [steps.ours, steps.bare]
        times = {
            step.__name__: cpu(lambda step=step, batch=batch: step(batch))  # type: ignore[misc]
            for step in (order if i % 2 else order[::-1])
        }
        ratios.append(times["ours"] / times["bare"])
    return statistics.median(ratios[WARMUP:])


def worker(config: TrainConfig, folder: Path, n: int) -> None:
    """One process of two: prints its ratio."""
    print(f"ratio {over_bare(Steps(config, folder), n)}", flush=True)
    stop()


def two_processes(data: Path, folder: Path, n: int, batch_size: int) -> float:
    """CPU time of a step in each of two FSDP2 processes over that of the bare step there, on the same rows.

    Both at once in each process, so that the two share caches and cores in either case.
    """
    port = str(free_port())
    command = [sys.executable, __file__, "--data", str(data), "--worker", str(folder), "--steps", str(n)]
    command += ["--batch", str(batch_size)]
    world = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    processes = [
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True,
                         env={**os.environ, **world, **loopback(), "RANK": str(r), "LOCAL_RANK": str(r)})
        for r in range(2)
    ]  # fmt: skip
    outputs = [process.communicate()[0] for process in processes]
    lines = [line for out in outputs for line in out.splitlines()]
    return statistics.mean(float(line.split()[1]) for line in lines if line.startswith("ratio "))


def of_matmul_peak(batch: Tensors, n: int) -> float:
    """Share of the speed of a matrix product that forward and backward reach at 512 channels.

    The median over rounds of a step beside the fastest of the products before and after it: how fast a core
    runs changes from second to second.
    """
    config = ModelConfig(width=512, layers=4, heads=8, rbf=32)
    model = AffinityTransformer(config)
    batch = with_near(batch, config.cutoff)
    rows, atoms = batch["atom_mask"].shape  # padding is computed too
    flops = training_flops(config, rows * atoms, rows * atoms * atoms, len(batch["near"]))
    a = torch.randn(1024, 1024)
    shares = []
    for _ in range(n + WARMUP):
        products = [cpu(lambda: a @ a) for _ in range(4)]
        step = cpu(lambda: model(batch).sum().backward())
        products += [cpu(lambda: a @ a) for _ in range(4)]
        model.zero_grad(set_to_none=True)  # as before every step
        shares.append(flops / step / (2 * 1024**3 / min(products)))
    return statistics.median(shares[WARMUP:])


def checkpointing(config: TrainConfig, batch: Tensors, n: int) -> dict[str, float]:
    """Share of the peak memory that recomputing layers saves, and its time over that without."""
    from torch.distributed._tools.mem_tracker import MemTracker

    world, batch = start(config), with_near(batch, config.model.cutoff)
    ways = {
        "none": ParallelConfig(),
        "": ParallelConfig(checkpointing="layers", checkpoint_every=1.5),
        "_second": ParallelConfig(checkpointing="layers"),
        "_selective": ParallelConfig(checkpointing="selective"),
        "_full": ParallelConfig(checkpointing="full"),
    }
    peak, models = dict[str, int](), dict[str, Any]()
    for way, parallel in ways.items():
        models[way] = build_model(replace(config, parallel=parallel), world, 6.0, 1.0)
        tracker = MemTracker()
        tracker.track_external(models[way])
        with tracker:
            models[way](batch).sum().backward()
        snapshot = tracker.get_tracker_snapshot("peak")
        peak[way] = sum(device["Total"] for device in snapshot.values())
    ratios: dict[str, list[float]] = {way: [] for way in ways if way != "none"}
    for _ in range(n):
        seconds = dict[str, float]()
        for way, model in models.items():
            seconds[way] = cpu(lambda model=model: model(batch).sum().backward())  # type: ignore[misc]
            model.zero_grad(set_to_none=True)
        for way, of_way in ratios.items():
            of_way.append(seconds[way] / seconds["none"])
    saved = {f"checkpoint_memory_saved{way}": 1 - peak[way] / peak["none"] for way in ratios}
    return saved | {f"checkpoint_time{way}": statistics.median(found) for way, found in ratios.items()}


def measure(data: Path, folder: Path, n: int) -> dict[str, Any]:
    """All figures."""
    config = configuration(data)
    found: dict[str, Any] = {}
    found["over_bare_loop"] = over_bare(Steps(config, folder / "one"), n)
    found["fsdp2_over_bare"] = two_processes(data, folder / "two", n, 32)
    found["fsdp2_over_bare_at_8"] = two_processes(data, folder / "small", n, 16)
    trainer = Trainer(config, folder / "epoch", start(config))
    batches = [batch for _, batch in zip(range(trainer.steps_per_epoch), trainer.batches(), strict=False)]
    found["of_matmul_peak"] = of_matmul_peak(batches[0], max(5, n // 4))
    deep = replace(config, model=replace(config.model, layers=8))
    found |= checkpointing(deep, batches[0], max(3, n // 4))
    real = sum(int(batch["atom_mask"].sum()) for batch in batches)
    found["padding"] = sum(batch["atom_mask"].numel() for batch in batches) / real
    short = replace(config, run=replace(config.run, steps=n + 10, log_every=5))
    Trainer(short, folder / "run", start(short)).run()
    lines = [m for m in read_record(folder / "run") if "data_wait" in m][1:]
    found["data_wait"] = sum(m["data_wait"] for m in lines) / sum(m["seconds"] for m in lines)
    return {name: round(value, 4) for name, value in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--steps", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--batch", type=int, default=0, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.worker:
        worker(configuration(arguments.data, arguments.batch), arguments.worker, arguments.steps)
        return
    with tempfile.TemporaryDirectory() as folder:
        data = arguments.data or sample(Path(folder), 128 if arguments.quick else 512)
        found = measure(data, Path(folder), 4 if arguments.quick else 40)
    for name, value in found.items():
        print(f"{name:<32} {value:.3f}")
    if arguments.json:
        print(json.dumps(found, sort_keys=True))


if __name__ == "__main__":
    main()
