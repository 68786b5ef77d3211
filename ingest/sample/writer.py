"""Write a sample: many drafts, a few tables, one folder that appears whole or not at all."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import tarfile
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final

import numpy as np

from ...shards.console import progress
from ...shards.errors import UsageError
from .dirt import plan
from .draft import COLUMNS, PER_TARGET, TRUTH_COLUMNS, Draft, draft, is_pair

PER_CHUNK: Final = 64 * PER_TARGET  # complexes made at a stretch, and in one archive
_MARK: Final = "sample.json"  # only a folder that has it is ever replaced


def write_sample(
    out: Path, n: int = 256, seed: int = 0, dirty: float = 0.0, *, archive: bool = False, workers: int = 1
) -> dict[str, Any]:
    """Write n synthetic complexes with labels into the folder ``out``.

    The same arguments give the same bytes; the first complexes of a larger sample are those of a smaller one.

    Parameters
    ----------
    out : a new or empty folder, or a sample written before, which is replaced
    n : complexes
    seed : of everything
    dirty : share of the complexes made bad in known ways, see ``dirt.csv``
    archive : write structures into tar archives of 1,024 complexes instead of single files
    workers : processes; the result does not depend on it

    Returns
    -------
    dict with ``n``, ``targets``, ``ligands`` (distinct), ``dirty``, ``files``, ``bytes``, ``pk_mean``,
    ``pk_sd``, ``seconds``

    Raises
    ------
    UsageError if ``out`` holds anything else, or an argument is out of range.
    """
    if n < 1 or seed < 0 or workers < 1 or not 0.0 <= dirty <= 1.0:
        raise UsageError(
            f"n={n}, seed={seed}, workers={workers}, dirty={dirty}; expected n and workers of at least 1, "
            "seed of at least 0 and dirty from 0 to 1"
        )
    start = time.monotonic()
    spoiled = plan(n, dirty)
    tables: dict[str, list[dict[str, str]]] = {"labels": [], "truth": []}
    n_files = n_bytes = 0
    with _folder(Path(out)) as folder, progress("sample", n) as bar:
        for rows, truths, files, size in _chunks(folder, n, seed, dirty, archive, workers):
            tables["labels"] += rows
            tables["truth"] += truths
            n_files, n_bytes = n_files + files, n_bytes + size
            bar.advance(len(rows))
        _write_table(folder / "labels.csv", COLUMNS, tables["labels"])
        _write_table(folder / "truth.csv", TRUTH_COLUMNS, tables["truth"])
        dirt = [{"id": tables["labels"][k]["id"]} | d.cells for k, d in spoiled.items()]
        _write_table(folder / "dirt.csv", ("id", "dirt", "file", "expected", "strict"), dirt)
        asked = {"n": n, "seed": seed, "dirty": dirty, "archive": archive, "synthetic": True}
        (folder / _MARK).write_text(json.dumps(asked, sort_keys=True) + "\n")
    pk = np.array([float(t["noisy"]) for t in tables["truth"]])
    return {
        "n": n,
        "targets": len({row["target"] for row in tables["labels"]}),
        "ligands": len({row["ligand_name"] for row in tables["labels"]}),
        "dirty": len(spoiled),
        "files": n_files,
        "bytes": n_bytes,
        "pk_mean": round(float(pk.mean()), 3),
        "pk_sd": round(float(pk.std()), 3),
        "seconds": round(time.monotonic() - start, 2),
    }


_Chunk = tuple[list[dict[str, str]], list[dict[str, str]], int, int]


def _chunks(folder: Path, n: int, seed: int, dirty: float, archive: bool, workers: int) -> Iterator[_Chunk]:
    """Write chunk by chunk, in order, in this process or in several."""
    # A chunk is a few targets where the sample is small, so that every worker and the progress get some.
    size = PER_CHUNK if archive or n > PER_CHUNK * workers else PER_TARGET
    bounds = [*range(0, n, size), n]
    write = partial(_write_chunk, folder, n, seed, dirty, archive)
    if workers == 1 or len(bounds) < 3:
        yield from map(write, pairwise(bounds))
        return
    # Spawned, not forked: the parent may run threads.
    with ProcessPoolExecutor(min(workers, len(bounds) - 1), mp_context=get_context("spawn")) as pool:
        yield from pool.map(write, pairwise(bounds))


def _write_chunk(
    folder: Path, n: int, seed: int, dirty: float, archive: bool, bounds: tuple[int, int]
) -> _Chunk:
    drafts = list(_drafts(n, seed, dirty, *bounds))
    files = {path: data for d in drafts for path, data in d.files.items()}
    if archive:
        name = f"structures-{bounds[0] // PER_CHUNK:05d}.tar"
        _write_tar(folder / name, files)
        for d in drafts:
            for column in ("protein_path", "ligand_path"):
                d.row[column] = f"{name}!{d.row[column]}"
    else:
        for parent in sorted({str(Path(path).parent) for path in files}):
            (folder / parent).mkdir(parents=True, exist_ok=True)
        for path, data in files.items():
            (folder / path).write_bytes(data)
    return [d.row for d in drafts], [d.truth for d in drafts], len(files), sum(map(len, files.values()))


def _drafts(n: int, seed: int, dirty: float, first: int, stop: int) -> Iterator[Draft]:
    spoiled = plan(min(n, stop), dirty)
    needs = {index: d.need for index, d in spoiled.items()}
    for index in range(first, stop):
        if is_pair(index) and index % 2:
            continue  # came with the one before
        for k, made in enumerate(draft(seed, index, needs)):
            if index + k < stop:
                if index + k in spoiled:
                    spoiled[index + k].spoil(made)
                yield made


def _write_tar(path: Path, files: dict[str, bytes]) -> None:
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as tar:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))


def _write_table(path: Path, columns: tuple[str, ...], rows: list[dict[str, str]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        table = csv.DictWriter(file, columns, lineterminator="\n")
        table.writeheader()
        table.writerows(rows)


@contextmanager
def _folder(out: Path) -> Iterator[Path]:
    """A temporary folder that takes the place of ``out`` if nothing goes wrong."""
    if out.exists() and (not out.is_dir() or (any(out.iterdir()) and not (out / _MARK).is_file())):
        raise UsageError(f"{out} exists and is no sample; choose another folder, or remove it first")
    out.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent))
    try:
        temporary.chmod(0o777 & ~_umask())
        yield temporary
        # The tables last on disk before the folder gets its name; structures can be made again.
        for name in ("labels.csv", "truth.csv", "dirt.csv", _MARK):
            with (temporary / name).open("rb") as file:
                os.fsync(file.fileno())
        if out.exists():
            old = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent))
            os.replace(out, old)
            os.replace(temporary, out)
            shutil.rmtree(old)
        else:
            os.replace(temporary, out)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
