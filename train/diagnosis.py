"""Where a number stopped being finite: which parameter, which module, which complexes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from .config import LossConfig
from .model.loss import affinity_loss
from .model.transformer import clean_name
from .parallel.clip import local

if TYPE_CHECKING:
    from .data import Tensors


def diagnose(model: nn.Module, batch: Tensors, config: LossConfig) -> dict[str, Any]:
    """Run a batch again and look; every process must call it.

    Returns
    -------
    parameters : names of those with a value that is not finite, here
    module : the first one, in the order of computation, that made such a value of finite input; "" if none
    rows : data set rows here whose own loss is not finite
    """
    bad = not_finite(model)
    found: list[str] = []
    hooks = [
        module.register_forward_hook(_watch(clean_name(name), found))
        for name, module in model.named_modules()
        if name and not any(module.children())
    ]
    try:
        with torch.no_grad():
            prediction = model(batch)
    finally:
        for hook in hooks:
            hook.remove()
    rows = []
    for i, row in enumerate(batch["index"].tolist()):
        pk, relation, weight = (batch[name][i : i + 1] for name in ("pk", "pk_relation", "weight"))
        if not affinity_loss(prediction[i : i + 1], pk, relation, weight, config).isfinite():
            rows.append(row)
    return {"parameters": bad, "module": found[0] if found else "", "rows": rows}


def not_finite(model: nn.Module) -> list[str]:
    """Names of the parameters whose part in this process has a value that is not finite."""
    parameters = [(clean_name(name), local(p.detach())) for name, p in model.named_parameters()]
    largest = torch._foreach_norm([p for _, p in parameters if p.numel()], math.inf)
    finite = iter(torch.stack([n.float() for n in largest]).isfinite().tolist() if largest else [])
    return [name for name, p in parameters if p.numel() and not next(finite)]


def _watch(name: str, found: list[str]) -> Any:
    def look(module: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        if not found and isinstance(output, Tensor) and not output.isfinite().all():
            found.append(name)

    return look
