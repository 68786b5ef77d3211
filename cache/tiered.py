"""Tiers in a row, fastest first, in front of a source: a callable that a reader takes for the file system."""

from __future__ import annotations

import importlib
import logging
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from .checksum import crc32
from .disk import DiskTier
from .errors import SettingError, SourceError
from .extents import Extents, read_extents
from .memory import MemoryTier
from .policy import policy_named
from .remote import source_for
from .shared import SharedTier
from .source import Patient, PosixSource, Source
from .tier import Data, Key, Range, Tier, format_size, parse_size

log = logging.getLogger("holoshard")

OWN = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")  # a class in a module
REMEMBERED = 1 << 18  # ranges whose entries are remembered; about 500 bytes each


class TieredCache:
    """Bytes of ranges of files, from the fastest tier that has them; safe in threads and after a fork.

    A tier that lacks a range asks the next, then the source, and may keep what comes: what a fast tier
    holds is in the slower ones, too, so the largest tier sets the hit ratio. With ``extents`` the unit is a
    whole block; without, each range as it was asked for.

    Parameters
    ----------
    tiers : fastest first
    source : where bytes come from when no tier has them; files of this machine if not given
    dataset : fingerprint of the content; that of ``extents`` if not given
    root : folder of the data set, so that a copy elsewhere finds the same entries
    extents : blocks of the data set
    attempts : how often a fetch is tried when errors are transient
    """

    def __init__(
        self,
        tiers: Sequence[Tier],
        source: Source | None = None,
        *,
        dataset: str = "",
        root: str | Path = "",
        extents: Extents | None = None,
        attempts: int = 5,
    ) -> None:
        if extents is None and not dataset:
            raise SettingError("a cache needs the data set's fingerprint, or stale bytes would be served")
        self.tiers, self.extents = tuple(tiers), extents
        self.source = Patient(source or PosixSource(), attempts)
        self.dataset = dataset or (extents.dataset if extents else "")
        self.root = str(root or (extents.root if extents else ""))
        self._units: dict[tuple[str, int, int], tuple[Key, int | None]] = {}
        self._names: dict[str, tuple[str, bool]] = {}  # path -> name, and whether it is inside

    def __call__(self, path: str, offset: int, length: int) -> Data:
        """The bytes of a range; fewer only if the file ends.

        Raises
        ------
        SourceError : no tier has the range and the source does not give it, or gives a damaged block
        """
        key, crc = self._unit(str(path), offset, length)
        data = self._load(key, str(path), crc)
        if key.offset == offset and key.length == length:
            return data
        return memoryview(data)[offset - key.offset : offset - key.offset + length]

    def key(self, path: str, offset: int, length: int) -> Key:
        """The entry that serves a range: what a policy and a prefetcher speak of."""
        return self._unit(str(path), offset, length)[0]

    def holds(self, key: Key) -> bool:
        """Whether a tier holds an entry."""
        return any(tier.holds(key) for tier in self.tiers)

    def run(self, path: str, entries: Sequence[Range]) -> list[Data]:
        """The bytes of whole entries that follow each other in one file: what no tier has in one request.

        Each entry is loaded inside the load of the one before, so that nobody else fetches it meanwhile;
        the innermost that is missing fetches for those around it.
        """
        found: dict[int, Data] = {}
        open_ = list[int]()  # entries that are missing, whose loads wait for their bytes

        def load(i: int) -> None:
            key, crc = self._unit(*entries[i])

            def fetch() -> Data:
                open_.append(i)
                if i + 1 < len(entries):
                    load(i + 1)
                if i not in found:
                    self._fetch_run(path, entries, open_, found)
                return self._checked(found[i], key, path, crc)

            found[i] = self._load(key, path, crc, fetch)

        for i in range(len(entries)):
            if i not in found:
                load(i)
        return [found[i] for i in range(len(entries))]

    def _fetch_run(self, path: str, entries: Sequence[Range], missing: list[int],
                   found: dict[int, Data]) -> None:  # fmt: skip
        """Fetch the last of the missing entries, with those before that it follows without a gap."""
        first = last = missing[-1]
        while first - 1 in missing and first - 1 not in found:
            first -= 1
        start = entries[first][1]
        data = self.source(path, start, sum(e[2] for e in entries[first : last + 1]))
        for i in range(first, last + 1):
            at = entries[i][1] - start
            found[i] = data if first == last else bytes(memoryview(data)[at : at + entries[i][2]])

    def counters(self) -> dict[str, dict[str, float]]:
        """By tier what it has done in this process, and ``source``: what no tier had."""
        return {
            **{tier.name: tier.counters.as_dict() for tier in self.tiers},
            "source": self.source.as_dict(),
        }

    def close(self) -> None:
        """Close the tiers."""
        for tier in self.tiers:
            tier.close()

    def _unit(self, path: str, offset: int, length: int) -> tuple[Key, int | None]:
        """Entry that serves a range, and its checksum; remembered, since each epoch asks for the same."""
        asked = path, offset, length
        found = self._units.get(asked)
        if found is None:
            if len(self._units) >= REMEMBERED:
                self._units.clear()
            found = self._units[asked] = self._find_unit(path, offset, length)
        return found

    def _find_unit(self, path: str, offset: int, length: int) -> tuple[Key, int | None]:
        name, inside = self._names.get(path) or self._name(path)
        block = self.extents.around(name, offset, length) if self.extents is not None and inside else None
        if block is None:
            return Key(self.dataset, name, offset, length), None
        return Key(self.dataset, name, block[0], block[1]), block[2]

    def _name(self, path: str) -> tuple[str, bool]:
        """Name of a file in the data set, however its folder was written; other files keep their path."""
        inside = False
        if "://" in self.root:
            name = path.removeprefix(f"{self.root}/")
            inside = name != path
        elif self.root and "://" not in path:
            name = os.path.relpath(path, self.root)
            inside = not name.startswith("..")
        self._names[path] = found = (name, True) if inside else (path, False)
        return found

    def _load(self, key: Key, path: str, crc: int | None, fetch: Callable[[], Data] | None = None) -> Data:
        load = fetch or (lambda: self._fetch(key, path, crc))
        for tier in reversed(self.tiers):
            load = _nested(tier, key, load)
        return load()

    def _fetch(self, key: Key, path: str, crc: int | None) -> Data:
        return self._checked(self.source(path, key.offset, key.length), key, path, crc)

    def _checked(self, data: Data, key: Key, path: str, crc: int | None) -> Data:
        """What the source gave, if it is the block that was written."""
        if crc is not None and (len(data) != key.length or crc32(data) != crc):
            again = self.source(path, key.offset, key.length)  # a bit may have flipped on the way
            if len(again) != key.length or crc32(again) != crc:
                raise SourceError(
                    f"{path}, block of {key.length} bytes at {key.offset}: its checksum is not the one that "
                    "was written; see holoshard verify, and copy the file again"
                )
            return again
        return data

    def __getstate__(self) -> dict[str, Any]:
        return {"tiers": self.tiers, "source": self.source.source, "dataset": self.dataset, "root": self.root,
                "extents": self.extents, "attempts": self.source.attempts}  # fmt: skip

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]


def _nested(tier: Tier, key: Key, load: Callable[[], Data]) -> Callable[[], Data]:
    return lambda: tier.load(key, load)


def parse_tier(text: str, policy: str = "never", read_only: bool = False, kind: str = "cache") -> Tier:
    """A tier as a configuration writes it.

    ``memory:2GiB`` is of the process, ``shared:16GiB`` of all processes of the node, ``/local/nvme:256GiB`` a
    folder, and ``package.module:Class:64GiB`` a tier of your own, made by ``Class(capacity)``.
    Tiers of another ``kind`` in the same place have a capacity of their own.
    """
    place, colon, size = text.rpartition(":")
    if not colon or not place:
        raise SettingError(f"{text!r} is not a tier; write memory:2GiB or /local/nvme:256GiB")
    if place == "memory":
        return MemoryTier(parse_size(size), policy_named(policy))
    if place == "shared":
        return SharedTier(parse_size(size), policy_named(policy), kind=kind)
    if OWN.fullmatch(place):
        return _own_tier(place, parse_size(size))
    folder = Path(place).expanduser()
    return DiskTier(folder, parse_size(size), policy_named(policy), read_only=read_only, kind=kind)


def _own_tier(place: str, capacity: int) -> Tier:
    module, _, name = place.partition(":")
    try:
        made: Tier = getattr(importlib.import_module(module), name)(capacity)
    except (ImportError, AttributeError) as error:
        raise SettingError(f"no tier {place}: {error}; is its folder on PYTHONPATH?") from error
    return made


def open_cache(
    tiers: Sequence[str],
    folder: str | Path,
    *,
    policy: str = "never",
    read_only: bool = False,
    source: Source | None = None,
) -> TieredCache:
    """A cache in front of a data set, as a configuration describes it.

    Parameters
    ----------
    tiers : fastest first, such as ``["memory:2GiB", "/local/nvme:256GiB"]``
    folder : of the data set, its address (``https://...``, ``s3://...``), or one shard file
    policy : never, lru or clairvoyant
    read_only : use what folders hold, write nothing to them
    source : reads an address, if not as :func:`~holoshard.cache.remote.source_for` says
    """
    remote = isinstance(folder, str) and "://" in folder
    if remote and source is None:
        source = source_for(str(folder))
    extents = read_extents(folder, Patient(source) if remote and source is not None else None)
    made = [parse_tier(text, policy, read_only) for text in tiers]
    total = sum(tier.capacity for tier in made)
    log.debug("cache of %s for %s of blocks", format_size(total), format_size(extents.n_bytes))
    return TieredCache(made, source, extents=extents, dataset=extents.dataset, root=extents.root)
