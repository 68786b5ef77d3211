"""How many bytes a cache folder holds: one number for all processes, exact whenever one of them dies.

    FOLDER/state                    this account; its bytes are locks, too
    FOLDER/fill/OWNER-N-SIZE        being written by the process that holds the lock OWNER
    FOLDER/DATASET/NAME             kept; the file's first bytes are its checksum

Space is reserved before it is written and given back after it is freed, so a process that dies in
between leaves the number too large, never too small. It dies with ``busy`` set if it was changing the
number: whoever comes next counts anew. What it was writing is found by its owner's lock being free.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from .locks import Locks

MAGIC: Final = b"HSCACHE1"
STATE: Final = struct.Struct("<8sIIq")  # magic, busy, reserved, bytes used
PAGE: Final = 4096  # a file takes whole pages of a disk
PATIENCE_S: Final = 30.0  # for the mutex; it is held for microseconds, or while a large cache is counted
MUTEX, ATTACHED = 1, 2  # numbers of locks; see also _owner_lock, dataset_lock, flight_lock
FILLING: Final = re.compile(r"([0-9a-f]{15})-[0-9]+-([0-9]+)")
DATASET: Final = re.compile(r"[0-9a-f]{16}")
NAME: Final = re.compile(r"[0-9a-f]{32}")


def flight_lock(name: str) -> int:
    """Lock of whoever fetches a block."""
    return 1 << 61 | int(name[:15], 16)


def dataset_lock(dataset: str) -> int:
    """Lock that all share who use a data set."""
    return 1 << 60 | int(dataset[:14], 16)


def paged(size: int) -> int:
    """Bytes that a file of so many bytes takes."""
    return -(-size // PAGE) * PAGE


class Account:
    """The account of a folder, for one process; safe in threads.

    Attributes
    ----------
    folder : holds what the module's text shows and nothing else
    root : the folder as text
    owner : 15 hexadecimal digits, of this process

    Raises
    ------
    OSError : the folder cannot be made or written
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.state = folder / "state"
        self.locks = Locks(self.state)
        if self.locks.local:  # other nodes would not see the locks: each has a folder of its own
            self.folder = folder = folder / f"node-{os.uname().nodename}"
            folder.mkdir(exist_ok=True)
            self.state = folder / "state"
        self.root = str(folder)
        (folder / "fill").mkdir(exist_ok=True)
        self._count = 0
        self._in_use = dict[str, int]()
        self.owner = secrets.token_hex(8)[:15]
        self._alive = self.locks.take(_owner_lock(self.owner))
        alone = self.locks.take(ATTACHED, 0)
        if alone is not None:  # nobody else is here: count anew, whatever the last one left
            with self._mutex(recount=True):
                pass
            self.locks.drop(alone)
        self._attached = self.locks.take(ATTACHED, shared=True)

    def use(self, dataset: str) -> None:
        """Keep others from dropping this data set's blocks as forgotten ones."""
        if dataset not in self._in_use:
            fd = self.locks.take(dataset_lock(dataset), 1.0, shared=True)
            if fd is not None and self._in_use.setdefault(dataset, fd) != fd:
                self.locks.drop(fd)

    def close(self, forget: bool = False) -> None:
        """Leave; a cache that nobody uses holds nothing half written, and if it is to forget, nothing."""
        held, self._in_use = list(self._in_use.values()), {}
        for fd in held:
            self.locks.drop(fd)
        with suppress(OSError), self._mutex() as book:
            book.used -= self._sweep_size()
        if forget:
            with suppress(OSError):
                self.forget()
        for left in (self._attached, self._alive):
            if left is not None:
                self.locks.drop(left)
        self._attached = self._alive = None

    def used(self) -> int:
        """Bytes kept and being written, in whole pages."""
        fd = os.open(self.state, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return self._read(fd)[1]
        finally:
            os.close(fd)

    # -- blocks -------------------------------------------------------------------------------------

    def path(self, dataset: str, name: str) -> Path:
        """Where a block is kept."""
        return self.folder / dataset / name

    def reserve(self, size: int, capacity: int, victims: Iterator[str], dataset: str) -> Reserved | list[str]:
        """Room to write a file of ``size`` bytes; if there is none, the victims that were found gone.

        First go the blocks of data sets that no process uses, then ``victims`` of this one.
        """
        size = paged(size)
        with self._mutex() as book:
            evicted, gone = list[Path](), list[str]()
            if book.used + size > capacity:
                book.used -= self._sweep_size()
                need = book.used + size - capacity
                if need > 0 and size <= capacity:
                    freed, evicted, gone = self._choose(need, victims, dataset)
                    need -= freed
                    for path in evicted if need <= 0 else ():
                        book.used -= _unlink(path)
                if need > 0:
                    return gone
            self._count += 1
            path = self.folder / "fill" / f"{self.owner}-{self._count}-{size}"
            book.used += size
            book.write()
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o644))
        return Reserved(path, size, [p.name for p in evicted if p.parent.name == dataset], len(evicted), gone)

    def commit(self, reserved: Reserved, dataset: str, name: str) -> None:
        """What was reserved has been written: keep it."""
        target = self.path(dataset, name)
        with self._mutex() as book:
            target.parent.mkdir(exist_ok=True)
            before = _size(target)
            os.replace(reserved.path, target)
            book.used -= before

    def give_up(self, reserved: Reserved) -> None:
        """Nothing came of it."""
        with self._mutex() as book:
            if _unlink(reserved.path, reserved.size):
                book.used -= reserved.size

    def remove(self, dataset: str, name: str, inode: int | None = None) -> int:
        """Drop a block (if it still is the file ``inode``); the bytes it took."""
        path = self.path(dataset, name)
        with self._mutex() as book:
            with suppress(OSError):
                if inode is not None and path.stat().st_ino != inode:
                    return 0
            size = _unlink(path)
            book.used -= size
        return size

    def shrink(self, capacity: int) -> int:
        """Drop forgotten data sets, then anything, until the folder holds no more; how many left."""
        if self.used() <= capacity:
            return 0
        with self._mutex() as book:
            book.used -= self._sweep_size()
            need = book.used - capacity
            _, chosen, _ = self._choose(need, iter(()), "") if need > 0 else (0, [], [])
            rest = sorted(set(self.blocks()) - set(chosen)) if need > 0 else []
            count = 0
            for path in (*chosen, *rest):
                if book.used <= capacity:
                    break
                book.used -= _unlink(path)
                count += 1
        return count

    def forget(self) -> int:
        """Drop the blocks of every data set that no process uses; how many."""
        count = 0
        with self._mutex() as book:
            for path in self._forgotten(""):
                book.used -= _unlink(path)
                count += 1
            self._remove_empty()
        return count

    def blocks(self, dataset: str | None = None) -> Iterator[Path]:
        """Every block that is kept."""
        for folder in self.datasets() if dataset is None else [self.folder / dataset]:
            with suppress(FileNotFoundError):
                yield from (folder / name for name in os.listdir(folder) if NAME.fullmatch(name))

    def datasets(self) -> list[Path]:
        """Folders of data sets."""
        return [self.folder / name for name in os.listdir(self.folder) if DATASET.fullmatch(name)]

    def in_use(self, dataset: str) -> bool:
        """Whether a process uses a data set."""
        return self.locks.busy(dataset_lock(dataset))

    def clear(self, dataset: str | None = None) -> int:
        """Drop every block of a data set, or of all; how many."""
        count = 0
        with self._mutex() as book:
            for path in list(self.blocks(dataset)):
                book.used -= _unlink(path)
                count += 1
            self._remove_empty()
        return count

    def _remove_empty(self) -> None:
        for folder in self.datasets():
            with suppress(OSError):
                folder.rmdir()  # only if it is empty

    # -- under the mutex ----------------------------------------------------------------------------

    @contextmanager
    def _mutex(self, recount: bool = False) -> Iterator[_Book]:
        with self.locks.hold(MUTEX, PATIENCE_S) as held:
            if not held:
                raise TimeoutError(errno.ETIMEDOUT, "another process holds the account", str(self.state))
            fd = os.open(self.state, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            try:
                busy, used = self._read(fd)
                if busy or recount:
                    used = self._recount()
                book = _Book(fd, used)
                book.write()
                yield book
                book.write(busy=0)  # an exception leaves it set: the next one counts
            finally:
                os.close(fd)

    @staticmethod
    def _read(fd: int) -> tuple[int, int]:
        data = os.pread(fd, STATE.size, 0)
        if len(data) == STATE.size:
            magic, busy, _, used = STATE.unpack(data)
            if magic == MAGIC and used >= 0:
                return busy, used
        return 1, 0  # new, or not ours: count

    def _recount(self) -> int:
        self._sweep()
        fills = (FILLING.fullmatch(name) for name in os.listdir(self.folder / "fill"))
        return sum(map(_size, self.blocks())) + sum(int(found[2]) for found in fills if found)

    def _sweep(self) -> list[int]:
        """Remove what dead processes were writing; the bytes that were reserved for each."""
        sizes = []
        for name in os.listdir(self.folder / "fill"):
            found = FILLING.fullmatch(name)
            dead = found is None or (found[1] != self.owner and not self.locks.busy(_owner_lock(found[1])))
            if dead:
                _unlink(self.folder / "fill" / name)
                sizes.append(int(found[2]) if found else 0)
        return sizes

    def _sweep_size(self) -> int:
        return sum(self._sweep())

    def _choose(self, need: int, victims: Iterator[str], dataset: str) -> tuple[int, list[Path], list[str]]:
        """Blocks that may leave, until the bytes they take are enough, and names that are not here."""
        freed, chosen, gone = 0, list[Path](), list[str]()
        for path in self._forgotten(dataset):
            if freed >= need:
                return freed, chosen, gone
            freed += _size(path)
            chosen.append(path)
        for name in victims if freed < need else ():
            size = _size(self.path(dataset, name))
            if size == 0:
                gone.append(name)
                continue
            freed += size
            chosen.append(self.path(dataset, name))
            if freed >= need:
                break
        return freed, chosen, gone

    def _forgotten(self, mine: str) -> Iterator[Path]:
        """Blocks of data sets that no process uses, the longest unchanged data set first."""
        folders = [f for f in self.datasets() if f.name != mine and f.name not in self._in_use]
        for folder in sorted(folders, key=lambda f: f.stat().st_mtime):
            if not self.locks.busy(dataset_lock(folder.name)):
                yield from self.blocks(folder.name)


class Reserved:
    """Room for one file.

    Attributes
    ----------
    path, size : where to write it, and the bytes reserved
    left : names of this data set that left for it
    evicted : how many left in all
    gone : names that the policy believed to be here
    """

    __slots__ = ("evicted", "gone", "left", "path", "size")

    def __init__(self, path: Path, size: int, left: list[str], evicted: int, gone: list[str]) -> None:
        self.path, self.size, self.left, self.evicted, self.gone = path, size, left, evicted, gone


class _Book:
    """The number of an account, while the mutex is held."""

    def __init__(self, fd: int, used: int) -> None:
        self.fd, self.used = fd, used

    def write(self, busy: int = 1) -> None:
        os.pwrite(self.fd, STATE.pack(MAGIC, busy, 0, self.used), 0)


def _owner_lock(owner: str) -> int:
    return 1 << 62 | int(owner, 16) & (1 << 60) - 1


def _size(path: Path) -> int:
    try:
        return paged(path.stat().st_size)
    except FileNotFoundError:
        return 0


def _unlink(path: Path, size: int = 0) -> int:
    """Bytes that became free; ``size`` if they were only reserved."""
    try:
        freed = size or paged(path.stat().st_size)
        path.unlink()
    except FileNotFoundError:
        return 0
    return freed
