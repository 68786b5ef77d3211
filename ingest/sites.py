"""Every ligand of a structure as an item of its own: for layouts that give structures and no more."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import PurePath

import numpy as np
from numpy.typing import NDArray

from ..shards.errors import StructureError
from .chemistry.receptor import Receptor, as_receptor
from .chemistry.select import ligand_sites, main_compounds, site_name
from .item import Item, Rejection
from .pipeline import IngestOptions
from .read.archive import load
from .read.structure import Structure, read_structure
from .sources.labels import pick
from .sources.table import NAME
from .task import site_item


def find_sites(item: Item, options: IngestOptions) -> list[Item] | Rejection:
    """One item for each ligand of the item's structure, named ``id:chain:name:number``.

    Labels of the item go to the one compound they can speak of: the one that a column such as ``ligand_name``
    or ``het_code`` names, else the only one that is no common cofactor. Where several could be meant, none
    gets them: a measurement must not land on the cofactor beside the drug.
    A biological assembly that the item asks for and the file does not list is the structure as deposited.
    """
    try:
        data = load(item.structure)
        name = PurePath(item.structure.member or item.structure.path).name
        if options.assembly:
            found = read_structure(data, name, options.assembly)
        else:
            item, found = _first_assembly(item, data, name)
        receptor = as_receptor(found)
        sites = ligand_sites(receptor)
    except StructureError as error:
        return Rejection(item.id, error.reason, str(error))
    if not receptor.polymer.any():
        return Rejection(item.id, "no_protein", f"{name} has no polymer residue, hence no pocket")
    if not sites:
        said = f"{name} has no residue that can be a ligand: none but polymer, water, ions, artefacts"
        return Rejection(item.id, "ligand_missing", said)
    named = {site_selector(receptor, site): site_name(receptor, site) for site in sites}
    measured = _measured(item, list(named.values()))
    bare = replace(item, labels=())
    return [site_item(item if compound in measured else bare, name) for name, compound in named.items()]


def _measured(item: Item, compounds: Sequence[str]) -> Sequence[str]:
    """The compounds that an item's labels may speak of."""
    column = pick(list(item.columns), NAME)
    words = re.split(r"[\s:,;|+-]+", item.columns[column].upper()) if column else []
    stated = [name for name in compounds if any(word in words for word in name.upper().split("-"))]
    found = stated or main_compounds(compounds)
    return found if len(set(found)) == 1 else ()


def _first_assembly(item: Item, data: bytes, name: str) -> tuple[Item, Structure]:
    if item.assembly:
        try:
            return item, read_structure(data, name, item.assembly)
        except StructureError as error:
            if "has no biological assembly" not in str(error):
                raise
    return replace(item, assembly=""), read_structure(data, name, "")


def site_selector(receptor: Receptor, site: NDArray[np.int64]) -> str:
    """``chain:name:number`` of each residue of a ligand, joined by "+"."""
    s = receptor.structure
    said = []
    for row in site.tolist():
        chain, name = (column[row].decode("latin-1") for column in (s.residue_chain, s.residue_name))
        insertion = chr(s.residue_insertion[row]) if s.residue_insertion[row] else ""
        said.append(f"{chain}:{name}:{s.residue_number[row]}{insertion}")
    return "+".join(said)
