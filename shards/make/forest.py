"""Disjoint sets."""

from __future__ import annotations


class Forest:
    """Disjoint sets of 0 .. n-1 (union-find with path halving)."""

    def __init__(self, n: int) -> None:
        self.parent = list(range(n))

    def root(self, i: int) -> int:
        """Return the representative of i's set: its smallest member."""
        parent = self.parent
        while parent[i] != i:
            parent[i] = parent[parent[i]]
            i = parent[i]
        return i

    def join(self, i: int, j: int) -> None:
        """Unite the sets of i and j."""
        a, b = self.root(i), self.root(j)
        self.parent[max(a, b)] = min(a, b)
