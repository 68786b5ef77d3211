"""Whose a temporary folder is, and whether that process still lives: what a kill left can then go.

Beside a temporary folder ``X`` lies ``X.owner``, with the machine and the process that made it. It is stale
if it names this machine, and no such process is running; those of other machines are left alone.
"""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from ..errors import HoloshardError, WriteError
from .files import remove

SUFFIX: Final = ".owner"
UNKNOWN: Final = 1  # when a process began
FULL: Final = 1 << 20  # bytes free, or fewer: the disk is full
LIBRARIES: Final = ("lmdb", "polars")  # that have errors of their own for a full disk


def claim(folder: Path) -> None:
    """Say that this process makes ``folder``."""
    try:
        _note(folder).write_text(json.dumps({"machine": _machine(), "process": _process(os.getpid())}))
    except OSError:
        _note(folder).unlink(missing_ok=True)  # on a full disk it is there, and empty
        raise


def release(folder: Path) -> None:
    """Remove the folder or file, if it is still there, and what says whose it was."""
    with suppress(OSError):
        remove(folder)
    _note(folder).unlink(missing_ok=True)


@contextmanager
def beside(path: Path) -> Iterator[Path]:
    """A temporary name of this process beside ``path``, for a file or folder that becomes it or goes.

    What killed runs left under such names is removed; folders above ``path`` are made. WriteError if
    nothing can be written there.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        for left in (*stale(path.parent, f".{path.name}."), temporary):
            release(left)
        claim(temporary)
    except OSError as error:
        raise WriteError(f"{path} cannot be written: {error.strerror}; choose another place") from error
    try:
        yield temporary
    finally:
        release(temporary)


@contextmanager
def scratch(name: str) -> Iterator[Path]:
    """A folder for the files of another program, in a folder of this user below that of temporary files.

    It goes in the end; what killed runs left there goes now. WriteError if it cannot be made.
    """
    mine = Path(tempfile.gettempdir()) / f"holoshard-{os.getuid()}"
    with suppress(OSError):  # said below
        mine.mkdir(mode=0o700, exist_ok=True)
    if mine.is_symlink() or (mine.exists() and mine.stat().st_uid != os.getuid()):
        raise WriteError(f"{mine} belongs to somebody else; set TMPDIR to another folder")
    with beside(mine / name) as folder:
        folder.mkdir()
        yield folder


@contextmanager
def said_of(out: Path) -> Iterator[None]:
    """Say in one line that ``out`` cannot be written, as on a full disk, whatever library found it out."""
    try:
        yield
    except HoloshardError:
        raise
    except Exception as error:
        if not isinstance(error, OSError) and type(error).__module__.partition(".")[0] not in LIBRARIES:
            raise
        raise WriteError(
            f"{out} cannot be written: {_reason(error, out)}; make room, or choose another place"
        ) from error


def _reason(error: Exception, out: Path) -> str:
    """What the system says; libraries have it in their text, and LMDB calls a full disk an I/O error."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    text = str(error).partition("\n")[0]
    known = [os.strerror(n) for n in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)]
    if not any(reason in text for reason in known) and shutil.disk_usage(out.parent).free < FULL:
        return known[0]
    return next((reason for reason in known if reason in text), text)


def stale(parent: Path, start: str, *, noted: bool = True) -> list[Path]:
    """Folders in ``parent`` of the name ``start`` and a number whose process on this machine is gone.

    ``noted``: only those that say whose they are; else also those of which no process has the number.
    """
    names = sorted(p.name for p in parent.iterdir()) if parent.is_dir() else []
    ours = [n for n in names if re.fullmatch(re.escape(start) + "[0-9]{1,9}" + re.escape(SUFFIX), n)]
    found = [parent / n.removesuffix(SUFFIX) for n in ours if _gone(parent / n)]
    if not noted:
        bare = [
            n for n in names if re.fullmatch(re.escape(start) + "[0-9]{1,9}", n) and n + SUFFIX not in ours
        ]
        found += [parent / n for n in bare if not _process(int(n.removeprefix(start)))[1]]
    return found


def _note(folder: Path) -> Path:
    return folder.with_name(folder.name + SUFFIX)


def _gone(note: Path) -> bool:
    try:
        told = json.loads(note.read_bytes())
        number, started = told["process"]
        found = _process(int(number))[1]
        return bool(told["machine"] == _machine() and found not in (started, UNKNOWN))
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _machine() -> str:
    """Name and boot of this machine, and the container: elsewhere a number is of another process."""
    boot, space = Path("/proc/sys/kernel/random/boot_id"), Path("/proc/self/ns/pid")
    words = [socket.gethostname(), boot.read_text().strip() if boot.exists() else ""]
    return " ".join([*words, os.readlink(space) if space.exists() else ""])


def _process(number: int) -> list[int]:
    """The process and when it began, which tells it from a later one of that number; 0 if it is gone."""
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return [number, 0]
    except PermissionError:
        pass  # it lives, and is another user's
    try:
        text = Path(f"/proc/{number}/stat").read_text()
        return [number, int(text.rpartition(")")[2].split()[19])]  # field 22 of proc(5), starttime
    except OSError:  # a system without /proc, or that hides the processes of others
        return [number, UNKNOWN]
