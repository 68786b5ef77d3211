"""Tables in a source that its layout does not read: said aloud, since labels are easily lost in silence.

`auto` may take a folder for PDBbind though the user meant the table beside the structures, which has a
column too few or is cut short. A broken table near the root, or several that could be meant, is an error.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from ...shards.errors import UsageError
from .labels import LabelColumns, pick, read_table
from .source import Request, Source
from .table import Columns, Table, has_files
from .tree import SUFFIXES, plain

MOST: Final = 32  # tables looked at
_TEXT: Final = re.compile(r"label|affinit|activit", re.IGNORECASE)  # what a .txt is called that is a table


@dataclass(frozen=True, slots=True)
class Stray:
    """A table that is not read, what it is, and whether that must stop the run."""

    name: str
    said: str
    stops: bool = False


def strays(request: Request, source: Source | None) -> list[Stray]:
    """Tables near the root that a layout chosen by ``auto`` leaves unread; all of them for None."""
    tree = request.tree
    if request.labels is not None or isinstance(source, Table) or not (tree.is_folder or tree.kind):
        return []
    own = getattr(source, "tables", ())
    near = [name for name in tree.peek if name.count("/") <= 1 and plain(name).lower().endswith(SUFFIXES)]
    near = [name for name in near if not plain(name).lower().endswith(".txt") or _TEXT.search(name)]
    found = [_look(request, name) for name in near if not plain(name).endswith(own or "\0")][:MOST]
    lists = [stray for stray in found if stray.said == _LIST]
    if len(lists) == 1:  # the layout `table` would have taken it, were its files there
        return [Stray(s.name, _NO_FILES) if s.said == _LIST else s for s in found]
    if any(has_files(request, tree.locator(stray.name)) for stray in lists):
        return [Stray(s.name, s.said, stops=True) if s.said == _LIST else s for s in found]
    return found


_LIST: Final = "it could be the list of complexes: say so with --labels"
_NO_FILES: Final = "it names structure files, but none of its first rows' is there"


def _look(request: Request, name: str) -> Stray:
    try:
        header = read_table(request.tree.locator(name)).columns
    except UsageError as error:
        return Stray(name, str(error), stops="/" not in name)
    columns, labels = Columns.of(header), LabelColumns.of(header)
    said = ", ".join(header)[:200]
    if not columns.missing:
        return Stray(name, _LIST)
    if len(header) == 1:
        return Stray(name, f"it has one column, {said[:60]!r}: what separates its columns?")
    if columns.id and (labels.value or labels.text or labels.named or pick(header, ("label",))):
        return Stray(name, f"it has labels by {columns.id}: --labels {name} joins them to the complexes")
    return Stray(name, f"it has the columns {said} and lacks {' and '.join(columns.missing)}")
