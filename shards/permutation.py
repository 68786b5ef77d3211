"""Random permutations that are the same on every machine and with every NumPy.

NumPy promises that the raw output of a bit generator never changes, and does not promise it of
``Generator.permutation`` (NEP 19). So a permutation is the order of raw 64-bit words of Philox, seeded
by a tuple of integers that says what it is for.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def words(n: int, *key: int) -> NDArray[np.uint64]:
    """Return n random 64-bit words, shape (n,), a pure function of the non-negative integers in ``key``."""
    return np.random.Philox(np.random.SeedSequence(list(key))).random_raw(n)


def permutation(n: int, *key: int) -> NDArray[np.int64]:
    """Return 0 .. n-1 in random order, shape (n,), a pure function of ``key``."""
    return np.argsort(words(n, *key), kind="stable").astype(np.int64, copy=False)


def order_by(*keys: NDArray[np.integer[Any]]) -> NDArray[np.int64]:
    """Return the stable order by the first key, then the second, ...; keys are not negative, shape (n,).

    As :func:`numpy.lexsort` has it, several times faster: keys and place become one number if 64 bits do.
    """
    place = np.arange(len(keys[0]))
    bits = [int(key.max(initial=0)).bit_length() for key in (*keys, place)]
    if sum(bits) > 64:
        return np.lexsort(keys[::-1])
    packed = np.zeros(len(place), np.uint64)
    for key, width in zip((*keys, place), bits, strict=True):
        packed <<= np.uint64(width)
        packed |= key.astype(np.uint64)
    packed.sort()
    return (packed & np.uint64((1 << bits[-1]) - 1)).astype(np.int64)


def uniforms(n: int, *key: int) -> NDArray[np.float64]:
    """Return n numbers in [0, 1), shape (n,), of 53 random bits each, a pure function of ``key``."""
    return (words(n, *key) >> np.uint64(11)).astype(np.float64) * 2.0**-53
