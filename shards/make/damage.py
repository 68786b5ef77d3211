"""What verification finds."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Damage:
    """Something that is not as it was written.

    Attributes
    ----------
    file : file or folder in the data set
    block : block within its shard, None for the file as a whole
    reason : what was found and expected
    ids : complexes that cannot be trusted, empty where only the file's frame is damaged
    """

    file: str
    block: int | None
    reason: str
    ids: tuple[str, ...] = ()
