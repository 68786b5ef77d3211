"""CRC-32 with zlib's polynomial: the checksum of blocks, here and in the shard format."""

from __future__ import annotations

import zlib

try:  # the same value at several times the speed
    from isal.isal_zlib import crc32 as _crc32
except ImportError:
    _crc32 = zlib.crc32


def crc32(data: bytes | memoryview) -> int:
    """Checksum of some bytes."""
    return int(_crc32(data))
