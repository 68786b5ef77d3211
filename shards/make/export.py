"""Complexes out of a data set again, as files that everyone reads: no one is locked in."""

from __future__ import annotations

import csv
import os
import re
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from ..complex import Complex
from ..console import progress
from ..errors import UsageError
from ..read.dataset import Dataset
from .structures import to_pdb, to_sdf

LABELS: Final = "labels.csv"
HEADER: Final = (
    "id", "protein_path", "ligand_path", "affinity_type", "relation", "value", "unit", "split",
)  # fmt: skip


def export_structures(dataset: Dataset, rows: Iterable[int], out: Path) -> int:
    """Write ``NAME_ligand.sdf`` and ``NAME_pocket.pdb`` of each complex, and ``labels.csv`` naming them.

    The folder is one that ``holoshard ingest`` reads; labels are on the pK scale. It appears when it is
    complete. Returns the number of complexes.

    Raises
    ------
    UsageError : ``out`` exists
    DataError : a complex does not fit the columns of PDB or SDF
    """
    if out.exists():
        raise UsageError(f"{out} exists; choose another --out, or remove it")
    chosen = list(rows)
    out.parent.mkdir(parents=True, exist_ok=True)
    folder = out.with_name(f".{out.name}.{os.getpid()}")
    folder.mkdir()
    splits, taken = dataset.column("split"), set[str]()
    try:
        with (
            (folder / LABELS).open("w", newline="", encoding="utf-8") as file,
            progress("export", len(chosen)) as bar,
        ):
            table = csv.writer(file)
            table.writerow(HEADER)
            for row in chosen:
                c = dataset[row]
                name = _file_name(c.id, taken)
                (folder / f"{name}_ligand.sdf").write_text(to_sdf(c), encoding="utf-8")
                (folder / f"{name}_pocket.pdb").write_text(to_pdb(c), encoding="ascii", errors="replace")
                table.writerow([c.id, f"{name}_pocket.pdb", f"{name}_ligand.sdf", *_label(c), splits[row]])
                bar.advance()
        os.rename(folder, out)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return len(chosen)


def _label(c: Complex) -> tuple[str, str, str, str]:
    """Type, relation, value and unit of the label; empty without an absolute one."""
    pk = c.affinity.pk
    return ("", "", "", "") if pk != pk else ("pK", c.affinity.relation, f"{pk:.4f}", "")


def _file_name(name: str, taken: set[str]) -> str:
    """A name for files: letters, digits, dot, dash, underscore; unlike all others, whatever the case."""
    safe = re.sub(r"[^A-Za-z0-9._-]+", "_", name).strip("._")[:100] or "complex"
    number, unique = 1, safe
    while unique.lower() in taken:
        number += 1
        unique = f"{safe}-{number}"
    taken.add(unique.lower())
    return unique
