"""A block as a file: a header that tells whether the rest is whole, and its bytes."""

from __future__ import annotations

import os
import struct
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import Final

from .checksum import crc32
from .tier import Data

HEADER: Final = struct.Struct("<8sIIQ8x")  # magic, crc32 of the data, reserved, length of the data
BLOCK_MAGIC: Final = b"HSBLOCK1"


@lru_cache
def dataset_folder(dataset: str) -> str:
    """Folder name of a data set's blocks: 16 hexadecimal digits."""
    return blake2b(os.fsencode(dataset), digest_size=8).hexdigest()


def whole(data: Data, length: int) -> bool:
    """Whether these are the bytes of a block's file, as they were written."""
    if len(data) != HEADER.size + length or length < 0:
        return False
    magic, crc, _, told = HEADER.unpack_from(data)
    return bool(magic == BLOCK_MAGIC and told == length and crc == crc32(memoryview(data)[HEADER.size :]))


def check_file(path: Path) -> bool:
    """Whether a block's file is whole."""
    try:
        data = path.read_bytes()
    except OSError:
        return False
    return whole(data, len(data) - HEADER.size)


def write_block(path: Path, data: Data) -> None:
    """Fill the file that was made for it."""
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        rest = [memoryview(HEADER.pack(BLOCK_MAGIC, crc32(data), 0, len(data))), memoryview(data)]
        while rest:
            n = os.writev(fd, rest)
            while rest and n >= len(rest[0]):
                n -= len(rest.pop(0))
            if rest:
                rest[0] = rest[0][n:]
    finally:
        os.close(fd)
