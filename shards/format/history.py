"""How a data set came about, as its manifest tells: what commands read again must be what they expect."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ..errors import FormatError

# Keys that holoshard reads again, where they are there; every other key is the writer's own.
MAKING: Final[Mapping[str, type]] = {
    "seed": int, "seen": int, "same_id": int, "same_content": int, "id_conflicts": int,
    "numbers": list, "appended": list, "split": dict,
}  # fmt: skip
SPLIT: Final[Mapping[str, type]] = {
    "method": str,
    "seed": int,
    "n_groups": int,
    "left_out": int,
    "groups_by": str,
}
APPENDED: Final[Mapping[str, type]] = {"generation": int, "n_complexes": int}
WORDS: Final[Mapping[type, str]] = {int: "a whole number", list: "a list", dict: "an object", str: "text"}


def check_history(making: Mapping[str, Any], where: str) -> None:
    """FormatError if a key of ``making`` that is read again holds something else than it should."""
    _check(making, MAKING, f"{where}: making")
    if "split" in making:
        _check(making["split"], SPLIT, f"{where}: making.split", complete=True)
    for number, share in enumerate(making.get("appended", ())):
        _check(share, APPENDED, f"{where}: making.appended[{number}]", complete=True)
    if not all(isinstance(name, str) for name in making.get("numbers", ())):
        raise FormatError(f"{where}: making.numbers is {making['numbers']!r:.60}, expected names of columns")


def _check(told: Any, kinds: Mapping[str, type], where: str, complete: bool = False) -> None:
    if not isinstance(told, Mapping):
        raise FormatError(f"{where} is {told!r:.60}, expected an object with keys such as {', '.join(kinds)}")
    for key, kind in kinds.items():
        if key not in told:
            if complete:
                raise FormatError(f"{where} lacks the key {key}")
            continue
        value = told[key]
        fits = isinstance(value, kind) and not isinstance(value, bool)
        if not fits or (kind is int and not 0 <= value < 1 << 53):
            raise FormatError(f"{where}.{key} is {value!r:.60}, expected {WORDS[kind]}")
