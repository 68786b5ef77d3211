"""BinaryCIF: columns of a CIF file as packed arrays.

Text columns stay what they are on disk: integer codes and a table of the different strings. A column of
two million atom names then costs four megabytes and no Python string an atom. Numerical encodings are
undone by biotite. The format: Sehnal et al., PLoS Comput. Biol. 16 (2020) e1008247.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import msgpack
import numpy as np
from biotite.structure.io.pdbx.encoding import decode_stepwise, deserialize_encoding
from numpy.typing import NDArray

from ...shards.errors import StructureError

# What reading a damaged or foreign MessagePack document raises, in msgpack, biotite and numpy.
FAULTS: Final = (
    msgpack.exceptions.UnpackException,
    ValueError,
    KeyError,
    IndexError,
    TypeError,
    AttributeError,
    OverflowError,
    MemoryError,
)


@dataclass(frozen=True, slots=True, eq=False)
class Column:
    """One column: numbers, or codes into a table of strings.

    Attributes
    ----------
    values : numbers, shape (n,); for a text column the row in ``table`` of each value, -1 for ""
    table : shape (k,) of dtype S, the different strings as UTF-8; None for a column of numbers
    missing : mask, shape (n,), of "." and "?"; None if there is none
    """

    values: NDArray[Any]
    table: NDArray[np.bytes_] | None
    missing: NDArray[np.bool_] | None

    def __len__(self) -> int:
        return len(self.values)

    def text(self, width: int = 8) -> NDArray[np.bytes_]:
        """Values as zero-padded bytes, dtype S<width>, cut there; b"" where missing."""
        if self.table is None:
            found = np.array([b"%d" % v if v == int(v) else b"%g" % v for v in self.values.tolist()],
                             dtype=f"S{width}") if len(self.values) else np.zeros(0, f"S{width}")  # fmt: skip
        else:
            padded = np.append(self.table.astype(f"S{width}"), np.zeros(1, f"S{width}"))  # code -1
            found = padded[self.values]
        return found if self.missing is None else np.where(self.missing, np.bytes_(b""), found)

    def strings(self) -> list[str]:
        """Values as text, "" where missing."""
        width = 400 if self.table is None else max(self.table.dtype.itemsize, 1)
        return [value.decode("utf-8", "replace") for value in self.text(width).tolist()]

    def numbers(self, dtype: str, default: float) -> NDArray[Any]:
        """Values as numbers, ``default`` where missing or not a number."""
        if self.table is None:
            found = self.values.astype(dtype)
        else:
            parsed = np.append(np.array([_number(s, default) for s in self.table.tolist()], dtype), default)
            found = parsed.astype(dtype)[self.values]
        return found if self.missing is None else np.where(self.missing, np.asarray(default, dtype), found)


Category = Mapping[str, Column]


def _number(text: bytes, default: float) -> float:
    try:
        return float(text)
    except ValueError:
        return default


def _strings(encoding: Mapping[str, Any]) -> NDArray[np.bytes_]:
    """Table of a StringArray encoding, shape (k,)."""
    joined = encoding["stringData"]
    steps = [deserialize_encoding(e) for e in encoding["offsetEncoding"]]
    offsets = decode_stepwise(encoding["offsets"], steps).tolist()
    cut = [joined[a:b].encode() for a, b in pairwise(offsets)]
    return np.array(cut, dtype="S") if cut else np.zeros(0, "S1")


def _column(raw: Mapping[str, Any]) -> Column:
    data, mask = raw["data"], raw.get("mask")
    first = data["encoding"][0]
    table = None
    if first["kind"] == "StringArray":
        table = _strings(first)
        values = decode_stepwise(data["data"], [deserialize_encoding(e) for e in first["dataEncoding"]])
        if len(values) and (values.min() < -1 or values.max() >= len(table)):
            raise ValueError(f"column {raw['name']!r} points outside its table of strings")
    else:
        values = decode_stepwise(data["data"], [deserialize_encoding(e) for e in data["encoding"]])
    missing = None
    if mask is not None:
        missing = decode_stepwise(mask["data"], [deserialize_encoding(e) for e in mask["encoding"]]) != 0
        if len(missing) != len(values):
            raise ValueError(f"column {raw['name']!r} has a mask of another length")
        missing = missing if missing.any() else None
    return Column(values, table, missing)


def read_categories(data: bytes, wanted: Mapping[str, tuple[str, ...]]) -> dict[str, dict[str, Column]]:
    """Categories and columns of the first block; those asked for and no others are decoded.

    Parameters
    ----------
    data : a BinaryCIF file
    wanted : category without the leading underscore -> names of columns

    Raises
    ------
    StructureError
        ``parse_failed`` if the document is not BinaryCIF or is damaged.
    """
    try:
        block = msgpack.unpackb(data, raw=False, strict_map_key=False)["dataBlocks"][0]
        found: dict[str, dict[str, Column]] = {}
        for category in block["categories"]:
            name = category["name"].lstrip("_")
            if name in wanted:
                columns = {c["name"]: c for c in category["columns"]}
                found[name] = {k: _column(columns[k]) for k in wanted[name] if k in columns}
        return found
    except FAULTS as error:
        raise StructureError("parse_failed", f"not readable as BinaryCIF: {error!r}") from error
