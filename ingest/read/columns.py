"""The fixed columns of PDB atom lines, in one loop over all of them.

This costs a quarter of a parser for every dialect. It is strict: whatever is not written exactly as the
format says gives None, and the caller falls back on gemmi.
"""

from __future__ import annotations

from typing import Any, Final

import gemmi
import numpy as np
from numpy.typing import NDArray

from ..kernel import kernel

_BAD: Final = -(1 << 40)  # what is no number; those of the format have seven digits
_REACH: Final = 72  # characters of a line that are read without a look at its length
_BLANK: Final = ord(" ")
_POINT: Final = ord(".")
_NEWLINE: Final = ord("\n")
_RETURN: Final = ord("\r")
_ZERO: Final = ord("0")
# Marks of two characters of a number, above their value: a minus; not led by a digit; blank; " -"; none.
_NEGATIVE: Final = 1 << 8
_OPEN: Final = 1 << 9
_EMPTY: Final = 1 << 10
_BARE: Final = 1 << 11
_NONE: Final = 1 << 12


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


def _numbers() -> NDArray[np.int16]:
    """Two characters of a right-aligned number, as a 16-bit integer -> value and marks."""
    table = np.full(1 << 16, _NONE, np.int16)
    table[int.from_bytes(b"  ", "little")] = _OPEN | _EMPTY
    table[int.from_bytes(b" -", "little")] = _OPEN | _NEGATIVE | _BARE
    for value in range(100):
        table[int.from_bytes(b"%02d" % value, "little")] = value
    for value in range(10):
        table[int.from_bytes(b" %d" % value, "little")] = _OPEN | value
        table[int.from_bytes(b"-%d" % value, "little")] = _OPEN | _NEGATIVE | value
    return table


_ELEMENTS: Final = _elements()
_CHARGES: Final = _charges()
_NUMBERS: Final = _numbers()


def find_lines(
    text: NDArray[np.uint8],
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.uint32], bool]:
    """Start and length of each line, without its end, and the four bytes from its start on as one integer,
    zeros past the end of the file; whether all is ASCII without carriage returns.
    """
    start, length, record, plain, whole = _lines(text, len(text) // 40 + 16)  # atom lines are twice as long
    if not whole:
        start, length, record, plain, _ = _lines(text, int(np.count_nonzero(text == _NEWLINE)) + 1)
    return start, length, record, plain


@kernel
def _lines(
    text: NDArray[np.uint8], room: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.uint32], bool, bool]:
    """As above for so many lines at the most, and whether these were all."""
    size = len(text)
    start, length, record = np.empty(room, np.int64), np.empty(room, np.int64), np.empty(room, np.uint32)
    n, at = 0, 0
    least, every, returns = np.uint8(0), np.uint8(0), False
    while at < size and n < room:
        end = at + 80  # nearly all lines have as many characters, and are passed in one step
        if end < size and text[end] == _NEWLINE:
            line = text[at:end]
            least = np.uint8(255)
            for k in range(80):  # of bytes alone, hence sixteen and more at once
                least = min(least, line[k])
                every |= line[k]
        if end >= size or text[end] != _NEWLINE or least < _BLANK:
            end = at
            while end < size and text[end] != _NEWLINE:
                every |= text[end]
                returns |= text[end] == _RETURN
                end += 1
        word = np.uint32(0)
        for k in range(min(4, size - at)):
            word |= np.uint32(text[at + k]) << np.uint32(8 * k)
        start[n], length[n], record[n] = at, end - at, word
        n, at = n + 1, end + 1
    return start[:n], length[:n], record[:n], bool(every < 128 and not returns), at >= size


def read_columns(
    data: bytes, start: NDArray[np.int64], length: NDArray[np.int64], het: NDArray[np.bool_]
) -> dict[str, Any] | None:
    """Columns of atom lines, as ``structure.assemble`` takes them.

    Parameters
    ----------
    start, length : of the atom lines in the data, each of 66 characters or more
    het : mask of the HETATM lines

    Returns
    -------
    None if any line is not written strictly in the columns of the format, names an element or a charge
    that is none, or belongs to a residue whose atoms are not together.
    """
    if int(start[-1]) + _REACH > len(data):
        data += b"\n" * _REACH
    text = np.frombuffer(data, np.uint8)
    words = np.ndarray((len(text) - 7,), np.uint64, text, strides=(1,))  # from every byte on, eight
    strict, atoms, residues = _read(text, words, start, length, _ELEMENTS, _CHARGES, _NUMBERS)
    if not strict:
        return None
    position, element, charge, name, altloc, occupancy, b_factor = atoms
    first, residue_name, chain, number, insertion = residues
    key = chain | insertion << np.uint64(8) | number.view(np.uint32).astype(np.uint64) << np.uint64(16)
    key ^= residue_name * np.uint64(0x9E3779B97F4A7C15)
    order = key.argsort()
    again = order[1:][key[order[1:]] == key[order[:-1]]]  # residues met before, or once in ages a collision
    if len(again) and _parts_of_one(data, start, first, key, again):
        return None
    return {
        "first": first,
        "position": position,
        "element": element,
        "charge": charge,
        "name": name,
        "altloc": altloc,
        "occupancy": occupancy,
        "b_factor": b_factor,
        "residue_het": het,
        "residue_name": residue_name,
        "residue_chain": chain,
        "residue_number": number,
        "residue_insertion": insertion.astype(np.uint8),
    }


@kernel
def _read(
    text: NDArray[np.uint8],
    words: NDArray[np.uint64],
    start: NDArray[np.int64],
    length: NDArray[np.int64],
    elements: NDArray[np.uint8],
    charges: NDArray[np.int8],
    numbers: NDArray[np.int16],
) -> tuple[bool, tuple[Any, ...], tuple[Any, ...]]:
    """Whether all lines are strict, columns of atoms, columns of residues; half filled if not."""
    n = len(start)
    position, name = np.empty((n, 3)), np.empty(n, np.uint64)
    element, charge, altloc = np.empty(n, np.uint8), np.empty(n, np.int8), np.empty(n, np.uint8)
    occupancy, b_factor = np.empty(n, np.float32), np.empty(n, np.float32)
    first, number = np.empty(n, np.int64), np.empty(n, np.int32)
    residue, chain, insertion = np.empty(n, np.uint64), np.empty(n, np.uint64), np.empty(n, np.uint64)
    strict, r = True, 0
    before, behind = np.uint64(0), np.uint64(0)
    for i in range(n):
        at = start[i]
        x = _number(words, numbers, at + 30, 4, 3)
        y = _number(words, numbers, at + 38, 4, 3)
        z = _number(words, numbers, at + 46, 4, 3)
        some, heat = _number(words, numbers, at + 54, 3, 2), _number(words, numbers, at + 60, 3, 2)
        element[i] = elements[_pair(text, at + 76, at + length[i])]
        charge[i] = charges[_pair(text, at + 78, at + length[i])]
        strict = min(x, y, z, some, heat) > _BAD and element[i] != 255 and charge[i] != 127
        if not strict or text[at + 20] != _BLANK or text[at + 27] != _BLANK:
            strict = False
            break
        position[i, 0], position[i, 1], position[i, 2] = x / 1000.0, y / 1000.0, z / 1000.0
        occupancy[i], b_factor[i] = some / 100.0, heat / 100.0
        name[i] = _name(words[at + 12], 4)
        altloc[i] = text[at + 16] if text[at + 16] != _BLANK else 0
        here, more = words[at + 17], words[at + 19]  # name, chain, number, insertion code: ten characters
        if i == 0 or here != before or more != behind:
            value = _number(words, numbers, at + 22, 4, 0)
            if value == _BAD:
                strict = False
                break
            first[r], number[r], residue[r] = i, value, _name(here, 3)
            chain[r] = text[at + 21] if text[at + 21] != _BLANK else 0
            insertion[r] = text[at + 26] if text[at + 26] != _BLANK else 0
            r += 1
        before, behind = here, more
    atoms = (position, element, charge, name, altloc, occupancy, b_factor)
    return strict, atoms, (first[:r], residue[:r], chain[:r], number[:r], insertion[:r])


@kernel
def _number(words: NDArray[np.uint64], numbers: NDArray[np.int16], at: int, whole: int, decimals: int) -> Any:
    """A number of three or four characters before its point and digits behind it, times a power of ten; _BAD
    if it is anything but blanks, perhaps a minus, digits, a point, digits. Two characters are one look-up.
    """
    head = np.int64(words[at] & np.uint64(0xFFFF))
    if whole == 3:
        head = _BLANK | (head & 0xFF) << 8
    end = at + whole
    u, v = np.int64(numbers[head]), np.int64(numbers[np.int64(words[end - 2] & np.uint64(0xFFFF))])
    bad = ((u | v) & _NONE) | (v & (_EMPTY | _BARE)) | (v & _OPEN & ~((u & _EMPTY) >> 1))
    value: Any = 100 * (u & 0xFF) + (v & 0xFF)
    if decimals:
        tail = words[end]
        w = np.int64(numbers[np.int64(tail >> np.uint64(8) & np.uint64(0xFFFF))])
        bad |= (w >> 8) | (np.int64(tail & np.uint64(0xFF)) ^ _POINT)
        value = 100 * value + w
        if decimals == 3:
            digit = np.int64(tail >> np.uint64(24) & np.uint64(0xFF)) - _ZERO
            bad |= digit < 0 or digit > 9
            value = 10 * value + digit
    return _BAD if bad else -value if (u | v) & _NEGATIVE else value


@kernel
def _pair(text: NDArray[np.uint8], at: int, end: int) -> Any:
    """Two characters as a 16-bit integer, blank past the end of the line."""
    first = np.int64(text[at]) if at < end else _BLANK
    second = np.int64(text[at + 1]) if at + 1 < end else _BLANK
    return first | second << 8


@kernel
def _name(word: np.uint64, size: int) -> np.uint64:
    """The first characters of a word without the blanks around them, with zeros behind."""
    name = word & np.uint64((1 << 8 * size) - 1)
    for _ in range(size):
        name = name >> np.uint64(8) if name & np.uint64(0xFF) == _BLANK else name
    for k in range(size):
        last = np.uint64(8 * (size - 1 - k))
        name = name ^ np.uint64(_BLANK) << last if name >> last == _BLANK else name
    return name


def _parts_of_one(
    data: bytes,
    start: NDArray[np.int64],
    first: NDArray[np.int64],
    key: NDArray[np.uint64],
    again: NDArray[np.int64],
) -> bool:
    """True if a residue lies in several parts of the file; False if these are several residues of one name
    and number, each with the same atoms, as where a program left out the chains.
    """
    stop = np.append(first[1:], len(start))
    for later in again.tolist():
        parts = [range(int(first[k]), int(stop[k])) for k in np.flatnonzero(key == key[later]).tolist()]
        # With their alternate letters.
        names = [{data[start[i] + 12 : start[i] + 17] for i in part} for part in parts]
        if any(name[4] > _BLANK for part in names for name in part) or not set.intersection(*names):
            return True
    return False
