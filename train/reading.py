"""The training stream through the caches of the configuration, and what they have done."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from ..cache.prefetch import Prefetcher, Range
from ..cache.tier import parse_size
from ..cache.tiered import TieredCache, open_cache, parse_tier
from .config import TrainConfig
from .data import Share, training_stream

if TYPE_CHECKING:
    from ..shards.read.dataset import Dataset
    from ..shards.read.stream import Stream


class Reading:
    """Makes the stream of each epoch; without caches in the configuration it reads files as they are.

    Use it as a context manager: it stops reading ahead and leaves the caches in the end.
    """

    def __init__(self, dataset: Dataset, config: TrainConfig, share: Share) -> None:
        self.dataset, self.config, self.share = dataset, config, share
        self.cache: TieredCache | None = None
        self.prefetcher: Prefetcher | None = None
        self.ahead_bytes = parse_size(config.cache.prefetch)
        if config.cache.tiers or self.ahead_bytes:
            self.cache = self._open()

    def _open(self) -> TieredCache:
        cache, path = self.config.cache, self.config.data.path
        if "://" not in path:
            return open_cache(cache.tiers, path, read_only=cache.read_only)
        tiers = [parse_tier(text, read_only=cache.read_only) for text in cache.tiers]
        fingerprint = self.dataset.manifest.fingerprint
        return TieredCache(tiers, self.dataset.reader.fetch, dataset=fingerprint)

    def stream(self, epoch: int, step: int) -> Stream:
        """This process's batches of an epoch from a step on."""
        if self.cache is not None and self.ahead_bytes and self.prefetcher is None:
            self.prefetcher = Prefetcher(
                self.cache, self.future(epoch, step), readers=self.config.cache.readers,
                max_bytes=self.ahead_bytes,
            )  # fmt: skip
        fetch = self.prefetcher or self.cache
        return training_stream(self.dataset, self.config, self.share, epoch, step, fetch)

    def future(self, epoch: int, step: int) -> Iterator[Range]:
        """All that this process will read from a step on, epoch after epoch."""
        for e in itertools.count(epoch):
            stream = training_stream(self.dataset, self.config, self.share, e, step if e == epoch else 0)
            yield from ((span.path, span.offset, span.length) for span in stream.ranges())

    def counters(self) -> dict[str, Any]:
        """Of each tier, of the source and of reading ahead, since the start; nothing without caches."""
        if self.cache is None:
            return {}
        told: dict[str, Any] = dict(self.cache.counters())
        if self.prefetcher is not None:
            told["prefetch"] = dataclasses.asdict(self.prefetcher.ahead)
        return {"cache": told}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:  # fmt: skip
        if self.prefetcher is not None:
            self.prefetcher.close()
        if self.cache is not None:
            self.cache.close()
