"""The fixed columns of PDB atom lines, for all lines at once.

A line is eighty bytes, a field eight or fewer: read as one 64-bit integer, the digits of a field are
parsed side by side in its bytes. This costs a third of a parser that goes line by line. It is strict:
whatever is not written exactly as the format says gives None, and the caller falls back on gemmi.
"""

from __future__ import annotations

from typing import Any, Final

import gemmi
import numpy as np
from numpy.typing import NDArray

_U: Final = np.uint32
_DIGITS, _BLANKS, _MINUS = _U(0x30303030), _U(0x20202020), _U(0x0D0D0D0D)  # "-" is a blank with 0x0D flipped
_TEN, _TOP = _U(0x76767676), _U(0x80808080)  # adding the first sets the top bit of a byte of 10 or more
_BYTE: Final = _U(0xFF)
# First column of the whole part and of the point of x, y, z, occupancy, B-factor. The whole part is read as
# four characters and the other as ".ddd"; the last two fields have three characters and two decimals.
_NUMBERS: Final = ((30, 34), (38, 42), (46, 50), (53, 57), (59, 63))


def _elements() -> NDArray[np.uint8]:
    """Two characters, as a 16-bit integer -> atomic number; 255 for what is no element."""
    table = np.full(1 << 16, 255, np.uint8)
    for number in range(1, 119):
        name = gemmi.Element(number).name
        for text in (name, name.upper()):
            for padded in {text.rjust(2), text.ljust(2)}:
                table[int.from_bytes(padded.encode(), "little")] = number
    for padded in (" D", "D "):
        table[int.from_bytes(padded.encode(), "little")] = 1
    return table


def _charges() -> NDArray[np.int8]:
    """Two characters -> charge, 127 for what is none: blank, "2+", "1-"."""
    table = np.full(1 << 16, 127, np.int8)
    table[int.from_bytes(b"  ", "little")] = 0
    for size in range(10):
        for sign, factor in (("+", 1), ("-", -1)):
            table[int.from_bytes(f"{size}{sign}".encode(), "little")] = factor * size
    return table


_ELEMENTS: Final = _elements()
_CHARGES: Final = _charges()
_NO_CHARGE: Final = np.uint16(int.from_bytes(b"  ", "little"))


def read_columns(rows: NDArray[np.uint8], het: NDArray[np.bool_]) -> dict[str, Any] | None:
    """Columns of atom lines, as ``structure.assemble`` takes them.

    Parameters
    ----------
    rows : the lines, shape (n, 80), blank past their ends; the characters of a line are contiguous
    het : mask of the HETATM lines

    Returns
    -------
    None if any line is not written strictly in the columns of the format, names an element or a charge
    that is none, or belongs to a residue whose atoms are not together.
    """
    if rows.shape[1:] != (80,) or rows.strides[1] != 1:
        raise ValueError(f"atom lines as an array of shape (n, 80), not {rows.shape}")
    element, written = _ELEMENTS[_word(rows, 76, "<u2")], _word(rows, 78, "<u2")
    # Nearly all files leave charges out.
    charge = np.zeros(len(rows), np.int8) if (written == _NO_CHARGE).all() else _CHARGES[written]
    if (
        (element == 255).any()
        or (charge == 127).any()
        or (rows[:, 20] != 32).any()
        or (rows[:, 27] != 32).any()
    ):
        return None
    numbers = _decimals(rows)
    residues = _residues(rows) if numbers is not None else None
    if numbers is None or residues is None:
        return None
    altloc = rows[:, 16].copy()
    altloc[altloc == 32] = 0
    return {
        "position": np.ascontiguousarray(numbers[:3].T / 1000.0),
        "element": element,
        "charge": charge,
        "name": stripped(_word(rows, 12, "<u4")),
        "altloc": altloc,
        "occupancy": (numbers[3] / 1000.0).astype(np.float32),
        "b_factor": (numbers[4] / 1000.0).astype(np.float32),
        "residue_het": het,
        **residues,
    }


def _word(rows: NDArray[np.uint8], column: int, dtype: str) -> NDArray[Any]:
    """Some characters of each row as one integer, the first in its lowest byte."""
    size = np.dtype(dtype).itemsize
    found: NDArray[Any] = rows[:, column : column + size].view(dtype)[:, 0].copy()
    return found


def _decimals(rows: NDArray[np.uint8]) -> NDArray[np.int32] | None:
    """The five numbers of each line in thousandths, shape (5, n)."""
    whole, part = np.empty((2, 5, len(rows)), np.uint32)
    for k, (first, point) in enumerate(_NUMBERS):
        whole[k] = rows[:, first : first + 4].view("<u4")[:, 0]
        part[k] = rows[:, point : point + 4].view("<u4")[:, 0]
    whole[3:] &= ~_BYTE
    whole[3:] |= _U(0x20)
    part[3:] &= _U(0xFFFFFF)
    part[3:] |= _U(0x30000000)
    varied = 5  # occupancies, and B-factors of a model, are often all the same
    while varied > 3 and all((w[varied - 1] == w[varied - 1, 0]).all() for w in (whole, part)):
        varied -= 1
    found = parse_decimals(whole[:varied], part[:varied])
    if varied == 5 or found is None:
        return found
    same = parse_decimals(whole[varied:, :1], part[varied:, :1])
    return None if same is None else np.concatenate([found, np.repeat(same, len(rows), axis=1)])


def parse_decimals(whole: NDArray[np.uint32], part: NDArray[np.uint32]) -> NDArray[np.int32] | None:
    """Numbers written as four characters before the point, and the point with three digits, in thousandths.

    The digits of a number are parsed side by side in the bytes of an integer.

    Returns
    -------
    None if one of them is anything but blanks, perhaps a minus, digits, a point, digits.
    """
    digits = np.empty((2, *whole.shape), np.uint32)
    np.bitwise_xor(whole, _DIGITS, out=digits[0])
    np.bitwise_xor(part, _U(0x3030302E), out=digits[1])  # the point becomes a zero, too
    spare = digits[1] + _U(0x76767600)
    spare &= _U(0x808080FF)
    if spare.any():
        return None
    # All bits of each byte that is no digit: some from the left, not the last.
    mask = np.add(digits[0], _TEN, out=spare)
    mask &= _TOP
    mask >>= _U(7)
    mask *= _BYTE
    after = mask + _U(1)
    after &= mask
    if after.any() or mask.max() > _U(0xFFFFFF):
        return None
    signs = whole ^ _BLANKS
    signs &= mask
    negative = signs != 0
    signed = bool(negative.any())
    if signed:
        wrong = np.right_shift(mask, _U(8), out=after)  # a minus stands right before the digits
        wrong ^= mask
        wrong &= _MINUS
        if (negative & (wrong != signs)).any():
            return None
    digits[0] &= np.invert(mask, out=mask)
    thousandths = _four_digits(digits)
    thousandths[0] *= _U(1000)
    found: NDArray[np.int32] = np.add(thousandths[0], thousandths[1]).view(np.int32)
    if signed:  # the two's complement, several times as fast as a choice by element
        flip = negative.astype(np.int32)
        np.negative(flip, out=flip)
        found ^= flip
        found -= flip
    return found


def _four_digits(digits: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """The number that four digits make, one in each byte; works in place."""
    for shift, factor, mask in ((8, 10, 0x00FF00FF), (16, 100, 0xFFFF)):
        lower = digits >> _U(shift)
        digits *= _U(factor)
        digits += lower
        digits &= _U(mask)
    return digits


def stripped(words: NDArray[np.uint32]) -> NDArray[np.uint64]:
    """Names of up to four characters without the blanks around them, as eight bytes with zeros behind."""
    for _ in range(3):
        blank = (words & _BYTE) == 32
        if not blank.any():
            break
        words = words >> (blank.astype(np.uint32) << _U(3))
    filled = words & _U(0xDFDFDFDF)  # a blank becomes a zero
    filled |= filled >> _U(8)
    filled |= filled >> _U(16)  # zero from the first of the blanks at the end on
    mask = (filled & _U(0x7F7F7F7F)) + _U(0x7F7F7F7F)
    mask |= filled
    mask &= _TOP
    mask >>= _U(7)
    mask *= _BYTE
    mask &= words
    return mask.astype(np.uint64)


def _residues(rows: NDArray[np.uint8]) -> dict[str, Any] | None:
    """Residue columns, a row a residue, and where residues begin."""
    head, tail = _word(rows, 17, "<u8"), _word(rows, 19, "<u8")
    new = np.ones(len(rows), bool)
    np.not_equal(head[1:], head[:-1], out=new[1:])
    new[1:] |= tail[1:] != tail[:-1]
    first = new.nonzero()[0]
    some = rows[first]
    numbers = _integers(some[:, 22:26])
    key = head[first] * np.uint64(0x9E3779B97F4A7C15) + (tail[first] >> np.uint64(40))
    order = key.argsort()
    again = order[1:][key[order[1:]] == key[order[:-1]]]  # residues met before, or once in ages a collision
    if numbers is None or (len(again) and _parts_of_one(rows, first, key, again)):
        return None
    insertion = some[:, 26].copy()
    insertion[insertion == 32] = 0
    chain = some[:, 21].astype(np.uint64)
    chain[chain == 32] = 0
    return {
        "first": first,
        "residue_name": stripped(_word(some, 17, "<u4") & _U(0xFFFFFF)),
        "residue_chain": chain,
        "residue_number": numbers,
        "residue_insertion": insertion,
    }


def _parts_of_one(
    rows: NDArray[np.uint8], first: NDArray[np.int64], key: NDArray[np.uint64], again: NDArray[np.int64]
) -> bool:
    """True if a residue lies in several parts of the file; False if these are several residues of one name
    and number, each with the same atoms, as where a program left out the chains.
    """
    stop = np.append(first[1:], len(rows))
    for later in again.tolist():
        parts = [slice(int(first[k]), int(stop[k])) for k in np.flatnonzero(key == key[later]).tolist()]
        names = [set(map(bytes, rows[p, 12:17])) for p in parts]  # with their alternate letters
        if any(rows[p, 16].max() > 32 for p in parts) or not set.intersection(*names):
            return True
    return False


def _integers(text: NDArray[np.uint8]) -> NDArray[np.int32] | None:
    """Right-aligned whole numbers of four characters."""
    digit = (text >= 48) & (text <= 57)
    value = np.where(digit, text - np.uint8(48), 0).astype(np.int32) @ np.array([1000, 100, 10, 1], np.int32)
    minus = text == 45
    fine = (digit | minus | (text == 32)).all() and digit[:, 3].all()
    # Digits to the end once they begin, and a minus nowhere but before the first of them.
    if not fine or (~digit[:, 1:] & (digit | minus)[:, :-1]).any():
        return None
    return np.where(minus.any(axis=1), -value, value).astype(np.int32)
