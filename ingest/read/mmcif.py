"""mmCIF files, deposited and predicted."""

from __future__ import annotations

import math
from typing import Final

import gemmi

from ...shards.errors import StructureError
from .pdb import as_date
from .structure import Format, Header, Structure, expand, flatten

# Columns that gemmi wants before it lists an assembly; the mmCIF dictionary makes them optional.
_ASSEMBLY_COLUMNS: Final = ("details", "method_details", "oligomeric_details", "oligomeric_count")


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
    return structure_from_block(block, name, assembly, "mmcif")


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
