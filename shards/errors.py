"""The tree of errors, and what a shell sees of them.

HoloshardError            anything this package raises on purpose
├── UsageError            the call is wrong: a bad option, a missing folder          exit code 2
│   └── ConfigError       a key, type or combination in a configuration is wrong
├── MissingExtraError     a package of an optional extra is not installed            exit code 2
├── WriteError            a file cannot be written: the disk is full, say            exit code 2
└── DataError             the data is wrong                                          exit code 1
    ├── NothingKeptError  a stage ended with no complex at all
    ├── StructureError    one structure, ligand or label cannot be used (never ends a run)
    └── FormatError       a shard, part or manifest does not follow shards/FORMAT.md
        ├── VersionError  it was written by a newer major version of the format
        └── ChecksumError its bytes are not those that were written

A message says what was found, what was expected, and what to do: one or two lines, no traceback.
"""

from __future__ import annotations


class HoloshardError(Exception):
    """Base of every error that holoshard raises on purpose."""

    exit_code = 1


class UsageError(HoloshardError):
    """The call is wrong; nothing was done."""

    exit_code = 2


class ConfigError(UsageError):
    """A configuration has an unknown key, a wrong type or an impossible combination."""


class MissingExtraError(HoloshardError):
    """A package of an optional extra is missing."""

    exit_code = 2

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(
            f"this needs the package {package!r}, which is not installed; "
            f"install it with: pip install 'holoshard[{extra}]'"
        )


class WriteError(HoloshardError, OSError):
    """A file cannot be written: the disk is full, or a quota or a size limit is reached."""

    exit_code = 2


class DataError(HoloshardError):
    """The data is wrong."""


class NothingKeptError(DataError):
    """A stage ended without a single complex."""


class StructureError(DataError):
    """One structure, ligand or label cannot be used.

    Parameters
    ----------
    reason : the code of the closed list in ``holoshard.ingest.reasons``
    message : what was found and what was expected
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class FormatError(DataError):
    """A file does not follow the shard format."""


class VersionError(FormatError):
    """A file was written by a newer major version of the format."""


class ChecksumError(FormatError):
    """Bytes differ from those that were written."""
