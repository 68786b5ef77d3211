"""What an mmCIF or BinaryCIF file says itself of residues unknown to the dictionary: bonds, or a SMILES.

Deposited files repeat the dictionary here, without charges, so that the dictionary comes first; files of
structure predictors and refinement programs define here what they call LIG.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import gemmi
import numpy as np
from numpy.typing import NDArray

from ...shards.complex import BOND_ORDERS
from .components import atomic_number
from .residue import Entry

_ORDERS: Final = {
    "SING": "single", "DOUB": "double", "TRIP": "triple", "QUAD": "quadruple", "AROM": "aromatic",
    "DELO": "aromatic",
}  # fmt: skip
ATOM: Final = ("comp_id", "atom_id", "type_symbol", "?charge")
BOND: Final = ("comp_id", "atom_id_1", "atom_id_2", "?value_order")
# Category, column of the residue's name, column of the text, column that must begin with SMILES.
DESCRIPTORS: Final = (
    ("_pdbx_chem_comp_descriptor.", "comp_id", "descriptor", "type"),
    ("_ma_chem_comp_descriptor.", "chem_comp_id", "value", "type"),
    ("_chem_comp.", "id", "pdbx_smiles", None),
)


@dataclass(slots=True)
class Definition:
    """One residue as the file defines it.

    Attributes
    ----------
    atoms : name -> element symbol and formal charge; empty where the file lists bonds alone
    bonds : names of two atoms and the index into BOND_ORDERS
    smiles : "" if the file has none
    """

    atoms: dict[str, tuple[str, int]] = field(default_factory=dict)
    bonds: list[tuple[str, str, int]] = field(default_factory=list)
    smiles: str = ""

    def entry(self, residue_name: str, names: Sequence[str], element: NDArray[np.uint8]) -> Entry | None:
        """As an entry of a dictionary, None without bonds.

        Parameters
        ----------
        names, element : the residue's atoms, whose elements count where the file does not list them here
        """
        if not self.bonds:
            return None
        known = dict(zip(names, element.tolist(), strict=True))
        known |= {name: atomic_number(symbol) for name, (symbol, _) in self.atoms.items()}
        here = dict.fromkeys([*self.atoms, *(name for a, b, _ in self.bonds for name in (a, b))])
        row = {name: k for k, name in enumerate(here)}
        elements = np.array([known.get(name, 1 if name[:1] in "HD" else 0) for name in here], np.uint8)
        return Entry(
            residue_name,
            tuple(here),
            elements,
            np.array([self.atoms[name][1] if name in self.atoms else 0 for name in here], np.int8),
            np.zeros(len(here), bool),
            np.array([(row[a], row[b]) for a, b, _ in self.bonds], np.int64).reshape(-1, 2),
            np.array([order for _, _, order in self.bonds], np.uint8),
            has_hydrogens=bool((elements == 1).any()),
        )


# (category, columns) -> rows of text, "" for what is missing; none if a column without "?" before it is.
Rows = Callable[[str, Sequence[str]], list[list[str]]]


def definitions_of_block(block: gemmi.cif.Block, names: Collection[str]) -> dict[str, Definition]:
    """:func:`read_definitions` of an mmCIF file."""
    return read_definitions(partial(_rows, block), names)


def read_definitions(rows: Rows, names: Collection[str]) -> dict[str, Definition]:
    """Definitions of these residues, as far as a file has any.

    Bonds of which one has no order are left out altogether: connections alone say nothing of chemistry.
    """
    found = {name: Definition() for name in names}
    for comp, atom, symbol, charge in rows("_chem_comp_atom.", ATOM):
        if comp in found:
            found[comp].atoms[atom] = (symbol, int(charge) if charge.lstrip("+-").isdigit() else 0)
    vague = set()
    for comp, a, b, order in rows("_chem_comp_bond.", BOND):
        if comp in found:
            word = _ORDERS.get(order.upper()[:4])
            vague |= set() if word else {comp}
            found[comp].bonds.append((a, b, BOND_ORDERS.index(word or "unknown")))
    for comp in vague:
        found[comp].bonds.clear()
    for category, name, text, kind in DESCRIPTORS:
        for comp, smiles, type_ in rows(category, (name, text, f"?{kind}" if kind else f"?{text}")):
            wanted = kind is None or type_.upper().startswith("SMILES")
            if comp in found and smiles and wanted and not found[comp].smiles:
                found[comp].smiles = smiles
    return {name: d for name, d in found.items() if d.bonds or d.smiles}


def _rows(block: gemmi.cif.Block, category: str, columns: Sequence[str]) -> list[list[str]]:
    table = block.find(category, list(columns))
    return (
        [[_text(row[k]) if row.has(k) else "" for k in range(len(columns))] for row in table] if table else []
    )


def _text(value: str) -> str:
    return "" if gemmi.cif.is_null(value) else str(gemmi.cif.as_string(value))
