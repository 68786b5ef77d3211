"""Ligand and pocket -> the record of ``shards.complex``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...shards.complex import BOND_ORDERS, RESIDUE_TYPES, Affinity, Complex, Flag
from ..item import Item
from .features import PocketAtoms
from .molecule import Ligand
from .receptor import Receptor
from .templates import LIBRARY, ROLE, ROLES

_LIGAND: Final = RESIDUE_TYPES.index("ligand")
_SINGLE: Final = BOND_ORDERS.index("single")
_MILLI: Final = np.float32(1000)  # positions are stored in thousandths of an angstrom
_CENTI: Final = np.float32(100)  # B-factors and occupancies in hundredths
# Types of residues without a template, by what they turned out to be.
_TYPES: Final = np.array(
    [RESIDUE_TYPES.index({"water": "water", "ion": "ion", "small_molecule": "cofactor",
                          "saccharide": "cofactor"}.get(role, "unknown")) for role in ROLES], np.uint8
)  # fmt: skip
_ATOM_COLUMNS: Final = (
    "element", "charge", "hybridisation", "degree", "hydrogens", "aromatic", "ring", "chirality",
)  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class Parts:
    """What a record is made of.

    Attributes
    ----------
    own : residues of the receptor that are the ligand, None if it came from a file of its own
    links : (row of the ligand, atom of the structure) of each covalent bond between them
    """

    receptor: Receptor
    ligand: Ligand
    own: NDArray[np.int64] | None
    pocket: PocketAtoms
    links: list[tuple[int, int]]


def to_complex(
    item: Item,
    parts: Parts,
    affinity: Affinity,
    *,
    pocket_radius: float,
    flags: Flag,
    files: Sequence[tuple[str, str]],
    repairs: Sequence[str],
) -> Complex:
    """The record: ligand first, positions from the centroid of the ligand's heavy atoms."""
    ligand, pocket, s = parts.ligand, parts.pocket, parts.receptor.structure
    centre = np.round(ligand.position[ligand.element != 1].mean(axis=0), 3)
    xyz = np.concatenate([ligand.position, s.position.take(pocket.rows, axis=0)]) - centre
    n = len(ligand.element)
    columns: dict[str, Any] = {
        k: np.concatenate([getattr(ligand, k), pocket.columns[k]]) for k in _ATOM_COLUMNS
    }
    bonds = _bonds(parts, columns)
    owner = _owners(parts)
    n_own = 1 if parts.own is None else len(parts.own)
    name = s.name.take(pocket.rows).view(np.uint8).reshape(-1, 8)[:, :4]
    return Complex(
        position=_fixed(xyz, _MILLI),
        **columns,
        backbone=np.concatenate([np.zeros(n, np.uint8), pocket.columns["backbone"]]),
        name=np.concatenate([ligand.name, name]),
        residue=np.concatenate([owner, pocket.residue + n_own]).astype(np.uint16),
        b_factor=_fixed(np.concatenate([ligand.b_factor, s.b_factor[pocket.rows]]), _CENTI),
        occupancy=_fixed(np.concatenate([ligand.occupancy, s.occupancy[pocket.rows]]), _CENTI),
        **bonds,
        **_residues(parts),
        n_ligand_atoms=n,
        affinity=affinity,
        centre=centre,
        pocket_radius=pocket_radius,
        resolution=s.header.resolution,
        deposited=s.header.deposited,
        flags=flags,
        text=_text(item, parts, affinity, files, repairs),
    )


def _fixed(values: NDArray[Any], per_unit: np.float32) -> NDArray[np.float32]:
    """What a reader will get back after fixed-point storage."""
    found: NDArray[np.float32] = np.rint(values * float(per_unit)).astype(np.float32) / per_unit
    return found


def _bonds(parts: Parts, columns: dict[str, Any]) -> dict[str, Any]:
    ligand, pocket = parts.ligand, parts.pocket
    n = len(ligand.element)
    atoms = np.concatenate([ligand.bond_atoms, pocket.bond_atoms + n])
    features = {
        f"bond_{k}": np.concatenate([getattr(ligand, f"bond_{k}"), pocket.bonds[k]])
        for k in ("order", "conjugated", "ring", "stereo")
    }
    place = {int(atom): n + k for k, atom in enumerate(pocket.rows.tolist())} if parts.links else {}
    extra = []
    for a, b in parts.links:
        columns["degree"][a] += 1  # the pocket's end has counted it already
        columns["hydrogens"][a] -= columns["hydrogens"][a] > 0
        if b in place:
            extra.append((a, place[b]))
    if extra:
        atoms = np.concatenate([atoms, np.array(extra)])
        for key, value in features.items():
            new = np.full(len(extra), _SINGLE if key == "bond_order" else 0, np.uint8)
            features[key] = np.concatenate([value, new])
        order = np.lexsort((atoms[:, 1], atoms[:, 0]))
        atoms, features = atoms[order], {k: v[order] for k, v in features.items()}
    return {"bond_atoms": atoms.astype(np.uint16), **features}


def _residues(parts: Parts) -> dict[str, Any]:
    """Residue columns: a row for each residue of the ligand, then the pocket's."""
    s, rows = parts.receptor.structure, parts.pocket.residues
    n = 1 if parts.own is None else len(parts.own)
    template = parts.receptor.template[rows]
    kind = LIBRARY.type[template]
    kind = np.where(kind == 0, _TYPES[parts.receptor.role[rows]], kind)
    own = parts.own

    def with_ligand(column: NDArray[Any]) -> NDArray[Any]:
        head = column[own] if own is not None else np.zeros(n, column.dtype)
        return np.concatenate([head, column.take(rows)])

    return {
        "residue_type": np.concatenate([np.full(n, _LIGAND, np.uint8), kind]),
        "residue_name": _letters(with_ligand(s.residue_name)),
        "residue_chain": _letters(with_ligand(s.residue_chain)),
        "residue_number": with_ligand(s.residue_number),
        "residue_insertion": with_ligand(s.residue_insertion),
    }


def _owners(parts: Parts) -> NDArray[np.int64]:
    """Row on the ligand's share of the residue axis of each of its atoms; all of its residues have a row."""
    if parts.own is None:
        return np.zeros(parts.ligand.n_atoms, np.int64)
    return np.searchsorted(parts.own, parts.receptor.structure.residue[parts.ligand.row])


def _letters(names: NDArray[np.bytes_]) -> NDArray[np.uint8]:
    return np.ascontiguousarray(names).view(np.uint8).reshape(-1, 8)


def _text(
    item: Item, parts: Parts, affinity: Affinity, files: Sequence[tuple[str, str]], repairs: Sequence[str]
) -> dict[str, Any]:
    ligand, s = parts.ligand, parts.receptor.structure
    found: dict[str, Any] = {
        "id": item.id,
        "source": item.source,
        "smiles": ligand.smiles,
        "inchikey": ligand.inchikey,
        "scaffold": ligand.scaffold,
        "sequences": parts.receptor.sequences,
        "ligand": ligand.title,
        "label": affinity.text,
        "repairs": list(repairs),
        "method": s.header.method,
        "files": [list(f) for f in files],
        "columns": dict(item.columns),
    }
    if parts.links:
        found["links"] = [[_atom_name(ligand, a), _address(parts.receptor, b)] for a, b in parts.links]
    return found


def _atom_name(ligand: Ligand, row: int) -> str:
    name: bytes = ligand.name[row].tobytes()
    return name.rstrip(b"\0").decode("ascii", "replace")


def _address(receptor: Receptor, atom: int) -> str:
    """ "A:CYS:12:SG"."""
    s = receptor.structure
    r = int(s.residue[atom])
    insertion = chr(s.residue_insertion[r]) if s.residue_insertion[r] else ""
    parts = [t.decode("latin-1") for t in (s.residue_chain[r], s.residue_name[r], s.name[atom])]
    return f"{parts[0]}:{parts[1]}:{s.residue_number[r]}{insertion}:{parts[2]}"


def missing_share(receptor: Receptor, pocket: PocketAtoms) -> float:
    """Share of the heavy atoms that templates expect and the file lacks; OXT and OP3 are not expected."""
    template = receptor.template[pocket.residues]
    expected = LIBRARY.atom_start[template + 1] - LIBRARY.atom_start[template]
    expected = expected - np.isin(receptor.role[pocket.residues], (ROLE["amino_acid"], ROLE["nucleotide"]))
    heavy = pocket.columns["element"] != 1
    present = np.bincount(pocket.residue[heavy], minlength=len(template))
    missing = np.maximum(expected - present, 0)
    return float(missing.sum() / max(int(expected.sum()), 1))
