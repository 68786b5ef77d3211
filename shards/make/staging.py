"""A folder that appears whole or not at all."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..errors import UsageError
from ..format.hdf5 import sync
from ..format.manifest import MANIFEST


def begin(out: Path) -> Path:
    """A new temporary folder beside ``out``; UsageError if ``out`` is something else than a data set."""
    if out.exists() and (not out.is_dir() or (any(out.iterdir()) and not (out / MANIFEST).exists())):
        raise UsageError(f"{out} exists and is not a data set; choose another --out, or remove it")
    out.parent.mkdir(parents=True, exist_ok=True)
    folder = out.with_name(f".{out.name}.{os.getpid()}")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    return folder


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
