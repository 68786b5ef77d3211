"""The whole state of a run on disk, written so that a crash at any moment loses only what is newest.

A checkpoint is a folder ``step-00000100`` of safetensors files, one a process, by
torch.distributed.checkpoint (no pickle), a checksum beside each, and ``state.json``. It is written under
another name and renamed when complete; the file ``latest`` is replaced last. Any number of processes, in
any arrangement, can read what others wrote.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import warnings
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader, HuggingFaceStorageWriter
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import async_save, save

from ..shards.errors import UsageError
from .judge.atomic import write_text
from .model.transformer import clean_name
from .parallel.mesh import World

log = logging.getLogger("holoshard")
VERSION = 1


class Checkpoints:
    """The checkpoints of one run.

    Parameters
    ----------
    folder : where they are
    keep : how many of the newest stay
    background : write while the caller goes on; the state is copied first
    """

    def __init__(self, folder: Path, world: World, keep: int = 3, background: bool = False) -> None:
        self.folder, self.world, self.keep = folder, world, keep
        self._pending: Future[Any] | None = None
        # Writing in the background needs exchanges of its own, beside those of training.
        self._group = dist.new_group(backend="gloo") if background and dist.is_initialized() else None

    def save(self, step: int, tensors: dict[str, Tensor], state: dict[str, Any]) -> None:
        """Write a checkpoint; every process must call it with its own tensors."""
        self.finish()
        target = self.folder / f"step-{step:08d}"
        partial = self.folder / f".{target.name}.partial"
        if self.world.is_first:
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir(parents=True)
        self.world.barrier()
        writer = _Writer(partial)
        if self._group is not None:
            future = async_save(tensors, storage_writer=writer, process_group=self._group)
            assert isinstance(future, Future)
            self._pending = future
            if self.world.is_first:
                # The first process coordinates: when its part is done, all parts are written.
                future.add_done_callback(lambda done: self._publish_if_whole(done, partial, target, state))
        else:
            with _quiet():
                save(tensors, storage_writer=writer, no_dist=not dist.is_initialized())
            if self.world.is_first:
                self._publish(partial, target, state)
            self.world.barrier()

    def finish(self) -> None:
        """Wait for a checkpoint that is being written in the background."""
        if self._pending is not None:
            pending, self._pending = self._pending, None
            pending.result()
            self.world.barrier()

    def restore(
        self, tensors: dict[str, Tensor], same: dict[str, Any],
        further: Callable[[dict[str, Any]], dict[str, Tensor]] = lambda state: {},
    ) -> dict[str, Any] | None:  # fmt: skip
        """Read the newest sound checkpoint into `tensors`; its state, or None if there is none at all.

        Damaged and half-written ones are skipped with a warning. `further` gives more tensors to be read
        from a checkpoint with this state.

        Raises
        ------
        UsageError : the state's "same" is not `same`
        """
        for path in self.candidates():
            problem = self._problem(path)
            if self.world.any(problem is not None):
                if problem is not None:
                    log.warning("checkpoint %s is skipped: %s; trying the one before", path, problem)
                continue
            state: dict[str, Any] = json.loads((path / "state.json").read_text())
            check_same(state["same"], same, path)
            reader = HuggingFaceStorageReader(str(path))
            with _quiet():
                load(tensors | further(state), storage_reader=reader, no_dist=not dist.is_initialized())
            return state
        if self.world.is_first and (lost := len(self.candidates())):
            log.warning(
                "none of the %d checkpoints in %s is sound: the run starts over from step 0; to keep them, "
                "stop it and give another --out", lost, self.folder,
            )  # fmt: skip
        return None

    def candidates(self) -> list[Path]:
        """Finished checkpoints, the one that ``latest`` names first, then the newest."""
        found = sorted(self.folder.glob("step-*"), reverse=True)
        pointer = self.folder / "latest"
        name = pointer.read_text().strip() if pointer.is_file() else ""
        return sorted(found, key=lambda path: path.name != name)

    def _problem(self, path: Path) -> str | None:
        """What is wrong with a checkpoint; processes share the reading, so one finds what others do not."""
        try:
            state = json.loads((path / "state.json").read_text())
            if state["version"] > VERSION:
                return f"written by a newer version ({state['version']}, this is {VERSION})"
            for name in state["files"][self.world.rank :: self.world.size]:
                if Path(name).name != name:
                    return f"it names {name!r}, which lies elsewhere"
                sums = json.loads((path / (name + ".json")).read_text())
                found = {"bytes": (path / name).stat().st_size, "crc32": _crc32(path / name)}
                if found != sums:
                    return f"{name} is {found}, expected {sums}"
            if not isinstance(state["same"], dict) or not state["files"]:
                return "state.json names no run or no files"
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:  # or of another shape
            return f"unreadable: {error!r}"
        return None

    def _publish_if_whole(
        self, done: Future[Any], partial: Path, target: Path, state: dict[str, Any]
    ) -> None:
        if done.exception() is None:  # finish() raises it otherwise
            self._publish(partial, target, state)

    def _publish(self, partial: Path, target: Path, state: dict[str, Any]) -> None:
        files = sorted(path.name for path in partial.glob("*.safetensors"))
        write_text(
            partial / "state.json", json.dumps({"version": VERSION, "files": files, **state}, indent=1)
        )
        shutil.rmtree(target, ignore_errors=True)
        os.replace(partial, target)
        write_text(self.folder / "latest", target.name + "\n")
        for old in sorted(self.folder.glob("step-*"), reverse=True)[self.keep :]:
            if old != target:
                shutil.rmtree(old, ignore_errors=True)


class _Writer(HuggingFaceStorageWriter):
    """Each process writes its shards to one file and its checksum beside it."""

    def __init__(self, path: Path) -> None:
        super().__init__(str(path), save_distributed=True)

    def write_data(self, plan: Any, planner: Any) -> Any:
        future = super().write_data(plan, planner)
        for name in {result.storage_data.relative_path for result in future.wait()}:
            path = Path(self.path) / name
            with path.open("rb") as file:
                os.fsync(file.fileno())
            write_text(
                path.with_name(name + ".json"),
                json.dumps({"bytes": path.stat().st_size, "crc32": _crc32(path)}),
            )
        return future


def training_tensors(model: nn.Module, optimizer: torch.optim.AdamW) -> dict[str, Tensor]:
    """Parameters, buffers and both moments, by name, as views: reading a checkpoint into them is enough."""
    prepare_moments(optimizer)
    tensors: dict[str, Tensor] = {}
    for name, parameter in model.named_parameters():
        name = clean_name(name)
        tensors[f"model.{name}"] = parameter.detach()
        for moment in ("exp_avg", "exp_avg_sq"):
            tensors[f"{moment}.{name}"] = optimizer.state[parameter][moment]
    return tensors | {f"model.{clean_name(name)}": buffer for name, buffer in model.named_buffers()}


def prepare_moments(optimizer: torch.optim.AdamW) -> None:
    """Give AdamW the state of step 0, which it would otherwise make in its first step."""
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if parameter not in optimizer.state:
                optimizer.state[parameter] = {
                    "step": torch.zeros((), dtype=torch.float32),
                    "exp_avg": torch.zeros_like(parameter.detach()),
                    "exp_avg_sq": torch.zeros_like(parameter.detach()),
                }


def set_optimizer_steps(optimizer: torch.optim.AdamW, steps: int) -> None:
    """Tell AdamW how many steps it has made: the exponent of its bias correction."""
    for state in optimizer.state.values():
        state["step"].fill_(float(steps))


@contextmanager
def _quiet() -> Iterator[None]:
    """A process alone is no mistake."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "torch.distributed is disabled", UserWarning)
        yield


def _crc32(path: Path) -> int:
    value = 0
    with path.open("rb") as file:
        while chunk := file.read(1 << 22):
            value = zlib.crc32(chunk, value)
    return value


def check_same(found: dict[str, Any], wanted: dict[str, Any], path: Path) -> None:
    """Refuse to continue a run in another setting."""
    wanted = json.loads(json.dumps(wanted))  # as it was written: JSON has no tuples
    differing = sorted(key for key in wanted if found.get(key) != wanted[key])
    if differing:
        raise UsageError(
            f"{path} is of a run with other values of {', '.join(differing)}; give the same to continue "
            "it, or another --out to begin a new one"
        )
