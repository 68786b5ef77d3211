"""Protein families made up for tests: founders that have nothing in common, and relatives of them."""

from __future__ import annotations

import numpy as np

from holoshard.shards.make.alignment import AMINO as AMINO_B62
from holoshard.shards.make.alignment import matrix

AMINO = "ACDEFGHIKLMNPQRSTVWY"
# Robinson & Robinson 1991, doi:10.1073/pnas.88.20.8880, in the order of AMINO_B62
_FOUND = (78.05, 51.29, 44.87, 53.64, 19.25, 42.64, 62.95, 73.77, 21.99, 51.42, 90.19, 57.44, 22.43, 38.56,
          52.03, 71.20, 58.41, 13.30, 32.16, 64.41)  # fmt: skip
FREQUENCIES = np.array(_FOUND) / sum(_FOUND)
CHANGES = FREQUENCIES * np.exp(0.3176 * matrix()[:20, :20])  # lambda of BLOSUM62 without gaps
np.fill_diagonal(CHANGES, 0)
CHANGES /= CHANGES.sum(1, keepdims=True)


def founder(rng, length=200):
    """A random sequence."""
    return "".join(AMINO[i] for i in rng.integers(0, 20, length))


def relative(rng, sequence, identity):
    """A sequence with this share of residues kept, the others drawn anew; a few residues inserted."""
    letters = [c if rng.random() < identity else AMINO[rng.integers(20)] for c in sequence]
    for _ in range(3):
        letters.insert(rng.integers(len(letters)), AMINO[rng.integers(20)])
    return "".join(letters)


def natural(rng, length=200):
    """A random sequence with the frequencies of amino acids in proteins."""
    return "".join(AMINO_B62[i] for i in rng.choice(20, length, p=FREQUENCIES))


def kin(rng, sequence, identity):
    """A relative as evolution makes them, about so identical.

    Sites change at rates of their own (exponential), into amino acids as often as BLOSUM62 found them in
    place of the old; stretches of about three residues are lost or inserted.
    """
    rate = rng.exponential(size=len(sequence))
    times = np.linspace(0, 60, 2000)
    time = times[np.argmin(np.abs(np.exp(-rate * times[:, None]).mean(1) - identity))]
    kept = rng.random(len(sequence)) < np.exp(-rate * time)
    letters = [c if k else AMINO_B62[rng.choice(20, p=CHANGES[AMINO_B62.index(c)])]
               for c, k in zip(sequence, kept, strict=True)]  # fmt: skip
    out = list[str]()
    at = 0
    while at < len(letters):
        event = rng.random() / (1 - identity)
        if event < 1 / 60:
            at += int(rng.geometric(1 / 3))
        elif event < 2 / 60:
            out += natural(rng, int(rng.geometric(1 / 3)))
        out += letters[at : at + 1]
        at += 1
    return "".join(out)
