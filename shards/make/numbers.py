"""Columns of the label table as numbers of their own: a weight, a score, whatever a loss or a sampler needs.

Ingest keeps the columns of a label table as text. Those that are named become columns of the complex axis,
float32, NaN where a complex has none, and come with batches and in the index like all others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..complex import FIELDS, Field
from ..errors import UsageError
from ..format.block import Block
from ..format.records import texts_of
from .rule import Facts

Numbers = Mapping[str, NDArray[np.float32]]


def numbers_of(facts: Facts, names: Sequence[str]) -> dict[str, NDArray[np.float32]]:
    """Name -> value of each complex, shape (n,).

    Raises
    ------
    UsageError : a name that is no column or cannot be one, or a value that is not a number
    """
    found = {}
    for name in names:
        if not name.isidentifier() or name in {f.key for f in FIELDS}:
            raise UsageError(
                f"--number {name}: expected letters, digits and underscores, and no field's own name"
            )
        if name not in facts.column_names:
            raise UsageError(f"--number {name}: no complex has this column; the columns are "
                             f"{', '.join(facts.column_names) or 'none'}")  # fmt: skip
        values = facts.columns[name]
        try:
            found[name] = np.array([float(v) if v.strip() else np.nan for v in values], np.float32)
        except ValueError:
            row = next(i for i, v in enumerate(values) if v.strip() and not _is_number(v))
            raise UsageError(
                f"--number {name}: {values[row]!r} of {facts.ids[row]!r} is not a number"
            ) from None
    return found


def with_numbers(blocks: Iterable[Block], numbers: Numbers, rows: NDArray[np.int64]) -> Iterator[Block]:
    """Yield raw blocks with the numbers of their complexes, which are ``rows`` in the order of the blocks."""
    start = 0
    fields = {name: Field("complex", name, "<f4") for name in numbers}
    for block in blocks:
        some = rows[start : start + block.n_complexes]
        start += block.n_complexes
        columns: dict[str, NDArray[Any]] = {name: values[some] for name, values in numbers.items()}
        yield replace(block, fields={**block.fields, **fields}, columns={**block.columns, **columns})


def again(block: Block, names: Sequence[str]) -> Block:
    """A raw block of a part with the numbers that it had in a data set; from its texts."""
    missing = [n for n in names if n not in block.columns]
    if not missing:
        return block
    owns = [t.get("columns") or {} for t in texts_of(block)]
    values = {n: [str(own.get(n) or "").strip() for own in owns] for n in missing}
    numbers = {n: np.array([float(v) if _is_number(v) else np.nan for v in column], np.float32)
               for n, column in values.items()}  # fmt: skip
    (found,) = with_numbers([block], numbers, np.arange(block.n_complexes))
    return found


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
