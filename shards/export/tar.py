"""WebDataset: tar files with ``NAME.npz`` and ``NAME.json`` a complex, which ``wds.WebDataset(...).decode()``
and any program that reads tar, JSON and numpy's archives reads.
"""

from __future__ import annotations

import io
import itertools
import tarfile
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from .records import Record

SHARD_SAMPLES: Final = 4096


def write_webdataset(folder: Path, records: Iterable[Record]) -> None:
    """Write ``shard-00000.tar`` and on; the same complexes give the same bytes."""
    numbered = enumerate(records)
    for number, group in itertools.groupby(numbered, key=lambda pair: pair[0] // SHARD_SAMPLES):
        with tarfile.open(folder / f"shard-{number:05d}.tar", "w", format=tarfile.USTAR_FORMAT) as tar:
            for _, record in group:
                for kind, data in (("json", record.json()), ("npz", record.npz())):
                    entry = tarfile.TarInfo(f"{record.name}.{kind}")
                    entry.size = len(data)
                    tar.addfile(entry, io.BytesIO(data))
