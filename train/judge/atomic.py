"""Files that are there whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

from ...shards.errors import UsageError


def write_text(path: Path, text: str) -> None:
    """Write UTF-8 under a temporary name in the same folder, then put it in place."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with temporary.open("w", encoding="utf-8", newline="") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def refuse_file(folder: Path) -> None:
    """Refuse a folder to write to where there is a file.

    Raises
    ------
    UsageError : `folder`, or what it should lie in, is a file
    """
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not there.is_dir():
        raise UsageError(
            f"--out {folder}: {there} is a file, expected a folder; name another, or move it away"
        )
