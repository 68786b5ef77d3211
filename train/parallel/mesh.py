"""Which processes there are, and how they are arranged.

The mesh has the axes pipeline, replicate, shard, tensor, outermost first: tensor neighbours talk most and
so sit in one node. A process without a launcher is a world of its own, without any process group unless
the configuration needs one.
"""

from __future__ import annotations

import datetime
import os
import socket
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import HashStore
from torch.distributed.device_mesh import DeviceMesh

from ...shards.errors import ConfigError
from ..allocator import keep_freed_memory
from ..config import TrainConfig
from ..topology import Topology, read_racks

AXES = ("pipeline", "replicate", "shard", "tensor")
NAME_BYTES = 256  # of a host name: more than DNS allows


@dataclass(frozen=True, slots=True)
class World:
    """This process among the others.

    Attributes
    ----------
    rank, size : number of this process and of all
    local_rank, local_size : the same within the machine
    device : where its tensors live
    sizes : processes along each of AXES
    mesh : the device mesh; None in a process alone, which needs no process group
    topology : where all processes sit, if the configuration names a topology
    """

    rank: int
    size: int
    local_rank: int
    local_size: int
    device: torch.device
    sizes: dict[str, int]
    mesh: DeviceMesh | None
    topology: Topology | None = None

    @property
    def place(self) -> int:
        """This process's number in the mesh, which follows the topology and not the ranks."""
        return self.topology.order().index(self.rank) if self.topology is not None else self.rank

    @property
    def data_size(self) -> int:
        """Parts of a global batch."""
        return self.sizes["replicate"] * self.sizes["shard"]

    @property
    def data_rank(self) -> int:
        """The part that this process gets; tensor and pipeline neighbours get the same."""
        return self.place // self.sizes["tensor"] % self.data_size

    @property
    def stage_rank(self) -> int:
        """This process's number in its pipeline."""
        return self.place // (self.size // self.sizes["pipeline"])

    @property
    def writing_stage(self) -> int:
        """The number in its pipeline of the one process that writes."""
        place = self.topology.order().index(0) if self.topology is not None else 0
        return place // (self.size // self.sizes["pipeline"])

    @property
    def is_first(self) -> bool:
        """True in the one process that writes and speaks."""
        return self.rank == 0

    def sum(self, values: Tensor) -> Tensor:
        """Sum over the parts of the batch, in place."""
        return self._reduce(values, dist.ReduceOp.SUM)

    def sum_of_all(self, values: Tensor) -> Tensor:
        """Sum over all processes, in place: tensor and pipeline neighbours count too."""
        return self._reduce(values, dist.ReduceOp.SUM, everyone=True)

    def any(self, flag: bool) -> bool:
        """True if the flag is set in any process."""
        value = self._reduce(torch.tensor(float(flag), device=self.device), dist.ReduceOp.MAX, everyone=True)
        return bool(value.item())

    def least(self, n: int) -> int:
        """The smallest of the numbers of all processes."""
        value = torch.tensor(n, dtype=torch.int64, device=self.device)
        return int(self._reduce(value, dist.ReduceOp.MIN, everyone=True).item())

    def tell(self, text: str) -> str:
        """A text of the first process, in all."""
        said = text.encode() if self.is_first else b""
        size = self.sum_of_all(torch.tensor(len(said), device=self.device))
        values = torch.zeros(int(size.item()), dtype=torch.int32, device=self.device)
        values[: len(said)] = torch.tensor(list(said), dtype=torch.int32, device=self.device)
        return bytes(self.sum_of_all(values).tolist()).decode()

    def gather(self, rows: Tensor) -> Tensor:
        """Rows (n, ...) of all parts of the batch, one part after the other; n may differ."""
        if self.mesh is None or self.data_size == 1:
            return rows
        group = self.mesh["replicate", "shard"]._flatten("data").get_group()
        counts = [torch.zeros(1, dtype=torch.int64, device=rows.device) for _ in range(self.data_size)]
        dist.all_gather(counts, torch.tensor([len(rows)], device=rows.device), group=group)
        longest = int(max(counts).item())
        padded = torch.zeros(longest, *rows.shape[1:], dtype=rows.dtype, device=rows.device)
        padded[: len(rows)] = rows
        parts = [torch.empty_like(padded) for _ in counts]
        dist.all_gather(parts, padded, group=group)
        return torch.cat([part[: int(n.item())] for part, n in zip(parts, counts, strict=True)])

    def barrier(self) -> None:
        """Wait for all."""
        self.any(False)

    def _reduce(self, values: Tensor, op: dist.ReduceOp.RedOpType, everyone: bool = False) -> Tensor:
        if self.mesh is not None and self.size > 1:
            group = None if everyone else self.mesh["replicate", "shard"]._flatten("data").get_group()
            dist.all_reduce(values, op=op, group=group)
        return values


def start(config: TrainConfig) -> World:
    """Join the processes that the launcher started (torchrun's environment), or stand alone.

    Raises
    ------
    ConfigError : the axes of [parallel] do not multiply to the number of processes, or there is no topology
    """
    rank, size = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    local_rank, local_size = int(os.environ.get("LOCAL_RANK", 0)), int(os.environ.get("LOCAL_WORLD_SIZE", 1))
    device = choose_device(config.run.device, local_rank)
    if device.type == "cpu":
        keep_freed_memory()
    sizes = axis_sizes(config, size)
    if config.data.batch_size < (parts := sizes["replicate"] * sizes["shard"] * config.parallel.accumulate):
        raise ConfigError(
            f"data.batch_size = {config.data.batch_size}, expected at least {parts}: one complex for each "
            "data-parallel process and piece (parallel.accumulate)"
        )
    if config.parallel.pipeline > 1 and config.data.batch_size % (parts := parts * config.parallel.micro):
        raise ConfigError(
            f"data.batch_size = {config.data.batch_size}, expected a multiple of {parts}: micro-batches of a "
            "pipeline are equal (data-parallel processes x parallel.accumulate x parallel.micro_batches)"
        )
    racks = read_racks(config.parallel.topology) if config.parallel.topology else None
    torch.set_float32_matmul_precision(config.precision.matmul)
    threads = config.run.threads or max(1, (os.cpu_count() or 1) // local_size)
    torch.set_num_threads(threads)
    mesh, topology = None, None
    if needs_group(config, size):
        backend = "nccl" if device.type == "cuda" else "gloo"
        if dist.is_initialized():  # the same processes in another layout
            pass
        elif size > 1:
            # A peer that died while all met again would be waited for half an hour otherwise. In training the
            # watchdog, which says more, looks every five seconds and comes first.
            patience = datetime.timedelta(seconds=(config.run.hang_seconds or 1800.0) + 10.0)
            dist.init_process_group(backend, timeout=patience)
        else:  # alone, yet FSDP does the casting or offloading
            dist.init_process_group(backend, store=HashStore(), rank=0, world_size=1)
        if racks is not None:
            topology = Topology.of(node_names(device), racks)
        order = topology.order() if topology is not None else range(size)
        ranks = torch.tensor(order).view(tuple(sizes.values()))
        mesh = DeviceMesh(device.type, ranks, mesh_dim_names=AXES)
    return World(rank, size, local_rank, local_size, device, sizes, mesh, topology)


def node_names(device: torch.device) -> list[str]:
    """The node of every process, by rank: what Slurm calls it, or its host name."""
    name = (os.environ.get("SLURMD_NODENAME") or socket.gethostname()).encode()[:NAME_BYTES]
    mine = torch.zeros(NAME_BYTES, dtype=torch.uint8)
    mine[: len(name)] = torch.tensor(list(name), dtype=torch.uint8)
    mine = mine.to(device)
    names = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(names, mine)
    return [bytes(row.tolist()).rstrip(b"\0").decode() for row in names]


def needs_group(config: TrainConfig, size: int) -> bool:
    """FSDP wraps the model where there are several processes, and where it casts or offloads."""
    casts = config.precision.compute != "fp32" and not config.precision.whole_model
    return size > 1 or casts or config.parallel.offload


def axis_sizes(config: TrainConfig, size: int) -> dict[str, int]:
    """Processes along each axis; shard = 0 takes what the others leave."""
    p = config.parallel
    others = p.pipeline * p.replicate * p.tensor
    shard = p.shard or max(size // others, 1)
    if others * shard != size:
        raise ConfigError(
            f"[parallel] pipeline {p.pipeline} x replicate {p.replicate} x shard {p.shard or 'rest'} x "
            f"tensor {p.tensor} does not make the {size} processes there are; start "
            f"{others * p.shard if p.shard else f'a multiple of {others}'}"
        )
    if p.reshard == "part" and shard % p.reshard_size:
        raise ConfigError(
            f"parallel.reshard_size = {p.reshard_size}, expected a divisor of the {shard} processes that "
            'share a copy of the model, or parallel.reshard = "full"'
        )
    return {"pipeline": p.pipeline, "replicate": p.replicate, "shard": shard, "tensor": p.tensor}


def choose_device(wanted: str, local_rank: int) -> torch.device:
    """The device of this process; `auto` is CUDA where there is one."""
    if wanted == "cuda" and not torch.cuda.is_available():
        raise ConfigError('run.device = "cuda", but torch sees no CUDA device; say --run.device cpu')
    if wanted == "cpu" or not torch.cuda.is_available():
        return torch.device("cpu")
    device = torch.device("cuda", local_rank % torch.cuda.device_count())
    torch.cuda.set_device(device)
    return device


def stop() -> None:
    """Leave the process group, if there is one."""
    if dist.is_initialized():
        dist.destroy_process_group()
