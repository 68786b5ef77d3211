"""Which columns a shard holds, in which order, cut how, packed how."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..complex import FIELDS, RAGGED_AXES, Axis, Field
from ..errors import FormatError
from .block import widest
from .codec import Codec, Codecs, parse_codec

BLOCK_SIZE: Final = 256  # complexes
MAX_BLOCK_SIZE: Final = 1 << 16
MAX_CHUNK_ROWS: Final = 1 << 24
MAX_BLOCK_BYTES: Final = 1 << 30  # unpacked; a file that asks for more is refused
# A column of a block is one chunk where it can be: blocks of shuffled complexes differ little in size.
# Each call of a codec costs as much as unpacking some 10 kB.
CHUNK_SLACK: Final = 1.125
CHUNK_STEP: Final = 256  # rows
CHUNK_LIMIT: Final = 1 << 19

COUNTS: Final = tuple(Field("complex", f"{a}_count", "<u4", doc=f"rows on the {a} axis") for a in RAGGED_AXES)
STARTS: Final = tuple(
    Field("complex", f"{a}_start", "<i8", doc=f"first row in the flat arrays {a}/* of this file")
    for a in RAGGED_AXES
)
# The start of every block holds what a trainer reads, so that its ranges are short.
HOT: Final = (
    *(f.path for f in COUNTS),
    "complex/n_ligand_atoms", "complex/pk", "complex/pk_relation", "complex/pk_kind", "complex/flags",
    "atom/position", "atom/element", "atom/charge", "atom/hybridisation", "atom/aromatic", "atom/degree",
    "atom/residue", "residue/type", "bond/atoms", "bond/order",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Column:
    """One array of a shard file.

    Attributes
    ----------
    field : what it holds; ``field.dtype`` is the dtype in this shard
    chunk_rows : rows a chunk
    codec : packs its chunks
    """

    field: Field
    chunk_rows: int
    codec: Codec

    @property
    def chunk_shape(self) -> tuple[int, ...]:
        """Shape of one chunk."""
        return (self.chunk_rows, *self.field.shape)

    @property
    def row_bytes(self) -> int:
        """Bytes of one row, unpacked."""
        return np.dtype(self.field.dtype).itemsize * math.prod(self.field.shape)

    @property
    def chunk_bytes(self) -> int:
        """Bytes of one chunk, unpacked."""
        return self.chunk_rows * self.row_bytes


@dataclass(frozen=True)
class Layout:
    """The columns of a shard, in the order of a block's bytes."""

    block_size: int
    columns: tuple[Column, ...]

    @cached_property
    def index(self) -> dict[str, int]:
        """Place of each column by key."""
        return {c.field.key: i for i, c in enumerate(self.columns)}

    @cached_property
    def fields(self) -> dict[str, Field]:
        """Key -> field, without the counts and starts that every shard has."""
        own = {f.key for f in COUNTS + STARTS}
        return {c.field.key: c.field for c in self.columns if c.field.key not in own}

    @cached_property
    def chunk_rows(self) -> dict[Axis, int]:
        """Rows of a chunk on each ragged axis: all columns of an axis are cut alike."""
        return {c.field.axis: c.chunk_rows for c in self.columns if c.field.axis != "complex"}

    @cached_property
    def axes(self) -> NDArray[np.int64]:
        """Per column the place of its axis in RAGGED_AXES, or their number for the complex axis."""
        order: tuple[Axis, ...] = (*RAGGED_AXES, "complex")
        return np.array([order.index(c.field.axis) for c in self.columns])

    def n_chunks(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Chunks of each column; ``rows`` (..., 4) of the ragged axes -> (..., n_columns)."""
        chunk_rows = np.array([c.chunk_rows for c in self.columns])
        all_rows = np.concatenate([rows, np.ones((*rows.shape[:-1], 1), np.int64)], axis=-1)
        chunks: NDArray[np.int64] = np.maximum(1, -(-all_rows[..., self.axes] // chunk_rows))
        return chunks

    def unpacked_bytes(self, rows: NDArray[np.int64]) -> NDArray[np.float64]:
        """Bytes of a block once unpacked, as floats that cannot overflow; ``rows`` as for n_chunks."""
        found: NDArray[np.float64] = self.n_chunks(rows) @ np.array(
            [float(c.chunk_bytes) for c in self.columns]
        )
        return found

    def merged(self, fields: Mapping[str, Field], codecs: Codecs) -> Layout:
        """This layout, wide enough for ``fields`` too; itself if it is already."""
        mine = self.fields
        wider = {**mine, **{k: widest(mine[k], f) if k in mine else f for k, f in fields.items()}}
        if wider == mine:
            return self
        return make_layout(wider.values(), self.block_size, self.chunk_rows, codecs)

    def to_json(self) -> list[dict[str, Any]]:
        """Columns as plain data."""
        return [
            {
                **field_to_json(c.field),
                "chunk_rows": c.chunk_rows,
                "codec": c.codec.name,
            }
            for c in self.columns
        ]


def make_layout(
    fields: Iterable[Field], block_size: int, chunk_rows: Mapping[Axis, int], codecs: Codecs
) -> Layout:
    """Order the columns: counts, then what a trainer reads, then the rest in the order of FIELDS."""
    if not 1 <= block_size <= MAX_BLOCK_SIZE:
        raise FormatError(f"block_size is {block_size}; it must be 1 to {MAX_BLOCK_SIZE}")
    known = {f.path: i for i, f in enumerate(FIELDS)}
    everything = (*COUNTS, *STARTS, *fields)
    hot = {path: i for i, path in enumerate(HOT)}
    ordered = sorted(
        everything,
        key=lambda f: (hot.get(f.path, len(hot)), f.axis == "text", known.get(f.path, len(known)), f.path),
    )
    rows: dict[Axis, int] = {**chunk_rows, "complex": block_size}
    return Layout(block_size, tuple(Column(f, rows[f.axis], codecs.of(f, f.path in hot)) for f in ordered))


def chunk_rows_for(rows: Mapping[Axis, int]) -> dict[Axis, int]:
    """Chunk lengths for a shard whose first block has so many rows."""
    steps = {a: max(1, math.ceil(rows[a] * CHUNK_SLACK / CHUNK_STEP)) for a in RAGGED_AXES}
    return {a: min(CHUNK_LIMIT, n * CHUNK_STEP) for a, n in steps.items()}


def field_to_json(field: Field) -> dict[str, Any]:
    """A field as plain data."""
    return {
        "axis": field.axis, "name": field.name, "dtype": field.dtype, "shape": list(field.shape),
        "unit": field.unit, "per_unit": field.per_unit, "like": field.codec, "doc": field.doc,
    }  # fmt: skip


def field_from_json(data: Mapping[str, Any]) -> Field:
    """Undo :func:`field_to_json`; FormatError if it is not a field this version can read."""
    try:
        field = Field(
            data["axis"], str(data["name"]), str(data["dtype"]), tuple(int(n) for n in data["shape"]),
            str(data.get("unit", "")), str(data.get("doc", "")), int(data.get("per_unit", 0)),
            "positions" if data.get("like") == "positions" else "bytes",
        )  # fmt: skip
        dtype = np.dtype(field.dtype)
    except (KeyError, TypeError, ValueError) as error:
        raise FormatError(f"a column is described by {data!r}, which is not readable: {error}") from error
    if field.axis not in (*RAGGED_AXES, "complex"):
        raise FormatError(f"{field.path}: axis {field.axis!r} is not one of {(*RAGGED_AXES, 'complex')}")
    if not field.name.isidentifier():
        raise FormatError(f"{field.path}: the name must be letters, digits and underscores")
    if dtype.kind not in "iuf" or dtype.newbyteorder("<") != dtype or dtype.itemsize > 8:
        raise FormatError(f"{field.path}: dtype {field.dtype!r} is not a little-endian number")
    if len(field.shape) > 4 or any(n < 1 for n in field.shape) or math.prod(field.shape) > 1 << 16:
        raise FormatError(f"{field.path}: rows of shape {field.shape} are not supported")
    if field.per_unit < 0 or (field.per_unit and dtype.kind != "i"):
        raise FormatError(
            f"{field.path}: per_unit {field.per_unit} needs a signed integer, not {field.dtype}"
        )
    return field


def layout_from_json(block_size: int, columns: Sequence[Mapping[str, Any]]) -> Layout:
    """Undo :meth:`Layout.to_json`, checking everything."""
    if not isinstance(block_size, int) or not 1 <= block_size <= MAX_BLOCK_SIZE:
        raise FormatError(f"block_size is {block_size!r}; it must be 1 to {MAX_BLOCK_SIZE}")
    found = []
    for data in columns:
        field, rows = field_from_json(data), data.get("chunk_rows")
        limit = block_size if field.axis == "complex" else MAX_CHUNK_ROWS
        if not isinstance(rows, int) or not 1 <= rows <= limit or (field.axis == "complex" and rows != limit):
            raise FormatError(f"{field.path}: chunk_rows is {rows!r}; at most {limit} expected")
        found.append(Column(field, rows, parse_codec(str(data.get("codec")))))
    layout = Layout(block_size, tuple(found))
    if len(layout.index) != len(found):
        raise FormatError("two columns have the same name")
    for count in COUNTS:
        if layout.fields.get(count.key) or layout.index.get(count.key) is None:
            raise FormatError(f"the column {count.path} is missing")
        if replace(layout.columns[layout.index[count.key]].field, doc="") != replace(count, doc=""):
            raise FormatError(f"the column {count.path} is not uint32, one a complex")
    return layout
