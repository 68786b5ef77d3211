"""What tests of compressed exchange run in each process of a world."""

from __future__ import annotations

import json
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

from holoshard.train.compress.onebit_adam import OneBitAdam
from holoshard.train.compress.replicas import GroupReplicas
from holoshard.train.compress.sign import Sign


class Wire:
    """Counts the bytes that this process sends, by the usual algorithms of each collective."""

    def __init__(self, monkey):
        self.bytes = 0
        for name, count in (
            ("all_to_all_single", lambda out, rows, group: rows.nbytes * (len(rows) - 1) / len(rows)),
            ("all_gather_single", lambda out, row, group: out.nbytes - row.nbytes),
            ("all_reduce", lambda values, group: values.nbytes * 2 * (group.size() - 1) / group.size()),
        ):
            self.wrap(monkey, name, count)

    def wrap(self, monkey, name, count):
        real = getattr(monkey, name)

        def counted(*tensors, group):
            self.bytes += count(*tensors, group)
            return real(*tensors, group=group)

        setattr(monkey, name, counted)


def two_layers():
    """The same in every thread, which share torch's own generator."""
    model, generator = nn.Sequential(nn.Linear(48, 64), nn.Tanh(), nn.Linear(64, 8)), torch.Generator()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0.0, 0.1, generator=generator.manual_seed(parameter.numel()))
    return model


def thousand_steps(folder):
    """1,000 updates with gradients that differ between replicas; parameters, and errors, of this one."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = two_layers()
    replicas = GroupReplicas(dist.group.WORLD)
    optimizer = OneBitAdam(
        [{"params": list(model.parameters())}], replicas, [model[0].weight, model[2].weight],
        Sign(block=256), lr=1e-3, betas=(0.9, 0.98), warmup=20,
    )  # fmt: skip
    generator = torch.Generator().manual_seed(rank)
    for _ in range(1000):
        for parameter in model.parameters():
            parameter.grad = torch.randn(parameter.shape, generator=generator)
        optimizer.step()
    assert optimizer.frozen_at == 20
    torch.save(
        {
            "parameters": {name: p.detach() for name, p in model.named_parameters()},
            "moments": [optimizer.state[p]["exp_avg"] for p in model.parameters()],
            "errors": [e.errors["sent"] for e in optimizer.exchanges],
        },
        Path(folder) / f"{rank}.pt",
    )
    dist.destroy_process_group()


def bytes_on_the_wire(folder, n):
    """Bytes that a process sends for the sum of n values, by each way: as many as the plan says."""
    from holoshard.train.compress.eden import Eden
    from holoshard.train.compress.exchange import Exchange
    from holoshard.train.levels import flat, packed
    from holoshard.train.topology import Topology

    dist.init_process_group("gloo")
    replicas = GroupReplicas(dist.group.WORLD)
    wire, found = Wire(dist), {}
    values = torch.randn(n)

    def sent(work):
        before = wire.bytes
        work()
        return wire.bytes - before

    size = dist.get_world_size()
    here = Topology.of(["node"] * size, {"node": "rack"})
    found["float32"] = sent(lambda: replicas.sum(values))
    assert size * found["float32"] == flat(here, range(size), n)["node"]
    found["bfloat16"] = sent(lambda: replicas.sum(values.bfloat16()))
    for name, compressor in (("sign", Sign()), *((f"eden{b}", Eden(b)) for b in (1, 2, 4, 8))):
        exchange = Exchange([n], replicas, compressor, feedback=True)
        found[name] = sent(lambda exchange=exchange: exchange.mean(values, 0))
        assert size * found[name] == packed(here, range(size), n, compressor)["node"]
    if dist.get_rank() == 0:
        (Path(folder) / "bytes.json").write_text(json.dumps(found))
    dist.destroy_process_group()


def train_and_compare(text, folder):
    """Train; whether replicas ended with equal parameters, and what the optimizer says of itself."""
    from holoshard.train.compress.adamw import ReplicatedAdamW
    from holoshard.train.configfile import parse_config
    from holoshard.train.loop import Trainer
    from holoshard.train.parallel.clip import local
    from holoshard.train.parallel.mesh import start, stop

    config = parse_config(text, "test.toml")
    world = start(config)
    trainer = Trainer(config, Path(folder), world)
    first = torch.cat([local(p).detach().reshape(-1).clone() for p in trainer.model.parameters()])
    trainer.run()
    mine = torch.cat([local(p).detach().reshape(-1) for p in trainer.model.parameters()])
    others = [torch.empty_like(mine) for _ in range(config.parallel.replicate)]
    dist.all_gather(others, mine, group=world.mesh.get_group("replicate"))
    exchange = trainer.optimizer
    assert isinstance(exchange, ReplicatedAdamW)
    report = {
        "equal": all(torch.equal(others[0], other) for other in others),
        "moved": not torch.equal(first, mine),
        "skipped": trainer.at.skipped,
        "updates": trainer.at.updates,
        "errors": any(bool(e.any()) for e in exchange.errors(world.rank).values()),
        "packed": sum(len(run) for run in exchange.packed),
        "exact": len(exchange.exact),
        **exchange.saved(),
    }
    (Path(folder) / f"report-{world.rank}.json").write_text(json.dumps(report))
    stop()


def sums_in_two_levels(folder, racks):
    """Sums and packed means of this process, and its bytes, with `racks` of ranks."""
    from holoshard.train.compress.eden import Eden
    from holoshard.train.compress.two_level import make_exchange, two_level

    dist.init_process_group("gloo")
    rank = dist.get_rank()
    replicas = two_level(dist.group.WORLD, racks, rank)
    values = torch.arange(101.0).view(1, 101) * (rank + 1)
    exact = values.clone()
    replicas.sum(exact)
    n = 2 * 2 * 4096
    given = torch.randn(n, generator=torch.Generator().manual_seed(rank))
    exchange = make_exchange([n], replicas, Eden(8), feedback=True, stream=0, device="cpu")
    found = exchange.mean(given, 0)
    torch.save({"exact": exact, "given": given, "mean": found}, Path(folder) / f"{rank}.pt")
    dist.destroy_process_group()


def train_at(text, folder, nodes):
    """Train as a process that sits on the node of its rank."""
    import os

    from worlds import train

    os.environ["SLURMD_NODENAME"] = nodes[int(os.environ["RANK"])]
    return train(text, folder)
