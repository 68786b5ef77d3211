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

_Words = NDArray[np.uint64]


def _bytes(value: int) -> np.uint64:
    """The same byte eight times."""
    return np.uint64(int.from_bytes(bytes([value]) * 8, "little"))


_ZERO, _SPACE, _MINUS = _bytes(0x30), _bytes(0x20), _bytes(0x0D)  # "-" is a space with 0x0D flipped
_TEN: Final = _bytes(0x76)  # added to a byte: sets its top bit if it was 10 or more
_TOP: Final = _bytes(0x80)
_PAIRS: Final = np.uint64(0x00FF00FF00FF00FF)
_LOW: Final = np.uint64(0xFF)


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


def read_columns(rows: NDArray[np.uint8], het: NDArray[np.bool_]) -> dict[str, Any] | None:
    """Columns of atom lines, as ``structure.assemble`` takes them.

    Parameters
    ----------
    rows : the lines, shape (n, 80), blank past their ends
    het : mask of the HETATM lines

    Returns
    -------
    None if any line is not written strictly in the columns of the format, names an element or a charge
    that is none, or belongs to a residue whose atoms are not together.
    """
    element = _ELEMENTS[_word(rows, 76, 78, np.uint16)]
    charge = _CHARGES[_word(rows, 78, 80, np.uint16)]
    if (element == 255).any() or (charge == 127).any() or (rows[:, 20] != 32).any() or (rows[:, 27] != 32).any():
        return None
    position = decimals(np.ascontiguousarray(rows[:, 30:54]).view(np.uint64), 4)
    blank = np.uint64(0x2020)
    small = np.stack([_word(rows, 52, 60, np.uint64), _word(rows, 58, 66, np.uint64)], axis=1)
    small = decimals(((small >> np.uint64(16)) << np.uint64(16)) | blank, 5)
    residues = _residues(rows)
    if position is None or small is None or residues is None:
        return None
    altloc = rows[:, 16].copy()
    altloc[altloc == 32] = 0
    small /= 100.0
    return {
        "position": position / 1000.0,
        "element": element,
        "charge": charge,
        "name": stripped(_word(rows, 12, 16, np.uint32)),
        "altloc": altloc,
        "occupancy": small[:, 0].astype(np.float32),
        "b_factor": small[:, 1].astype(np.float32),
        "residue_het": het,
        **residues,
    }


def _word(rows: NDArray[np.uint8], start: int, stop: int, dtype: Any) -> NDArray[Any]:
    """Some columns of each row as one integer."""
    return np.ascontiguousarray(rows[:, start:stop]).view(dtype).ravel()


def decimals(fields: _Words, dot: int) -> NDArray[np.float64] | None:
    """Numbers right-aligned in fields of eight bytes with their point at one place, times 10^(7 - dot).

    Parameters
    ----------
    fields : shape (n, ...), the first character in the lowest byte
    dot : place of the point, 4 or 5

    Returns
    -------
    None if a field is anything but blanks, perhaps a minus, digits, the point, digits.
    """
    at = np.uint64(8 * dot)
    if not (((fields >> at) & _LOW) == np.uint64(0x2E)).all():
        return None
    values = (fields ^ _ZERO) & ~(_LOW << at)  # a digit is its value; the point counts as a zero
    other = (values + _TEN) & _TOP  # top bit of each byte that is no digit
    lead = (other << np.uint64(8)) | np.uint64(0x80)
    if ((other >> np.uint64(8 * (dot - 1))) != 0).any() or ((other & ~lead) != 0).any():
        return None
    mask = (other >> np.uint64(7)) * _LOW
    signs = (fields ^ _SPACE) & mask  # zero where the other characters are blanks
    last = mask & ~(mask >> np.uint64(8)) & _MINUS
    negative = signs != 0
    if (negative & (signs != last)).any():
        return None
    digits = values & ~mask
    pairs = (digits * np.uint64(10) + (digits >> np.uint64(8))) & _PAIRS
    lanes = pairs.view(np.uint16).reshape(-1, 4).astype(np.float64)
    found = (lanes @ np.array([1e5, 1e3, 1e2 if dot == 4 else 1e1, 1.0])).reshape(fields.shape)
    return np.where(negative, -found, found)


def stripped(words: NDArray[np.uint32]) -> _Words:
    """Names of up to four characters without the blanks around them, as eight bytes with zeros behind."""
    for _ in range(3):
        blank = (words & np.uint32(0xFF)) == 32
        if not blank.any():
            break
        words = np.where(blank, words >> np.uint32(8), words)
    for shift in (24, 16, 8, 0):
        words = np.where((words >> np.uint32(shift)) == 32, words & np.uint32((1 << shift) - 1), words)
    return words.astype(np.uint64)


def _residues(rows: NDArray[np.uint8]) -> dict[str, Any] | None:
    """Residue columns, a row an atom, and where residues begin."""
    n = len(rows)
    head, tail = _word(rows, 17, 25, np.uint64), _word(rows, 19, 27, np.uint64)
    new = np.ones(n, bool)
    new[1:] = (head[1:] != head[:-1]) | (tail[1:] != tail[:-1])
    first = np.flatnonzero(new)
    some = rows[first]
    text = some[:, 22:26]
    numbers = _integers(text)
    key = np.sort(head[first] * np.uint64(0x9E3779B97F4A7C15) + (tail[first] >> np.uint64(40)))
    if numbers is None or (key[1:] == key[:-1]).any():  # equal keys: atoms apart (or, once in ages, a collision)
        return None
    names = np.full((len(first), 4), 32, np.uint8)
    names[:, :3] = some[:, 17:20]
    insertion = some[:, 26].copy()
    insertion[insertion == 32] = 0
    chain = some[:, 21].astype(np.uint64)
    chain[chain == 32] = 0
    return {
        "first": first,
        "residue_name": stripped(np.ascontiguousarray(names).view(np.uint32).ravel()),
        "residue_chain": chain,
        "residue_number": numbers,
        "residue_insertion": insertion,
    }


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
