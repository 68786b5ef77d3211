"""A run whose layout is chosen anew between its epochs, from what its steps took.

The processes stay; the mesh, the model and its optimizer are made again, and go on from a checkpoint.
"""

from __future__ import annotations

import gc
import json
import logging
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import torch

from ..shards.errors import ConfigError
from .config import TrainConfig
from .configfile import load_config
from .loop import Trainer
from .parallel.mesh import World, axis_sizes, start
from .stop import StopSignals

log = logging.getLogger("holoshard")
MARGIN: Final = 0.1  # share by which a step must become shorter: building anew takes time, and plans err
LAUNCHER: Final = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def train_through(config: TrainConfig, folder: Path, world: World) -> dict[str, Any]:
    """Train to the end, in one layout after another where run.replan says so; what Trainer.run returns."""
    signals = StopSignals()  # one for all: what came while it was planned is not lost
    while True:
        trainer = Trainer(config, folder, world, choose, signals)
        result = trainer.run()
        if not trainer.layout:
            return result
        from .plan.again import with_parallel  # with much of torch that training does not need

        config = with_parallel(config, trainer.layout)
        del trainer
        gc.collect()  # the old model, before there is a new one
        world = start(config)


def choose(folder: Path, world: World) -> str:
    """The [parallel] table to go on in, the same in every process; empty to stay as it is."""
    return world.tell(planned(folder, world) if world.is_first else "")


def planned(folder: Path, world: World) -> str:
    """What `holoshard plan` says, in a process of its own: this one has other groups than those of a plan."""
    command = [
        sys.executable, "-m", "holoshard", "plan", str(folder), "--json", "--margin", str(MARGIN),
        "--nodes", str(world.size // world.local_size), "--gpus-per-node", str(world.local_size),
        "--memory", str(memory_of(world)),
    ]  # fmt: skip
    environment = {name: value for name, value in os.environ.items() if name not in LAUNCHER}
    told = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**environment, "CUDA_VISIBLE_DEVICES": ""}
    )
    if told.returncode:
        log.warning("no new plan, the layout stays: %s", told.stderr.strip().rpartition("\n")[2])
        return ""
    made = json.loads(told.stdout.strip().rpartition("\n")[2])
    return str(made["recommended"]["parallel"]) if made["changed"] else ""


def memory_of(world: World) -> int:
    """Bytes that a process may use: its accelerator's, or its share of the machine's."""
    if world.device.type == "cuda":
        return int(torch.cuda.get_device_properties(world.device).total_memory)
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // world.local_size


def resumed(config: TrainConfig, folder: Path) -> TrainConfig:
    """The configuration with the layout that an earlier start of the run had come to, if that fits here."""
    if config.run.replan == "never" or not (folder / "config.toml").is_file():
        return config
    try:
        before = load_config(folder / "config.toml")
        axis_sizes(before, int(os.environ.get("WORLD_SIZE", 1)))
    except ConfigError:
        return config
    return replace(config, parallel=before.parallel)
