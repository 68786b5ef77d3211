"""The files of what was refused, gathered for inspection: ``refused/<reason>/<id>/``."""

from __future__ import annotations

import re
import shutil
import zlib
from pathlib import Path, PurePath
from typing import Final

import polars as pl

from ..shards.errors import StructureError
from .item import Locator
from .read import archive

REFUSED: Final = "refused"


def collect(rows: pl.DataFrame, out: Path) -> int:
    """Copy the files of refused items to ``out/refused``, replacing what an earlier run left there.

    Beside the files, as they lie (a member of an archive by itself), stands ``message.txt``. Returns how many
    items were collected.
    """
    shutil.rmtree(out / REFUSED, ignore_errors=True)
    refused = rows.filter(pl.col("status") == "refused")
    for row in refused.iter_rows(named=True):
        folder = out / REFUSED / row["reason"] / folder_name(row["id"])
        folder.mkdir(parents=True)
        files = "\n".join(row["files"])
        (folder / "message.txt").write_text(f"{row['id']}\n{row['reason']}: {row['message']}\n{files}\n")
        for text in row["files"]:
            path, _, member = text.partition("!")
            try:
                data = archive.read_raw(Locator(Path(path), member))
            except StructureError:
                continue  # the message says so
            (folder / PurePath(member or path).name).write_bytes(data)
    return len(refused)


def folder_name(id_: str) -> str:
    """A name that any file system takes, and that no two ids share."""
    plain = re.sub(r"[^\w.+-]", "_", id_).strip(".")[:100]
    return plain if plain == id_ else f"{plain}-{zlib.crc32(id_.encode()):08x}"
