"""Complexes to columns and back."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..complex import (
    FIELDS,
    KINDS,
    RAGGED_AXES,
    RELATIONS,
    Affinity,
    Axis,
    Complex,
    Field,
    Flag,
)
from ..errors import FormatError
from .block import Block, blank, dtype_name, widest
from .codec import from_fixed, to_fixed
from .container import POSITION_SCALE

FIELD_OF: Final[Mapping[str, Field]] = {f.key: f for f in FIELDS}
_JSON: Final = json.JSONEncoder(sort_keys=True, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
ARRAY_FIELDS: Final = tuple(f for f in FIELDS if f.axis in ("atom", "bond", "residue"))
_KEYS: Final = tuple((f.key, f.axis) for f in FIELDS)
_ARRAYS: Final = (*(f.key for f in ARRAY_FIELDS), "centre")
_FIXED: Final = tuple(f.key for f in FIELDS if f.per_unit)
_NUMBERS: Final[tuple[tuple[str, Any], ...]] = (
    ("n_ligand_atoms", int), ("deposited", int), ("pocket_radius", float), ("resolution", float),
    ("flags", lambda code: Flag(int(code))),
)  # fmt: skip
SIZE_KEY: Final[Mapping[Axis, str]] = {"atom": "element", "bond": "bond_order", "residue": "residue_type"}


def stack(complexes: Sequence[Complex]) -> Block:
    """Complexes as one raw block. They must have passed :func:`holoshard.shards.make.check.check`."""
    texts = [dump_text(c) for c in complexes]
    counts: dict[Axis, NDArray[np.int64]] = {
        a: np.array([len(getattr(c, k)) for c in complexes], np.int64) for a, k in SIZE_KEY.items()
    }
    counts["text"] = np.array([len(t) for t in texts], np.int64)
    fields = dict(FIELD_OF)
    columns: dict[str, NDArray[Any]] = {}
    for f in ARRAY_FIELDS:
        array = np.concatenate([getattr(c, f.key) for c in complexes])
        columns[f.key] = to_fixed(array, f) if f.per_unit else array.astype(f.dtype, copy=False)
        fields[f.key] = widest(
            f, Field(f.axis, f.name, dtype_name(columns[f.key].dtype), f.shape, per_unit=f.per_unit)
        )
    rows = [_complex_row(c) for c in complexes]
    for f in FIELDS:
        if f.axis == "complex":
            columns[f.key] = np.array([r[f.name] for r in rows], f.dtype).reshape(len(rows), *f.shape)
    columns["text_json"] = np.frombuffer(b"".join(texts), np.uint8)
    for f in _extra_fields(complexes):
        fields[f.key] = f
        columns[f.key] = np.concatenate([_extra_rows(c, f) for c in complexes])
    return Block.of(fields, columns, counts)


def complex_at(block: Block, row: int) -> Complex:
    """Complex ``row`` of a decoded block, raw or not; its arrays are copies, so that the block can go."""
    rows: dict[Axis, Any] = {"complex": row}
    for axis in RAGGED_AXES:
        start = int(block.starts[axis][row])
        rows[axis] = slice(start, start + int(block.counts[axis][row]))
    columns = block.columns
    values = {key: columns[key][rows[axis]] for key, axis in _KEYS if key in columns}
    for key in _FIXED:
        if key in values:
            values[key] = _value(values[key], block.fields[key])
    if len(values) < len(_KEYS):  # written by an older minor version
        values.update(_blanks(block, row, values))
    text = parse_text(values.pop("text_json"))
    affinity = Affinity(
        float(values.pop("pk")),
        _word(RELATIONS, values.pop("pk_relation"), "pk_relation"),
        _word(KINDS, values.pop("pk_kind"), "pk_kind"),
        int(values.pop("pk_count")),
        float(values.pop("pk_spread")),
        str(text.get("label", "")),
    )
    for name, kind in _NUMBERS:
        values[name] = kind(values[name])
    for name in _ARRAYS:
        values[name] = values[name].copy()
    own = [(k, f) for k, f in block.fields.items() if k not in FIELD_OF and k in columns]
    extra = {f.path: _value(columns[k][rows[f.axis]], f).copy() for k, f in own}
    return Complex(**values, affinity=affinity, text=text, extra=extra)


def _value(array: NDArray[Any], field: Field) -> NDArray[Any]:
    """Values of a column that may be as stored."""
    return from_fixed(array, field.per_unit) if field.per_unit and array.dtype.kind == "i" else array


def valued(block: Block) -> Block:
    """A block with the values of its fixed-point columns, if it is raw."""
    return replace(block, columns={k: _value(a, block.fields[k]) for k, a in block.columns.items()})


def _blanks(block: Block, row: int, present: Mapping[str, Any]) -> dict[str, Any]:
    """Values of the fields that a block lacks."""
    found = {}
    for f in FIELDS:
        if f.key not in present:
            column = blank(f, 1 if f.axis == "complex" else int(block.counts[f.axis][row]))
            column = from_fixed(column, f.per_unit) if f.per_unit else column
            found[f.key] = column[0] if f.axis == "complex" else column
    return found


def dump_text(c: Complex) -> bytes:
    """The text record as JSON, keys sorted, with the label as written."""
    text = {**c.text, "label": c.affinity.text} if c.affinity.text else dict(c.text)
    try:
        return _JSON.encode(text).encode()
    except (TypeError, ValueError) as error:
        raise FormatError(f"the text of complex {c.text.get('id')!r} is not JSON: {error}") from error


def parse_text(codes: NDArray[np.uint8]) -> dict[str, Any]:
    """Undo :func:`dump_text`."""
    try:
        text = json.loads(codes.tobytes())
    except (ValueError, RecursionError) as error:
        raise FormatError(f"the text of a complex is not JSON: {error}") from error
    if not isinstance(text, dict) or not isinstance(text.get("id"), str):
        raise FormatError("the text of a complex has no id")
    return text


def texts_of(block: Block) -> list[dict[str, Any]]:
    """The text records of a block that holds ``text_json``."""
    ends = np.cumsum(block.counts["text"]).tolist()
    codes = block.columns["text_json"]
    return [parse_text(codes[a:b]) for a, b in zip([0, *ends[:-1]], ends, strict=True)]


def _complex_row(c: Complex) -> dict[str, Any]:
    flags = int(c.flags) & ~int(Flag.OUT_OF_RANGE)
    if np.abs(c.position).max(initial=0.0) > POSITION_SCALE:
        flags |= int(Flag.OUT_OF_RANGE)
    return {
        "n_ligand_atoms": c.n_ligand_atoms, "pk": c.affinity.pk,
        "pk_relation": RELATIONS.index(c.affinity.relation), "pk_kind": KINDS.index(c.affinity.kind),
        "pk_count": min(c.affinity.count, 65535), "pk_spread": c.affinity.spread,
        "centre": c.centre, "pocket_radius": c.pocket_radius,
        "resolution": c.resolution, "deposited": c.deposited, "flags": flags,
    }  # fmt: skip


def _extra_fields(complexes: Sequence[Complex]) -> list[Field]:
    found: dict[str, Field] = {}
    for c in complexes:
        for path, value in c.extra.items():
            field = extra_field(path, np.asarray(value))
            found[path] = widest(found[path], field) if path in found else field
    return [found[path] for path in sorted(found)]


def extra_field(path: str, value: NDArray[Any]) -> Field:
    """The field of a user's own column ``axis/name``; bool becomes uint8."""
    axis, _, name = path.partition("/")
    if axis not in (*RAGGED_AXES[:3], "complex") or not name.isidentifier() or not name.isascii():
        raise FormatError(
            f"extra column {path!r}: expected a name like atom/NAME, bond/NAME, residue/NAME or complex/NAME"
        )
    dtype = np.dtype(np.uint8) if value.dtype.kind == "b" else value.dtype
    if dtype.kind not in "iuf" or dtype.itemsize > 8:
        raise FormatError(f"extra column {path!r}: dtype {value.dtype} is not a number of at most 8 bytes")
    field = Field(axis, name, dtype_name(dtype), value.shape if axis == "complex" else value.shape[1:])
    if field.key in FIELD_OF or field.path.endswith(("_count", "_start")):
        raise FormatError(f"extra column {path!r}: this name is taken; choose another")
    return field


def _extra_rows(c: Complex, field: Field) -> NDArray[Any]:
    n = 1 if field.axis == "complex" else len(getattr(c, SIZE_KEY[field.axis]))
    if field.path not in c.extra:
        return blank(field, n)
    value = np.asarray(c.extra[field.path]).astype(field.dtype)
    return value[None] if field.axis == "complex" else value


def _word(words: tuple[str, ...], code: Any, name: str) -> str:
    if int(code) >= len(words):
        raise FormatError(
            f"{name} is {int(code)}, known are 0 to {len(words) - 1}; a newer holoshard may know"
        )
    return words[int(code)]
