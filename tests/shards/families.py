"""Protein families made up for tests: founders that have nothing in common, and relatives of them."""

from __future__ import annotations

AMINO = "ACDEFGHIKLMNPQRSTVWY"


def founder(rng, length=200):
    """A random sequence."""
    return "".join(AMINO[i] for i in rng.integers(0, 20, length))


def relative(rng, sequence, identity):
    """A sequence with this share of residues kept, the others drawn anew; a few residues inserted."""
    letters = [c if rng.random() < identity else AMINO[rng.integers(20)] for c in sequence]
    for _ in range(3):
        letters.insert(rng.integers(len(letters)), AMINO[rng.integers(20)])
    return "".join(letters)
