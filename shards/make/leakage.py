"""How much of a test set a model has already seen: its nearest training protein and ligand.

Similarity of proteins is the identity of their nearest chains, found by MMseqs2 where it is installed
(:mod:`.mmseqs`), else by what is built in (:mod:`.identity`): 1 for the same sequence, 0 for strangers. That
of ligands is Tanimoto's on Morgan fingerprints (:mod:`.fingerprints`). The *leakage* of a
split is one number in [0, 1]: for each test complex the training complex that is most alike in protein
*and* ligand (the smaller of the two similarities counts), averaged over the test set. A model that only
remembers does well where it is high.

It is a lower bound: relatives below about 30 % identity are often not found, and count as strangers.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..errors import UsageError
from ..format.records import texts_of
from ..read.dataset import Dataset
from .groups import comparer
from .likeness import Traits, ligands_alike, proteins_alike
from .mmseqs import ClusterWith
from .owner import beside, said_of

Scores = NDArray[np.float32]

BINS: Final = 10
NEAREST: Final = ("id", "protein_id", "protein", "ligand_id", "ligand", "both_id", "both")  # of each row
LIMIT: Final = "a lower bound: proteins less than about 30 % identical often count as 0, related or not"


@dataclass(frozen=True, slots=True)
class Leakage:
    """The nearest training complex of each of n test complexes, in three ways.

    Attributes
    ----------
    ids : of the test complexes
    protein, ligand, both : shape (n,), similarity to the nearest, in [0, 1]
    protein_id, ligand_id, both_id : which that is
    by : what compared the proteins
    """

    ids: Sequence[str]
    protein: Scores
    ligand: Scores
    both: Scores
    protein_id: Sequence[str]
    ligand_id: Sequence[str]
    both_id: Sequence[str]
    by: str

    @property
    def leakage(self) -> float:
        """Mean of ``both``; a lower bound, see above."""
        return float(self.both.mean())

    def histograms(self) -> dict[str, list[int]]:
        """Test complexes by similarity, in BINS equal bins from 0 to 1."""
        kinds = zip(("protein", "ligand", "both"), self._scores, strict=True)
        return {k: np.histogram(v, BINS, (0, 1))[0].tolist() for k, v in kinds}

    def rows(self) -> Iterator[tuple[str, str, float, str, float, str, float]]:
        """Yield id, nearest by protein, similarity, by ligand, similarity, by both, similarity."""
        protein, ligand, both = (np.round(s.astype(np.float64), 4).tolist() for s in self._scores)
        yield from zip(
            self.ids, self.protein_id, protein, self.ligand_id, ligand, self.both_id, both, strict=True
        )

    @property
    def _scores(self) -> tuple[Scores, Scores, Scores]:
        return self.protein, self.ligand, self.both

    def lines(self) -> list[str]:
        """The report for people."""
        found = self.histograms()
        lines = ["similarity to the nearest training complex", "             protein  ligand    both"]
        for i in range(BINS):
            cells = "".join(f"{found[k][i]:>8}" for k in ("protein", "ligand", "both"))
            lines.append(f"{i / BINS:.1f} to {(i + 1) / BINS:.1f}  {cells}")
        seen = int((self.both >= 0.5).sum())
        return [
            *lines,
            f"{seen} of {len(self.ids)} test complexes have a training complex alike in protein and ligand "
            "(0.5 or more)",
            f"leakage {self.leakage:.3f} (0: no likeness found, 1: all of the test set was trained on)",
            f"proteins compared by {self.by}",
            LIMIT,
        ]


def leakage(
    dataset: Dataset, train: str = "train", test: str = "test", compare_with: ClusterWith = "auto"
) -> Leakage:
    """Compare the test split of a data set with its training split.

    Raises
    ------
    UsageError : a split is not there, or MMseqs2 is asked for and cannot be called
    MissingExtraError : RDKit is not installed
    """
    (known_ids, known), (asked_ids, asked) = (_traits(dataset, dataset.indices(s)) for s in (train, test))
    found: dict[str, list[NDArray[Any]]] = {k: [] for k in ("protein", "ligand", "both")}
    proteins = proteins_alike(asked, known, compare_with)
    for protein, ligand in zip(proteins, ligands_alike(asked, known), strict=True):
        for kind, scores in (("protein", protein), ("ligand", ligand), ("both", np.minimum(protein, ligand))):
            best = scores.argmax(1)
            found[kind].append(np.stack([best, scores[np.arange(len(best)), best]]))
    nearest = {kind: np.concatenate(parts, axis=1) for kind, parts in found.items()}
    names = {f"{kind}_id": [known_ids[int(i)] for i in b[0]] for kind, b in nearest.items()}
    scores_of = {kind: b[1].astype(np.float32) for kind, b in nearest.items()}
    by = comparer(compare_with)
    return Leakage(ids=asked_ids, by=by, **scores_of, **names)  # type: ignore[arg-type]


def write_table(path: Path, rows: Iterable[Sequence[Any]]) -> None:
    """Write rows as CSV, whole or not at all; WriteError if they cannot be written."""
    with beside(path) as temporary, said_of(path), temporary.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(rows)
        file.flush()
        os.fsync(file.fileno())
        os.replace(temporary, path)


def _traits(dataset: Dataset, rows: NDArray[np.int64]) -> tuple[list[str], Traits]:
    """Ids of some complexes, and what makes them alike."""
    ids, proteins, smiles = list[str](), list[str](), list[str]()
    wanted = set(rows.tolist())
    reader = dataset.reader
    for b in np.unique(np.searchsorted(reader.first_complex, rows, side="right") - 1).tolist():
        for row, text in enumerate(texts_of(reader.read(b, ["text_json"])), int(reader.first_complex[b])):
            if row in wanted:
                chains = text.get("sequences")
                ids.append(text["id"])
                proteins.append("/".join(sorted(chains.values())) if isinstance(chains, dict) else "")
                smiles.append(str(text.get("smiles", "")))
    if not ids:
        raise UsageError("a split without complexes has no leakage; name another with --train or --test")
    return ids, Traits(proteins, smiles)
