"""PLINDER: a folder a system with ``receptor.cif`` and ``ligand_files/1.B.sdf``, as released or unpacked.

A release has ``systems/ab.zip`` for all entries whose code has these letters in the middle, read in place,
and ``index/annotation_table.parquet``. A system of several ligands is as many complexes. The affinities of
the index are not taken for labels: they were joined on the ligand's code alone, without relation signs, and
withdrawn; bring labels with ``--labels``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import polars as pl

from ...shards.errors import UsageError
from ..item import Item, Rejection
from .labels import parquet_schema
from .source import Request
from .tree import Tree, folders_of, join

SYSTEM = re.compile(r"[0-9a-zA-Z]{4}__\d+(\.\d+)?__.+__.+")
PACK = re.compile(r"(?:.*/)?systems/[0-9a-z]{2}\.zip")
STRUCTURES: Final = ("receptor.cif", "receptor.pdb", "system.cif", "system.pdb")
# Of the 700 columns of the index, those that a split or a filter asks for.
COLUMNS: Final = (
    "system_id", "entry_pdb_id", "entry_release_date", "entry_resolution", "entry_determination_method",
    "system_type", "ligand_instance_chain", "ligand_ccd_code", "ligand_is_artifact", "ligand_is_ion",
    "ligand_is_cofactor", "ligand_is_covalent", "system_pass_validation_criteria",
)  # fmt: skip


class Plinder:
    """The layout ``plinder``."""

    name = "plinder"
    tables = (".parquet",)

    def recognise(self, request: Request) -> str:
        """Zips of systems by two letters, or folders with the names of systems."""
        for name in request.tree.peek:
            if PACK.fullmatch(name):
                return f"{name} is an archive of systems by two letters"
        for folder in folders_of(request.tree.peek):
            if folder.endswith("/ligand_files") or folder == "ligand_files":
                system = folder.rpartition("/")[0].rpartition("/")[2]
                if SYSTEM.fullmatch(system):
                    return f"{folder} holds the ligands of the system {system}"
        return ""

    def items(self, request: Request) -> Iterator[Item | Rejection]:
        """One a ligand of a system, system by system."""
        index = _index(request.tree)
        packs = [name for name in request.tree.names if PACK.fullmatch(name)]
        for pack in packs:
            yield from _of_tree(Tree(request.tree.locator(pack).path), index)
        if not packs:
            yield from _of_tree(request.tree, index)


def _of_tree(tree: Tree, index: dict[str, dict[str, dict[str, str]]]) -> Iterator[Item | Rejection]:
    yield from tree.rejections() if tree.kind else ()
    systems: dict[str, list[str]] = {}
    for folder in tree.folders:
        parent = (
            folder.removesuffix("ligand_files").rstrip("/") if folder.endswith("ligand_files") else folder
        )
        if SYSTEM.fullmatch(parent.rpartition("/")[2]):
            systems.setdefault(parent, [])
            if folder != parent:
                systems[parent] = [f for f in tree.folders[folder] if f.endswith((".sdf", ".sdf.gz"))]
    for folder, ligands in systems.items():
        system = folder.rpartition("/")[2]
        files = tree.folders.get(folder, [])
        structures = [name for name in STRUCTURES if name in files]
        if not structures or not ligands:
            lacks = "ligand_files/*.sdf" if structures else " or ".join(STRUCTURES)
            yield Rejection(system, "file_missing", f"{folder} of {tree.path} has no {lacks}")
            continue
        structure = tree.locator(join(folder, structures[0]))
        for name in ligands:
            chain = name.split(".sdf")[0]
            yield Item(
                id=system if len(ligands) == 1 else f"{system}:{chain}",
                structure=structure,
                ligand=tree.locator(f"{join(folder, 'ligand_files')}/{name}"),
                columns=index.get(system, {}).get(chain, {}) | {"system_id": system, "ligand_chain": chain},
                source="plinder",
            )


def _index(tree: Tree) -> dict[str, dict[str, dict[str, str]]]:
    """Rows of the index by system and ligand chain."""
    found: dict[str, dict[str, dict[str, str]]] = {}
    for name in tree.names:
        if name.endswith("annotation_table.parquet") and tree.is_folder:
            locator = tree.locator(name)
            schema = parquet_schema(locator)
            known = [column for column in COLUMNS if column in schema]
            if "system_id" not in known:
                continue
            try:
                frame = pl.read_parquet(locator.path, columns=known)
            except (OSError, pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
                raise UsageError(f"{locator} cannot be read: {error}; fetch it anew") from error
            rows = frame.select(pl.all().cast(pl.String).fill_null(""))
            for row in rows.iter_rows(named=True):
                found.setdefault(row["system_id"], {})[row.get("ligand_instance_chain", "")] = row
    return found
