"""A pipe or a device where a file is expected would be waited for, for ever."""

from __future__ import annotations

import stat
from pathlib import Path

from ..errors import FormatError


def regular(path: Path) -> Path:
    """The path, if it is a file, a folder, or nothing; FormatError for a pipe, a socket or a device."""
    try:
        mode = path.stat().st_mode
    except OSError:
        return path  # who opens it says what is wrong
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise FormatError(f"{path} is neither a file nor a folder; expected a file as holoshard writes it")
    return path
