"""Structures from BinaryCIF columns."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import gemmi
import numpy as np
from numpy.typing import NDArray

from ...shards.errors import StructureError
from .bcif import Column, read_categories
from .components import unknown_names
from .definitions import ATOM, BOND, DESCRIPTORS, Definition, read_definitions
from .pdb import as_date
from .structure import ENTITIES, Address, Header, Link, LinkKind, Structure, assemble

_SITE: Final = (
    "group_PDB", "type_symbol", "label_atom_id", "auth_atom_id", "label_alt_id", "label_comp_id",
    "auth_comp_id", "label_asym_id", "auth_asym_id", "label_seq_id", "auth_seq_id", "pdbx_PDB_ins_code",
    "label_entity_id", "Cartn_x", "Cartn_y", "Cartn_z", "occupancy", "B_iso_or_equiv",
    "pdbx_formal_charge", "pdbx_PDB_model_num",
)  # fmt: skip
_PARTNER: Final = ("auth_asym_id", "auth_seq_id", "auth_comp_id", "label_atom_id", "symmetry")
_CONN: Final = (
    "conn_type_id",
    *(f"ptnr{i}_{k}" for i in (1, 2) for k in _PARTNER),
    *(f"pdbx_ptnr{i}_PDB_ins_code" for i in (1, 2)),
)
_LABELS: Final = ("asym_id", "seq_id", "comp_id")
_WANTED: Final = {
    "atom_site": _SITE,
    "entity": ("id", "type"),
    "struct_conn": _CONN,
    "entry": ("id",),
    "struct": ("title",),
    "exptl": ("method",),
    "refine": ("ls_d_res_high",),
    "em_3d_reconstruction": ("resolution",),
    "pdbx_database_status": ("recvd_initial_deposition_date",),
    "ma_model_list": ("ordinal_id",),
}
_ASSEMBLY: Final = {
    "atom_site": ("id", *_SITE),
    "struct_conn": ("id", *_CONN, *(f"ptnr{i}_label_{k}" for i in (1, 2) for k in _LABELS)),
    "cell": ("length_a", "length_b", "length_c", "angle_alpha", "angle_beta", "angle_gamma"),
    "struct_asym": ("id", "entity_id"),
    "pdbx_struct_assembly": ("id", "details", "method_details", "oligomeric_details", "oligomeric_count"),
    "pdbx_struct_assembly_gen": ("assembly_id", "oper_expression", "asym_id_list"),
    "pdbx_struct_oper_list": ("id", "type", *(f"matrix[{i}][{j}]" for i in (1, 2, 3) for j in (1, 2, 3)),
                              *(f"vector[{i}]" for i in (1, 2, 3))),
}  # fmt: skip
_LINK_KINDS: Final[dict[str, LinkKind]] = {
    "covale": "covalent", "covale_base": "covalent", "covale_phosphate": "covalent",
    "covale_sugar": "covalent", "disulf": "disulfide", "metalc": "metal", "hydrog": "hydrogen",
}  # fmt: skip


def structure_from_bcif(data: bytes, name: str, assembly: str) -> Structure:
    """Read the first model of a BinaryCIF file.

    Raises
    ------
    StructureError
        ``parse_failed``; ``format_mismatch`` for a file without coordinates.
    """
    found = read_categories(data, {**_WANTED, **_ASSEMBLY} if assembly else _WANTED)
    site = found.get("atom_site", {})
    if not all(f"Cartn_{a}" in site for a in "xyz"):
        raise StructureError("format_mismatch", f"{name} is a BinaryCIF file without coordinates")
    if assembly:
        structure = _expanded(found, name, assembly)
    else:
        columns, n_models = _atoms(site, found.get("entity", {}))
        links, header = _links(found.get("struct_conn", {})), _header(found, n_models)
        structure = assemble(columns, links, header, (), "bcif")
    unknown = unknown_names(structure.residue_name)
    return replace(structure, definitions=_definitions(data, unknown)) if unknown else structure


def _definitions(data: bytes, names: list[str]) -> dict[str, Definition]:
    """What the file says itself of residues that the dictionary does not know."""
    wanted = {"chem_comp_atom": _bare(ATOM), "chem_comp_bond": _bare(BOND)}
    for category, name, text, kind in DESCRIPTORS:
        wanted[category.strip("_.")] = (name, text, *([kind] if kind else []))
    found = read_categories(data, wanted)

    def rows(category: str, columns: Sequence[str]) -> list[list[str]]:
        here = found.get(category.strip("_."), {})
        if any(not column.startswith("?") and column not in here for column in columns):
            return []
        n = len(here[columns[0]])
        texts = [here[k].strings() if k in here else [""] * n for k in _bare(columns)]
        return [list(row) for row in zip(*texts, strict=True)]

    return read_definitions(rows, names)


def _bare(columns: Sequence[str]) -> tuple[str, ...]:
    return tuple(column.removeprefix("?") for column in columns)


def _atoms(site: Mapping[str, Column], entity: Mapping[str, Column]) -> tuple[dict[str, Any], int]:
    n = len(site["Cartn_x"])
    models = site["pdbx_PDB_model_num"].numbers("i4", 1) if "pdbx_PDB_model_num" in site else np.ones(n, "i4")
    stop = n if not n or models[0] == models[-1] else int(np.argmax(models != models[0]))

    def packed(*names: str, width: int = 8) -> NDArray[Any]:
        column = next((site[k] for k in names if k in site), None)
        text = np.zeros(n, f"S{width}") if column is None else column.text(width)
        return np.ascontiguousarray(text[:stop]).view({8: np.uint64, 1: np.uint8}[width])

    def numbers(names: tuple[str, ...], dtype: str, default: float) -> NDArray[Any]:
        column = next((site[k] for k in names if k in site), None)
        return np.full(stop, default, dtype) if column is None else column.numbers(dtype, default)[:stop]

    kinds = np.zeros(stop, np.uint8)
    if "id" in entity and "type" in entity and "label_entity_id" in site:
        names = [t.replace(b"-", b"").decode() for t in entity["type"].text(12).tolist()]
        code = [ENTITIES.index(t) if t in ENTITIES else 0 for t in names]
        ids = site["label_entity_id"].text(8)[:stop]
        for key, value in zip(entity["id"].text(8).tolist(), code, strict=True):
            kinds[ids == key] = value
    symbols = site["type_symbol"].text(2)[:stop] if "type_symbol" in site else np.zeros(stop, "S2")
    unique, inverse = np.unique(symbols, return_inverse=True)
    elements = np.array([gemmi.Element(s.decode("latin-1")).atomic_number for s in unique.tolist()], np.uint8)
    columns = {
        "position": np.stack([site[f"Cartn_{a}"].numbers("f8", math.nan)[:stop] for a in "xyz"], axis=1),
        "element": elements[inverse.ravel()] if stop else np.zeros(0, np.uint8),
        "charge": numbers(("pdbx_formal_charge",), "i1", 0),
        "name": packed("auth_atom_id", "label_atom_id"),
        "altloc": packed("label_alt_id", width=1),
        "occupancy": numbers(("occupancy",), "f4", 1.0),
        "b_factor": numbers(("B_iso_or_equiv",), "f4", 0.0),
        "residue_name": packed("auth_comp_id", "label_comp_id"),
        "residue_chain": packed("auth_asym_id", "label_asym_id"),
        "residue_subchain": packed("label_asym_id"),
        "residue_number": numbers(("auth_seq_id", "label_seq_id"), "i4", 0),
        "residue_insertion": packed("pdbx_PDB_ins_code", width=1),
        "residue_entity": kinds,
        "residue_het": packed("group_PDB", width=1) == ord("H"),
    }
    return columns, max(len(np.unique(models)), 1)


def _first(found: Mapping[str, Mapping[str, Column]], category: str, column: str) -> str:
    values = found.get(category, {}).get(column)
    if values is None or not len(values):
        return ""
    first: bytes = values.text(400)[0]
    return first.decode("utf-8", "replace")


def _header(found: Mapping[str, Mapping[str, Column]], n_models: int) -> Header:
    method = _first(found, "exptl", "method")
    resolution = math.nan
    for category, column in (("refine", "ls_d_res_high"), ("em_3d_reconstruction", "resolution")):
        values = found.get(category, {}).get(column)
        if values is not None and len(values) and math.isnan(resolution):
            resolution = float(values.numbers("f8", math.nan)[0])
    return Header(
        code=_first(found, "entry", "id"),
        title=_first(found, "struct", "title"),
        method=method,
        resolution=resolution if resolution > 0 else math.nan,
        deposited=as_date(_first(found, "pdbx_database_status", "recvd_initial_deposition_date")),
        predicted="THEORETICAL" in method.upper() or "ma_model_list" in found,
        n_models=n_models,
    )


def _links(conn: Mapping[str, Column]) -> tuple[Link, ...]:
    if "conn_type_id" not in conn:
        return ()
    n = len(conn["conn_type_id"])
    text: dict[str, list[str]] = {
        k: [t.decode("latin-1") for t in v.text(16).tolist()] for k, v in conn.items()
    }
    blank = [""] * n

    def address(i: int, row: int) -> Address:
        def get(k: str) -> str:
            return text.get(f"ptnr{i}_{k}", blank)[row]

        number = get("auth_seq_id").lstrip("-")
        sign = -1 if get("auth_seq_id").startswith("-") else 1
        insertion = text.get(f"pdbx_ptnr{i}_PDB_ins_code", blank)[row]
        return Address(
            get("auth_asym_id"), get("auth_comp_id"), sign * int(number) if number.isdigit() else 0,
            insertion, get("label_atom_id"),
        )  # fmt: skip

    found = []
    for row, kind in enumerate(text["conn_type_id"]):
        sides = [text.get(f"ptnr{i}_symmetry", blank)[row] or "1_555" for i in (1, 2)]
        if sides[0] == sides[1]:  # else the partner is a symmetry copy, not in the file
            found.append(Link(address(1, row), address(2, row), _LINK_KINDS.get(kind.lower(), "unknown")))
    return tuple(found)


def _expanded(found: Mapping[str, Mapping[str, Column]], name: str, assembly: str) -> Structure:
    """A biological assembly: the columns as text, through the reader that can build one."""
    from .mmcif import structure_from_block

    block = gemmi.cif.Block(_first(found, "entry", "id") or "X")
    for category, columns in found.items():
        present = {k: v for k, v in columns.items() if len(v)}
        if present:
            loop = block.init_loop(f"_{category}.", list(present))
            loop.set_all_values([_cif_text(v) for v in present.values()])
    return replace(structure_from_block(block, name, assembly, "bcif"), header=_header(found, 1))


def _cif_text(column: Column) -> list[str]:
    if column.table is None:
        found = [f"{v:.10g}" for v in column.values.tolist()]
    else:
        table = [gemmi.cif.quote(t.decode("utf-8", "replace")) for t in column.table.tolist()] + ["?"]
        found = [table[c] for c in column.values.tolist()]
    if column.missing is not None:
        found = ["?" if gone else v for v, gone in zip(found, column.missing.tolist(), strict=True)]
    return found
