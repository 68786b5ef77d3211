"""Lists of complexes that are a test set for everyone, and files that name splits."""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ..errors import UsageError

SHIPPED: Final = {"casf-2016": "casf_2016.txt"}  # of PDB codes
MAX_BYTES: Final = 1 << 28


def read_list(name: str) -> frozenset[str]:
    """Ids of a list, in lower case: the name of a shipped one, or a file with an id a line."""
    path = Path(__file__).with_name(SHIPPED[name]) if name in SHIPPED else Path(name)
    lines = (line.partition("#")[0].strip() for line in _text(path, "--test-list").splitlines())
    found = frozenset(line.lower() for line in lines if line)
    if not found:
        raise UsageError(f"--test-list {name} holds no id; expected an id a line")
    return found


def members(ids: Sequence[str], name: str) -> NDArray[np.bool_]:
    """Which complexes a list names, shape (n,).

    Case does not matter. A shipped list is of PDB codes, and an id belongs to it also if it begins with the
    code and then has no letter or digit, such as ``1a30_ligand`` or ``1a30__1__1.A__1.B``.
    """
    listed = read_list(name)

    def listed_as(name_of: str) -> bool:
        first = re.split(r"[^a-z0-9]", name_of, maxsplit=1)[0] if name in SHIPPED else name_of
        return name_of in listed or first in listed

    return np.array([listed_as(i.lower()) for i in ids], bool)


def read_splits(path: Path) -> dict[str, str]:
    """Id -> split, from a CSV or TSV file with the columns ``id`` and ``split``.

    UsageError, with the line, if a row has another number of fields than the header.
    """
    lines = _text(path, "--split-file").splitlines()
    table = csv.DictReader(lines, delimiter="\t" if lines and "\t" in lines[0] else ",")
    try:
        return _splits_of(table, path)
    except csv.Error as error:
        raise UsageError(
            f"--split-file {path}: line {table.reader.line_num} is no row of a table: {error}"
        ) from error


def _splits_of(table: csv.DictReader[str], path: Path) -> dict[str, str]:
    if not {"id", "split"} <= set(table.fieldnames or ()):
        raise UsageError(f"--split-file {path}: expected a table with the columns id and split; found "
                         f"{', '.join(table.fieldnames or ()) or 'nothing'}")  # fmt: skip
    found = dict[str, str]()
    for row in table:
        if None in row or None in row.values():
            raise UsageError(f"--split-file {path}: line {table.line_num} has another number of fields than "
                             f"the {len(table.fieldnames or ())} of the header")  # fmt: skip
        name, split = row["id"].strip(), row["split"].strip()
        if found.setdefault(name, split) != split:
            raise UsageError(f"--split-file {path}: {name!r} is in {found[name]!r} and in {split!r}")
    return found


def _text(path: Path, option: str) -> str:
    if not path.is_file():
        names = ", ".join(SHIPPED)
        raise UsageError(
            f"{option} {path} is not a file"
            + (f"; lists that are shipped: {names}" if "list" in option else "")
        )
    if path.stat().st_size > MAX_BYTES:
        raise UsageError(f"{option} {path} is too large for a list of ids")
    return path.read_text(encoding="utf-8-sig", errors="replace")
