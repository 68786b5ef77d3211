"""Complexes as SDF and PDB files with a table of labels: a folder that ``holoshard ingest`` reads."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from ..complex import Affinity
from ..make.structures import to_pdb, to_sdf
from ..read.dataset import Dataset

LABELS: Final = "labels.csv"
HEADER: Final = (
    "id", "protein_path", "ligand_path", "affinity_type", "relation", "value", "unit", "label", "split",
)  # fmt: skip
CONSTANTS: Final = ("Kd", "Ki", "IC50", "EC50")
# R T ln 10 at 298.15 K with R = 1.987204e-3 kcal/mol/K (CODATA 2018): kcal/mol a unit of pK
KCAL_A_UNIT: Final = 1.987204e-3 * 298.15 * 2.302585092994046
TURNED: Final = {"<": ">", ">": "<", "<=": ">=", ">=": "<="}


def write_structures(dataset: Dataset, rows: Iterable[int], folder: Path) -> None:
    """Write ``NAME_ligand.sdf`` and ``NAME_pocket.pdb`` of each complex, and ``labels.csv`` naming them.

    Raises DataError if a complex does not fit the columns of PDB or SDF.
    """
    splits, taken = dataset.column("split"), set[str]()
    with (folder / LABELS).open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(HEADER)
        for row in rows:
            c = dataset[row]
            name = _file_name(c.id, taken)
            (folder / f"{name}_ligand.sdf").write_text(to_sdf(c), encoding="utf-8")
            (folder / f"{name}_pocket.pdb").write_text(to_pdb(c), encoding="ascii", errors="replace")
            files = (f"{name}_pocket.pdb", f"{name}_ligand.sdf")
            table.writerow([c.id, *files, *label(c.affinity), c.affinity.text, splits[row]])


def label(a: Affinity) -> tuple[str, str, str, str]:
    """Type, relation, value and unit of a label, as a table of measurements has them.

    A constant is a concentration in mol/L and a free energy in kcal/mol at 298.15 K, where relations are
    the other way round than on the pK scale. All empty where there is no absolute value; a kind that says
    something without one ("active") stands alone.
    """
    if a.pk != a.pk:
        return ("" if a.kind == "none" else a.kind, "", "", "")
    turned = TURNED.get(a.relation, a.relation)
    if a.kind in CONSTANTS:
        return (a.kind, turned, f"{10.0**-a.pk:.6e}", "M")
    if a.kind == "dG":
        return (a.kind, turned, f"{-a.pk * KCAL_A_UNIT:.6f}", "kcal/mol")
    return ("pK" if a.kind in ("none", "pK") else a.kind, a.relation, f"{a.pk:.6f}", "")


def _file_name(name: str, taken: set[str]) -> str:
    """A name for files: letters, digits, dot, dash, underscore; unlike all others, whatever the case."""
    safe = re.sub(r"[^A-Za-z0-9._-]+", "_", name).strip("._")[:100] or "complex"
    number, unique = 1, safe
    while unique.lower() in taken:
        number += 1
        unique = f"{safe}-{number}"
    taken.add(unique.lower())
    return unique
