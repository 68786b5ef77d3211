"""OpenFE benchmarks: a folder a target, ``protein.pdb``, ``ligands.sdf``, ``experimental_binding_data.json``.

The file of labels maps a record's title to a free energy with its unit by name.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from ...shards.errors import UsageError
from ..item import Item, Label, Rejection
from .records import titles
from .source import Request
from .tree import Tree, folders_of, join

LABELS: Final = "experimental_binding_data.json"
STRUCTURE: Final = "protein.pdb"
LIGANDS: Final = "ligands.sdf"
UNITS: Final = {
    "kilocalories_per_mole": "kcal/mol",
    "kilocalorie_per_mole": "kcal/mol",
    "kilocalorie / mole": "kcal/mol",
    "kilojoules_per_mole": "kJ/mol",
    "kilojoule_per_mole": "kJ/mol",
    "kilojoule / mole": "kJ/mol",
}


class OpenFe:
    """The layout ``openfe``."""

    name = "openfe"

    def recognise(self, request: Request) -> str:
        """Its file of labels."""
        for folder, files in folders_of(request.tree.peek).items():
            if LABELS in files and LIGANDS in files:
                return f"{folder or request.tree.path} holds {LIGANDS} and {LABELS}"
        return ""

    def items(self, request: Request) -> Iterator[Item | Rejection]:
        """One a record of ligands.sdf, then the labels that no record has."""
        for folder, files in request.tree.folders.items():
            if LIGANDS in files and LABELS in files:
                yield from _target(request.tree, folder, files)


def _target(tree: Tree, folder: str, files: list[str]) -> Iterator[Item | Rejection]:
    said = _labels(tree, join(folder, LABELS))
    names = titles(tree.locator(join(folder, LIGANDS)))
    for record, title in enumerate(names):
        name = f"{folder or tree.path.stem}:{title or record}"
        if STRUCTURE not in files:
            yield Rejection(name, "file_missing", f"{folder} has no {STRUCTURE}")
            continue
        row = said.pop(title, {})
        yield Item(
            id=name,
            structure=tree.locator(join(folder, STRUCTURE)),
            ligand=tree.locator(join(folder, LIGANDS)),
            record=record,
            labels=_label(row),
            columns={
                "target": folder.rpartition("/")[2],
                "ligand_name": title,
                "reference": row.get("reference", ""),
            },
            source="openfe",
        )
    for title in said:
        if title not in names:
            message = f"{LABELS} of {folder} names {title!r}, which {LIGANDS} does not hold"
            yield Rejection(f"{folder or tree.path.stem}:{title}", "record_missing", message)


def _labels(tree: Tree, name: str) -> dict[str, Any]:
    try:
        found = json.loads(tree.text(name))
    except ValueError as error:
        raise UsageError(f"{tree.path}/{name} is no JSON: {error}") from error
    return found if isinstance(found, dict) else {}


def _label(row: dict[str, Any]) -> tuple[Label, ...]:
    for kind, said in row.items():
        if isinstance(said, dict) and "magnitude" in said:
            unit = str(said.get("unit", ""))
            return (
                Label("dG" if kind == "dg" else kind, "=", str(said["magnitude"]), UNITS.get(unit, unit)),
            )
    return ()
