"""A complex as the files it came from: the ligand as SDF, the pocket as PDB, in the source's frame.

Coordinates are exact to 0.001 angstrom. What the formats cannot say is said in a comment: chains of more
than one letter get a letter each, named in REMARK 999 lines.
"""

from __future__ import annotations

import string
from collections.abc import Iterator
from typing import Final

import numpy as np

from ..complex import AMINO_ACIDS, BOND_ORDERS, NUCLEOTIDES, RESIDUE_TYPES, Complex, decode_names
from ..errors import DataError
from ..read.describe import SYMBOLS
from .kekule import kekulise

POLYMER: Final = frozenset(RESIDUE_TYPES.index(t) for t in (*AMINO_ACIDS, *NUCLEOTIDES))
# CTfile formats (Dassault Systemes, 2020), bond types of a V2000 bond line; 9 is dative, 8 is any
MOLFILE_BOND: Final = {"single": 1, "double": 2, "triple": 3, "aromatic": 4, "dative": 9}
LETTERS: Final = string.ascii_uppercase + string.digits + string.ascii_lowercase


def to_sdf(c: Complex) -> str:
    """Return the ligand as one SDF record, with the id, the label and the SMILES as data items."""
    n = c.n_ligand_atoms
    own = (c.bond_atoms < n).all(1)
    bonds, orders = c.bond_atoms[own], c.bond_order[own]
    if n > 999 or len(bonds) > 999:
        raise DataError(f"{c.id}: a ligand of {n} atoms and {len(bonds)} bonds; SDF V2000 holds 999 of each")
    kekule = kekulise(bonds, orders, c.element[:n], c.charge[:n], c.hydrogens[:n])
    lines = [
        c.id.replace("\n", " ")[:80],
        "  holoshard",
        "",
        f"{n:3d}{len(bonds):3d}  0  0  0  0  0  0  0  0999 V2000",
    ]
    for (x, y, z), element in zip(c.xyz[:n].tolist(), c.element[:n].tolist(), strict=True):
        lines.append(
            f"{x:10.4f}{y:10.4f}{z:10.4f} {SYMBOLS.get(element, '*'):<3} 0  0  0  0  0  0  0  0  0  0  0  0"
        )
    for (i, j), order in zip(bonds.tolist(), (orders if kekule is None else kekule).tolist(), strict=True):
        lines.append(f"{i + 1:3d}{j + 1:3d}{MOLFILE_BOND.get(BOND_ORDERS[order], 8):3d}  0")
    charged = [(i + 1, q) for i, q in enumerate(c.charge[:n].tolist()) if q]
    for begin in range(0, len(charged), 8):
        some = charged[begin : begin + 8]
        lines.append(f"M  CHG{len(some):3d}" + "".join(f" {i:3d} {q:3d}" for i, q in some))
    lines.append("M  END")
    items = {"id": c.id, "label": c.affinity.text, "smiles": c.text.get("smiles", "")}
    for name, value in items.items():
        if value:
            lines += [f"> <{name}>", " ".join(str(value).split()), ""]
    return "\n".join([*lines, "$$$$", ""])


def to_pdb(c: Complex) -> str:
    """Return the pocket as PDB, all but the ligand, with CONECT for bonds of what is not polymer."""
    chains = decode_names(c.residue_chain)
    letter = _letters(c.id, chains[1:] if len(chains) > 1 else chains)
    lines = [f"REMARK 999 POCKET OF {c.id}"[:80]]
    lines += [f"REMARK 999 CHAIN {new} IS {old}" for old, new in letter.items() if new != old]
    lines += _atoms(c, chains, letter)
    return "\n".join([*lines, *_conect(c), "END", ""])


def _letters(name: str, chains: list[str]) -> dict[str, str]:
    """A letter for each chain: its own if it is one, else one that is free."""
    distinct = list(dict.fromkeys(chains))
    letter = {chain: chain for chain in distinct if len(chain) == 1}
    letter |= {"": " "} if "" in distinct else {}
    free = [x for x in LETTERS if x not in letter]
    longer = [chain for chain in distinct if chain not in letter]
    if len(longer) > len(free):
        raise DataError(f"{name}: {len(distinct)} chains; PDB has letters for {len(LETTERS)}")
    return letter | dict(zip(longer, free, strict=False))


def _atoms(c: Complex, chains: list[str], letter: dict[str, str]) -> Iterator[str]:
    names, residues = c.names(), decode_names(c.residue_name)
    if c.n_atoms > 99999:
        raise DataError(f"{c.id}: {c.n_atoms} atoms; PDB holds 99999")
    xyz = c.xyz.tolist()
    for i in range(c.n_ligand_atoms, c.n_atoms):
        r = int(c.residue[i])
        record = "ATOM  " if int(c.residue_type[r]) in POLYMER else "HETATM"
        symbol = SYMBOLS.get(int(c.element[i]), "X").upper()
        name = names[i] if len(names[i]) == 4 or len(symbol) == 2 else f" {names[i]}"
        insertion = chr(int(c.residue_insertion[r])) if c.residue_insertion[r] else " "
        charge = int(c.charge[i])
        sign = f"{abs(charge)}{'+' if charge > 0 else '-'}" if charge else ""
        x, y, z = xyz[i]
        line = (
            f"{record}{i + 1:5d} {name:<4} {residues[r][:3]:>3} {letter[chains[r]]}"
            f"{int(c.residue_number[r]):4d}{insertion}   {x:8.3f}{y:8.3f}{z:8.3f}"
            f"{c.occupancy[i]:6.2f}{c.b_factor[i]:6.2f}          {symbol:>2}{sign:<2}"
        )
        if len(line) != 80:
            raise DataError(f"{c.id}: atom {i + 1} does not fit the columns of PDB: {line.strip()!r}")
        yield line


def _conect(c: Complex) -> Iterator[str]:
    """Bonds of residues that readers have no template for."""
    pocket = (c.bond_atoms >= c.n_ligand_atoms).all(1)
    pairs = c.bond_atoms[pocket].astype(np.int64)
    known = np.isin(c.residue_type, list(POLYMER))[c.residue]
    odd = pairs[~known[pairs].all(1)] + 1
    near: dict[int, list[int]] = {}
    for i, j in odd.tolist():
        near.setdefault(i, []).append(j)
        near.setdefault(j, []).append(i)
    for i in sorted(near):
        for begin in range(0, len(near[i]), 4):
            yield f"CONECT{i:5d}" + "".join(f"{j:5d}" for j in sorted(near[i])[begin : begin + 4])
