"""A folder that appears whole or not at all."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..errors import UsageError
from ..format.container import FORMAT
from ..format.hdf5 import sync
from ..format.manifest import INDEX, MANIFEST


def begin(out: Path) -> Path:
    """A new temporary folder beside ``out``; UsageError if ``out`` holds anything but a data set of ours."""
    if out.is_symlink():
        raise UsageError(f"{out} is a link; name the folder itself as --out")
    strange = foreign(out)
    if strange:
        raise UsageError(f"{out} {strange}; choose another --out, or remove it")
    out.parent.mkdir(parents=True, exist_ok=True)
    folder = out.with_name(f".{out.name}.{os.getpid()}")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    return folder


def foreign(out: Path) -> str:
    """What keeps ``out`` from being replaced: "" if it is missing, empty, or a data set and no more."""
    if not out.exists():
        return ""
    if not out.is_dir():
        return "is not a folder"
    there = {path.name for path in out.iterdir()}
    if not there:
        return ""
    try:
        told = json.loads((out / MANIFEST).read_bytes())
        ours = told["format"] == FORMAT
        named = {MANIFEST, INDEX, *(shard["name"] for shard in told["shards"])}
    except (OSError, ValueError, KeyError, TypeError):
        return "exists and is not a data set"
    if not ours:
        return "exists and is not a data set"
    others = sorted(there - named)
    return f"holds {others[0]!r}, which is no part of the data set there" if others else ""


def finish(folder: Path, out: Path) -> None:
    """Put ``folder`` in the place of ``out``; at every moment the old or the new is complete on disk."""
    sync(folder)
    old = out.with_name(f".{out.name}.old.{os.getpid()}")
    if out.exists():
        os.rename(out, old)
    os.rename(folder, out)
    sync(out.parent)
    shutil.rmtree(old, ignore_errors=True)


@contextmanager
def staged(out: Path) -> Iterator[Path]:
    """A temporary folder that becomes ``out`` if the body succeeds, and is removed if not."""
    folder = begin(out)
    try:
        yield folder
        finish(folder, out)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
