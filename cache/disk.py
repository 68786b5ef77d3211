"""A tier in a folder, shared by all processes of a node and by jobs one after the other.

A block is one file: its checksum, its length, its bytes. It appears by a rename, so nobody sees half of
it; it is not synced to the disk, since its checksum tells after a power cut whether it is whole, and
the bytes are in the data set anyway. Whatever goes wrong with the folder (full, read only, gone,
damaged) costs the cache, not the run: bytes then come from the next tier, and one warning says why.
"""

from __future__ import annotations

import errno
import logging
import os
import stat
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from weakref import WeakSet, finalize

from .account import Account, Reserved, flight_lock
from .blockfile import HEADER, dataset_folder, whole, write_block
from .errors import SettingError
from .flight import Flights
from .policy import NeverEvict, Policy
from .tier import UNKNOWN, Counters, Data, Key, Load

log = logging.getLogger("holoshard")
_ALIVE: WeakSet[DiskTier] = WeakSet()

SPARE: Final = 0.01  # part of the disk that is left free for others
PATIENCE_S: Final = 60.0  # to wait for another process that fetches the same block
RETRY_S: Final = 30.0  # after a failure nothing is written for so long


class DiskTier:
    """Blocks as files of a folder. See Tier.

    Parameters
    ----------
    folder : where the cache may make its own folder, ``holoshard-KIND-UID``
    capacity : most bytes of the disk that are taken, in whole pages of 4 KiB, by all processes together
    policy : who leaves when it is full; blocks of data sets that no process uses always leave first
    read_only : use what is there, write nothing
    spare : part of the file system that is left free, whatever the capacity
    kind : tiers of another kind in the same folder have a capacity of their own
    patience_s : seconds to wait for another process's fetch of the same block before fetching it here, too
    """

    forgets = False
    """Whether blocks of a data set go when no process uses it any more."""

    def __init__(
        self,
        folder: str | Path,
        capacity: int,
        policy: Policy | None = None,
        *,
        read_only: bool = False,
        name: str = "",
        kind: str = "cache",
        spare: float = SPARE,
        patience_s: float = PATIENCE_S,
    ) -> None:
        if capacity < 0:
            raise SettingError(f"a capacity is not negative; found {capacity}")
        self.folder, self.capacity, self.policy = Path(folder), capacity, policy or NeverEvict()
        self.read_only, self.name, self.spare = read_only, name or str(folder), spare
        self.patience_s = patience_s
        self.kind = kind
        self.root = self.folder / f"holoshard-{kind}-{os.getuid()}"
        local = self.root / f"node-{os.uname().nodename}"  # see Account
        self._root = str(local if local.is_dir() else self.root)
        self.counters = Counters()
        self._begin()
        _ALIVE.add(self)

    def _begin(self) -> None:
        self._lock = threading.RLock()
        self._flights = Flights()
        self._account: Account | None = None
        self._finish: finalize[..., DiskTier] | None = None
        self._seen: dict[str, tuple[int, int]] = {}  # files whose checksum was right: inode, time
        self._silent_until = 0.0
        self._warned = False
        self._trusted: bool | None = None  # not looked yet

    # -- Tier ---------------------------------------------------------------------------------------

    def load(self, key: Key, fetch: Load) -> Data:
        """See Tier."""
        dataset = dataset_folder(key.dataset)
        account = self._attach(dataset)
        found = self._hit(key, dataset) if account is not None or self._readable() else None
        if found is not None:
            return found
        start = time.monotonic()
        data, led = self._flights.join(key.name, lambda: self._miss(account, key, dataset, fetch))
        if not led:
            self.counters.add(hits=1, hit_bytes=len(data), wait_s=time.monotonic() - start)
        return data

    def holds(self, key: Key) -> bool:
        """See Tier."""
        return os.path.exists(self._path(dataset_folder(key.dataset), key.name))

    def used(self) -> int:
        """See Tier; 0 if there is no cache yet."""
        account = self._attach()
        try:
            return account.used() if account is not None else 0
        except OSError:
            return 0

    def close(self) -> None:
        """See Tier."""
        with self._lock:
            finish, self._account, self._finish = self._finish, None, None
        if finish is not None:
            finish()

    def account(self) -> Account | None:
        """The folder's account, to look after it; None if it is read only or cannot be used."""
        return self._attach()

    # -- attaching ----------------------------------------------------------------------------------

    def _attach(self, dataset: str = "") -> Account | None:
        """The account, opened; None while the folder cannot be written."""
        account = self._account
        if account is None and not self.read_only and time.monotonic() >= self._silent_until:
            with self._lock:
                if self._account is None:
                    try:
                        self._account = self._open()
                        # Also at the end of the process, and when nobody holds the tier any more.
                        self._finish = finalize(self, self._account.close, self.forgets)
                    except OSError as error:
                        self._failed("cannot be used", error)
                account = self._account
        if account is not None and dataset:
            try:
                account.use(dataset)
            except OSError as error:
                self._failed("cannot be used", error)
        return account

    def _readable(self) -> bool:
        """Whether what lies there may be used without an account."""
        if self._trusted is None:
            try:
                self._check_owner()
                self._trusted = True
            except FileNotFoundError:
                return False
            except OSError as error:
                self._trusted = False
                self._failed("cannot be used", error)
        return self._trusted

    def _open(self) -> Account:
        if not self.folder.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, "no such folder", str(self.folder))
        self.root.mkdir(mode=0o700, exist_ok=True)
        self._check_owner()
        account = Account(self.root)
        evicted = account.shrink(self.capacity)
        self.counters.add(evictions=evicted)
        if self.policy.evicts:
            for path in sorted(account.blocks(), key=_modified):
                self.policy.came(path.name)
        return account

    def _check_owner(self) -> None:
        """In a folder that all may write to, another user may have been there first."""
        found = self.root.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
            raise PermissionError(errno.EACCES, "not a folder of this user", str(self.root))

    def _path(self, dataset: str, name: str) -> str:
        account = self._account
        return f"{self._root if account is None else account.root}/{dataset}/{name}"

    def _failed(self, what: str, error: BaseException) -> None:
        """Say once that the folder is no use now; leave it alone for a while."""
        self.counters.add(failures=1)
        self._silent_until = time.monotonic() + RETRY_S
        if not self._warned:
            self._warned = True
            log.warning("cache %s %s (%s); going on without it", self.name, what, error)

    # -- hits ---------------------------------------------------------------------------------------

    def _hit(self, key: Key, dataset: str) -> memoryview | None:
        data = self._read(key, dataset)
        if data is not None:
            self.counters.hit(len(data))
            self._touch(key.name)
        return data

    def _touch(self, name: str) -> None:
        if self.policy.evicts:
            with self._lock:
                self.policy.touch(name)

    def _read(self, key: Key, dataset: str) -> memoryview | None:
        """A block, checked if this process has not seen the file before; None if it is not here."""
        try:
            fd = os.open(self._path(dataset, key.name), os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            info = os.fstat(fd)
            length = info.st_size - HEADER.size if key.length == UNKNOWN else key.length
            data = self._content(fd, min(info.st_size, HEADER.size + length))
        except OSError as error:
            self._failed("cannot be read", error)
            return None
        finally:
            os.close(fd)
        stamp = info.st_ino, info.st_mtime_ns
        if self._seen.get(key.name) != stamp or len(data) != HEADER.size + length:
            if not whole(data, length):
                self._damaged(key, dataset, info.st_ino)
                return None
            self._seen[key.name] = stamp
        return memoryview(data)[HEADER.size :]

    def _content(self, fd: int, size: int) -> bytes | memoryview:
        """The first bytes of a block's file."""
        return os.pread(fd, size, 0)

    def _damaged(self, key: Key, dataset: str, inode: int) -> None:
        self.counters.add(damaged=1)
        log.warning("cache %s: its copy of %s is damaged; it is fetched again", self.name, key)
        account = self._account
        if account is not None:
            try:
                account.remove(dataset, key.name, inode)
            except OSError as error:
                self._failed("cannot be written", error)

    # -- misses -------------------------------------------------------------------------------------

    def _miss(self, account: Account | None, key: Key, dataset: str, fetch: Load) -> Data:
        """Fetch, as the only process of the node that does."""
        if account is None:
            return self._missed(fetch())
        start = time.monotonic()
        try:
            fd = account.locks.take(flight_lock(key.name), self.patience_s)
        except OSError as error:
            self._failed("cannot be locked", error)
            return self._missed(fetch())
        try:
            data: Data | None = self._read(key, dataset)
            self.counters.add(wait_s=time.monotonic() - start)
            if data is not None:  # another process was faster
                self.counters.add(hits=1, hit_bytes=len(data))
                self._touch(key.name)
                return data
            data = self._missed(fetch())
            self._touch(key.name)
            sound = key.length in (len(data), UNKNOWN)
            if fd is not None and sound and time.monotonic() >= self._silent_until:
                self._keep(account, key, dataset, data)
            return data
        finally:
            if fd is not None:
                account.locks.drop(fd)

    def _missed(self, data: Data) -> Data:
        self.counters.add(misses=1, miss_bytes=len(data))
        return data

    def _keep(self, account: Account, key: Key, dataset: str, data: Data) -> None:
        try:
            reserved = self._reserve(account, key, dataset, HEADER.size + len(data))
            if reserved is None:
                self.counters.add(refused=1)
                return
            try:
                write_block(reserved.path, data)
                account.commit(reserved, dataset, key.name)
            except BaseException:
                account.give_up(reserved)
                raise
        except OSError as error:
            self._failed("cannot be written", error)
            return
        self.counters.add(fills=1, fill_bytes=len(data))
        if self.policy.evicts:
            with self._lock:
                self.policy.came(key.name)

    def _reserve(self, account: Account, key: Key, dataset: str, size: int) -> Reserved | None:
        disk = os.statvfs(account.folder)
        free = disk.f_bavail * disk.f_frsize
        if free - size < self.spare * disk.f_blocks * disk.f_frsize:
            self._failed(
                "leaves the rest of a full disk to others", OSError(errno.ENOSPC, f"{free} bytes are free")
            )
            return None
        with self._lock:
            victims: Iterator[str] = self.policy.victims(key.name)
            found = account.reserve(size, self.capacity, victims, dataset)
            gone = found.gone if isinstance(found, Reserved) else found
            for name in (*gone, *(found.left if isinstance(found, Reserved) else ())):
                self.policy.left(name)
            del victims
        if not isinstance(found, Reserved):
            return None
        self.counters.add(evictions=found.evicted)
        return found

    # -- copies -------------------------------------------------------------------------------------

    def __getstate__(self) -> dict[str, Any]:
        names = ("folder", "capacity", "policy", "read_only", "name", "kind", "spare", "patience_s")
        return {name: getattr(self, name) for name in names}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]


def _modified(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return 0.0


def _after_fork() -> None:
    # Locks and descriptors are the parent's: the child attaches anew when it needs to.
    for tier in _ALIVE:
        if tier._finish is not None:
            tier._finish.detach()
        tier._begin()
        tier.counters._lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)
