"""How much a Zstandard file unpacks to at most, told by its headers, before anything is unpacked."""

from __future__ import annotations

from typing import Final

MAGIC: Final = b"\x28\xb5\x2f\xfd"
BLOCK: Final = 1 << 17  # no block unpacks to more: RFC 8878, 3.1.1.2.4
RLE, COMPRESSED, RESERVED = 1, 2, 3


def most(raw: bytes) -> int:
    """Bytes that all frames unpack to at most (RFC 8878, 3.1.1); ValueError if they are cut short or broken.

    A frame that tells its size has it, if its blocks can hold so much; else compressed blocks count whole.
    """
    at = total = 0
    try:
        while at < len(raw):
            if raw[at + 1 : at + 4] == b"\x2a\x4d\x18" and raw[at] >> 4 == 5:  # to be skipped
                at += 8 + int.from_bytes(raw[at + 4 : at + 8], "little")
                continue
            if raw[at : at + 4] != MAGIC:
                raise ValueError("what follows a frame is none")
            at, size = _frame(raw, at + 4)
            total += size
    except IndexError:
        at = len(raw) + 1
    if at > len(raw):
        raise ValueError("a frame is cut short")
    return total


def _frame(raw: bytes, at: int) -> tuple[int, int]:
    """Where the frame ends whose header begins at ``at``, and how much it unpacks to at most."""
    told = raw[at]
    single, flag = told >> 5 & 1, told >> 6
    at += 1 + (not single) + (0, 1, 2, 4)[told & 3]  # window, dictionary
    width = (single, 2, 4, 8)[flag]
    size = int.from_bytes(raw[at : at + width], "little") + (256 if flag == 1 else 0)
    at, most, last = at + width, 0, 0
    while not last:
        header = raw[at] | raw[at + 1] << 8 | raw[at + 2] << 16
        last, kind, length = header & 1, header >> 1 & 3, header >> 3
        if kind == RESERVED or length > BLOCK:
            raise ValueError("a block is of no kind or size that there is")
        most += BLOCK if kind == COMPRESSED else length
        at += 3 + (1 if kind == RLE else length)
    if width and size > most:
        raise ValueError(f"it says that it has {size} bytes, and has at most {most}")
    return at + 4 * (told >> 2 & 1), size if width else most
