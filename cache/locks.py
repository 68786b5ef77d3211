"""Locks between the processes of a node that the kernel drops when their holder dies, however it dies.

Each lock is one byte of one file, held by an open file description (``F_OFD_SETLK``, Linux 3.15), so
threads exclude each other, too, nothing has to be cleaned up, and no liveness has to be guessed from
process numbers. Where the file system refuses such locks (Lustre without flock gives ENOSYS, others
ENOLCK or EOPNOTSUPP), the same bytes are locked in a file in the node's own temporary folder.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import struct
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

UNSUPPORTED: Final = frozenset({errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP, errno.EINVAL, 524})  # ENOTSUPP
BUSY: Final = frozenset({errno.EAGAIN, errno.EACCES})
FLOCK: Final = "hhqqi4x"  # struct flock: type, whence, start, length, process
FIRST_PAUSE_S, LAST_PAUSE_S = 0.0003, 0.02  # between attempts to get a lock

_ours: set[int] = set()  # descriptors that a forked child must not keep: its copy would keep the lock
_ours_lock = threading.Lock()


class Locks:
    """Locks of one folder, by number (0 to 2**62).

    Attributes
    ----------
    path : of the file that is locked
    local : True if that is in the node's temporary folder, so that other nodes do not see the locks

    Parameters
    ----------
    path : file to lock in; made if it is not there
    """

    def __init__(self, path: Path) -> None:
        if not hasattr(fcntl, "F_OFD_SETLK"):
            raise OSError(errno.ENOSYS, "a cache in a folder needs the locks of Linux", str(path))
        self.path, self.local = path, False
        try:
            with self.hold(1 << 62):
                pass
        except OSError as error:
            if error.errno not in UNSUPPORTED:
                raise
            self.path, self.local = _local_path(path), True

    @contextmanager
    def hold(self, number: int, patience_s: float = float("inf")) -> Iterator[bool]:
        """Hold a lock; False if it could not be had within ``patience_s`` seconds."""
        fd = self.take(number, patience_s)
        try:
            yield fd is not None
        finally:
            if fd is not None:
                self.drop(fd)

    def take(self, number: int, patience_s: float = float("inf"), shared: bool = False) -> int | None:
        """Take a lock until :meth:`drop` of the descriptor that is returned; None if out of patience."""
        fd = _open(self.path)
        try:
            pause, end = FIRST_PAUSE_S, time.monotonic() + patience_s
            while not _lock(fd, number, fcntl.F_RDLCK if shared else fcntl.F_WRLCK):
                left = end - time.monotonic()
                if left <= 0:
                    self.drop(fd)
                    return None
                time.sleep(min(pause, left))
                pause = min(pause * 1.5, LAST_PAUSE_S)
        except BaseException:
            self.drop(fd)
            raise
        return fd

    def drop(self, fd: int) -> None:
        """Let a lock go."""
        with _ours_lock:
            if fd not in _ours:  # a fork closed it already
                return
            _ours.discard(fd)
        os.close(fd)

    def busy(self, number: int) -> bool:
        """Whether any process or thread holds the lock."""
        fd = _open(self.path)
        try:
            request = struct.pack(FLOCK, fcntl.F_WRLCK, os.SEEK_SET, number, 1, 0)
            answer = fcntl.fcntl(fd, fcntl.F_OFD_GETLK, request)
            return bool(struct.unpack(FLOCK, answer)[0] != fcntl.F_UNLCK)
        finally:
            self.drop(fd)


def _open(path: Path) -> int:
    with _ours_lock:  # a fork in between would leave a descriptor that nobody knows
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
        _ours.add(fd)
    return fd


def _lock(fd: int, number: int, kind: int) -> bool:
    try:
        fcntl.fcntl(fd, fcntl.F_OFD_SETLK, struct.pack(FLOCK, kind, os.SEEK_SET, number, 1, 0))
    except OSError as error:
        if error.errno in BUSY:
            return False
        raise
    return True


def _local_path(path: Path) -> Path:
    """A file of this user in the temporary folder, the same for every process of the node."""
    found = path.stat()
    folder = Path(tempfile.gettempdir()) / f"holoshard-locks-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    info = folder.lstat()
    if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.getuid():
        raise PermissionError(errno.EACCES, "not a folder of this user", str(folder))
    return folder / f"{found.st_dev:x}-{found.st_ino:x}"


def _before_fork() -> None:
    _ours_lock.acquire()


def _after_fork_in_parent() -> None:
    _ours_lock.release()


def _after_fork_in_child() -> None:
    for fd in _ours:
        os.close(fd)
    _ours.clear()
    _ours_lock.release()


os.register_at_fork(
    before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child
)
