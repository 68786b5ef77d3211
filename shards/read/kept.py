"""Decoded blocks as plain arrays under a name: the seam where a cache of decoded blocks comes in.

A keeper may hold what it was given in this process, or in memory that several processes share: all it
sees are named arrays. The fields of a block travel with it as JSON text.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from ..complex import RAGGED_AXES, Axis, Field
from ..format.block import Block
from ..format.layout import field_from_json, field_to_json

Arrays = Mapping[str, NDArray[Any]]
VERSION: Final = 1  # of the arrays here, and of what the stream derives of a block before it is kept
FIELDS: Final = " fields"  # a space, which no column's key holds
COUNT: Final = " count"


class Keep(Protocol):
    """Keeps decoded blocks between epochs; called from many threads."""

    def __call__(self, name: str, make: Callable[[], Arrays]) -> Arrays:
        """The arrays kept under ``name``, or those of ``make()``; nobody writes into them."""


def name_of(fingerprint: str, block: int, stored: Sequence[str], keys: Sequence[str],
            max_atoms: int | None) -> str:  # fmt: skip
    """Name of a decoded block: different wherever its arrays may differ."""
    wanted = ",".join(sorted({*stored, *keys}))
    return f"{fingerprint} block {block}, {wanted}, atoms {max_atoms}, version {VERSION}"


def arrays_of(block: Block) -> Arrays:
    """A block as named arrays."""
    fields = {key: field_to_json(block.fields[key]) for key in block.columns}
    text = np.frombuffer(json.dumps(fields).encode(), np.uint8)
    counts = {f"{axis}{COUNT}": count for axis, count in block.counts.items()}
    return {FIELDS: text, **counts, **block.columns}


def block_of(arrays: Arrays) -> Block:
    """The block that :func:`arrays_of` took apart."""
    fields = _fields(arrays[FIELDS].tobytes())
    counts: dict[Axis, NDArray[np.int64]] = {
        axis: arrays[name] for axis in RAGGED_AXES if (name := f"{axis}{COUNT}") in arrays
    }
    return Block.of(fields, {key: arrays[key] for key in fields}, counts)


@lru_cache(maxsize=64)
def _fields(text: bytes) -> dict[str, Field]:
    return {key: field_from_json(field) for key, field in json.loads(text).items()}
