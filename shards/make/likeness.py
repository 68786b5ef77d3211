"""How alike complexes are: proteins by the identity of their chains, ligands by their fingerprints."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from . import mmseqs
from .fingerprints import fingerprints, tanimoto
from .identity import chain_identities
from .mmseqs import ClusterWith

Scores = NDArray[np.float32]

CHUNK: Final = 256  # complexes compared with all others at once


@dataclass(frozen=True, slots=True)
class Traits:
    """What makes complexes alike, one entry each: sequences of the chains with "/" between them, SMILES."""

    proteins: Sequence[str]
    smiles: Sequence[str]

    def __len__(self) -> int:
        return len(self.proteins)


def proteins_alike(asked: Traits, known: Traits, compare_with: ClusterWith) -> Iterator[Scores]:
    """For each CHUNK of the asked, identity with each known by their nearest chains, (chunk, n_known)."""
    compare = mmseqs.chain_identities if mmseqs.chosen(compare_with) else chain_identities
    distinct = sorted({*known.proteins, *asked.proteins})
    number = {p: i for i, p in enumerate(distinct)}
    chains = sorted({c for p in distinct for c in p.split("/") if c})
    place = {c: i for i, c in enumerate(chains)}
    owner = np.array([i for i, p in enumerate(distinct) for c in p.split("/") if c], np.int64)
    chain = np.array([place[c] for p in distinct for c in p.split("/") if c], np.int64)
    wanted = sorted({place[c] for p in set(asked.proteins) for c in p.split("/") if c})
    related = dict(zip(wanted, compare(chains, wanted), strict=True))
    of_known = np.array([number[p] for p in known.proteins], np.int64)

    def row(protein: str) -> Scores:
        scores = np.zeros(len(distinct), np.float32)
        for c in filter(None, protein.split("/")):
            others, identity = related[place[c]]
            share = np.zeros(len(chains), np.float32)
            share[others] = identity
            np.maximum.at(scores, owner, share[chain])
        return scores[of_known]

    for begin in range(0, len(asked), CHUNK):
        some = asked.proteins[begin : begin + CHUNK]
        rows = {p: row(p) for p in set(some)}
        yield np.stack([rows[p] for p in some])


def ligands_alike(asked: Traits, known: Traits) -> Iterator[Scores]:
    """For each CHUNK of the asked, Tanimoto similarity with each known, shape (chunk, n_known)."""
    bits, counts = fingerprints(known.smiles)
    for begin in range(0, len(asked), CHUNK):
        yield tanimoto(*fingerprints(asked.smiles[begin : begin + CHUNK]), bits, counts)
