"""What a step of a real world of processes takes, as torch's own tracker or ours sees it."""

from __future__ import annotations

import json
import os
from pathlib import Path


def measure(cases, folder):
    """Peak bytes of a step of every case, one file each and process; a case is what :func:`peaks` takes."""
    first = int(os.environ["MASTER_PORT"])
    for i, (name, case) in enumerate(cases.items()):
        os.environ["MASTER_PORT"] = str(first + i)
        path = Path(folder) / f"{name}-{os.environ['RANK']}.json"
        path.write_text(json.dumps(peaks(*case)))


def peaks(text, rows, tracked):
    from torch.distributed._tools.mem_tracker import MemTracker

    from holoshard.train.checkpoint import prepare_moments
    from holoshard.train.configfile import parse_config
    from holoshard.train.optimizer import make_optimizer
    from holoshard.train.parallel import pipeline
    from holoshard.train.parallel.apply import build_model
    from holoshard.train.parallel.mesh import start, stop
    from holoshard.train.plan.memory import MemoryMeter
    from holoshard.train.plan.trace import empty_batch, run_step

    config = parse_config(text, "test.toml")
    pipeline.with_near = lambda batch, cutoff: batch  # all pairs, as on an accelerator
    world = start(config)
    model = build_model(config, world, 0.0, 1.0).train()
    optimizer = make_optimizer(model, config.optimizer)
    prepare_moments(optimizer)
    parallel = config.parallel
    batch = empty_batch(rows * (parallel.micro if parallel.pipeline > 1 else 1), config.data.max_atoms)
    found = {}
    run_step(model, batch, 1, parallel.keeps_gradients)  # FSDP makes what it keeps
    optimizer.zero_grad()
    with MemoryMeter(model, optimizer, None) as meter:
        run_step(model, batch, parallel.accumulate, parallel.keeps_gradients)
    found["meter"] = sum(meter.peak.values())
    optimizer.zero_grad()
    if tracked and parallel.pipeline == 1 and parallel.accumulate == 1:  # a step that MemTracker understands
        tracker = MemTracker()
        tracker.track_external(model, optimizer)
        with tracker:
            run_step(model, batch, 1, parallel.keeps_gradients)
        found["tracker"] = max(sum_["Total"] for sum_ in tracker.get_tracker_snapshot("peak").values())
    stop()
    return found


def count_bytes(text, path):
    """Bytes that FSDP's rings send from each process in a step, counted at its collectives, to a file."""
    from torch import Tensor
    from torch import distributed as dist

    from holoshard.train.configfile import parse_config
    from holoshard.train.parallel.apply import build_model
    from holoshard.train.parallel.mesh import start, stop
    from holoshard.train.plan.trace import empty_batch, run_step

    config = parse_config(text, "test.toml")
    world = start(config)
    model = build_model(config, world, 0.0, 1.0).train()
    sent = []

    def counted(collective):
        def run(*args, **kwargs):
            whole = max((t for t in (*args, *kwargs.values()) if isinstance(t, Tensor)), key=len)
            sent.append(whole.nbytes * (world.size - 1) / world.size)
            return collective(*args, **kwargs)

        return run

    for name in ("all_gather_single", "reduce_scatter_single"):
        setattr(dist, name, counted(getattr(dist, name)))
    run_step(model, empty_batch(1, 8), config.parallel.accumulate, config.parallel.keeps_gradients)
    if world.is_first:
        Path(path).write_text(str(sum(sent)))
    stop()
