"""Files and folders as a whole: a Zarr shard is a folder, an HDF5 shard a file."""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path

from ..format.regular import regular


def file_sha256(path: Path) -> str:
    """sha256 of a file; of a folder, of the sorted lines ``relative/path sha256`` of its files."""
    if path.is_dir():
        files = sorted(p for p in path.rglob("*") if p.is_file())
        lines = [f"{p.relative_to(path).as_posix()} {file_sha256(p)}\n" for p in files]
        return hashlib.sha256("".join(lines).encode()).hexdigest()
    with regular(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def size_of(path: Path) -> int:
    """Bytes of a file, or of all files in a folder."""
    if path.is_dir():
        return sum(os.path.getsize(p) for p in path.rglob("*") if p.is_file())
    return os.path.getsize(path)


def link_or_copy(source: Path, target: Path) -> None:
    """Another name for a file, or for each file of a folder; a copy where the file system has no links."""
    if source.is_dir():
        shutil.copytree(source, target, copy_function=_link_or_copy)
    else:
        _link_or_copy(source, target)


def _link_or_copy(source: str | Path, target: str | Path) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def remove(path: Path) -> None:
    """Remove a file or folder, if it is there; of a link, the link."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
