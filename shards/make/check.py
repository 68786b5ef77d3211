"""Is a complex fit to be written? Everything a reader will rely on."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..complex import FIELDS, KINDS, RELATIONS, TEXT_KEYS, VOCABULARIES, Complex
from ..errors import FormatError
from ..format.records import ARRAY_FIELDS, SIZE_KEY, extra_field

MAX_ROWS: Final = 65535  # atoms, bonds or residues of one complex: indices are uint16
MAX_ID_BYTES: Final = 255
_WORDS: Final = tuple(f.key for f in FIELDS if f.key in VOCABULARIES and f.axis != "complex")


def check(c: Complex) -> None:
    """FormatError, naming the complex and the field, if a complex breaks the record layout."""
    _check_text(c)
    where = f"complex {c.id!r}"
    n = {axis: len(getattr(c, key)) for axis, key in SIZE_KEY.items()}
    if not 1 <= c.n_ligand_atoms <= n["atom"]:
        raise FormatError(
            f"{where}: n_ligand_atoms is {c.n_ligand_atoms} of {n['atom']} atoms; expected 1 or more"
        )
    for axis, size in n.items():
        if size > MAX_ROWS:
            raise FormatError(
                f"{where}: {size} rows on the {axis} axis; at most {MAX_ROWS} fit; use a smaller pocket"
            )
    for field in ARRAY_FIELDS:
        array, shape = getattr(c, field.key), (n[field.axis], *field.shape)
        if array.shape != shape:
            raise FormatError(f"{where}: {field.key} has shape {array.shape}, expected {shape}")
        expected = field.value_dtype
        if array.dtype != expected and not _fits(array, expected):
            raise FormatError(f"{where}: {field.key} is {array.dtype}, expected {expected}")
        if expected.kind == "f" and not np.isfinite(array).all():
            raise FormatError(f"{where}: {field.key} has a value that is not a finite number")
    _check_rows(c, where, n)
    _check_values(c, where)
    for path, value in c.extra.items():
        _check_extra(path, np.asarray(value), where, n)


def _check_text(c: Complex) -> None:
    name: Any = c.text.get("id")
    if not isinstance(name, str) or not name or len(name.encode(errors="replace")) > MAX_ID_BYTES:
        raise FormatError(f"a complex has the id {name!r:.80}; expected text of 1 to {MAX_ID_BYTES} bytes")
    if not name.isprintable():
        raise FormatError(f"complex {name!r}: an id may not hold control characters")
    unknown = set(c.text) - set(TEXT_KEYS)
    if unknown:
        raise FormatError(
            f"complex {name!r}: unknown text {sorted(unknown)[0]!r}; put it into text['columns']"
        )


def _check_rows(c: Complex, where: str, n: dict[Any, int]) -> None:
    if c.residue.max(initial=0) >= max(1, n["residue"]) or (n["atom"] and not n["residue"]):
        raise FormatError(f"{where}: an atom belongs to residue {c.residue.max(initial=0)} of {n['residue']}")
    if n["bond"]:
        first, second = c.bond_atoms[:, 0], c.bond_atoms[:, 1]
        if not (first < second).all():
            raise FormatError(f"{where}: a bond's first atom is not before its second")
        if second.max() >= n["atom"]:
            raise FormatError(f"{where}: a bond names atom {second.max()} of {n['atom']}")


def _check_values(c: Complex, where: str) -> None:
    for key in _WORDS:
        codes, words = getattr(c, key), VOCABULARIES[key]
        if codes.max(initial=0) >= len(words):
            raise FormatError(f"{where}: {key} is {codes.max()}; its vocabulary has {len(words)} words")
    label = c.affinity
    if label.relation not in RELATIONS or label.kind not in KINDS:
        raise FormatError(
            f"{where}: affinity {label.relation!r} {label.kind!r} is not in RELATIONS and KINDS"
        )
    if np.isinf(label.pk) or (np.isnan(label.pk) and label.is_censored):
        raise FormatError(f"{where}: a pK of {label.pk} with the relation {label.relation!r} says nothing")
    if label.count < 0 or not np.isfinite(label.spread):
        raise FormatError(f"{where}: affinity has count {label.count} and spread {label.spread}")
    if np.shape(c.centre) != (3,) or not np.isfinite(c.centre).all():
        raise FormatError(f"{where}: centre is {c.centre}, expected three finite numbers")
    if not -(1 << 31) <= c.deposited < 1 << 31 or not 0 <= int(c.flags) < 1 << 32:
        raise FormatError(f"{where}: deposited {c.deposited} or flags {int(c.flags)} is out of range")


def _check_extra(path: str, value: NDArray[Any], where: str, n: dict[Any, int]) -> None:
    field = extra_field(path, value)
    if field.axis != "complex" and len(value) != n[field.axis]:
        raise FormatError(f"{where}: extra column {path} has {len(value)} rows, expected {n[field.axis]}")


def _fits(array: NDArray[Any], expected: np.dtype[Any]) -> bool:
    """True if every value survives the conversion."""
    if array.dtype.kind not in "iufb" or (array.dtype.kind == "f" and expected.kind != "f"):
        return False
    if expected.kind == "f" or not array.size:
        return True
    limits = np.iinfo(expected)
    return bool(array.min() >= limits.min and array.max() <= limits.max)
