"""Linear maps and norms as the transformer's parts use them."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional


class Linear(nn.Linear):
    """A linear map that knows its first weights: normal, standard deviation scale / sqrt(inputs)."""

    def __init__(self, inputs: int, outputs: int, bias: bool = True, scale: float = 1.0) -> None:
        super().__init__(inputs, outputs, bias)
        self.scale = scale


class LayerNorm(nn.LayerNorm):
    """Layer normalisation computed in float32 whatever the format of its input."""

    def forward(self, x: Tensor) -> Tensor:
        """Normalise (..., D)."""
        wide = functional.layer_norm(
            x.float(), self.normalized_shape, self.weight.float(), self.bias.float(), self.eps
        )
        return wide.to(x.dtype)
