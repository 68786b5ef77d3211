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
_BLANK: Final = ord(" ")
_MINUS: Final = ord("-")
_POINT: Final = ord(".")
_NEWLINE: Final = ord("\n")
_ZERO: Final = ord("0")


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


def find_lines(
    text: NDArray[np.uint8],
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.uint32]]:
    """Start and length of each line, without its end, and the four bytes from its start on as one integer,
    zeros past the end of the file.
    """
    start, length, record, whole = _lines(text, len(text) // 40 + 16)  # atom lines are twice as long
    if not whole:
        start, length, record, _ = _lines(text, int(np.count_nonzero(text == _NEWLINE)) + 1)
    return start, length, record


@kernel
def _lines(
    text: NDArray[np.uint8], room: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.uint32], bool]:
    """As above for so many lines at the most, and whether these were all."""
    size = len(text)
    start, length, record = np.empty(room, np.int64), np.empty(room, np.int64), np.empty(room, np.uint32)
    n, at = 0, 0
    while at < size and n < room:
        end = at + 80  # nearly all lines have as many characters, and are passed in one step
        shorter = np.uint8(1)
        if end < size and text[end] == _NEWLINE:
            line = text[at:end]
            shorter = np.uint8(0)
            for k in range(80):  # of bytes alone, hence sixteen and more at once
                shorter |= np.uint8(line[k] == _NEWLINE)
        if shorter:
            end = at
            while end < size and text[end] != _NEWLINE:
                end += 1
        word = np.uint32(0)
        for k in range(min(4, size - at)):
            word |= np.uint32(text[at + k]) << np.uint32(8 * k)
        start[n], length[n], record[n] = at, end - at, word
        n, at = n + 1, end + 1
    return start[:n], length[:n], record[:n], at >= size


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
    text = np.frombuffer(data, np.uint8)
    strict, atoms, residues = _read(text, start, length, _ELEMENTS, _CHARGES)
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
    start: NDArray[np.int64],
    length: NDArray[np.int64],
    elements: NDArray[np.uint8],
    charges: NDArray[np.int8],
) -> tuple[bool, tuple[Any, ...], tuple[Any, ...]]:
    """Whether all lines are strict, columns of atoms, columns of residues; half filled if not."""
    n = len(start)
    position, name = np.empty((n, 3)), np.empty(n, np.uint64)
    element, charge, altloc = np.empty(n, np.uint8), np.empty(n, np.int8), np.empty(n, np.uint8)
    occupancy, b_factor = np.empty(n, np.float32), np.empty(n, np.float32)
    first, number = np.empty(n, np.int64), np.empty(n, np.int32)
    residue, chain, insertion = np.empty(n, np.uint64), np.empty(n, np.uint64), np.empty(n, np.uint64)
    strict, r = True, 0
    for i in range(n):
        at = start[i]
        line = text[at : at + length[i]]
        x, y, z = _number(line, 30, 4, 3), _number(line, 38, 4, 3), _number(line, 46, 4, 3)
        some, heat = _number(line, 54, 3, 2), _number(line, 60, 3, 2)
        element[i] = elements[_pair(line, 76)]
        charge[i] = charges[_pair(line, 78)]
        strict = min(x, y, z, some, heat) > _BAD and element[i] != 255 and charge[i] != 127
        if not strict or line[20] != _BLANK or line[27] != _BLANK:
            strict = False
            break
        position[i, 0], position[i, 1], position[i, 2] = x / 1000.0, y / 1000.0, z / 1000.0
        occupancy[i], b_factor[i] = some / 100.0, heat / 100.0
        name[i] = _name(line, 12, 16)
        altloc[i] = line[16] if line[16] != _BLANK else 0
        new = i == 0
        if not new:
            before = text[start[i - 1] + 17 : start[i - 1] + 27]
            for k in range(10):
                new |= before[k] != line[17 + k]
        if new:
            value = _number(line, 22, 4, 0)
            if value == _BAD:
                strict = False
                break
            first[r], number[r], residue[r] = i, value, _name(line, 17, 20)
            chain[r] = line[21] if line[21] != _BLANK else 0
            insertion[r] = line[26] if line[26] != _BLANK else 0
            r += 1
    atoms = (position, element, charge, name, altloc, occupancy, b_factor)
    return strict, atoms, (first[:r], residue[:r], chain[:r], number[:r], insertion[:r])


@kernel
def _number(line: NDArray[np.uint8], at: int, whole: int, decimals: int) -> Any:
    """A number of so many characters before its point and digits behind it, times a power of ten; _BAD if it
    is anything but blanks, perhaps a minus, digits, a point, digits.
    """
    end = at + whole
    while at < end - 1 and line[at] == _BLANK:
        at += 1
    negative = line[at] == _MINUS
    at += negative
    value: Any = 0
    bad: Any = at == end
    for k in range(at, end):
        digit = np.int64(line[k]) - _ZERO
        bad |= digit < 0 or digit > 9
        value = 10 * value + digit
    if decimals:
        bad |= line[end] != _POINT
        for k in range(end + 1, end + 1 + decimals):
            digit = np.int64(line[k]) - _ZERO
            bad |= digit < 0 or digit > 9
            value = 10 * value + digit
    return _BAD if bad else -value if negative else value


@kernel
def _pair(line: NDArray[np.uint8], at: int) -> Any:
    """Two characters as a 16-bit integer, blank past the end of the line."""
    first = np.int64(line[at]) if at < len(line) else _BLANK
    second = np.int64(line[at + 1]) if at + 1 < len(line) else _BLANK
    return first | second << 8


@kernel
def _name(line: NDArray[np.uint8], at: int, end: int) -> np.uint64:
    """Some characters without the blanks around them, as eight bytes with zeros behind."""
    while at < end and line[at] == _BLANK:
        at += 1
    while end > at and (line[end - 1] == _BLANK or line[end - 1] == 0):
        end -= 1
    word = np.uint64(0)
    for k in range(at, end):
        word |= np.uint64(line[k]) << np.uint64(8 * (k - at))
    return word


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
