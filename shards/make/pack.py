"""The shard stage: parts -> deduplicate -> split -> order -> write.

The result depends on the complexes and the options, not on how the complexes were cut into parts: they
are taken in the order of their ids, split by groups, and mixed. Within a split the complexes of a group
(a protein cluster) are spread evenly over the shards, so that any few blocks are a fair sample and the
shuffle window of a stream is unbiased from the first epoch.

Memory is bounded: some hundred bytes a complex are kept of all, and the complexes themselves are gathered
for a stretch of the output at a time (:mod:`.gather`).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ..console import progress
from ..errors import NothingKeptError
from ..format.layout import BLOCK_SIZE
from ..format.manifest import Manifest
from ..permutation import permutation, uniforms
from .gather import PartSource
from .numbers import numbers_of, with_numbers
from .options import check_sizes
from .rule import SPLITS, Facts, Rule
from .split import numbered, split
from .survey import distinct, open_parts, survey
from .writer import SHARD_BYTES, DatasetWriter

Rows = NDArray[np.int64]

MEMORY: Final = 1 << 30  # bytes of complexes gathered at once, copies included
COPIES: Final = 6  # of a stretch that exist at the same time, at most: four of one, and the one before
MIN_BLOCK_SIZE: Final = 8
BLOCKS: Final = 64  # a small data set is cut into about so many blocks
_PHASE, _TIES = 0, 1  # what random numbers are for, part of their seed


def pack(
    parts: Sequence[Path],
    out: Path,
    *,
    rule: Rule | None = None,
    container: str = "hdf5",
    block_size: int | None = None,
    shard_bytes: int = SHARD_BYTES,
    codec: str = "blosc",
    memory: int = MEMORY,
    threads: int | None = None,
    numbers: Sequence[str] = (),
) -> Manifest:
    """Make a data set of parts.

    Parameters
    ----------
    parts : shard files, folders of them, the ``--out`` folders of ingest, or data sets
    out : folder of the data set; one that is there is replaced in the end, all at once
    rule : how complexes are divided; at random if None
    block_size : complexes a block; None for 256, or less in a small data set: then about ``BLOCKS`` blocks
    shard_bytes : a shard file is about so large
    memory : bytes for complexes in flight
    threads : that read and pack, one a core if None; the bytes do not depend on it
    numbers : columns of the label table that become columns of their own, see :mod:`.numbers`

    Raises
    ------
    UsageError : no parts, or a split that these complexes cannot have
    NothingKeptError : the parts are empty
    """
    check_sizes(block_size, shard_bytes, memory, threads)
    readers = [part.reader for part in open_parts(parts)]
    total = sum(r.n_complexes for r in readers)
    if not total:
        raise NothingKeptError("the parts hold no complex; summary.json of the ingest says what was refused")
    rule = rule or Rule()
    with progress("survey", total) as bar:
        found = survey(readers, columns_of(rule, numbers), bar, threads)
    chosen, aside = distinct(found)
    facts = found.facts(chosen.tolist())
    made = split(facts, rule)
    kin = made.groups if made.record["n_groups"] < len(facts) else kin_of(facts)
    own = numbers_of(facts, numbers)
    making = {"seed": rule.seed, "split": made.record, "seen": total, **aside}
    making |= {"numbers": list(numbers)} if numbers else {}
    size = block_size or block_size_for(len(facts))
    with (
        DatasetWriter(out, container=container, block_size=size, shard_bytes=shard_bytes, codec=codec,
                      making=making, threads=threads) as writer,
        progress("write", len(facts)) as bar,
    ):  # fmt: skip
        source = PartSource(readers, found, max(memory // COPIES, 1), writer.folder, writer.threads)
        for number, name in enumerate(SPLITS):
            mine = np.flatnonzero(made.of == number)
            if len(mine):
                order = mine[mixed(kin[mine], rule.seed, number)]
                writer.write(name, with_numbers(source.blocks(chosen[order], bar), own, order))
        return writer.finish()


def block_size_for(n: int) -> int:
    """Complexes a block: a power of two, small enough for BLOCKS blocks, MIN_BLOCK_SIZE .. BLOCK_SIZE."""
    wanted = max(n // BLOCKS, MIN_BLOCK_SIZE)
    return int(min(1 << (wanted.bit_length() - 1), BLOCK_SIZE))


def mixed(groups: NDArray[np.int64], *key: int) -> Rows:
    """Random order in which each group is spread evenly: any stretch holds its share of each.

    The j-th of the m members of a group, in random order, goes to the place (j + u) / m of the whole, with
    one random u a group.
    """
    n = len(groups)
    _, groups = np.unique(groups, return_inverse=True)
    sizes = np.bincount(groups, minlength=1)
    shuffled = permutation(n, _TIES, *key)
    by_group = shuffled[np.argsort(groups[shuffled], kind="stable")]
    number = np.arange(n) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    phase = uniforms(len(sizes), _PHASE, *key)
    of = groups[by_group]
    place = (number + phase[of]) / sizes[of]
    order: Rows = by_group[np.argsort(place, kind="stable")]
    return order


def columns_of(rule: Rule, numbers: Sequence[str] = ()) -> tuple[str, ...]:
    """Columns of the label table that a split may ask for, and those that are wanted as numbers."""
    column = [rule.column] if rule.column else []
    return tuple(dict.fromkeys(["cluster", "split", "target", *column, *numbers]))


def kin_of(facts: Facts) -> NDArray[np.int64]:
    """Complexes of one protein: by the column ``cluster``, else ``target``, else the sequences."""
    for values in (facts.columns.get("cluster"), facts.columns.get("target"), facts.sequences):
        if values is not None and any(values):
            labels = [v or f"id {i}" for v, i in zip(values, facts.ids, strict=True)]
            return numbered(labels)
    return np.arange(len(facts))
