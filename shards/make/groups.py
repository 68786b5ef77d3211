"""Which complexes may never be divided between splits: the groups of each method.

``protein-ligand`` follows PDBbind CleanSplit (Graber et al. 2025, doi:10.1038/s42256-025-01124-5), which
removes a training complex if its label is like that of a test complex and either the ligands are nearly
the same (Tanimoto above 0.9), or the proteins are (TM-score above 0.8) and so are ligand and pose. Here two
complexes are linked if their ligands have a similarity of ``SAME_LIGAND`` or more, or if their proteins are
of one cluster and their ligands have ``ALIKE`` or more. Labels and poses are not asked, which links more;
clusters are of sequences, which miss relatives that only the fold shows. A group is what links connect.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from ..errors import UsageError
from . import mmseqs
from .fingerprints import ALIKE, ligand_clusters
from .forest import Forest
from .identity import linked_chains
from .similarity import sequence_clusters

if TYPE_CHECKING:
    from .rule import Facts, Rule

Numbers = NDArray[np.int64]

SAME_LIGAND: Final = 0.9
MMSEQS: Final = f"protein sequence, {mmseqs.NAME}"
BUILT_IN: Final = "protein sequence, built in"


def group_labels(facts: Facts, rule: Rule) -> tuple[Sequence[str], str]:
    """Return the group of each complex as text, and what the groups are."""
    if rule.method == "scaffold":
        pairs = zip(facts.scaffolds, facts.ligands, facts.ids, strict=True)
        return [s or f"ligand {ligand}" if s or ligand else f"id {i}" for s, ligand, i in pairs], "scaffold"
    if rule.method == "tanimoto":
        _need_smiles(facts, rule.method)
        return [f"cluster {c}" for c in ligand_clusters(facts.smiles).tolist()], "ligand fingerprint"
    if rule.method == "protein-ligand":
        _need_smiles(facts, rule.method)
        labels, by = _proteins(facts, rule)
        return [f"pair {p}" for p in pairs_alike(labels, facts.smiles).tolist()], f"{by}, ligand fingerprint"
    if rule.method == "cluster":
        return _proteins(facts, rule)
    return list(facts.ids), "complex"


def pairs_alike(proteins: Sequence[str], smiles: Sequence[str]) -> Numbers:
    """Group complexes that are alike in protein cluster and ligand, or have nearly the same ligand.

    Returns
    -------
    shape (n,), the smallest member of each complex's group
    """
    forest = Forest(len(proteins))
    _join(forest, np.arange(len(proteins)), ligand_clusters(smiles, SAME_LIGAND))
    _, cluster = np.unique(np.array(proteins), return_inverse=True)
    order = np.argsort(cluster, kind="stable")
    for rows in np.split(order, np.flatnonzero(np.diff(cluster[order])) + 1):
        if len(rows) > 1:
            _join(forest, rows, ligand_clusters([smiles[i] for i in rows.tolist()], ALIKE))
    return np.array([forest.root(i) for i in range(len(proteins))], np.int64)


def _join(forest: Forest, rows: Numbers, cluster: Numbers) -> None:
    """Unite the rows of each cluster."""
    first = dict[int, int]()
    for row, c in zip(rows.tolist(), cluster.tolist(), strict=True):
        forest.join(row, first.setdefault(c, row))


def _need_smiles(facts: Facts, method: str) -> None:
    if not any(facts.smiles):
        raise UsageError(f"--split {method} needs the ligands' SMILES; none of these complexes has one")


def _proteins(facts: Facts, rule: Rule) -> tuple[Sequence[str], str]:
    """Protein cluster of each complex: a column of the label table, or clusters of the sequences."""
    column = rule.column if rule.method == "cluster" else None
    name = column or "cluster"
    values = facts.columns.get(name)
    if values is not None and all(values) and rule.cluster_with == "auto":
        return list(values), f"column {name}"
    if column is not None:
        missing = len(facts) if values is None else sum(not v for v in values)
        raise UsageError(
            f"--split cluster --split-column {name}: {missing} of {len(facts)} complexes have no {name!r}; "
            f"the columns are {', '.join(facts.column_names) or 'none'}"
        )
    if not any(facts.sequences):
        raise UsageError(
            f"--split {rule.method} needs a column 'cluster' in the label table or protein sequences; these "
            "complexes have neither. Name another column with --split-column, or use another split"
        )
    link, by = chain_linker(rule.cluster_with)
    clusters = sequence_clusters([s.split("/") if s else [] for s in facts.sequences], link)
    pairs = zip(clusters.tolist(), facts.sequences, facts.ids, strict=True)
    return [f"cluster {c}" if s else f"id {i}" for c, s, i in pairs], by


def chain_linker(chosen: mmseqs.ClusterWith) -> tuple[Callable[[Sequence[str]], Numbers], str]:
    """How chains are clustered, and its name: MMseqs2 if it is installed, else what is built in."""
    return mmseqs.chain_clusters if mmseqs.chosen(chosen) else linked_chains, comparer(chosen)


def comparer(chosen: mmseqs.ClusterWith) -> str:
    """The name of what compares protein sequences."""
    return f"{MMSEQS} {mmseqs.version()}" if mmseqs.chosen(chosen) else BUILT_IN
