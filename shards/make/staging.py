"""A folder that appears whole or not at all."""

from __future__ import annotations

import ctypes
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from ..errors import UsageError, WriteError
from ..format.hdf5 import sync
from ..format.manifest import MANIFEST
from .generations import named_files, recover
from .owner import claim, release, said_of, stale

EXCHANGE: Final = 2  # RENAME_EXCHANGE of renameat2(2), Linux 3.15


def begin(out: Path) -> Path:
    """A new temporary folder beside ``out``; UsageError if ``out`` holds anything but a data set of ours.

    What an earlier run for ``out`` left when it was killed is removed. WriteError if nothing can be written.
    """
    if out.is_symlink():
        raise UsageError(f"{out} is a link; name the folder itself as --out")
    clear(out)
    strange = foreign(out)
    if strange:
        raise UsageError(f"{out} {strange}; choose another --out, or remove it")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        return claimed(out.with_name(f".{out.name}.{os.getpid()}"))
    except OSError as error:
        raise WriteError(f"{out} cannot be written: {error.strerror}; choose another place") from error


def claimed(folder: Path) -> Path:
    """Make a temporary folder of this process."""
    release(folder)
    claim(folder)
    try:
        folder.mkdir()
    except OSError:
        release(folder)
        raise
    return folder


def clear(out: Path) -> None:
    """Remove what killed runs left beside ``out``, and in it; a data set that was moved aside comes back."""
    for folder in stale(out.parent, f".{out.name}."):
        aside = _aside(folder)
        if aside.is_dir():
            if out.exists():
                shutil.rmtree(aside)
            else:
                os.rename(aside, out)
        release(folder)
    if (out / MANIFEST).is_file():
        recover(out)


def foreign(out: Path) -> str:
    """What keeps ``out`` from being replaced: "" if it is missing, empty, or a data set and no more."""
    if not out.exists():
        return ""
    if not out.is_dir():
        return "is not a folder"
    there = {path.name for path in out.iterdir()}
    if not there:
        return ""
    try:
        named = named_files(out)
    except (OSError, ValueError, KeyError, TypeError):
        return "exists and is not a data set"
    others = sorted(there - named)
    return f"holds {others[0]!r}, which is no part of the data set there" if others else ""


def finish(folder: Path, out: Path) -> None:
    """Put ``folder`` in the place of ``out``; a kill at any moment leaves the old or the new, or brings it
    back when the next run begins."""
    sync(folder)
    aside = _aside(folder)
    if out.exists() and not _exchanged(folder, out):
        os.rename(out, aside)
        os.rename(folder, out)
    elif folder.exists() and not out.exists():
        os.rename(folder, out)
    sync(out.parent)
    shutil.rmtree(aside, ignore_errors=True)
    release(folder)


def _aside(folder: Path) -> Path:
    """Where the old data set goes while the new one takes its place."""
    return folder.with_name(f"{folder.name}.old")


def _exchanged(a: Path, b: Path) -> bool:
    """Swap two folders in one step; False where the system or the file system cannot."""
    try:
        swap = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError):
        return False
    here = -100  # AT_FDCWD: relative paths are of the working folder
    return bool(swap(here, os.fsencode(a), here, os.fsencode(b), EXCHANGE) == 0)


@contextmanager
def staged(out: Path) -> Iterator[Path]:
    """A temporary folder that becomes ``out`` if the body succeeds, and is removed if not.

    WriteError if the disk is full.
    """
    folder = begin(out)
    try:
        with said_of(out):
            yield folder
            finish(folder, out)
    finally:
        release(folder)
