"""Tensor parallelism: every matrix of a layer is cut, by heads and by channels of the feed-forward part.

Column-parallel matrices (query, key, value, up) give each process its heads or channels without any
exchange; row-parallel ones (out, down) sum over the processes (Megatron-LM, doi:10.48550/arXiv.1909.08053).
The map from pair features to biases is cut by heads too. What is small and used by all (norms, embedding,
head, the filters of the neighbourhood) each process keeps whole: its gradients are the same everywhere,
because they come from sums. torch begins these sums without waiting; who first reads the result waits.
"""

from __future__ import annotations

from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from ..model.transformer import AffinityTransformer


def split_layers(model: AffinityTransformer, mesh: DeviceMesh) -> None:
    """Cut every layer over the processes of a one-dimensional mesh, in place."""
    for layer in model.layers.values():
        plan = {
            "attention.query": ColwiseParallel(),
            "attention.key": ColwiseParallel(),
            "attention.value": ColwiseParallel(),
            "attention.bias": ColwiseParallel(),
            "attention.out": RowwiseParallel(),
            "feed_forward.up": ColwiseParallel(),
            "feed_forward.down": RowwiseParallel(),
        }
        if isinstance(
            layer.get_parameter("feed_forward.down.weight"), DTensor
        ):  # cut already, with the layer that shares it
            del plan["feed_forward.down"]
        parallelize_module(layer, mesh, plan)
