"""A tier in memory that all processes of a node share, and that ends with the last of them.

It is a folder tier on the node's memory file system, whose files are mapped instead of read: the ranks of
a node hold one copy. What processes left that were killed goes when the next one comes: a data set's lock
is the kernel's, so it is free once nobody lives who uses it.
"""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import Any, Final

from .account import Account
from .disk import DiskTier
from .policy import Policy

MEMORY: Final = Path("/dev/shm")


class SharedTier(DiskTier):
    """Bytes in the memory of a node. See Tier, and DiskTier for what happens if it is full or forbidden.

    Parameters
    ----------
    capacity : most bytes taken, in whole pages, by all processes of the node together
    policy : who leaves when it is full
    kind : tiers of another kind have a capacity of their own
    folder : a mounted tmpfs
    """

    forgets = True

    def __init__(
        self,
        capacity: int,
        policy: Policy | None = None,
        *,
        name: str = "shared",
        kind: str = "cache",
        folder: str | Path = MEMORY,
    ) -> None:
        super().__init__(folder, capacity, policy, name=name, kind=kind)

    def _open(self) -> Account:
        account = super()._open()
        self.counters.add(evictions=account.forget())
        return account

    def _content(self, fd: int, size: int) -> memoryview:
        return memoryview(mmap.mmap(fd, size, access=mmap.ACCESS_READ) if size else b"")

    def __getstate__(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("capacity", "policy", "name", "kind", "folder")}
