"""Date and resolution from a source's own columns, for structure files that do not state them.

PDBbind's index has resolution and release year, PLINDER's release date and resolution; a table may have any
of them. With them a split by time and the filter of resolution work on files that were stripped bare.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from functools import lru_cache
from typing import Final

from ..item import Item
from ..read.pdb import as_date
from .labels import canonical

# In the order of preference; a release follows a deposition by months.
DATE: Final = (
    "deposition_date", "deposited", "deposit_date", "entry_deposition_date", "date", "release_date",
    "entry_release_date", "deposition_year", "year", "release_year", "entry_release_year",
)  # fmt: skip
RESOLUTION: Final = (
    "resolution",
    "resolution_a",
    "resolution_angstrom",
    "resolution_(a)",
    "entry_resolution",
)
_NUMBER: Final = re.compile(r"\d+(?:[.,]\d+)?(?=\s*(?:å|a|angstroms?)?$)", re.IGNORECASE)
_WORST: Final = 100.0  # angstrom


def dated(item: Item) -> Item:
    """The item with the date and resolution of its columns, as far as it has none yet."""
    dates, resolutions = _picked(tuple(item.columns))
    if not dates and not resolutions:
        return item
    day = item.deposited or next(filter(None, (to_date(item.columns[name]) for name in dates)), 0)
    sharp = item.resolution or next(filter(None, (to_resolution(item.columns[n]) for n in resolutions)), 0.0)
    return replace(item, deposited=day, resolution=sharp)


@lru_cache(maxsize=64)  # the items of a source have the same columns
def _picked(columns: tuple[str, ...]) -> tuple[Sequence[str], Sequence[str]]:
    known = {canonical(column): column for column in reversed(columns)}
    dates, resolutions = ([known[name] for name in names if name in known] for names in (DATE, RESOLUTION))
    return dates, resolutions


def to_date(text: str) -> int:
    """yyyymmdd of "1998-03-27", "1998/03/27 00:00:00", "19980327", "27-MAR-98"; "1998" is its first day.

    0 for anything else, "03/04/1998" among it, which is April to some and March to others.
    """
    words = text.strip().replace("/", "-").replace("T", " ").split(" ")[0] if text.strip() else ""
    if re.fullmatch(r"\d{4}(\.0)?", words):
        words = f"{words[:4]}-01-01"
    elif re.fullmatch(r"\d{8}(\.0)?", words):
        words = f"{words[:4]}-{words[4:6]}-{words[6:8]}"
    if not re.fullmatch(r"\d{4}-\d\d?-\d\d?|\d\d?-[A-Za-z]{3}-\d\d", words):
        return 0
    found = as_date(words)
    try:
        date(found // 10000, found // 100 % 100, found % 100)
    except ValueError:
        return 0
    return found if 1900 < found // 10000 < 2100 else 0


def to_resolution(text: str) -> float:
    """Angstrom of "2.10" or "2.1 Å"; 0 for "NMR" and whatever else is no resolution."""
    match = _NUMBER.match(text.strip())
    value = float(match[0].replace(",", ".")) if match else 0.0
    return value if 0 < value < _WORST else 0.0
