"""Heads that fall silent while a model trains, and come back where that was wrong.

Between two moments of the run ever more heads are marked, those of least running importance (the cubic
schedule of Zhu and Gupta 2017, doi:10.48550/arXiv.1710.01878). A marked head's gate sinks to 0 over some
steps; importance is taken from what the head puts out before its gate, so that one whose output grows again
is chosen again and its gate rises. At the second moment the choice is final. From then on
``holoshard prune --by gates`` can cut the silent heads out, and the model stays what it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import torch
import torch.distributed as dist
from torch import Tensor, nn

from .choose import choose
from .cut import baked
from .importance import HeadWatch, normalised

if TYPE_CHECKING:
    from ..config import TrainConfig
    from ..model.transformer import AffinityTransformer
    from ..parallel.mesh import World

DECAY: Final = 0.7  # of running importance, from one choice to the next


class AdaptiveHeads:
    """Gates of a model's heads, alike in all processes.

    Parameters
    ----------
    model : its output maps get hooks
    last_step : of the run; the schedule is in shares of it

    Attributes
    ----------
    gates, importance : for each layer (H,) float64 over all its heads, importance empty at first
    kept : for each layer the heads that are to stay
    final : True when nothing is chosen any more
    """

    def __init__(self, model: AffinityTransformer, config: TrainConfig, world: World, last_step: int) -> None:
        self.config, self.world, self.last_step = config.sparsity, world, last_step
        self.tensor = world.sizes["tensor"]
        self.part = world.mesh.get_local_rank("tensor") if world.mesh is not None else 0
        heads = config.model.attention_heads
        self.gates = [torch.ones(h, dtype=torch.float64) for h in heads]
        self.kept = [list(range(h)) for h in heads]
        self.importance: list[Tensor] = []
        self.final = False
        self.here = [torch.ones(h // self.tensor, device=world.device) for h in heads]
        self.watch = HeadWatch(model)
        for i, attention in enumerate(self.watch.attentions):
            attention.get_submodule("out").register_forward_pre_hook(self.gate(i, attention), prepend=True)
        self.watch.__enter__()  # the watch's hooks come before the gates'

    def gate(self, i: int, attention: nn.Module) -> Callable[[nn.Module, tuple[Tensor]], tuple[Tensor]]:
        """The hook that multiplies the outputs of layer `i` by their gates."""
        width = attention.head_width
        assert isinstance(width, int)

        def gated(module: nn.Module, inputs: tuple[Tensor]) -> tuple[Tensor]:
            return (inputs[0] * self.here[i].to(inputs[0].dtype).repeat_interleave(width),)

        return gated

    def look(self, mask: Tensor) -> None:
        """Watch the forward that comes, of complexes whose real atoms are `mask`."""
        self.watch.mask = mask
        self.watch.complexes += len(mask)

    def advance(self, step: int) -> None:
        """After a step: choose anew if it is time, and move the gates on."""
        self.watch.mask = None  # validation is not watched
        if not self.final and step % self.config.every == 0:
            self.measure()
            share = step / self.last_step
            if share >= self.config.start and self.importance:
                self.kept = choose(self.importance, self.keep(share), "norm", multiple=self.tensor)
            self.final = share >= self.config.end
        for gate, kept in zip(self.gates, self.kept, strict=True):
            target = torch.zeros_like(gate)
            target[kept] = 1.0
            gate += (target - gate).clamp(-1 / self.config.every, 1 / self.config.every)
            gate[(target - gate).abs() < 1e-6] = target[(target - gate).abs() < 1e-6]
        self.show()

    def keep(self, share: float) -> float:
        """Share of the heads that stay at this share of the run."""
        start, end = self.config.start, self.config.end
        left = 1.0 - min(max((share - start) / (end - start), 0.0), 1.0)
        return 1.0 - (1.0 - self.config.keep) * (1.0 - left**3)

    def measure(self) -> None:
        """Running importance from what was seen since the last time."""
        total, complexes = self.total()
        self.watch.begin()
        if complexes == 0 or not all(layer.isfinite().all() for layer in total):
            return  # a step that is skipped may have put out anything
        new = [normalised(layer / complexes) for layer in total]
        old = self.importance or new
        self.importance = [DECAY * a + (1 - DECAY) * b for a, b in zip(old, new, strict=True)]

    def total(self) -> tuple[list[Tensor], float]:
        """What all processes saw since the last time: sums of all heads, and complexes."""
        sizes = [len(gate) for gate in self.gates]
        seen = torch.zeros(sum(sizes) + 1, dtype=torch.float64, device=self.world.device)
        for layer, mine in zip(torch.split(seen[:-1], sizes), self.watch.sums, strict=True):
            if len(mine):
                layer.view(self.tensor, -1)[self.part] = mine
        seen[-1] = self.watch.complexes
        self.world.sum(seen)
        if self.tensor > 1 and self.world.mesh is not None:
            heads = seen[:-1].contiguous()
            dist.all_reduce(heads, group=self.world.mesh.get_group("tensor"))
            seen[:-1] = heads
        found = seen.cpu()
        return list(torch.split(found[:-1], sizes)), float(found[-1])

    def hold(self, total: list[Tensor], complexes: float) -> None:
        """Let the first part of the batch's processes hold what all saw, as a resumed run does."""
        self.watch.begin()
        if self.world.data_rank == 0:
            parts = [layer.view(self.tensor, -1)[self.part] for layer in total]
            self.watch.sums = [part.to(self.world.device) for part in parts]
            self.watch.complexes = int(complexes)

    def show(self) -> None:
        """Bring the gates to where the hooks read them: those of this process's heads."""
        for gate, here in zip(self.gates, self.here, strict=True):
            here.copy_(gate.view(self.tensor, -1)[self.part])

    def bake(self, name: str, tensor: Tensor) -> Tensor:
        """A whole parameter as it is without hooks: output maps take the gates in."""
        return baked(name, tensor, self.gates)

    def saved(self) -> dict[str, Any]:
        """What a checkpoint holds; every process must call it."""
        total, complexes = self.total()
        self.hold(total, complexes)
        return {
            "gates": [gate.tolist() for gate in self.gates], "kept": self.kept, "final": self.final,
            "importance": [layer.tolist() for layer in self.importance],
            "seen": [layer.tolist() for layer in total], "complexes": complexes,
        }  # fmt: skip

    def resume(self, saved: dict[str, Any]) -> None:
        """Go on from what :meth:`saved` gave; a run that had no gates begins with open ones."""
        if not saved:
            return
        self.gates = [torch.tensor(gate, dtype=torch.float64) for gate in saved["gates"]]
        self.importance = [torch.tensor(layer, dtype=torch.float64) for layer in saved["importance"]]
        self.kept, self.final = saved["kept"], saved["final"]
        self.hold([torch.tensor(layer, dtype=torch.float64) for layer in saved["seen"]], saved["complexes"])
        self.show()
