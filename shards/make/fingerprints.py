"""Ligands compared by their fingerprints, with RDKit where it is installed.

Morgan fingerprints of radius 2, 2,048 bits, and Tanimoto's similarity of them (Rogers & Hahn 2010,
doi:10.1021/ci100050t).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..errors import MissingExtraError
from .forest import Forest

Scores = NDArray[np.float32]

RADIUS: Final = 2
BITS: Final = 2048
ALIKE: Final = 0.6  # Tanimoto; ligands this alike are never divided between splits
CHUNK: Final = 256  # ligands compared with all others at once


def fingerprints(smiles: Sequence[str]) -> tuple[Scores, Scores]:
    """Bits of each ligand, shape (n, BITS), and how many are set, shape (n,).

    A SMILES that RDKit refuses, or an empty one, has no bit set and is like no other.

    Raises
    ------
    MissingExtraError : RDKit is not installed
    """
    try:
        from rdkit import Chem
        from rdkit.Chem import rdFingerprintGenerator
        from rdkit.rdBase import BlockLogs
    except ModuleNotFoundError as error:
        raise MissingExtraError("rdkit", "ingest") from error
    maker = rdFingerprintGenerator.GetMorganGenerator(radius=RADIUS, fpSize=BITS)
    made = dict[str, NDArray[Any]]()
    with BlockLogs():
        for s in set(smiles):
            molecule = Chem.MolFromSmiles(s) if s else None
            made[s] = np.zeros(BITS, np.uint8) if molecule is None else maker.GetFingerprintAsNumPy(molecule)
    bits = np.array([made[s] for s in smiles], np.float32).reshape(len(smiles), BITS)
    return bits, bits.sum(1)


def tanimoto(a: Scores, n_a: Scores, b: Scores, n_b: Scores) -> Scores:
    """Similarity of each of a to each of b, shape (len(a), len(b)), in [0, 1]."""
    common = a @ b.T
    return np.asarray(common / np.maximum(n_a[:, None] + n_b - common, 1), np.float32)


def ligand_clusters(smiles: Sequence[str], alike: float = ALIKE) -> NDArray[np.int64]:
    """Cluster ligands: what pairs of similarity ``alike`` or more connect; one without a SMILES is alone.

    Single linkage, so no such pair is ever in different clusters. Takes time in proportion to the square
    of the number of distinct ligands: a minute or so for 20,000.
    """
    distinct = sorted(set(smiles) - {""})
    bits, counts = fingerprints(distinct)
    forest = Forest(len(distinct) + len(smiles))
    for begin in range(0, len(distinct), CHUNK):
        some = slice(begin, begin + CHUNK)
        scores = tanimoto(bits[some], counts[some], bits[: begin + CHUNK], counts[: begin + CHUNK])
        for i, j in np.argwhere(scores >= alike).tolist():
            forest.join(begin + i, j)
    number = {s: i for i, s in enumerate(distinct)}
    for k, s in enumerate(smiles):
        if s:
            forest.join(len(distinct) + k, number[s])
    roots = [forest.root(len(distinct) + k) for k in range(len(smiles))]
    return np.unique(np.array(roots, np.int64), return_inverse=True)[1].astype(np.int64)
