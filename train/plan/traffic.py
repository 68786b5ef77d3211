"""What processes send each other in a step, how long pipelines wait, and how long a step takes, by formulas.

A ring all-gather or reduce-scatter of S bytes over n processes sends S (n - 1) / n from each, an all-reduce
twice that (Thakur, Rabenseifner, Gropp, doi:10.1177/1094342005051521). FSDP gathers weights in forward and
in backward, those of the last layer and the head once for both, and scatters gradients
(doi:10.48550/arXiv.2304.11277). A tensor-parallel layer sums its tokens twice forward and twice backward
(Megatron-LM, doi:10.48550/arXiv.1909.08053).
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import torch

from ..config import ModelConfig, ParallelConfig, TrainConfig
from ..flops import training_flops
from ..model.transformer import AffinityTransformer, parameter_count
from ..parallel.apply import layers_of, shared_modules
from ..parallel.mesh import axis_sizes
from ..parallel.precision import DTYPES
from .strategies import Cluster

# Computed again, as shares of forward and backward together (a third of which is forward): selective keeps
# the products of matrices and repeats the cheap rest.
AGAIN = {"none": 0.0, "selective": 0.1, "full": 1 / 3}


def recomputed(parallel: ParallelConfig) -> float:
    """What is computed again, as a share of forward and backward together."""
    return AGAIN.get(parallel.checkpointing, AGAIN["full"] * float(parallel.recomputed_layers))


def bubble(parallel: ParallelConfig) -> float:
    """Share of a step in which a process of the pipeline waits, communication and uneven stages aside.

    P processes, M micro-batches, v stages a process: (P - 1) / (v M + P - 1) for GPipe, 1F1B and interleaved
    1F1B (doi:10.48550/arXiv.2104.04473). Zero-bubble schedules fill all but the first forwards: with forward
    and both halves of backward equally long, (P - 1) / (3 v M + P - 1) (doi:10.48550/arXiv.2401.10241).
    """
    waits = parallel.pipeline - 1
    work = parallel.stages_each * parallel.micro * (3 if parallel.zero_bubble else 1)
    return waits / (work + waits)


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes that the busiest process sends in a step, along each axis."""

    shard: float
    replicate: float
    tensor: float
    pipeline: float

    @property
    def total(self) -> float:
        """All together."""
        return self.shard + self.replicate + self.tensor + self.pipeline


def traffic(config: TrainConfig, size: int) -> Traffic:
    """Of a step of the global batch."""
    parallel, model = config.parallel, config.model
    sizes = axis_sizes(config, size)
    P, R, S, T = (sizes[name] for name in ("pipeline", "replicate", "shard", "tensor"))
    parameters = parameter_count(model) / (P * T)
    width = DTYPES[config.precision.compute].itemsize
    reduced = DTYPES[config.precision.reduce].itemsize
    pieces = parallel.accumulate * (parallel.micro if P > 1 else 1)
    ring = (S - 1) / S
    whole = parallel.reshard == "grad_op"
    # Weights that stay whole are gathered once a piece, in a pipeline once a step.
    gathers = (parallel.accumulate if whole else 2 * pieces) if P > 1 else (1 if whole else 2) * pieces
    second = (parallel.reshard_size - 1) / parallel.reshard_size if parallel.reshard == "part" else ring
    gathered = parameters * width * ((ring + second) / 2 if gathers > pieces else ring) * gathers
    if parallel.reshard == "full" and P == 1:
        gathered -= pieces * gathered_once(model) / T * width * ring
    scatters = 1 if parallel.keeps_gradients else pieces
    tokens = config.data.batch_size / (R * S) * config.data.max_atoms * model.width * width
    return Traffic(
        shard=gathered + parameters * reduced * ring * scatters,
        replicate=2 * parameters / S * reduced * (R - 1) / R,
        tensor=4 * 2 * (T - 1) / T * tokens * model.layers / P,
        pipeline=2 * tokens * parallel.stages_each if P > 1 else 0.0,
    )


@functools.cache
def gathered_once(model: ModelConfig) -> int:
    """Parameters of the last layer and the head, without what layers share: gathered once a piece."""
    with torch.device("meta"):
        made = AffinityTransformer(model)
    shared = {id(p) for module in shared_modules(made) for p in module.parameters()}
    own = (p for unit in (layers_of(made)[-1], made.head) for p in unit.parameters() if id(p) not in shared)
    return sum(p.numel() for p in own)


def step_seconds(config: TrainConfig, cluster: Cluster) -> float:
    """A rough time of a step, to order strategies by, not to promise.

    What FSDP exchanges hides behind computation; tensor parallelism waits for its sums.
    """
    parallel, model, batch = config.parallel, config.model, config.data.batch_size
    atoms = config.data.max_atoms
    flops = training_flops(model, batch * atoms, batch * atoms**2) / cluster.size
    compute = flops * (1 + recomputed(parallel)) / cluster.flops / (1 - bubble(parallel))
    sent = traffic(config, cluster.size)
    inside = axis_sizes(config, cluster.size)["shard"] * parallel.tensor <= cluster.per_node
    hidden = sent.shard / (cluster.link if inside else cluster.network)
    hidden += (sent.replicate + sent.pipeline) / cluster.network
    moved = 6 * 4 * parameter_count(model) / cluster.size / 25e9 if parallel.offload else 0.0  # over PCIe
    return max(compute, hidden) + sent.tensor / cluster.link + moved
