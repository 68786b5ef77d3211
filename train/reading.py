"""The training stream through the caches of the configuration, and what they have done."""

from __future__ import annotations

import dataclasses
import itertools
import logging
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import torch

from ..cache.decoded import Decoded
from ..cache.disk import DiskTier
from ..cache.policy import Clairvoyant
from ..cache.prefetch import Prefetcher
from ..cache.tier import Key, Range, Tier, parse_size
from ..cache.tiered import TieredCache, open_cache, parse_tier
from ..cache.whole import WholeShards
from .config import TrainConfig
from .data import Share, sampling_weights, training_stream
from .placement import Part, parts_of, place

if TYPE_CHECKING:
    from ..shards.read.dataset import Dataset
    from ..shards.read.stream import Stream
    from .parallel.mesh import World

log = logging.getLogger("holoshard")
FORETOLD_EPOCHS = 2  # that a clairvoyant tier knows, the current one included


class Reading:
    """Makes the stream of each epoch; without caches in the configuration it reads files as they are.

    Use it as a context manager: it stops reading ahead and leaves the caches in the end.
    """

    def __init__(self, dataset: Dataset, config: TrainConfig, world: World) -> None:
        self.dataset, self.config, self.world = dataset, config, world
        self.weights = sampling_weights(dataset, config.data)
        self.share: Share = world
        self.cache: TieredCache | None = None
        self.kept: Decoded | None = None
        self.prefetcher: Prefetcher | None = None
        self.whole: WholeShards | None = None
        self.ahead_bytes = parse_size(config.cache.prefetch)
        self._names: dict[str, str] = {}  # entry of the cache -> the decoded block that is made from it
        self._ranges: dict[str, list[Range]] = {}  # the other way round
        self._told = 0  # epochs before this one have been foretold to clairvoyant tiers
        cache = config.cache
        if cache.tiers or self.ahead_bytes or cache.whole:
            path, policy = config.data.path, self.policy(cache.tiers)
            self.cache = open_cache(cache.tiers, path, policy=policy, read_only=cache.read_only)
            if config.data.shuffle == "local" and cache.tiers:
                self.share = place(world, self._stream(world, 0, 0), self.cache)
        if cache.decoded:
            tier = parse_tier(cache.decoded, self.policy([cache.decoded]), kind="decoded")
            tier.name = "decoded"
            self.kept = Decoded(tier, dataset.manifest.fingerprint, self._reused)

    def policy(self, tiers: Sequence[str]) -> str:
        """Who leaves a full tier: as the configuration says, or what fits how the data is drawn."""
        if self.config.cache.policy != "auto":
            return self.config.cache.policy
        shards = [s for s in self.dataset.manifest.shards if s.split == self.config.data.train_split]
        own = sum(s.n_bytes for s in shards) / max(self.world.size // self.world.local_size, 1)
        largest = max((parse_size(text.rpartition(":")[2]) for text in tiers), default=0)
        larger = self.config.data.shuffle == "local" and own > largest
        return "clairvoyant" if self.weights is not None or larger else "never"

    def stream(self, epoch: int, step: int) -> Stream:
        """This process's batches of an epoch from a step on."""
        if self.cache is not None:
            if self.config.cache.whole and self.whole is None:
                self.whole = WholeShards(self.cache, self.config.data.train_split)
            if self.ahead_bytes and self.prefetcher is None:
                self.prefetcher = Prefetcher(
                    self.cache, self.future(epoch, step), readers=self.config.cache.readers,
                    max_bytes=self.ahead_bytes, needless=self._needless,
                )  # fmt: skip
        self._foretell(epoch, step)
        fetch = self.prefetcher or self.cache
        return self._stream(self.share, epoch, step, fetch=fetch, keep=self.kept)

    def _stream(self, share: Share, epoch: int, step: int, **how: Any) -> Stream:
        return training_stream(self.dataset, self.config, share, epoch, step, weights=self.weights, **how)

    def future(self, epoch: int, step: int) -> Iterator[Range]:
        """All that this process will read from a step on, epoch after epoch."""
        for e in itertools.count(epoch):
            for name, spans in self._stream(self.share, e, step if e == epoch else 0).needs():
                ranges = [(span.path, span.offset, span.length) for span in spans]
                if self.kept is not None and self.cache is not None:
                    self._ranges[name] = ranges
                    self._names.update((self.cache.key(*range_).name, name) for range_ in ranges)
                yield from ranges

    def _needless(self, key: Key) -> bool:
        """Whether an entry is not worth reading ahead: its block lies there decoded."""
        name = self._names.get(key.name)
        return self.kept is not None and name is not None and self.kept.holds(name)

    def _reused(self, name: str) -> None:
        if self.prefetcher is not None:
            for range_ in self._ranges.get(name, ()):
                self.prefetcher.passed(*range_)

    def _foretell(self, epoch: int, step: int) -> None:
        """Tell clairvoyant tiers what their processes will ask for, up to the end of the next epoch."""
        tiers = [
            *(self.cache.tiers if self.cache is not None else ()),
            *([self.kept.tier] if self.kept else ()),
        ]
        knowing = [(t, t.policy) for t in tiers if isinstance(getattr(t, "policy", None), Clairvoyant)]
        first, self._told = max(epoch, self._told), epoch + FORETOLD_EPOCHS
        for e in range(first, self._told) if knowing else ():
            from_step = step if e == epoch else 0
            for tier, policy in knowing:
                policy.extend(self._asked(tier, e, from_step))

    def _asked(self, tier: Tier, epoch: int, step: int) -> Iterator[Key]:
        """What a tier will be asked for in an epoch, by this process or by all of the node that share it."""
        shares = self._node() if isinstance(tier, DiskTier) else [self.share]
        streams = [self._stream(share, epoch, step).needs() for share in shares]
        for together in itertools.zip_longest(*streams):
            for name, spans in filter(None, together):
                if self.kept is not None and tier is self.kept.tier:
                    yield self.kept.key(name)
                elif self.cache is not None:
                    for span in spans:
                        yield self.cache.key(span.path, span.offset, span.length)

    def _node(self) -> list[Share]:
        """The parts of the batch that this node's processes get."""
        parts = parts_of(self.world)
        if parts is None or self.world.topology is not None:
            return [self.share]
        k = len(parts[0])
        first = self.share.data_rank // k * k
        return [Part(rank, self.share.data_size) for rank in range(first, first + k)]

    def counters(self) -> dict[str, Any]:
        """Of each tier, of the source and of reading ahead, since the start, summed over the processes.

        Nothing without caches. Every process must call it.
        """
        told: dict[str, dict[str, Any]] = {}
        if self.cache is not None:
            told |= self.cache.counters()
        if self.kept is not None:
            told["decoded"] = self.kept.tier.counters.as_dict()
        if self.prefetcher is not None:
            told["prefetch"] = dataclasses.asdict(self.prefetcher.ahead)
        if not told:
            return {}
        places = [(tier, name) for tier, counts in told.items() for name in counts]
        mine = torch.tensor(
            [float(told[t][n]) for t, n in places], dtype=torch.float64, device=self.world.device
        )
        for (tier, name), total in zip(places, self.world.sum(mine).tolist(), strict=True):
            mean = name in ("latency_s", "interval_s", "depth")
            told[tier][name] = total / self.world.data_size if mean else total
        return {"cache": told}

    def io_wait(self, share: float) -> list[float]:
        """The share of the step loop that each part of the batch waited for data. Every process calls it."""
        return self.world.gather(
            torch.tensor([share], dtype=torch.float64, device=self.world.device)
        ).tolist()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:  # fmt: skip
        for ahead in (self.whole, self.prefetcher):
            if ahead is not None:
                ahead.close()
        if self.cache is not None:
            self.cache.close()
        if self.kept is not None:
            self.kept.tier.close()
