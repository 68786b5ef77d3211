"""What a stream's batches hold, and how they are read."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from .kept import Keep

THREADS: Final = min(4, os.cpu_count() or 1)


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """What a batch holds, and how it is read.

    Parameters
    ----------
    fields : keys of the batch, None for ``DEFAULT_FIELDS``
    max_atoms : crop each complex to so many atoms, the pocket's nearest to the ligand; None for all
    layout : "padded" or "packed"
    pad_multiple : round padded widths up to a multiple, for compilers that want few shapes
    rotate : turn each complex at random about the centre of its ligand, anew each epoch
    threads : that read and collate; 0 does all in the consumer
    fetch : reads bytes of a file instead of ``os.pread``, such as a cache
    keep : keeps decoded blocks between epochs, see :class:`~holoshard.shards.read.kept.Keep`
    """

    fields: Sequence[str] | None = None
    max_atoms: int | None = None
    layout: Literal["padded", "packed"] = "padded"
    pad_multiple: int = 1
    rotate: bool = False
    threads: int = THREADS
    fetch: Any = None
    keep: Keep | None = None
