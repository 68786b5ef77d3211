"""The Chemical Component Dictionary of the wwPDB, offline, as biotite ships it.

It names, for every residue a deposited structure may hold, the atoms, charges and bonds. Only the
columns that are used are decoded, once a process (about half a second), and kept packed: some 70 MB.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Final

import biotite.structure.info
import gemmi
import numpy as np
from numpy.typing import NDArray

from ...shards.complex import BOND_ORDERS, BOND_STEREOS, CHIRALITIES
from .bcif import Column, read_categories

# Names that docking, refinement and modelling programs give to whatever ligand they hold. The
# dictionary has entries of some of these names, of other molecules.
PLACEHOLDERS: Final = frozenset({"LIG", "UNL", "UNK", "UNX", "DRG", "INH", "XXX", "MOL", "UNN", "LG1", "L01"})
_NUMBERED = re.compile(r"\d\d?")  # 01 to 99

_COLUMNS: Final = {
    "chem_comp": ("id", "type", "one_letter_code", "mon_nstd_parent_comp_id"),
    "chem_comp_atom": (
        "comp_id", "atom_id", "type_symbol", "charge", "pdbx_aromatic_flag", "pdbx_leaving_atom_flag",
        "pdbx_stereo_config", "pdbx_model_Cartn_x_ideal", "pdbx_model_Cartn_y_ideal",
        "pdbx_model_Cartn_z_ideal",
    ),
    "chem_comp_bond": (
        "comp_id", "atom_id_1", "atom_id_2", "value_order", "pdbx_aromatic_flag", "pdbx_stereo_config",
    ),
}  # fmt: skip
_ORDERS: Final = {"SING": "single", "DOUB": "double", "TRIP": "triple", "QUAD": "quadruple"}


@dataclass(frozen=True, slots=True, eq=False)
class Component:
    """One entry of the dictionary, hydrogens and leaving atoms included.

    Attributes
    ----------
    name : residue name, up to five letters
    type : as in the dictionary, upper case: "L-PEPTIDE LINKING", "NON-POLYMER", ...
    one_letter : one-letter code, "" if it has none
    parent : name of the standard residue that this one is a modification of, "" if none
    atom_names : n names
    element, charge : shape (n,), atomic number (1 for deuterium) and formal charge
    aromatic, leaving : shape (n,); leaving atoms go when a polymer bond is made
    stereo : shape (n,), index into CHIRALITIES
    ideal : shape (n, 3), idealised coordinates in angstrom, NaN where missing
    bond_atoms : shape (m, 2), rows of atoms
    bond_order : shape (m,), index into BOND_ORDERS, Kekulé form: aromatic rings alternate
    bond_aromatic, bond_stereo : shape (m,); the latter an index into BOND_STEREOS
    """

    name: str
    type: str
    one_letter: str
    parent: str
    atom_names: tuple[str, ...]
    element: NDArray[np.uint8]
    charge: NDArray[np.int8]
    aromatic: NDArray[np.bool_]
    leaving: NDArray[np.bool_]
    stereo: NDArray[np.uint8]
    ideal: NDArray[np.float32]
    bond_atoms: NDArray[np.int64]
    bond_order: NDArray[np.uint8]
    bond_aromatic: NDArray[np.bool_]
    bond_stereo: NDArray[np.uint8]

    @property
    def is_amino_acid(self) -> bool:
        """True for what can stand in a peptide chain."""
        return "PEPTIDE" in self.type and "LINKING" in self.type

    @property
    def is_nucleotide(self) -> bool:
        """True for what can stand in a DNA or RNA chain."""
        return ("DNA" in self.type or "RNA" in self.type) and "LINKING" in self.type

    @property
    def is_saccharide(self) -> bool:
        """True for sugars."""
        return "SACCHARIDE" in self.type


@cache
def atomic_number(symbol: str) -> int:
    """Atomic number of an element symbol in any case; 1 for D and T, 0 for what is no element."""
    return 1 if symbol.strip().upper() == "T" else int(gemmi.Element(symbol.strip()).atomic_number)


def _mapped(column: Column, values: dict[str, int]) -> NDArray[np.uint8]:
    """Text column -> small integers by ``values``, 0 where the text is not in it."""
    assert column.table is not None
    table = [values.get(s.decode().upper(), 0) for s in column.table.tolist()]
    found: NDArray[np.uint8] = np.append(np.array(table, np.uint8), np.uint8(0))[column.values]
    return found


def _runs(column: Column) -> dict[str, tuple[int, int]]:
    """Component name -> first row and row after the last."""
    assert column.table is not None
    edges = np.flatnonzero(column.values[1:] != column.values[:-1]) + 1
    starts = [0, *edges.tolist()]
    names = [column.table[i].decode() for i in column.values[starts].tolist()]
    return {n: (a, b) for n, a, b in zip(names, starts, [*starts[1:], len(column)], strict=True)}


@dataclass(frozen=True, slots=True, eq=False)
class _Dictionary:
    """The decoded columns and the rows of each component in them."""

    rows: dict[str, int]
    atoms: dict[str, tuple[int, int]]
    bonds: dict[str, tuple[int, int]]
    entry: dict[str, Column]
    atom: dict[str, Column]
    bond: dict[str, Column]
    arrays: dict[str, NDArray[Any]]


@cache
def _dictionary() -> _Dictionary:
    path = Path(biotite.structure.info.__file__).parent / "components.bcif"
    found = read_categories(path.read_bytes(), _COLUMNS)
    entry, atom, bond = found["chem_comp"], found["chem_comp_atom"], found["chem_comp_bond"]
    symbols = {s.decode(): atomic_number(s.decode()) for s in _table(atom["type_symbol"])}
    yes = {"Y": 1}
    ideal = [atom[f"pdbx_model_Cartn_{a}_ideal"].numbers("f4", np.nan) for a in "xyz"]
    arrays = {
        "element": _mapped(atom["type_symbol"], symbols),
        "charge": atom["charge"].numbers("i1", 0),
        "aromatic": _mapped(atom["pdbx_aromatic_flag"], yes).view(bool),
        "leaving": _mapped(atom["pdbx_leaving_atom_flag"], yes).view(bool),
        "stereo": _mapped(atom["pdbx_stereo_config"], {s: CHIRALITIES.index(s) for s in ("R", "S")}),
        "ideal": np.stack(ideal, axis=1),
        "bond_order": _mapped(bond["value_order"], {k: BOND_ORDERS.index(v) for k, v in _ORDERS.items()}),
        "bond_aromatic": _mapped(bond["pdbx_aromatic_flag"], yes).view(bool),
        "bond_stereo": _mapped(bond["pdbx_stereo_config"], {s: BOND_STEREOS.index(s) for s in ("E", "Z")}),
    }
    names = [s.decode() for s in _table(entry["id"])]
    rows = {names[code]: row for row, code in enumerate(entry["id"].values.tolist())}
    return _Dictionary(rows, _runs(atom["comp_id"]), _runs(bond["comp_id"]), entry, atom, bond, arrays)


def _table(column: Column) -> list[bytes]:
    assert column.table is not None
    found: list[bytes] = column.table.tolist()
    return found


def _texts(column: Column, start: int, stop: int) -> tuple[str, ...]:
    """Text of some rows, "" where missing."""
    table = _table(column)
    gone = column.missing
    codes = column.values[start:stop].tolist()
    return tuple(
        "" if c < 0 or (gone is not None and gone[start + k]) else table[c].decode()
        for k, c in enumerate(codes)
    )


def is_placeholder(name: str) -> bool:
    """True for names that say "the ligand" and not which one."""
    return name in PLACEHOLDERS or _NUMBERED.fullmatch(name) is not None


@lru_cache(maxsize=4096)
def component(name: str) -> Component | None:
    """Entry of the dictionary for a residue name.

    Returns
    -------
    None if the dictionary has no such entry, or only by accident: LIG, UNL, DRG, INH, 01 to 99 and the
    like stand for "whatever the ligand is" in most files.
    """
    if not name or is_placeholder(name):
        return None
    ccd = _dictionary()
    row = ccd.rows.get(name)
    if row is None or name not in ccd.atoms:
        return None
    a0, a1 = ccd.atoms[name]
    b0, b1 = ccd.bonds.get(name, (0, 0))
    names = _texts(ccd.atom["atom_id"], a0, a1)
    place = {n: i for i, n in enumerate(names)}
    ends = zip(_texts(ccd.bond["atom_id_1"], b0, b1), _texts(ccd.bond["atom_id_2"], b0, b1), strict=True)
    bonds = np.array([(place[p], place[q]) for p, q in ends], np.int64).reshape(-1, 2)
    type_, letter, parent = (
        _texts(ccd.entry[k], row, row + 1)[0] for k in ("type", "one_letter_code", "mon_nstd_parent_comp_id")
    )
    atoms = {k: v[a0:a1] for k, v in ccd.arrays.items() if not k.startswith("bond_")}
    lines = {k: v[b0:b1] for k, v in ccd.arrays.items() if k.startswith("bond_")}
    return Component(name, type_.upper(), letter.strip("?"), parent.strip("?"), names,
                     bond_atoms=bonds, **atoms, **lines)  # fmt: skip


def unknown_names(names: NDArray[np.bytes_]) -> list[str]:
    """Which residue names, of dtype S8, the dictionary does not have; each once."""
    unique = np.unique(names.view(np.uint64)).view("S8").tolist()
    return [n for n in (name.decode("latin-1") for name in unique) if component(n) is None]
