"""The files of a source: a folder, one file, or an archive read in place. Layouts see names and no more."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Final

from ...shards.errors import StructureError, UsageError
from ..item import Locator, Rejection
from ..read import archive

PACKED: Final = (".gz", ".zst")
SUFFIXES: Final = (".csv", ".tsv", ".txt", ".parquet")  # of tables, packed or not
PEEKED: Final = 4096  # names that a layout may look at before it says whether it knows them


def plain(name: str) -> str:
    """A name without the suffix of its compression."""
    for suffix in PACKED:
        name = name.removesuffix(suffix)
    return name


def folders_of(names: Iterable[str]) -> dict[str, list[str]]:
    """File names by folder ("" is the root), both sorted."""
    found: dict[str, list[str]] = {}
    for name in sorted(names):
        folder, _, base = name.rpartition("/")
        found.setdefault(folder, []).append(base)
    return dict(sorted(found.items()))


def join(folder: str, base: str) -> str:
    """The name of a file in a folder of a tree."""
    return f"{folder}/{base}" if folder else base


class Tree:
    """Names, relative and with "/" between folders, and the way from a name to its bytes."""

    def __init__(self, path: Path) -> None:
        if not path.exists():
            raise UsageError(f"there is no {path}; give a folder, a table or an archive")
        if not path.is_dir() and not path.is_file():
            raise UsageError(f"{path} is a pipe, socket or device; give a folder, a table or an archive")
        self.path = path
        self.kind = "" if path.is_dir() else archive.archive_kind(path)

    @property
    def is_folder(self) -> bool:
        """True for a folder on disk."""
        return self.path.is_dir()

    @property
    def root(self) -> Path:
        """The folder that relative paths of this source start from."""
        return self.path if self.is_folder else self.path.parent

    @property
    def is_walked(self) -> bool:
        """True if all names are known already, so that asking for them costs nothing."""
        return "names" in vars(self)

    @cached_property
    def names(self) -> list[str]:
        """Every file, sorted; entries of an archive that must not be read are no files."""
        return sorted(self._walk())

    @cached_property
    def peek(self) -> list[str]:
        """The first few thousand files, near the root first: enough to recognise a layout."""
        return sorted(islice(self._walk(), PEEKED), key=lambda name: (name.count("/"), name))

    @cached_property
    def folders(self) -> dict[str, list[str]]:
        """File names by folder ("" is the root), both sorted."""
        return folders_of(self.names)

    def locator(self, name: str) -> Locator:
        """Where the file of this name lies."""
        if self.is_folder:
            return Locator(self.path / name)
        if not self.kind:
            return Locator(self.path)
        member = self._members[0][name]
        return Locator(self.path, member.name, member.offset, member.size)

    def has(self, name: str) -> bool:
        """True if there is a file of this name."""
        if self.is_folder:
            return os.path.lexists(self.path / name) and not (self.path / name).is_dir()
        return name in self._members[0] if self.kind else name == self.path.name

    def text(self, name: str) -> str:
        """The file's content as text, unpacked; bytes that are not UTF-8 are read as Latin-1."""
        data = archive.load(self.locator(name))
        try:
            return data.decode("utf-8-sig")
        except UnicodeDecodeError:
            return data.decode("latin-1")

    def rejections(self) -> Iterator[Rejection]:
        """One for each entry of an archive that must not be read."""
        for name, fault in sorted(self._members[1].items()):
            yield Rejection(name, "unsafe_member", f"{self.path}!{name} is refused: {fault}")

    def _walk(self) -> Iterator[str]:
        if self.is_folder:
            yield from _files(self.path)
        elif not self.kind:
            yield self.path.name
        else:
            yield from self._members[0]

    @cached_property
    def _members(self) -> tuple[dict[str, archive.Member], dict[str, str]]:
        """Members of an archive by name, the last of a name as tar has it; and what must not be read, why."""
        found: dict[str, archive.Member] = {}
        faults: dict[str, str] = {}
        try:
            for member in archive.members(self.path) if self.kind else ():
                if member.fault:
                    faults[member.name] = member.fault
                else:
                    found[member.name.removeprefix("./")] = member
        except StructureError as error:
            raise UsageError(f"{error}; list it with tar or unzip to see where it breaks") from error
        return found, faults


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself leads nowhere
        return False


def _files(root: Path) -> Iterator[str]:
    """Breadth first, so that a glance sees the shape; a linked folder is entered once, so loops end.

    Whatever is no folder is named, pipes and links that lead nowhere among it: its reader says what it is.
    """
    queue, linked = [""], {os.path.realpath(root)}
    while queue:
        deeper = []
        for folder in queue:
            with os.scandir(root / folder) as entries:
                for entry in sorted(entries, key=lambda entry: entry.name):
                    name = f"{folder}/{entry.name}" if folder else entry.name
                    if entry.name.startswith("."):
                        continue
                    if _is_folder(entry):
                        real = os.path.realpath(entry.path) if entry.is_symlink() else ""
                        if real not in linked:
                            deeper.append(name)
                        linked |= {real} - {""}
                    else:
                        yield name
        queue = deeper
