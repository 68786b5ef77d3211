"""A stream of some rows of a data set: its blocks, its options, its window."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import numpy as np

from ..complex import Axis, Field
from ..errors import UsageError
from .ahead import Blocks, stored_fields
from .batch import ATOM_RESIDUE_TYPE, DEFAULT_FIELDS
from .budget import window_within
from .crop import residue_type_field
from .order import Rows
from .pool import field_bytes
from .selection import Selection, is_sparse
from .stream import Stream, StreamOptions

if TYPE_CHECKING:
    from .dataset import Dataset

PLACE = 4  # bytes: a place that padding takes in a batch
AXES: dict[str, Axis] = {"n_atoms": "atom", "n_bonds": "bond", "n_residues": "residue"}


def make_stream(
    dataset: Dataset, rows: Rows, batch_size: int, memory: int | None, options: Mapping[str, Any]
) -> Stream:
    """A stream; ``options`` are those of Stream and of StreamOptions."""
    names = {f.name for f in fields(StreamOptions)}
    how = StreamOptions(**{k: v for k, v in options.items() if k in names})
    own = {k: v for k, v in options.items() if k not in names}
    check_fields(dataset, how)
    if memory is not None:
        own["window"] = window([(dataset, rows)], batch_size, memory, how, own.get("window"))
    reader, lengths, fingerprint = dataset.reader, dataset.column("n_atoms"), dataset.manifest.fingerprint
    distinct = np.unique(rows)
    if not len(rows) or not is_sparse(distinct, reader.first_complex, reader.block_complexes):
        return Stream(
            reader, rows, lengths, batch_size=batch_size, fingerprint=fingerprint, options=how, **own
        )
    known = {axis: dataset.column(name)[distinct] for name, axis in AXES.items()}
    blocks: Blocks = Selection(reader, distinct, reader.block_size, known)
    chosen = hashlib.sha256(distinct.astype("<i8").tobytes()).hexdigest()[:16]
    return Stream(
        blocks, np.searchsorted(distinct, rows), lengths[distinct], batch_size=batch_size,
        fingerprint=f"{fingerprint} rows {chosen}", options=how, index=distinct, **own,
    )  # fmt: skip


def check_fields(dataset: Dataset, how: StreamOptions) -> None:
    """UsageError for a field that is not in a data set."""
    known = [*dataset.manifest.fields, ATOM_RESIDUE_TYPE]
    asked = [how.fields] if isinstance(how.fields, str) else how.fields or ()
    unknown = [key for key in asked if key not in known]
    if unknown or isinstance(how.fields, str):
        what = f"no field {unknown[0]!r}" if unknown else f"a list of names, not the text {how.fields!r}"
        raise UsageError(
            f"stream(fields=...): {what}; there are: {', '.join(known)}. A column of numbers of the label "
            "table becomes a field with holoshard shard --number"
        )


def window(
    parts: Sequence[tuple[Dataset, Rows]], batch_size: int, memory: int, how: StreamOptions, given: int | None
) -> int:
    """Complexes of the longest window of some rows of some data sets within ``memory`` bytes.

    UsageError if the window's length is ``given`` as well, or if no window fits.
    """
    if given is not None:
        raise UsageError("memory says how long the window is; give memory or window, not both")
    keys = tuple(DEFAULT_FIELDS if how.fields is None else how.fields)
    stored = stored_fields(keys, how.max_atoms)
    return window_within(
        memory, block_bytes=max(1, *(_block_bytes(d, keys, stored) for d, _ in parts)),
        block_size=min(d.reader.block_size for d, _ in parts),
        # As values, and once more as stored, while they are gathered.
        batch_bytes=2 * batch_size * max(_widest(d, rows, keys) for d, rows in parts),
        batch_size=batch_size, threads=how.threads,
    )  # fmt: skip


def _block_bytes(dataset: Dataset, keys: Sequence[str], stored: Sequence[str]) -> int:
    """Of the largest block, with what is derived of it."""
    room = dataset.reader.room(stored)
    derived = room.rows["atom"] if ATOM_RESIDUE_TYPE in keys else 0
    return derived + sum(room.rows[f.axis] * field_bytes(f) for f in room.fields.values())


def _widest(dataset: Dataset, rows: Rows, keys: Sequence[str]) -> int:
    """Bytes of the longest complex in a batch: as values, each row with a byte of a mask."""
    known = dict(dataset.manifest.fields)
    if ATOM_RESIDUE_TYPE in keys:
        known[ATOM_RESIDUE_TYPE] = residue_type_field(known)
    axes = {known[k].axis for k in keys}
    return sum(_row_bytes(known[k]) * _longest(dataset, rows, known[k].axis) for k in keys) + sum(
        PLACE * _longest(dataset, rows, axis) for axis in axes
    )


def _row_bytes(field: Field) -> int:
    return int(field.value_dtype.itemsize * math.prod(field.shape)) + 1  # and a byte of a mask


def _longest(dataset: Dataset, rows: Rows, axis: str) -> int:
    name = next((n for n, a in AXES.items() if a == axis), None)
    return 1 if name is None else int(dataset.column(name)[rows].max(initial=1))
