"""The norm of a gradient that lies in parts in many processes."""

from __future__ import annotations

from collections.abc import Iterable

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from .mesh import World


def gradient_norm(parameters: Iterable[nn.Parameter], world: World, *, apart: bool = False) -> float:
    """Euclidean norm of all gradients of all processes; the same number in each of them.

    Parameters may lie on different meshes: squares are summed over exactly those axes over which a
    parameter is cut, and over the stages of a pipeline, which hold different parameters.

    Parameters
    ----------
    apart : replicas have not summed their gradients yet. The norm is then the root mean square over the
        replicas of the norm of each one's own gradient, as if it had seen the whole batch: a bound of the
        sum's norm that costs one number to exchange
    """
    by_axes: dict[tuple[str, ...], list[Tensor]] = {}
    for parameter in parameters:
        if parameter.grad is not None:
            by_axes.setdefault(cut_axes(parameter.grad), []).append(local(parameter.grad))
    total = torch.zeros((), dtype=torch.float64, device=world.device)
    for axes in sorted(set(by_axes) | ({("shard",)} if world.mesh is not None else set())):
        norms = torch._foreach_norm(by_axes.get(axes, []))
        square = torch.stack([n.double() for n in norms]).square().sum() if norms else torch.zeros_like(total)
        square = square.to(world.device)
        for axis in axes:
            if world.mesh is not None and world.sizes[axis] > 1:
                dist.all_reduce(square, group=world.mesh.get_group(axis))
        total += square
    if world.mesh is not None and world.sizes["pipeline"] > 1:
        dist.all_reduce(total, group=world.mesh.get_group("pipeline"))
    if apart and world.mesh is not None:
        dist.all_reduce(total, group=world.mesh.get_group("replicate"))
        total *= world.sizes["replicate"]
    return float(total.sqrt().item())


def scale_gradients(parameters: Iterable[nn.Parameter], factor: float) -> None:
    """Multiply every gradient, in place."""
    gradients = [local(p.grad) for p in parameters if p.grad is not None]
    if gradients and factor != 1.0:
        torch._foreach_mul_(gradients, factor)


def clip_factor(norm: float, limit: float) -> float:
    """What to multiply a gradient of this norm by so that it is at most `limit`; 0 is no limit."""
    return min(1.0, limit / (norm + 1e-6)) if limit > 0 else 1.0


def cut_axes(tensor: Tensor) -> tuple[str, ...]:
    """Names of the mesh axes along which a tensor is cut into parts."""
    if not isinstance(tensor, DTensor):
        return ()
    names = tensor.device_mesh.mesh_dim_names or ()
    return tuple(n for n, p in zip(names, tensor.placements, strict=True) if not p.is_replicate())


def local(tensor: Tensor) -> Tensor:
    """The part of a tensor that this process holds."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor
