"""Named arrays as one run of bytes, and back without a copy: what lets any tier keep decoded blocks.

8 bytes   length of the header, little-endian
header    JSON: a list of [name, dtype, shape, offset]
arrays    each at a multiple of 64 bytes from the start
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from .errors import SettingError
from .tier import Data

Arrays = Mapping[str, NDArray[Any]]

LINE: Final = 64  # bytes of a cache line
PLAIN: Final = "biufc"  # kinds of dtypes that are nothing but their bytes


def pack(arrays: Arrays) -> memoryview:
    """Arrays of plain numbers as bytes; SettingError for any other."""
    rows, at = list[tuple[str, str, list[int], int]](), 0
    for name, array in arrays.items():
        if array.dtype.kind not in PLAIN:
            raise SettingError(f"{name!r} is an array of {array.dtype}; only plain numbers can be kept")
        rows.append((name, array.dtype.str, list(array.shape), at))
        at += _lines(array.nbytes)
    header = json.dumps(rows).encode()
    start = _lines(8 + len(header))
    out = bytearray(start + at)
    out[:8] = len(header).to_bytes(8, "little")
    out[8 : 8 + len(header)] = header
    for (*_, offset), array in zip(rows, arrays.values(), strict=True):
        np.ndarray(array.shape, array.dtype, out, start + offset)[...] = array
    return memoryview(out).toreadonly()


def unpack(data: Data) -> dict[str, NDArray[Any]]:
    """Views of what :func:`pack` made; they cannot be written to.

    Raises
    ------
    ValueError : these bytes were not made by :func:`pack`
    """
    view = memoryview(data).toreadonly()
    size = int.from_bytes(view[:8], "little")
    rows = json.loads(bytes(view[8 : 8 + size]))
    start = _lines(8 + size)
    arrays = {}
    for name, dtype, shape, offset in rows:
        kind = np.dtype(dtype)
        if (
            kind.kind not in PLAIN
            or offset < 0
            or start + offset + math.prod(shape) * kind.itemsize > len(view)
        ):
            raise ValueError(f"{name!r} does not lie within {len(view)} bytes")
        arrays[name] = np.ndarray(tuple(shape), kind, view, start + offset)
    return arrays


def _lines(size: int) -> int:
    return -(-size // LINE) * LINE
