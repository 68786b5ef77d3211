"""Which complexes train a model, and which judge it.

Similar complexes on both sides of a split make a model look better than it is. So a split here is a
split of *groups*: complexes with the same protein cluster, or the same ligand scaffold, are never
divided. How far that goes is the caller's choice, recorded in the manifest.

============ ====================================================================================
random       each complex is its own group
cluster      the column ``columns.cluster`` if every complex has one, else clusters of the protein
             sequences (:mod:`.similarity`); chains of one complex join their clusters
scaffold     the Murcko scaffold of the ligand; a ligand without a ring is its own scaffold
tanimoto     clusters of ligands by their fingerprints (:mod:`.fingerprints`, needs RDKit)
time         by deposition date, the oldest in train and the newest in test; the complexes of one
             day are a group, those without a date train
given        a column of the label table names the split
============ ====================================================================================
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from ..errors import UsageError
from ..permutation import permutation
from .fingerprints import ligand_clusters
from .similarity import sequence_clusters

Method = Literal["random", "cluster", "scaffold", "tanimoto", "time", "given"]
METHODS: Final[tuple[Method, ...]] = ("random", "cluster", "scaffold", "tanimoto", "time", "given")
SPLITS: Final = ("train", "valid", "test")
LEFT_OUT: Final = -1  # in no split
# What others call the three, in a column given by the user.
GIVEN: Final = {
    "train": 0, "training": 0, "general": 0, "valid": 1, "val": 1, "validation": 1, "dev": 1,
    "test": 2, "testing": 2, "holdout": 2, "": LEFT_OUT, "removed": LEFT_OUT, "none": LEFT_OUT,
}  # fmt: skip
TRIALS: Final = 64  # random orders of the groups, of which the one nearest to the fractions is taken
NEAR: Final = 0.005  # of all complexes: near enough to stop trying


@dataclass(frozen=True, slots=True)
class Facts:
    """What a split needs to know of complexes, one entry each, in order of their ids.

    Attributes
    ----------
    ids : unique, sorted
    scaffolds : Murcko scaffold as SMILES, empty without a ring
    ligands : InChIKey or SMILES, empty if unknown
    sequences : one-letter sequences of the protein chains, "/" between them
    smiles : of the ligands, empty if unknown
    deposited : shape (n,), yyyymmdd, 0 for unknown
    columns : some of the label table's own columns by name; "" where a complex has none
    column_names : all of its columns
    """

    ids: Sequence[str]
    scaffolds: Sequence[str]
    ligands: Sequence[str]
    sequences: Sequence[str]
    smiles: Sequence[str]
    deposited: NDArray[np.int32]
    columns: Mapping[str, Sequence[str]]
    column_names: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True, slots=True)
class Split:
    """A split and how it came about.

    Attributes
    ----------
    of : shape (n,), int8, index into SPLITS of each complex, or LEFT_OUT
    groups : shape (n,), int64, group of each complex, 0 .. n_groups - 1
    record : method, seed, fractions and counts, for the manifest
    """

    of: NDArray[np.int8]
    groups: NDArray[np.int64]
    record: dict[str, Any]


def split(
    facts: Facts,
    method: Method = "random",
    *,
    fractions: Sequence[float] = (0.8, 0.1, 0.1),
    seed: int = 0,
    column: str | None = None,
) -> Split:
    """Assign each complex to train, valid or test; a pure function of its arguments.

    Parameters
    ----------
    fractions : of complexes in train, valid and test, adding up to 1; matched as well as whole groups allow
    column : with "given", the column that names the split (``split`` if None); with "cluster", the column
        that names the group (``cluster`` if None)
    """
    _check(method, fractions)
    record: dict[str, Any] = {"method": method, "seed": seed}
    if method == "given":
        groups = np.arange(len(facts))
        of, record["column"] = _given(facts, column or "split"), column or "split"
    else:
        labels, record["groups_by"] = group_labels(facts, method, column)
        groups = _numbers(labels)
        record["fractions"] = [float(f) for f in fractions]
        of = _by_date(facts.deposited, fractions) if method == "time" else _assign(groups, fractions, seed)
    record["n_groups"] = int(groups.max(initial=-1)) + 1
    record["left_out"] = int((of == LEFT_OUT).sum())
    return Split(of, groups, record)


def group_labels(facts: Facts, method: Method, column: str | None = None) -> tuple[list[str], str]:
    """Return the group of each complex as text, and what the groups are."""
    if method == "scaffold":
        pairs = zip(facts.scaffolds, facts.ligands, facts.ids, strict=True)
        return [s or f"ligand {ligand}" if s or ligand else f"id {i}" for s, ligand, i in pairs], "scaffold"
    if method == "tanimoto":
        if not any(facts.smiles):
            raise UsageError("--split tanimoto needs the ligands' SMILES; none of these complexes has one")
        return [f"cluster {c}" for c in ligand_clusters(facts.smiles).tolist()], "ligand fingerprint"
    if method == "time":
        return [str(d) for d in facts.deposited.tolist()], "deposition date"
    if method == "random":
        return list(facts.ids), "complex"
    name = column or "cluster"
    values = facts.columns.get(name)
    if values is not None and all(values):
        return list(values), f"column {name}"
    if column is not None:
        missing = len(facts) if values is None else sum(not v for v in values)
        raise UsageError(
            f"--split cluster --split-column {name}: {missing} of {len(facts)} complexes have no {name!r}; "
            f"the columns are {', '.join(facts.column_names) or 'none'}"
        )
    if not any(facts.sequences):
        raise UsageError(
            "--split cluster needs a column 'cluster' in the label table or protein sequences; these "
            "complexes have neither. Name another column with --split-column, or use another split"
        )
    clusters = sequence_clusters([s.split("/") if s else [] for s in facts.sequences])
    pairs_ = zip(clusters.tolist(), facts.sequences, facts.ids, strict=True)
    return [f"cluster {c}" if s else f"id {i}" for c, s, i in pairs_], "protein sequence, built in"


def _check(method: str, fractions: Sequence[float]) -> None:
    if method not in METHODS:
        raise UsageError(f"--split {method}: expected one of {', '.join(METHODS)}")
    if len(fractions) != 3 or min(fractions) < 0 or abs(sum(fractions) - 1) > 1e-6:
        raise UsageError(
            f"fractions are of train, valid and test, not negative, and add up to 1; found {tuple(fractions)}"
        )


def _numbers(labels: Sequence[str]) -> NDArray[np.int64]:
    """Number the labels 0, 1, ... in sorted order of their text."""
    number = {label: i for i, label in enumerate(sorted(set(labels)))}
    return np.array([number[label] for label in labels], np.int64)


def _given(facts: Facts, column: str) -> NDArray[np.int8]:
    values = facts.columns.get(column)
    if values is None or not any(values):
        raise UsageError(
            f"--split given: no complex has a column {column!r}; the columns are "
            f"{', '.join(facts.column_names) or 'none'}. Name one with --split-column"
        )
    wrong = sorted({v for v in values if v.strip().lower() not in GIVEN})
    if wrong:
        raise UsageError(
            f"--split given: column {column!r} holds {', '.join(map(repr, wrong[:5]))}; expected train, "
            "valid or test, or nothing (or 'removed') for a complex that is left out"
        )
    return np.array([GIVEN[v.strip().lower()] for v in values], np.int8)


def _assign(groups: NDArray[np.int64], fractions: Sequence[float], seed: int) -> NDArray[np.int8]:
    """Deal whole groups to splits, in the random order (of TRIALS) that comes nearest to the fractions."""
    n, sizes = len(groups), np.bincount(groups)
    target = np.array(fractions, np.float64) * n
    best: NDArray[np.int8] | None = None
    least = np.inf
    for trial in range(TRIALS):
        of_group, missed = _deal(sizes, target, permutation(len(sizes), seed, trial))
        if missed < least:
            best, least = of_group, missed
        if least <= max(2 * NEAR * n, 1.0 + (len(sizes) == n)):
            break
    return np.zeros(0, np.int8) if best is None else best[groups]


def _deal(
    sizes: NDArray[np.int64], target: NDArray[np.float64], order: NDArray[np.int64]
) -> tuple[NDArray[np.int8], float]:
    """Give each group in turn to the split that lacks most; return split by group and complexes misplaced."""
    lacks = [t if t > 0 else -np.inf for t in target.tolist()]  # a split of fraction 0 gets nothing
    of_group = np.empty(len(sizes), np.int8)
    for group in order.tolist():
        s = max(range(len(lacks)), key=lacks.__getitem__)
        of_group[group] = s
        lacks[s] -= int(sizes[group])
    return of_group, float(sum(abs(x) for x in lacks if np.isfinite(x)))


def _by_date(deposited: NDArray[np.int32], fractions: Sequence[float]) -> NDArray[np.int8]:
    """Oldest in train, newest in test; cut between days, as near to the fractions as days allow."""
    if not np.any(deposited > 0):
        raise UsageError("--split time needs deposition dates; none of these complexes has one")
    days, counts = np.unique(deposited, return_counts=True)  # unknown is 0, the oldest
    before = np.concatenate([[0], np.cumsum(counts)])
    ends = np.cumsum(np.array(fractions[:-1])) * len(deposited)
    cuts = [int(np.argmin(np.abs(before - end))) for end in ends]
    of_day = np.searchsorted(np.array(cuts), np.arange(len(days)), side="right").astype(np.int8)
    return of_day[np.searchsorted(days, deposited)]
