"""How a run waited for its data, and what its caches did, as tables of the report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from ...cache.tier import format_size
from . import page
from .runlog import RunLog

ALERT: Final = 0.01  # of the step loop; a run that waits longer for its data is worth looking into


def reading(log: RunLog) -> list[str]:
    """Tables of the waiting of each part of the batch, and of the tiers; what is not logged is left out."""
    return [*_waiting(log), *_tiers(log)]


def _waiting(log: RunLog) -> list[str]:
    rows = [row for row in log.steps.values() if row.get("io_wait")]
    if not rows or len({len(row["io_wait"]) for row in rows}) > 1:  # restarted with another number
        rows = rows[-1:]
    if not rows:
        return []
    seconds = np.array([float(row.get("seconds", 1.0)) for row in rows])
    share = np.average(np.array([row["io_wait"] for row in rows], np.float64), axis=0, weights=seconds)
    worst = int(share.argmax())
    words = (
        f"Waiting for data took {share.mean():.2%} of the step loop, and {share[worst]:.2%} of that of the "
        f"part of the batch that waited longest (number {worst} of {len(share)})."
    )
    if share.max() > ALERT:
        words += " holoshard cache advise says which tiers and which shuffle would help."
    by_rank = page.table(["part", "io_wait"], [[rank, f"{value:.2%}"] for rank, value in enumerate(share)])
    return [page.paragraph(words), page.folded("io_wait by part of the batch", by_rank)]


def _tiers(log: RunLog) -> list[str]:
    lines = [row["cache"] for row in log.steps.values() if row.get("cache")]
    if not lines:
        return []
    told: Mapping[str, Mapping[str, Any]] = lines[-1]
    rows = [_tier(name, counts) for name, counts in told.items() if "hits" in counts]
    head = ["tier", "hits", "misses", "hit ratio", "served", "evictions", "refused", "waited, s"]
    parts = [page.table(head, rows, "caches, all processes, since the last start")]
    source, ahead = told.get("source"), told.get("prefetch")
    if source:
        words = (
            f"From the data set itself: {source['fetches']:,.0f} fetches, "
            f"{format_size(source['fetched_bytes'])}, {source['retries']:,.0f} tried again."
        )
        parts.append(page.paragraph(words, "quiet"))
    if ahead:
        words = (
            f"Read ahead: of {ahead['requests']:,.0f} requests {ahead['ready']:,.0f} were ready, "
            f"{ahead['late']:,.0f} in flight, {ahead['unforetold']:,.0f} not foretold."
        )
        parts.append(page.paragraph(words, "quiet"))
    return parts


def _tier(name: str, counts: Mapping[str, Any]) -> list[str]:
    hits, misses = float(counts["hits"]), float(counts["misses"])
    ratio = f"{hits / (hits + misses):.3f}" if hits + misses else "-"
    rest = [f"{counts[key]:,.0f}" for key in ("evictions", "refused")]
    served = format_size(counts["hit_bytes"])
    return [name, f"{hits:,.0f}", f"{misses:,.0f}", ratio, served, *rest, f"{counts['wait_s']:.1f}"]
