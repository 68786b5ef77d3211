"""Every layout that is known, how one is chosen, and the items of a run.

A layout of your own needs no change here: ``--layout package.module:Class``.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, cast

from ...shards.errors import StructureError, UsageError
from ..item import Item, Locator, Rejection
from .crossdocked import CrossDocked
from .dated import dated
from .dude import Dude
from .labels import LabelTable, header_of, pick
from .misato import Misato
from .openfe import OpenFe
from .pairs import Pairs
from .pdbbind import Pdbbind, parse_index
from .plinder import Plinder
from .posebusters import PoseBusters
from .predicted import Predicted
from .rcsb import Rcsb
from .sair import Sair
from .source import Request, Source
from .stray import strays
from .table import LIGAND, STRUCTURE, Table, refuse_absent
from .tree import Tree

log = logging.getLogger("holoshard")

# `auto` takes the first that recognises a source.
LAYOUTS: Final[tuple[Source, ...]] = (
    Table(), Sair(), Plinder(), OpenFe(), Dude(), PoseBusters(), Pdbbind(), CrossDocked(), Misato(),
    Predicted(), Rcsb(), Pairs(),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Chosen:
    """One source with its layout, why it was taken for that, and the tables in it that are not read."""

    source: Source
    request: Request
    why: str
    joined: LabelTable | None = None
    unread: tuple[str, ...] = ()

    def items(self) -> Iterator[Item | Rejection]:
        """The complexes, with labels joined by id where the labels are a table of their own."""
        yield from self.request.tree.rejections()
        for item in self.source.items(self.request):
            if isinstance(item, Rejection):
                yield item
                continue
            if self.joined is not None:
                labels, row = self.joined.find(item.id)
                columns = {**item.columns, **row}
                smiles = item.smiles or row.get(self.joined.smiles, "").strip()
                item = replace(item, labels=labels or item.labels, columns=columns, smiles=smiles)
            yield dated(item)


def choose(path: Path, layout: str = "auto", labels: Path | None = None) -> Chosen:
    """Take a source for a layout. Raises UsageError if none fits or the name is unknown."""
    request = Request(Tree(path), _find_labels(path, labels))
    joined = _separate_labels(request.labels)
    if layout != "auto":
        return Chosen(named(layout), request, "as --layout says", joined)
    for source in LAYOUTS:
        if joined is not None and isinstance(source, Table):
            continue
        why = source.recognise(request)
        if why:
            log.info("%s: layout %s, because %s", path, source.name, why)
            return Chosen(source, request, why, joined, _unread(request, source))
    refuse_absent(request)
    tables = "".join(f"; {stray.name}: {stray.said}" for stray in strays(request, None))
    raise UsageError(
        f"{path} is of no layout that is known ({', '.join(s.name for s in LAYOUTS)}): say which with "
        f"--layout, or write a table with columns id, protein, ligand, affinity{tables}"
    )


def _unread(request: Request, source: Source) -> tuple[str, ...]:
    """Names of the tables that are not read, each said. Raises UsageError where one may be what is meant."""
    found = strays(request, source)
    for stray in found:
        if stray.stops:
            raise UsageError(
                f"{request.tree.path} looks like the layout {source.name}, but {stray.name} lies there: "
                f"{stray.said}; mend or name it, or say --layout {source.name} to read without it"
            )
        log.warning("%s is not read: %s", stray.name, stray.said)
    return tuple(stray.name for stray in found)


def named(layout: str) -> Source:
    """A layout by its name, or by the place of a user's own class."""
    for source in LAYOUTS:
        if source.name == layout:
            return source
    module, _, name = layout.partition(":")
    if not name:
        known = ", ".join(["auto", *(source.name for source in LAYOUTS)])
        raise UsageError(f"there is no layout {layout!r}; known are {known}, or package.module:Class")
    try:
        return cast(Source, getattr(importlib.import_module(module), name)())
    except (ImportError, AttributeError) as error:
        raise UsageError(f"the layout {layout!r} cannot be loaded: {error}") from error


def items(chosen: Sequence[Chosen], *, apart: bool = False) -> Iterator[Item | Rejection]:
    """The items of all sources, one after the other.

    Parameters
    ----------
    apart : an item of several measurements becomes one of each, named ``id@1``, ``id@2``, ..., or ``id@1@``
        where the source itself has an ``id@1``
    """
    taken = {item.id for one in chosen for item in one.items()} if apart else set[str]()
    for one in chosen:
        for item in one.items():
            if apart and isinstance(item, Item) and len(item.labels) > 1:
                for number, label in enumerate(item.labels, 1):
                    name = f"{item.id}@{number}"
                    while name in taken:
                        name += "@"
                    taken.add(name)
                    yield replace(item, id=name, labels=(label,))
            else:
                yield item


def _find_labels(source: Path, labels: Path | None) -> Path | None:
    """The labels file: as given, or inside the source."""
    if labels is None:
        return None
    for place in (labels, source / labels):
        if place.is_file():
            return place
        if place.exists():
            raise UsageError(f"the labels {place} are no regular file; give a CSV, TSV or Parquet file")
    raise UsageError(f"there is no labels file {labels}, neither here nor in {source}")


def _separate_labels(labels: Path | None) -> LabelTable | None:
    """The labels as a table by id, if they are one that names no structure files."""
    if labels is None:
        return None
    header = header_of(Locator(labels))
    if pick(header, STRUCTURE) or pick(header, LIGAND):
        return None
    try:
        if parse_index(Tree(labels).text(labels.name)):
            return None
    except StructureError as error:
        raise UsageError(f"the labels {labels} cannot be read: {error}") from error
    return LabelTable(labels)
