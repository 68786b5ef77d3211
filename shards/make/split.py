"""Which complexes train a model, and which judge it.

Similar complexes on both sides of a split make a model look better than it is. So a split here is a
split of *groups*: complexes with the same protein cluster, or the same ligand scaffold, are never
divided. How far that goes is the caller's choice, recorded in the manifest.

============== ==================================================================================
random         each complex is its own group
cluster        the column ``columns.cluster`` if every complex has one, else clusters of the protein
               sequences, by MMseqs2 where it is installed (:mod:`.mmseqs`), else by what is built in
               (:mod:`.similarity`); chains of one complex join their clusters
scaffold       the Murcko scaffold of the ligand; a ligand without a ring is its own scaffold
tanimoto       clusters of ligands by their fingerprints (:mod:`.fingerprints`, needs RDKit)
protein-ligand what is alike in protein and ligand together, after CleanSplit (:mod:`.groups`)
time           by deposition date, the oldest in train and the newest in test; the complexes of one
               day are a group; those without a date are left out, or train on request
given          a column of the label table, or a file, names the split
============== ==================================================================================

A test list is a test set that others use, too; the method then divides what is left into train and
valid. Complexes near the test set can be kept out of both.

Where some complexes have their place already, those of their groups follow them; a complex whose group
lies in two splits is left out, since it would tie them together.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from itertools import repeat
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..errors import UsageError
from ..permutation import permutation
from .groups import SAME_LIGAND, comparer, group_labels
from .likeness import Traits, ligands_alike, proteins_alike
from .rule import FREE, LEFT_OUT, SPLITS, WORDS, Facts, Rule, Split
from .testlist import members, read_splits

log = logging.getLogger("holoshard")

Places = NDArray[np.int8]
Numbers = NDArray[np.int64]

TEST: Final = SPLITS.index("test")
# What others call the three, in a column or file given by the user.
GIVEN: Final = {
    "train": 0, "training": 0, "general": 0, "valid": 1, "val": 1, "validation": 1, "dev": 1,
    "test": 2, "testing": 2, "holdout": 2, "": LEFT_OUT, "removed": LEFT_OUT, "none": LEFT_OUT,
}  # fmt: skip
TRIALS: Final = 64  # random orders of the groups, of which the one nearest to the fractions is taken
NEAR: Final = 0.005  # of all complexes: near enough to stop trying


def split(facts: Facts, rule: Rule, fixed: Places | None = None) -> Split:
    """Assign each complex to train, valid or test; a pure function of its arguments.

    Fractions are matched as well as whole groups allow.

    Parameters
    ----------
    fixed : shape (n,), the place of each complex that has one already, else FREE

    Raises
    ------
    UsageError : these complexes cannot be divided so
    MissingExtraError : RDKit is needed and not installed
    """
    of = np.full(len(facts), FREE, np.int8) if fixed is None else fixed.copy()
    record = rule.plain()
    if rule.test_list is not None:
        record["test_list"] = _take_list(facts, of, rule.test_list)
    if rule.test_list is not None and rule.exclude != "no":
        record["excluded"] = _exclude(facts, rule, of, fixed)
    groups = _divide(facts, rule, of, record)
    if rule.test_list is None and rule.exclude != "no":
        record["excluded"] = _exclude(facts, rule, of, fixed)
    record["n_groups"] = int(groups.max(initial=-1)) + 1
    if rule.method in WORDS:
        there = {name: groups[of == i] for i, name in enumerate(SPLITS)}
        record["groups_in"] = {name: len(np.unique(g)) for name, g in there.items() if len(g)}
    record["left_out"] = int((of == LEFT_OUT).sum())
    return Split(of, groups, record)


def _divide(facts: Facts, rule: Rule, of: Places, record: dict[str, Any]) -> Numbers:
    """Fill the free places of ``of``; return the groups."""
    free = of == FREE
    if rule.method == "given":
        given, record["groups_by"] = _given(facts, rule)
        of[free] = given[free]
        return np.arange(len(facts))
    if rule.method == "time":
        _by_date(facts.deposited, rule, of, record)
        record["groups_by"] = "deposition date"
        return np.unique(facts.deposited, return_inverse=True)[1].astype(np.int64)
    labels, record["groups_by"] = group_labels(facts, rule)
    groups = numbered(labels)
    between = _follow(groups, of, listed=rule.test_list is not None)
    if between:
        record["between_splits"] = between
        log.warning("%d complexes left out: their group lies in two splits, which they would tie together",
                    between)  # fmt: skip
    rest = np.flatnonzero(of == FREE)
    if len(rest):
        have = np.bincount(of[of >= 0], minlength=len(SPLITS))
        _, numbers = np.unique(groups[rest], return_inverse=True)
        shares = _shares(rule)
        target = np.array(shares) * (len(rest) + have[np.array(shares) > 0].sum()) - have
        of[rest] = _assign(numbers, target, rule.seed)
    return groups


def _shares(rule: Rule) -> tuple[float, ...]:
    """Fractions to aim at; with a test list it is the test set, and the others share the rest."""
    if rule.test_list is None:
        return rule.fractions
    train, valid, _ = rule.fractions
    if train + valid <= 0:
        raise UsageError("--test-list is the test set: leave --fractions for train or valid")
    return train / (train + valid), valid / (train + valid), 0.0


def _take_list(facts: Facts, of: Places, name: str) -> dict[str, Any]:
    """Put the free complexes of a test list into test."""
    listed = members(facts.ids, name)
    if not listed.any():
        raise UsageError(f"--test-list {name}: none of these {len(facts)} complexes is on it")
    of[listed & (of == FREE)] = TEST
    return {"name": Path(name).name, "found": int(listed.sum())}


def _follow(groups: Numbers, of: Places, listed: bool) -> int:
    """Send free complexes where their group is already; return how many belong to two splits."""
    placed = of >= 0
    has = np.zeros((int(groups.max(initial=-1)) + 1, len(SPLITS)), bool)
    has[groups[placed], of[placed]] = True
    if listed:
        has[:, TEST] = False  # test is what the list says, not what is like it
    n, free = has.sum(1)[groups], of == FREE
    of[free & (n == 1)] = has.argmax(1)[groups][free & (n == 1)]
    of[free & (n > 1)] = LEFT_OUT
    return int((free & (n > 1)).sum())


def _exclude(facts: Facts, rule: Rule, of: Places, fixed: Places | None) -> dict[str, Any]:
    """Leave out what is near the test set, of all that has no place of old; return the counts."""
    others = np.flatnonzero((of != TEST) & (of != LEFT_OUT))
    asked, known = _traits(facts, np.flatnonzero(of == TEST)), _traits(facts, others)
    if rule.exclude != "ligand" and not any(asked.proteins):
        raise UsageError("--exclude-neighbours: no complex of the test set has a protein sequence to compare")
    none, by = repeat(np.float32(0)), rule.exclude
    proteins = proteins_alike(asked, known, rule.cluster_with) if by != "ligand" else none
    ligands = ligands_alike(asked, known) if by != "protein" else none
    near = np.zeros(len(others), bool)
    for protein, ligand in zip(proteins, ligands, strict=False):  # one of them may be endless
        near |= np.asarray(_near(rule, protein, ligand)).any(0)
    old = np.zeros(len(others), bool) if fixed is None else fixed[others] >= 0
    of[others[near & ~old]] = LEFT_OUT
    stay = int((near & old).sum())
    if stay:
        log.warning("%d complexes of the data set are near its new test complexes and stay where they are; "
                    "make the data set anew to keep them out", stay)  # fmt: skip
    told = {} if by == "ligand" else {"by": comparer(rule.cluster_with)}
    return {"near": by, **told, "n": int((near & ~old).sum()), "stay": stay}


def _traits(facts: Facts, rows: Numbers) -> Traits:
    return Traits([facts.sequences[i] for i in rows.tolist()], [facts.smiles[i] for i in rows.tolist()])


def _near(rule: Rule, protein: Any, ligand: Any) -> Any:
    if rule.exclude == "protein":
        return protein >= rule.identity
    if rule.exclude == "ligand":
        return ligand >= rule.tanimoto
    if rule.exclude == "either":
        return (protein >= rule.identity) | (ligand >= rule.tanimoto)
    return ((protein >= rule.identity) & (ligand >= rule.tanimoto)) | (ligand >= SAME_LIGAND)


def numbered(labels: Sequence[str]) -> Numbers:
    """Number the labels 0, 1, ... in sorted order of their text."""
    number = {label: i for i, label in enumerate(sorted(set(labels)))}
    return np.array([number[label] for label in labels], np.int64)


def _given(facts: Facts, rule: Rule) -> tuple[Places, str]:
    """The split of each complex by a file or a column, and which that is."""
    if rule.file is not None:
        named, where = read_splits(Path(rule.file)), f"file {Path(rule.file).name}"
        values: Sequence[str] = [named.get(i, "") for i in facts.ids]
        if not any(values):
            raise UsageError(
                f"--split-file {rule.file} names none of these complexes, such as {facts.ids[0]!r}"
            )
    else:
        column = rule.column or "split"
        values, where = facts.columns.get(column, ()), f"column {column}"
        if not any(values):
            raise UsageError(
                f"--split given: no complex has a column {column!r}; the columns are "
                f"{', '.join(facts.column_names) or 'none'}. Name one with --split-column"
            )
    wrong = sorted({v for v in values if v.strip().lower() not in GIVEN})
    if wrong:
        raise UsageError(
            f"--split given: {where} holds {', '.join(map(repr, wrong[:5]))}; expected train, valid or test, "
            "or nothing (or 'removed') for a complex that is left out"
        )
    return np.array([GIVEN[v.strip().lower()] for v in values], np.int8), where


def _assign(groups: Numbers, target: NDArray[np.float64], seed: int) -> Places:
    """Deal whole groups to splits, in the random order (of TRIALS) that comes nearest to the targets."""
    n, sizes = len(groups), np.bincount(groups)
    best: Places | None = None
    least = np.inf
    for trial in range(TRIALS):
        of_group, missed = _deal(sizes, target, permutation(len(sizes), seed, trial))
        if missed < least:
            best, least = of_group, missed
        if least <= max(2 * NEAR * n, 1.0 + (len(sizes) == n)):
            break
    return np.zeros(0, np.int8) if best is None else best[groups]


def _deal(sizes: Numbers, target: NDArray[np.float64], order: Numbers) -> tuple[Places, float]:
    """Give each group in turn to the split that lacks most; return split by group and complexes misplaced."""
    lacks = [t if t > 0 else -np.inf for t in target.tolist()]  # a split of fraction 0 gets nothing
    of_group = np.empty(len(sizes), np.int8)
    for group in order.tolist():
        s = max(range(len(lacks)), key=lacks.__getitem__)
        of_group[group] = s
        lacks[s] -= int(sizes[group])
    return of_group, float(sum(abs(x) for x in lacks if np.isfinite(x)))


def _by_date(deposited: NDArray[np.int32], rule: Rule, of: Places, record: dict[str, Any]) -> None:
    """Oldest in train, newest in test; cut between days, as near to the fractions as days allow."""
    free = of == FREE
    undated = free & (deposited <= 0)
    dated = free & (deposited > 0)
    if not dated.any() and rule.cuts is None:
        raise UsageError("--split time needs deposition dates; none of these complexes has one")
    if undated.any():
        goes = "train" if rule.undated == "train" else "left out"
        of[undated] = 0 if rule.undated == "train" else LEFT_OUT
        record["n_undated"] = int(undated.sum())
        log.warning("%d of %d complexes have no deposition date: %s (--undated says where they go)",
                    int(undated.sum()), len(of), goes)  # fmt: skip
    shares = _shares(rule)
    cuts = rule.cuts or _cuts(deposited[dated], shares)
    record["cuts"] = list(cuts)
    place = np.searchsorted(np.array(cuts), deposited, side="right").astype(np.int8)
    if rule.test_list is not None:
        place = np.minimum(place, 1)
    of[dated] = place[dated]


def _cuts(deposited: NDArray[np.int32], shares: Sequence[float]) -> tuple[int, int]:
    """First day of valid and of test."""
    days, counts = np.unique(deposited, return_counts=True)
    before = np.concatenate([[0], np.cumsum(counts)])
    ends = np.cumsum(np.array(shares[:-1])) * len(deposited)
    first, second = (int(np.argmin(np.abs(before - end))) for end in ends)
    after = int(days[-1]) + 1
    padded = [*days.tolist(), after]
    return padded[first], padded[max(first, second)]
