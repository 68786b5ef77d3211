"""How much each attention head matters, from what it puts out.

norm    I_h = mean over complexes of the Frobenius norm of the head's output
taylor  I_h = mean of |<output, d loss / d output>|: what the loss would change to first order if the head
        were silent (Michel et al. 2019, doi:10.48550/arXiv.1905.10650)

Outputs grow with depth, so that raw numbers would empty the first layers: they are divided by their
root mean square within the layer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Any, Literal, Self

import torch
from torch import Tensor, nn

from ..model.transformer import AffinityTransformer

By = Literal["norm", "taylor", "random", "reversed", "gates"]
Batch = dict[str, Tensor]


class HeadWatch(AbstractContextManager["HeadWatch"]):
    """Looks at what the heads of a model put out, while the model runs.

    Attributes
    ----------
    mask : (B, N) the real atoms of the coming batch; whoever runs the model sets it, None for do not look
    sums : for each layer (H,) float64, the sum over complexes of norms or of Taylor terms
    complexes : how many there were
    """

    def __init__(self, model: AffinityTransformer, *, taylor: bool = False) -> None:
        self.taylor = taylor
        self.mask: Tensor | None = None
        self.attentions = [layer.get_submodule("attention") for layer in model.layers.values()]
        self.hooks: list[Any] = []
        self.begin()

    def begin(self) -> None:
        """Forget what was seen."""
        self.sums = [torch.zeros(0, dtype=torch.float64) for _ in self.attentions]
        self.complexes = 0

    def __enter__(self) -> Self:
        for i, attention in enumerate(self.attentions):
            out = attention.get_submodule("out")
            # Before tensor parallelism turns its input into a part of something larger.
            self.hooks.append(out.register_forward_pre_hook(self.looker(i, attention), prepend=True))
        return self

    def __exit__(self, *exception: object) -> None:
        for hook in self.hooks:
            hook.remove()

    def looker(self, i: int, attention: nn.Module) -> Callable[[nn.Module, tuple[Tensor]], None]:
        """The hook of layer `i`."""
        width = attention.head_width
        assert isinstance(width, int)

        def look(module: nn.Module, inputs: tuple[Tensor]) -> None:
            output = inputs[0]
            if self.mask is None:
                return
            if not self.taylor:
                self.add(i, norms(output.detach(), self.mask, width))
            elif output.requires_grad:
                output.register_hook(  # type: ignore[no-untyped-call]
                    lambda gradient: self.add(i, terms(output, gradient, width))
                )

        return look

    def add(self, i: int, values: Tensor) -> None:
        """Add (B, H) to the sums of layer `i`."""
        total = values.double().sum(0)
        self.sums[i] = self.sums[i] + total if len(self.sums[i]) else total

    def means(self) -> list[Tensor]:
        """I_h of each layer, (H,) float64."""
        return [total.cpu() / max(self.complexes, 1) for total in self.sums]


def norms(output: Tensor, mask: Tensor, width: int) -> Tensor:
    """Frobenius norms (B, H) of the heads' outputs over the real atoms `mask` (B, N) of each complex.

    Parameters
    ----------
    output : (B, N, H * width), or (1, atoms, H * width) where complexes are packed
    """
    atoms = output[mask] if output.shape[:2] == mask.shape else output[0]
    squares = atoms.float().view(len(atoms), -1, width).square().sum(-1)
    complex_of = torch.arange(len(mask), device=mask.device)[:, None].expand_as(mask)[mask]
    return squares.new_zeros(len(mask), squares.shape[1]).index_add(0, complex_of, squares).sqrt()


def terms(output: Tensor, gradient: Tensor, width: int) -> Tensor:
    """|<output, gradient>| of each complex and head, (B, H); padded atoms have no gradient."""
    return by_head(output.detach().float() * gradient.float(), width).sum((1, 3)).abs()


def by_head(values: Tensor, width: int) -> Tensor:
    """(B, N, H * width) as (B, N, H, width)."""
    return values.view(*values.shape[:2], -1, width)


def importance(
    model: AffinityTransformer, batches: Iterable[Batch], loss: Callable[[Tensor, Batch], Tensor], by: By
) -> list[Tensor]:
    """I_h of every head over some batches, normalised within each layer: for each layer (H,) float64.

    Parameters
    ----------
    loss : of a prediction and its batch, a sum over complexes
    by : norm or taylor; random and reversed begin from norm
    """
    taylor = by == "taylor"
    was_training = model.training
    model.eval()
    with HeadWatch(model, taylor=taylor) as watch, torch.set_grad_enabled(taylor):
        for batch in batches:
            watch.mask = batch["atom_mask"]
            watch.complexes += len(batch["atom_mask"])
            prediction = model(batch)
            if taylor:
                inputs = [parameter for parameter in model.parameters() if parameter.requires_grad]
                torch.autograd.grad(loss(prediction, batch), inputs, allow_unused=True)
    model.train(was_training)
    return [normalised(mean) for mean in watch.means()]


def normalised(values: Tensor) -> Tensor:
    """Divided by their root mean square; a silent layer stays 0."""
    return values / values.square().mean().sqrt().clamp(min=1e-30)
