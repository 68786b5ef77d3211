"""Decoded blocks in a tier: a warm epoch unpacks nothing.

A tier in memory keeps them for one process, a shared tier for all processes of a node.
"""

from __future__ import annotations

from collections.abc import Callable

from .packed import Arrays, pack, unpack
from .tier import UNKNOWN, Key, Tier


class Decoded:
    """Arrays under names, kept in a tier; called from many threads.

    Parameters
    ----------
    tier : such as MemoryTier or SharedTier
    dataset : fingerprint of what the arrays are made from
    reused : called with a name whose arrays were there already, instead of their being made
    """

    def __init__(self, tier: Tier, dataset: str, reused: Callable[[str], None] | None = None) -> None:
        self.tier, self.dataset, self.reused = tier, dataset, reused

    def __call__(self, name: str, make: Callable[[], Arrays]) -> Arrays:
        """The arrays kept under a name, or those that ``make()`` gives, which may then be kept."""
        made = False

        def load() -> memoryview:
            nonlocal made
            made = True
            return pack(make())

        arrays = unpack(self.tier.load(self.key(name), load))
        if self.reused is not None and not made:
            self.reused(name)
        return arrays

    def key(self, name: str) -> Key:
        """The entry of some arrays: what a policy speaks of."""
        return Key(self.dataset, name, 0, UNKNOWN)

    def holds(self, name: str) -> bool:
        """Whether the arrays would not have to be made."""
        return self.tier.holds(self.key(name))
