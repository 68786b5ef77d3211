"""A training step with tensors that have shapes and no data, by one process that believes in many."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast
from unittest.mock import patch

import torch
import torch.distributed as dist
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp._fully_shard import _fsdp_init, _fsdp_param, _fully_shard
from torch.distributed.pipelining import schedules
from torch.distributed.pipelining._utils import InferenceMode
from torch.distributed.tensor._sharding_prop import ShardingPropagator
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from ..checkpoint import prepare_moments
from ..config import TrainConfig
from ..model.transformer import ATOM_FEATURES, AffinityTransformer
from ..optimizer import make_optimizer
from ..parallel import pipeline
from ..parallel.apply import build_model, synchronise
from ..parallel.mesh import AXES, World, axis_sizes
from ..parallel.pipeline import Pipeline
from .memory import Bytes, MemoryMeter

aten = torch.ops.aten


@contextmanager
def fake_processes(size: int) -> Iterator[None]:
    """Process groups of `size` processes that send nothing; this is the first of them."""
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=size)
    try:
        yield
    finally:
        dist.destroy_process_group()


def fake_world(config: TrainConfig, size: int) -> World:
    """The first process of the configuration's world; process groups must exist."""
    sizes = axis_sizes(config, size)
    mesh = lone_mesh("cpu", torch.arange(size).view(tuple(sizes.values())), AXES)
    return World(0, size, 0, size, torch.device("cpu"), sizes, mesh)


def lone_mesh(device: str, ranks: Tensor, names: tuple[str, ...] = ("outer", "inner")) -> DeviceMesh:
    """A mesh with the groups of the first process alone: with those of all, thousands would take minutes."""
    own = [ranks[(0,) * axis + (slice(None),) + (0,) * (ranks.ndim - axis - 1)] for axis in range(ranks.ndim)]
    groups = [dist.new_group(group.tolist()) for group in own]
    return DeviceMesh.from_group(groups, device, mesh=ranks, mesh_dim_names=names)


class Chunks:
    """What torch.chunk gives, each made when it is asked for: of thousands FSDP looks at two."""

    def __init__(self, tensor: Tensor, count: int, dim: int) -> None:
        self.tensor, self.dim = tensor, dim
        self.width = -(-tensor.shape[dim] // count)

    def __getitem__(self, number: int) -> Tensor:
        start = number * self.width
        if start >= self.tensor.shape[self.dim]:
            return self.tensor.new_empty(0)
        return self.tensor.narrow(self.dim, start, min(self.width, self.tensor.shape[self.dim] - start))


def step_memory(config: TrainConfig, world: World, rows: int, pieces: int) -> dict[str, Bytes]:
    """For each phase of a step of the first process, bytes by kind as :class:`.memory.MemoryMeter` has them.

    Parameters
    ----------
    rows : complexes of a piece, each with data.max_atoms atoms
    pieces : backwards before the step
    """
    mode = FakeTensorMode()
    with mode, _nothing_masked(), _known_shapes():
        model = build_model(config, world, 0.0, 1.0, filled=False).train()
        optimizer = make_optimizer(model, config.optimizer)
        prepare_moments(optimizer)
        batch = empty_batch(rows, config.data.max_atoms)
        with MemoryMeter(model, optimizer, mode) as meter:
            for part in model.modules():
                if isinstance(part, AffinityTransformer):
                    mark_phases(part, meter)
            run_step(model, batch, pieces, config.parallel.keeps_gradients)
    return meter.peaks


def mark_phases(model: AffinityTransformer, meter: MemoryMeter) -> None:
    """Tell the meter what a step is at: before, in and after the layers, forward and backward.

    In each phase the bytes are a straight line of the number of layers, as they are not altogether.
    """
    layers = list(model.layers.values())

    def becomes(phase: str) -> Any:
        def set_phase(*_: Any) -> None:
            meter.phase = phase

        return set_phase

    def watch(tensor: Any, phase: str) -> None:
        if isinstance(tensor, Tensor) and tensor.requires_grad:
            tensor.register_hook(becomes(phase))  # type: ignore[no-untyped-call]

    model.register_forward_pre_hook(becomes("forward, before layers"))
    layers[0].register_forward_pre_hook(becomes("forward, layers"))
    layers[0].register_forward_pre_hook(lambda _, inputs: watch(inputs[0], "backward, before layers"))
    layers[-1].register_forward_hook(becomes("forward, after layers"))
    for i, layer in enumerate(layers):
        place = "last" if i == len(layers) - 1 else "first" if i == 0 else "middle"
        layer.register_forward_hook(lambda _, inputs, out, at=place: watch(out, f"backward, {at} layer"))


def run_step(model: Any, batch: dict[str, Tensor], pieces: int, keep: bool) -> None:
    """Forward and backward of a batch several times, as between two updates."""
    for piece in range(pieces):
        if isinstance(model, Pipeline):
            model.train_step(batch, lambda prediction, _: prediction.sum(), 1.0)
        else:
            synchronise(model, piece == pieces - 1, keep)
            cast(Any, model(batch).sum()).backward()


def empty_batch(rows: int, atoms: int) -> dict[str, Tensor]:
    """Shapes of a padded batch (B, N) as the data gives them, with a bond an atom."""
    batch = {name: torch.zeros(rows, atoms, dtype=torch.uint8) for name, _ in ATOM_FEATURES}
    batch |= {name: torch.ones(rows, atoms, dtype=torch.bool) for name in ("atom_mask", "pool_mask")}
    batch |= {"position": torch.zeros(rows, atoms, 3), "pk_kind": torch.zeros(rows, dtype=torch.uint8)}
    batch["bond_atoms"] = torch.zeros(rows, atoms, 2, dtype=torch.uint8)
    batch["bond_order"] = torch.zeros(rows, atoms, dtype=torch.uint8)
    batch["bond_mask"] = torch.zeros(rows, atoms, dtype=torch.bool)
    return batch


class _NothingMasked(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Takes every mask that picks rows for all false, since without data nobody knows how many there are.

    What a batch picks so are its bonds, small beside all pairs.
    """

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function is aten.index.Tensor and any(i is not None and i.dtype == torch.bool for i in args[1]):
            indices: list[Tensor | None] = []
            for index in args[1]:
                masked = index is not None and index.dtype == torch.bool
                none = [torch.zeros(0, dtype=torch.int64)] * index.ndim if masked else [index]
                indices += none
            args = (args[0], indices)
        return function(*args, **(kwargs or {}))


def _nothing_masked() -> TorchDispatchMode:
    return _NothingMasked()  # type: ignore[no-untyped-call]


@contextmanager
def _known_shapes() -> Iterator[None]:
    """Stages know what they send each other and need not agree on it; all pairs are computed."""

    def agreed(self: Any, stages: Any, *_: Any) -> None:
        for stage in stages:
            stage._inference_mode = InferenceMode.STATIC

    def outside(owner: Any, name: str) -> Any:
        function = getattr(owner, name)

        def run(*args: Any, **kwargs: Any) -> Any:
            with _disable_current_modes():
                return function(*args, **kwargs)

        return patch.object(owner, name, run)

    with (
        patch.object(schedules._PipelineSchedule, "_warmup_p2p", agreed),
        patch.object(pipeline, "with_near", lambda batch, cutoff: batch),
        outside(DeviceMesh, "__init__"),  # meshes need numbers
        outside(_fully_shard, "_get_post_forward_mesh_info"),
        patch.object(_fsdp_init, "DeviceMesh", lone_mesh),
        patch.object(_fsdp_param, "_chunk_with_empty", Chunks),
        outside(ShardingPropagator, "_propagate_tensor_meta_non_cached"),  # whole tensors that nobody holds
    ):
        yield
