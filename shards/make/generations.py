"""The generations of a data set: what was appended lies beside what was there, and a manifest says which.

``manifest.json`` is the newest, ``manifest.N.json`` those before. Files of an earlier generation are never
written again, so who reads one goes on reading. To append is to put new files into the folder and then, in
one step, the new manifest into the place of the old. Before the first file comes, the manifest to be lies
there as ``.manifest.json.next``: after a kill it tells which files belong to nothing.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from ..errors import FormatError, UsageError
from ..format.container import FORMAT
from ..format.hdf5 import sync
from ..format.manifest import INDEX, MANIFEST, is_index, is_manifest, is_shard, kept_manifest
from ..format.regular import regular
from .files import link_or_copy, remove
from .owner import SUFFIX, release, stale

NEXT: Final = f".{MANIFEST}.next"
STAGE: Final = ".append."


def named_files(folder: Path) -> set[str]:
    """Names of all files of a data set, of all generations; ValueError or KeyError if it is none of ours."""
    names = {path.name for path in folder.iterdir() if is_manifest(path)}
    if MANIFEST not in names:
        raise ValueError("no manifest")
    return names.union(*(_files(folder / name) for name in names))


def commit(stage: Path, out: Path, generation: int) -> None:
    """Make what lies in ``stage`` the next generation of the data set ``out``, which has so many."""
    os.replace(stage / MANIFEST, out / NEXT)
    sync(out)
    for path in sorted(stage.iterdir()):
        remove(out / path.name)  # of an append that was killed
        os.rename(path, out / path.name)
    kept = kept_manifest(generation)
    link_or_copy(out / MANIFEST, stage / kept)
    os.replace(stage / kept, out / kept)
    sync(out)
    os.replace(out / NEXT, out / MANIFEST)
    sync(out)


def recover(out: Path) -> None:
    """Remove what appends left that were killed before they were complete.

    UsageError, and nothing is removed, if what should tell which files these are names any other.
    """
    left = stale(out, STAGE)
    if (out / NEXT).exists() and (left or not _at_work(out)):
        try:
            lost = _files(out / NEXT) - named_files(out)
        except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError,
                FormatError) as error:  # fmt: skip
            raise UsageError(
                f"{out / NEXT} is not what an append leaves ({error}); nothing was removed: remove that"
            ) from error
        for name in lost:
            remove(out / name)
        (out / NEXT).unlink()
        sync(out)
    for stage in left:
        release(stage)
    sweep(out)


def sweep(out: Path) -> None:
    """Remove the shards that repairs were writing when they were killed."""
    found = (re.fullmatch(r"\.(.+?)\.[0-9]+(\.owner)?", path.name) for path in out.iterdir())
    for name in {told[1] for told in found if told and is_shard(told[1])}:
        for left in stale(out, f".{name}.", noted=False):
            release(left)


@contextmanager
def alone(out: Path) -> Iterator[None]:
    """Refuse a second append to the same data set while one is at work."""
    fd = os.open(out, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise UsageError(
                f"another holoshard append is at work on {out}; wait until it is done"
            ) from error
        except OSError:
            pass  # a file system without locks
        yield
    finally:
        os.close(fd)


def _at_work(out: Path) -> bool:
    """True if an append of a process that lives, or of another machine, has its folder here."""
    return any(path.name.endswith(SUFFIX) for path in out.glob(f"{STAGE}*"))


def _files(manifest: Path) -> set[str]:
    """What a manifest names. It may end up removed, so names of any other kind are a ValueError."""
    told: Any = json.loads(regular(manifest).read_bytes())
    if told["format"] != FORMAT:
        raise ValueError("not ours")
    index, shards = told.get("index", {}).get("name", INDEX), {shard["name"] for shard in told["shards"]}
    if not is_index(index) or not all(map(is_shard, shards)):
        raise ValueError("it names what is no file of a data set")
    return {index, *shards}
