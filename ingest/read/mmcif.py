"""mmCIF files, deposited and predicted."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Final

import gemmi

from ...shards.errors import StructureError
from .components import unknown_names
from .definitions import definitions_of_block
from .pdb import as_date, with_elements
from .structure import Format, Header, Structure, expand, flatten

# Columns that gemmi wants before it lists an assembly; the mmCIF dictionary makes them optional.
_ASSEMBLY_COLUMNS: Final = ("details", "method_details", "oligomeric_details", "oligomeric_count")
# Columns that gemmi wants before it sees atoms, and what their absence says; the first mmCIF files lack some.
_SITE_COLUMNS: Final = {
    "id": "0", "type_symbol": "?", "label_alt_id": ".", "label_asym_id": "A", "occupancy": "1.0",
    "B_iso_or_equiv": "0",
}  # fmt: skip


def read_mmcif(data: bytes, name: str, assembly: str) -> Structure:
    """Read the first model of an mmCIF file: of its first block that has coordinates.

    Raises
    ------
    StructureError
        ``parse_failed`` with the line of a syntax error; ``format_mismatch`` for a CIF without atoms, such
        as a component or structure-factor file.
    """
    try:
        document = gemmi.cif.read_string(data)
    except (RuntimeError, ValueError) as error:
        raise StructureError("parse_failed", f"{name}: {error}") from error
    block = next((b for b in document if b.find_values("_atom_site.Cartn_x")), None)
    if block is None:
        raise StructureError("format_mismatch", f"{name} is a CIF file without coordinates (no _atom_site)")
    if all(value in ("?", ".") for value in block.find_values("_atom_site.Cartn_x")):
        raise StructureError("structure_empty", f"{name} has an _atom_site without values, hence no atoms")
    blank_elements = _complete_sites(block, name)
    found = structure_from_block(block, name, assembly, "mmcif")
    unknown = unknown_names(found.residue_name)
    if unknown:
        found = replace(found, definitions=definitions_of_block(block, unknown))
    return with_elements(found, blank_elements)


def _complete_sites(block: gemmi.cif.Block, name: str) -> bool:
    """Add what gemmi wants of ``_atom_site`` and a file may leave out; True if elements are missing."""
    loop = block.find_values("_atom_site.Cartn_x").get_loop()
    if loop is None:
        return False
    here = {tag.lower() for tag in loop.tags}

    def has(*columns: str) -> bool:
        return any(f"_atom_site.{column}".lower() in here for column in columns)

    names = [(f"label_{k}", f"auth_{k}") for k in ("atom_id", "comp_id")]
    lacks = [" or ".join(k) for k in (("Cartn_y",), ("Cartn_z",), *names) if not has(*k)]
    if lacks:
        raise StructureError("parse_failed", f"{name}: its _atom_site lacks {', '.join(lacks)}")
    for column, value in _SITE_COLUMNS.items():
        if not has(column):
            loop.add_columns([f"_atom_site.{column}"], value)
    return not has("type_symbol")


def structure_from_block(block: gemmi.cif.Block, name: str, assembly: str, kind: Format) -> Structure:
    """Structure of one data block."""
    if assembly:
        _complete_assemblies(block)
    try:
        parsed = gemmi.make_structure_from_block(block)
    except (RuntimeError, ValueError, IndexError) as error:
        raise StructureError("parse_failed", f"{name}: {error}") from error
    header = _header(parsed, block)
    if assembly:
        expand(parsed, assembly, name)
    return flatten(parsed, kind, header, ())


def _complete_assemblies(block: gemmi.cif.Block) -> None:
    loop = block.find_values("_pdbx_struct_assembly.id").get_loop()
    if loop is not None:
        tags = [f"_pdbx_struct_assembly.{c}" for c in _ASSEMBLY_COLUMNS]
        missing = [tag for tag in tags if tag not in loop.tags]
        if missing:
            loop.add_columns(missing, "?")


def _header(parsed: gemmi.Structure, block: gemmi.cif.Block) -> Header:
    info = dict(parsed.info)
    method = info.get("_exptl.method", "")
    return Header(
        code=parsed.name.strip(),
        title=info.get("_struct.title", "").strip(),
        method=method,
        resolution=parsed.resolution if parsed.resolution > 0 else math.nan,
        deposited=as_date(info.get("_pdbx_database_status.recvd_initial_deposition_date", "")),
        predicted="THEORETICAL" in method.upper() or _has(block, "_ma_model_list.", "_ma_data."),
        n_models=max(len(parsed), 1),
    )


def _has(block: gemmi.cif.Block, *categories: str) -> bool:
    return any(len(block.find_mmcif_category(c)) > 0 for c in categories)
