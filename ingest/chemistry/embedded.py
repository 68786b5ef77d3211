"""A ligand that lies inside the structure file: one residue of it, or several bonded to each other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ...shards.complex import BOND_ORDERS
from ...shards.errors import StructureError
from ..read.components import component
from ..read.residue import BondTable, Entry, ligand_from_residue
from .features import ragged
from .geometry import entry_from_geometry
from .linkage import atom_of
from .molecule import Ligand
from .receptor import Receptor
from .select import residues_of
from .smiles_entry import entry_from_smiles

_SINGLE: Final = BOND_ORDERS.index("single")
_BONDED: Final = 1.9  # angstrom: nearer to an atom of another residue is a bond, if not a very bad clash


def embedded_ligand(
    receptor: Receptor, residues: NDArray[np.int64], hydrogens: bool = False, smiles: str = ""
) -> Ligand:
    """The ligand that some residues are, with bonds and charges from the first of these that fits: the
    dictionary, definitions in the file, a SMILES matched to the distances between atoms, the geometry alone.

    Parameters
    ----------
    residues : rows of the receptor's residue table, at least one
    smiles : of the ligand, "" if nobody knows it; the file may have one itself

    Raises
    ------
    StructureError
        ``ligand_no_bond_orders`` and what reading a ligand raises.
    """
    s = receptor.structure
    first, count = s.residue_start[residues], np.diff(s.residue_start)[residues]
    rows = ragged(first, count)
    titles = tuple(n.decode("latin-1") for n in s.residue_name[residues].tolist())
    ways: list[Callable[[], tuple[tuple[str, ...], BondTable | None]]]
    ways = [partial(_by_name, receptor, residues, rows, titles)]
    title = "-".join(titles)
    codes = [""]
    for text in dict.fromkeys((smiles, *(s.definitions[t].smiles for t in titles if t in s.definitions))):
        if text:
            ways.append(partial(_by_heavy_atoms, receptor, rows, title, partial(entry_from_smiles, text)))
            codes.append("smiles_template")
    if (
        len(ways) == 1
    ):  # a SMILES that does not fit says that the geometry is not to be trusted, or the SMILES
        ways.append(partial(_by_geometry, receptor, rows, title))
        codes.append("bonds_perceived")
    troubles: list[str] = []
    for way, code in zip(ways, codes, strict=True):
        try:
            names, entry = way()
            found = ligand_from_residue(
                residue_name=title,
                names=names,
                element=s.element[rows],
                charge=s.charge[rows],
                position=s.position[rows],
                b_factor=s.b_factor[rows],
                occupancy=s.occupancy[rows],
                component=entry,
                hydrogens=hydrogens,
            )
        except StructureError as error:
            if error.reason != "ligand_no_bond_orders":
                raise
            troubles.append(str(error))
            continue
        packed = np.zeros((len(found.row), 4), np.uint8)
        packed[:] = s.name[rows[found.row]].view(np.uint8).reshape(-1, 8)[:, :4]
        repairs = (*found.repairs, code) if code else found.repairs
        if not code and entry is not None and _is_cut(receptor, residues, names, entry):
            repairs = tuple(dict.fromkeys((*repairs, "atoms_missing")))
        return replace(found, name=packed, row=rows[found.row], repairs=repairs)
    hint = (
        ""
        if "smiles_template" in codes
        else "; a column smiles in a table of labels would say which molecule it is"
    )
    raise StructureError("ligand_no_bond_orders", "; ".join(troubles) + hint)


def _by_name(
    receptor: Receptor, residues: NDArray[np.int64], rows: NDArray[np.int64], titles: tuple[str, ...]
) -> tuple[tuple[str, ...], BondTable | None]:
    """Names of the atoms and the entry that has them."""
    s = receptor.structure
    names = [n.decode("latin-1") for n in s.name[rows].tolist()]
    if len(residues) == 1:
        return tuple(names), _entry_of(receptor, int(residues[0]), titles[0])
    owner = np.repeat(np.arange(len(residues)), np.diff(s.residue_start)[residues])
    wanted = tuple(f"{k}:{n}" for k, n in zip(owner.tolist(), names, strict=True))
    return wanted, _merge(receptor, residues, titles)


def _entry_of(receptor: Receptor, residue: int, title: str) -> BondTable | None:
    """The dictionary's entry of a residue, or the file's own."""
    known = component(title)
    s = receptor.structure
    if known is not None or title not in s.definitions:
        return known
    atoms = slice(int(s.residue_start[residue]), int(s.residue_start[residue + 1]))
    names = [n.decode("latin-1") for n in s.name[atoms].tolist()]
    return s.definitions[title].entry(title, names, s.element[atoms])


def _is_cut(
    receptor: Receptor, residues: NDArray[np.int64], names: tuple[str, ...], entry: BondTable
) -> bool:
    """True if a heavy atom is missing that leaves where a bond to another residue is made, and there is none.

    An acid without its OXT, the end of many a peptide, would pass for an aldehyde without a word.
    """
    gone = entry.leaving & (entry.element != 1) & ~np.isin(entry.atom_names, names)
    if not gone.any():
        return False
    s = receptor.structure
    ends = [
        atom for pair in (*bonds_out(receptor, residues), *bonds_among(receptor, residues)) for atom in pair
    ]
    for r in residues.tolist():
        ends += [receptor.carbonyl[r]] * bool(receptor.joined[r])
        ends += [receptor.amide[r]] * bool(r and receptor.joined[r - 1])
    place = {int(r): f"{k}:" if len(residues) > 1 else "" for k, r in enumerate(residues)}
    bonded = {
        place[owner] + s.name[atom].decode("latin-1")
        for atom in map(int, ends)
        if (owner := int(s.residue[atom])) in place
    }
    free = {
        atom
        for pair in entry.bond_atoms.tolist()
        for atom, other in (pair, pair[::-1])
        if gone[atom] and entry.element[other] != 1 and entry.atom_names[other] not in bonded
    }
    return bool(free)


def _by_geometry(
    receptor: Receptor, rows: NDArray[np.int64], title: str
) -> tuple[tuple[str, ...], BondTable]:
    """As below, if nothing else is bonded to the residues: what is cut there would get hydrogens."""
    s = receptor.structure
    others = np.ones(s.n_atoms, bool)
    others[rows] = False
    others &= s.element != 1
    own = s.position[rows[s.element[rows] != 1]]
    low, high = own.min(axis=0) - _BONDED, own.max(axis=0) + _BONDED
    others &= ((s.position >= low) & (s.position <= high)).all(axis=1)
    gaps = np.linalg.norm(s.position[others][:, None] - own[None], axis=2)
    if gaps.size and gaps.min() < _BONDED:
        said = (
            f"no dictionary knows residue {title!r}, and its geometry does not tell: it is bonded to others"
        )
        raise StructureError("ligand_no_bond_orders", said)
    return _by_heavy_atoms(receptor, rows, title, entry_from_geometry)


def _by_heavy_atoms(
    receptor: Receptor,
    rows: NDArray[np.int64],
    title: str,
    make: Callable[[NDArray[np.uint8], NDArray[np.float64], str], BondTable],
) -> tuple[tuple[str, ...], BondTable]:
    """Names of the atoms and an entry that is made of elements and positions of the heavy ones."""
    s = receptor.structure
    heavy = s.element[rows] != 1
    entry = make(s.element[rows[heavy]], s.position[rows[heavy]], title)
    number = np.cumsum(heavy) - 1
    names = tuple(
        str(k) if is_heavy else "H" for k, is_heavy in zip(number.tolist(), heavy.tolist(), strict=True)
    )
    return names, entry


def _merge(receptor: Receptor, residues: NDArray[np.int64], titles: tuple[str, ...]) -> Entry:
    entries = [_entry_of(receptor, int(r), t) for r, t in zip(residues, titles, strict=True)]
    known = [e for e in entries if e is not None]
    if len(known) < len(entries):
        missing = [t for t, e in zip(titles, entries, strict=True) if e is None]
        raise StructureError(
            "ligand_no_bond_orders",
            f"residues {', '.join(missing)} have no entry in the Chemical Component Dictionary",
        )
    base = np.cumsum([0, *(len(e.atom_names) for e in known)])
    place = {int(r): k for k, r in enumerate(residues)}
    bonds = [e.bond_atoms + b for e, b in zip(known, base, strict=False)]
    orders = [e.bond_order for e in known]
    between = []
    for a, b in bonds_among(receptor, residues):
        ends = []
        for atom in (a, b):
            k = place[int(receptor.structure.residue[atom])]
            name = receptor.structure.name[atom].decode("latin-1")
            ends.append(int(base[k]) + known[k].atom_names.index(name) if name in known[k].atom_names else -1)
        if min(ends) >= 0:
            between.append(ends)
    bonds.append(np.array(between, np.int64).reshape(-1, 2))
    orders.append(np.full(len(between), _SINGLE, np.uint8))
    return Entry(
        "-".join(titles),
        tuple(f"{k}:{n}" for k, e in enumerate(known) for n in e.atom_names),
        np.concatenate([e.element for e in known]),
        np.concatenate([e.charge for e in known]),
        np.concatenate([e.leaving for e in known]),
        np.concatenate(bonds),
        np.concatenate(orders),
    )


def bonds_among(receptor: Receptor, residues: NDArray[np.int64]) -> list[tuple[int, int]]:
    """Atoms that bonds between these residues join: along the chain, and by links of the file."""
    inside = set(residues.tolist())
    found = [
        (int(receptor.carbonyl[r]), int(receptor.amide[r + 1]))
        for r in residues.tolist()
        if r + 1 in inside and receptor.joined[r]
    ]
    return found + [pair for pair, rows in _stated(receptor) if rows[0] in inside and rows[1] in inside]


def bonds_out(receptor: Receptor, residues: NDArray[np.int64]) -> list[tuple[int, int]]:
    """(atom of the ligand, atom of another residue) of each covalent bond that leaves the ligand."""
    inside = set(residues.tolist())
    found = []
    for (a, b), (ra, rb) in _stated(receptor):
        if (ra in inside) != (rb in inside):
            found.append((a, b) if ra in inside else (b, a))
    return found


def _stated(receptor: Receptor) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Atoms and residues of the file's covalent links."""
    found = []
    for link in receptor.structure.links:
        if link.kind not in ("covalent", "unknown", "disulfide"):
            continue
        a, b = residues_of(receptor.structure, link)
        if a < 0 or b < 0 or a == b:
            continue
        atoms = (atom_of(receptor, a, link.first.atom), atom_of(receptor, b, link.second.atom))
        if min(atoms) >= 0:
            found.append((atoms, (a, b)))
    return found
