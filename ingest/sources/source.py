"""What a layout is: one file, one small class, three methods at most."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from ..item import Item, Rejection
from .tree import Tree


@dataclass(frozen=True, slots=True)
class Request:
    """What the user asked to be read.

    Attributes
    ----------
    tree : the files
    labels : a table of labels beside the files, or None
    """

    tree: Tree
    labels: Path | None = None


class Source(Protocol):
    """A layout in the wild.

    ``name`` is what ``--layout`` calls it. ``recognise`` says why a tree is of this layout, "" if it is
    not. ``items`` yields one Item a complex, in an order that depends on the files alone, or a Rejection
    for what the source names and cannot give: nothing is left out without a word. A layout with tables of its
    own may name their endings in ``tables``; any other table near the root is reported as unread.
    """

    name: str

    def recognise(self, request: Request) -> str:
        """Why this tree is of this layout, "" if it is not."""

    def items(self, request: Request) -> Iterator[Item | Rejection]:
        """The complexes, in a fixed order."""
