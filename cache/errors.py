"""What can go wrong in this room; ``exit_code`` is what a command ends with.

CacheError           anything this room raises on purpose
├── SettingError     a tier, size or option makes no sense                     exit code 2
└── SourceError      bytes could not be fetched; also an OSError               exit code 1

A cache that cannot store or be read is no error: the bytes come from the source, and one warning says so.
"""

from __future__ import annotations


class CacheError(Exception):
    """Base of every error of this room."""

    exit_code = 1


class SettingError(CacheError):
    """A tier, a size or an option is wrong; nothing was done."""

    exit_code = 2


class SourceError(CacheError, OSError):
    """A range could not be fetched; the message says of which file, and what was tried."""
