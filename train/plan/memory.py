"""Bytes that tensors hold while a step runs, by what they are for, real or fake."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch._guards import active_fake_mode
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed.fsdp._fully_shard._fsdp_param_group import FSDPParamGroup
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

Bytes = dict[str, int]
KINDS: Final = ("parameters", "gradients", "optimizer", "gathered", "activations")


class MemoryMeter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Follows every storage from the operation that makes it to its end.

    ``gathered`` are weights that FSDP has put together, parts of them that it keeps, and its buffers;
    gradients include those not yet summed over processes; activations are all the rest: what backward needs
    and what passes.
    Allocators round up and fragment, libraries have workspaces: a device needs some percent more.

    Attributes
    ----------
    phase : what the step is at; the caller changes it
    peaks : for each phase, bytes by kind at the moment when their sum was largest
    """

    def __init__(
        self, model: nn.Module, optimizer: torch.optim.Optimizer | None, mode: FakeTensorMode | None
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.now = dict.fromkeys(KINDS, 0)
        self.phase = ""
        self.peaks: dict[str, Bytes] = {}
        self._seen: dict[int, list[Any]] = {}  # by id of a storage: bytes, kind, the end of it
        self._kind = "activations"
        self._mode = mode
        for parameter in model.parameters():
            self.see(parameter, "parameters")
        for buffer in model.buffers():
            self.see(buffer, "parameters")
        for state in optimizer.state.values() if optimizer is not None else ():
            for value in state.values():
                if isinstance(value, Tensor):
                    self.see(value, "optimizer")

    def see(self, tensor: Tensor, kind: str) -> None:
        """Count a tensor's storage as of this kind from now on."""
        tensor = tensor.to_local() if isinstance(tensor, DTensor) else tensor
        storage = tensor.untyped_storage()
        entry = self._seen.get(id(storage))
        if entry is None:
            end = weakref.finalize(storage, self._forget, id(storage))
            end.atexit = False
            entry = self._seen[id(storage)] = [0, kind, end]
        self._change(entry, storage.nbytes(), kind)

    @property
    def peak(self) -> Bytes:
        """Bytes by kind when most was held."""
        return max(self.peaks.values(), key=lambda held: sum(held.values()))

    def _change(self, entry: list[Any], size: int, kind: str) -> None:
        self.now[entry[1]] -= entry[0]
        entry[:2] = size, kind
        self.now[kind] += size
        if sum(self.now.values()) > sum(self.peaks.get(self.phase, {}).values()):
            self.peaks[self.phase] = dict(self.now)

    def _forget(self, key: int) -> None:
        entry = self._seen.pop(key)
        self.now[entry[1]] -= entry[0]

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operation and count what it made."""
        if any(issubclass(t, DTensor) for t in types):
            return NotImplemented  # until it has become an operation on parts
        result = function(*args, **(kwargs or {}))
        if active_fake_mode() is self._mode:  # else DTensor asks for shapes only
            for leaf in tree_leaves(result):
                if isinstance(leaf, Tensor):
                    entry = self._seen.get(id(leaf.untyped_storage()))
                    self.see(leaf, self._kind if entry is None else entry[1])
        return result

    def __enter__(self) -> MemoryMeter:
        self._undo = self._watch()
        self._undo.__enter__()
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)  # type: ignore[no-untyped-call]
        self._undo.__exit__(*error)

    @contextmanager
    def _watch(self) -> Iterator[None]:
        """Hear of what no operation tells: storages that FSDP resizes, and what it works for."""
        resize, group = torch.UntypedStorage.resize_, FSDPParamGroup
        unshard, wait, reduce = group.unshard, group.wait_for_unshard, group.post_backward
        reshard = group.reshard

        def resized(storage: Any, size: int) -> Any:
            result = resize(storage, size)
            entry = self._seen.get(id(storage))
            if entry is not None:
                self._change(entry, size, entry[1])
            return result

        def of_kind(kind: str, method: Any) -> Any:
            def run(param_group: Any, *args: Any, **kwargs: Any) -> Any:
                before, self._kind = self._kind, kind
                if kind == "gradients":
                    for parameter in param_group.fsdp_params:
                        unsharded = getattr(parameter, "_unsharded_param", None)
                        if unsharded is not None and unsharded.grad is not None:
                            self.see(unsharded.grad, kind)
                try:
                    return method(param_group, *args, **kwargs)
                finally:
                    self._kind = before

            return run

        torch.UntypedStorage.resize_ = resized  # type: ignore[method-assign, assignment]
        group.unshard = of_kind("gathered", unshard)  # type: ignore[method-assign]
        group.wait_for_unshard = of_kind("gathered", wait)  # type: ignore[method-assign]
        group.reshard = of_kind("gathered", reshard)  # type: ignore[method-assign]
        group.post_backward = of_kind("gradients", reduce)  # type: ignore[method-assign]
        try:
            yield
        finally:
            torch.UntypedStorage.resize_ = resize  # type: ignore[method-assign]
            group.unshard, group.wait_for_unshard = unshard, wait  # type: ignore[method-assign]
            group.post_backward, group.reshard = reduce, reshard  # type: ignore[method-assign]
