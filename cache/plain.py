"""Values as plain data, without pickle: numbers, text, arrays; lists, dictionaries, dataclasses of these."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from hashlib import sha256
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

MAGIC: Final = b"HSVALUE1"
TREE = "tree"


def digest(value: Any) -> str:
    """64 hexadecimal digits of the content: equal values have the same, in every process.

    Raises
    ------
    TypeError : it holds something that is not plain
    """
    tree, arrays = _take_apart(value)
    found = sha256(json.dumps(tree, sort_keys=True, separators=(",", ":")).encode())
    for array in arrays:
        found.update(f"{array.dtype.str}{array.shape}".encode())
        found.update(np.ascontiguousarray(array).data if array.size else b"")
    return found.hexdigest()


def dump(value: Any) -> bytes:
    """The value as bytes, with a checksum; TypeError if it holds something that is not plain."""
    tree, arrays = _take_apart(value)
    file = io.BytesIO()
    text = np.frombuffer(json.dumps(tree).encode(), np.uint8)
    np.savez(file, allow_pickle=False, **{TREE: text, **{f"a{i}": a for i, a in enumerate(arrays)}})
    body = file.getvalue()
    return MAGIC + sha256(body).digest() + body


def load(data: bytes, types: Sequence[type] = ()) -> Any:
    """Undo :func:`dump`; dataclasses and enumerations must be among ``types``.

    Raises
    ------
    ValueError : the bytes are not those that were written, or hold another type
    """
    start = len(MAGIC) + 32
    if data[: len(MAGIC)] != MAGIC or sha256(data[start:]).digest() != data[len(MAGIC) : start]:
        raise ValueError("damaged: not the bytes that were written")
    with np.load(io.BytesIO(data[start:]), allow_pickle=False) as file:
        arrays = [file[f"a{i}"] for i in range(len(file.files) - 1)]
        tree = json.loads(file[TREE].tobytes())
    return _put_together(tree, arrays, {_name(t): t for t in types})


def _take_apart(value: Any) -> tuple[Any, list[NDArray[Any]]]:
    arrays: list[NDArray[Any]] = []
    return _encode(value, arrays), arrays


def _encode(value: Any, arrays: list[NDArray[Any]]) -> Any:
    """A tree for JSON in which whatever JSON does not know is ``[kind, ...]``."""
    if isinstance(value, Enum):
        return ["enum", _name(type(value)), value.value]
    if value is None or isinstance(value, bool | str):
        return value
    if type(value) in (int, float):
        return value if type(value) is int else ["float", value.hex()]
    if isinstance(value, np.ndarray | np.generic):
        if value.dtype.hasobject:
            raise TypeError("an array of Python objects cannot be kept; give it a numeric or text dtype")
        arrays.append(np.asarray(value))
        return ["array" if isinstance(value, np.ndarray) else "scalar", len(arrays) - 1]
    if isinstance(value, bytes):
        return ["bytes", value.hex()]
    if isinstance(value, list | tuple):
        return ["list" if isinstance(value, list) else "tuple", *(_encode(v, arrays) for v in value)]
    if isinstance(value, Mapping):
        items = sorted(value.items(), key=lambda item: (type(item[0]).__name__, str(item[0])))
        return ["dict", *([_encode(k, arrays), _encode(v, arrays)] for k, v in items)]
    if is_dataclass(value) and not isinstance(value, type):
        return ["dataclass", _name(type(value)),
                *(_encode(getattr(value, f.name), arrays) for f in fields(value))]  # fmt: skip
    raise TypeError(
        f"a {type(value).__name__} cannot be kept; return numbers, text, arrays, or lists, dictionaries and "
        "dataclasses of these"
    )


def _put_together(tree: Any, arrays: list[NDArray[Any]], types: Mapping[str, type]) -> Any:
    if not isinstance(tree, list):
        return tree
    kind, *rest = tree
    if kind in ("array", "scalar"):
        return arrays[rest[0]] if kind == "array" else arrays[rest[0]][()]
    if kind in ("float", "bytes"):
        return float.fromhex(rest[0]) if kind == "float" else bytes.fromhex(rest[0])
    if kind in ("dataclass", "enum"):
        if rest[0] not in types:
            raise ValueError(f"holds a {rest[0]}, which is not among the types to expect")
        values = [_put_together(v, arrays, types) for v in rest[1:]]
        made = types[rest[0]]
        return made(**dict(zip((f.name for f in fields(made)), values, strict=True))
                    ) if kind == "dataclass" else made(values[0])  # fmt: skip
    if kind == "dict":
        return {_put_together(k, arrays, types): _put_together(v, arrays, types) for k, v in rest}
    items = [_put_together(v, arrays, types) for v in rest]
    return items if kind == "list" else tuple(items)


def _name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"
