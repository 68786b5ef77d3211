"""More parts for a data set: a new generation of it, in which nothing that was there is written again.

What is new is deduplicated against what is there, and divided by the rule that the manifest records: a
complex whose group is in a split already goes there, so that the appended data leaks no more than if all
had been divided at once. One whose group lies in two splits ties them together, and is left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..console import progress
from ..errors import UsageError
from ..format.manifest import Manifest
from ..read.dataset import Dataset, open_dataset
from .gather import PartSource
from .generations import alone, recover
from .groups import BUILT_IN, MMSEQS
from .numbers import numbers_of, with_numbers
from .options import check_sizes
from .pack import COPIES, MEMORY, columns_of, kin_of, mixed
from .rule import FREE, SPLITS, Facts, Rule, Split
from .split import split
from .survey import Survey, distinct, open_parts, survey
from .testlist import SHIPPED
from .writer import SHARD_BYTES, DatasetWriter


def append(
    out: Path,
    parts: Sequence[Path],
    *,
    split_file: str | None = None,
    test_list: str | None = None,
    shard_bytes: int = SHARD_BYTES,
    codec: str = "blosc",
    memory: int = MEMORY,
    threads: int | None = None,
) -> Manifest:
    """Add the complexes of ``parts`` that a data set does not hold yet, as its next generation.

    The same data set, parts and options give the same bytes. Where nothing is new, nothing changes.

    Parameters
    ----------
    out : folder of the data set
    parts : as for :func:`holoshard.shards.make.pack.pack`
    split_file, test_list : the files that the data set was divided by, if it was
    shard_bytes, codec, memory, threads : as for pack, for what is new

    Raises
    ------
    UsageError : not a data set that pack made, or its rule cannot be followed
    """
    check_sizes(None, shard_bytes, memory, threads)
    if not (out / "manifest.json").is_file():
        raise UsageError(f"{out} is not a data set; make one: holoshard shard PARTS --out {out}")
    with alone(out):
        recover(out)
        old = open_dataset(out)
        rule = rule_of(old, split_file, test_list)
        numbers = old.manifest.making.get("numbers", ())
        readers = [part.reader for part in open_parts(parts)]
        total = sum(r.n_complexes for r in readers)
        with progress("survey", len(old) + total) as bar:
            before = survey([old.reader], columns_of(rule, numbers), bar, threads)
            found = survey(readers, columns_of(rule, numbers), bar, threads)
        chosen, aside = distinct(found, before)
        if not len(chosen):
            return old.manifest
        facts, made, rows = _divide(old, before, found, chosen, rule)
        kin = made.groups if made.record["n_groups"] < len(facts) else kin_of(facts)
        of, own = made.of[rows], numbers_of(facts, numbers)
        making = _making(old.manifest, made, {"seen": total, **aside}, of)
        if not (of >= 0).any():
            return old.manifest
        with (
            DatasetWriter(out, extend=True, shard_bytes=shard_bytes, codec=codec, making=making,
                          threads=threads) as writer,
            progress("write", int((of >= 0).sum())) as bar,
        ):  # fmt: skip
            source = PartSource(readers, found, max(memory // COPIES, 1), writer.folder, writer.threads)
            for number, name in enumerate(SPLITS):
                mine = np.flatnonzero(of == number)
                if len(mine):
                    order = mine[mixed(kin[rows[mine]], rule.seed, number, old.manifest.generation)]
                    writer.write(name, with_numbers(source.blocks(chosen[order], bar), own, rows[order]))
            return writer.finish()


def rule_of(old: Dataset, split_file: str | None, test_list: str | None) -> Rule:
    """The rule that a data set was divided by; files are named again, since a manifest holds no paths."""
    record = old.manifest.making.get("split")
    if not isinstance(record, Mapping) or not set(old.splits) <= set(SPLITS):
        raise UsageError(
            f"{old.reader.source.root} does not say how it was divided; make it anew: holoshard shard"
        )
    rule = Rule.of(record)
    by = f"{record.get('groups_by')}, {record.get('excluded')}"
    if BUILT_IN in by or MMSEQS in by:  # whatever is installed here
        rule = replace(rule, cluster_with="built-in" if BUILT_IN in by else "mmseqs")
    listed = rule.test_list is not None and rule.test_list not in SHIPPED
    for needed, given, option in (
        (rule.file, split_file, "--split-file"),
        (listed, test_list, "--test-list"),
    ):
        if bool(needed) != bool(given):
            word = f"was divided by a file: name it with {option}" if needed else f"takes no {option}"
            raise UsageError(f"{old.reader.source.root} {word}")
    return replace(rule, file=split_file, test_list=test_list or rule.test_list)


def _divide(
    old: Dataset, before: Survey, found: Survey, chosen: NDArray[np.int64], rule: Rule
) -> tuple[Facts, Split, NDArray[np.int64]]:
    """Divide old and new together, the old where they are; and the rows of the new, as chosen."""
    told = [before.facts(range(len(before))), found.facts(chosen.tolist())]
    ids = [i for facts in told for i in facts.ids]
    order = sorted(range(len(ids)), key=ids.__getitem__)
    facts = joined(told, order)
    place = np.full(len(ids), FREE, np.int8)
    place[: len(before)] = [SPLITS.index(str(s)) for s in old.column("split").tolist()]
    made = split(facts, rule, place[order])
    was, now = old.manifest.making["split"]["groups_by"], made.record["groups_by"]
    if was.partition(MMSEQS)[:2] != now.partition(MMSEQS)[:2]:  # whatever the version of MMseqs2
        raise UsageError(f"{old.reader.source.root} was divided by {was}, these parts would be by {now}: "
                         "give them what the others have, or make the data set anew")  # fmt: skip
    where = np.empty(len(ids), np.int64)
    where[order] = np.arange(len(ids))
    return facts, made, where[len(before) :]


def joined(told: Sequence[Facts], order: Sequence[int]) -> Facts:
    """Facts one after the other, then in another order."""

    def pick(name: str) -> list[Any]:
        values = [v for facts in told for v in getattr(facts, name)]
        return [values[i] for i in order]

    def column(name: str) -> list[str]:
        values = [v for facts in told for v in facts.columns[name]]
        return [values[i] for i in order]

    names = ("ids", "scaffolds", "ligands", "sequences", "smiles")
    return Facts(
        **{name: pick(name) for name in names},
        deposited=np.array(pick("deposited"), np.int32),
        columns={name: column(name) for name in told[0].columns},
        column_names=tuple(sorted({n for facts in told for n in facts.column_names})),
    )


def _making(old: Manifest, made: Split, counts: Mapping[str, int], of: NDArray[np.int8]) -> dict[str, Any]:
    """What the manifest says of how it was made: sums over the generations, and each one's share."""
    making = dict(old.making)
    for key, n in counts.items():
        making[key] = making.get(key, 0) + n
    record = {**made.record, "left_out": making["split"]["left_out"] + int((of < 0).sum())}
    share = {"generation": old.generation + 1, "n_complexes": int((of >= 0).sum()), **counts,
             "left_out": int((of < 0).sum())}  # fmt: skip
    return {**making, "split": record, "appended": [*making.get("appended", ()), share]}
