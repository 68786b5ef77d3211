"""What is known of every residue by its name, as arrays to be looked up for all atoms at once.

A template is made once a process, from the Chemical Component Dictionary and RDKit: an amino acid as it
stands in a chain (acetylated and N-methylamidated, so that N and C are amide atoms), anything else as it
is. Charges are those of pH 7. A structure's atoms find their template rows by one ``searchsorted`` over
64-bit keys of residue and atom name: no Python loop runs over atoms.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from rdkit import Chem, rdBase

from ...shards.complex import AMINO_ACIDS, BOND_ORDERS, CHIRALITIES, NUCLEOTIDES, RESIDUE_TYPES
from ..read.components import Component, component
from .molecule import Posed, to_ligand
from .names import ALIASES, ATOM_ALIASES, CAPS, STATES, USUAL, WATER_MODELS, WATERS

ROLES: Final = ("unknown", "amino_acid", "nucleotide", "cap", "water", "ion", "small_molecule", "saccharide")
ROLE: Final = {name: code for code, name in enumerate(ROLES)}
_BACKBONE: Final = frozenset({"N", "CA", "C", "O", "OXT"})
_BOND_TYPES: Final = {
    BOND_ORDERS.index("single"): Chem.BondType.SINGLE,
    BOND_ORDERS.index("double"): Chem.BondType.DOUBLE,
    BOND_ORDERS.index("triple"): Chem.BondType.TRIPLE,
    BOND_ORDERS.index("quadruple"): Chem.BondType.QUADRUPLE,
}
ATOM_FEATURES: Final = ("element", "charge", "hybridisation", "hydrogens", "aromatic", "ring", "backbone")
BOND_FEATURES: Final = ("order", "conjugated", "ring", "stereo")


@dataclass(frozen=True, slots=True, eq=False)
class Template:
    """One residue name.

    Attributes
    ----------
    role : index into ROLES; type : index into RESIDUE_TYPES; letter : one-letter code, "X" if unknown
    names : names of the k heavy atoms, by which they are found
    atoms : uint8, shape (k, 7), columns ATOM_FEATURES; the charge as int8 in the same bits
    bonds : int64, shape (m, 2), rows of atoms; bond_features : uint8, shape (m, 4), columns BOND_FEATURES
    centres : int64, shape (c, 4), stereocentre and three of its neighbours
    handedness : int8, shape (c,), sign of the neighbours' triple product in the R form
    """

    role: int
    type: int
    letter: str
    names: tuple[str, ...]
    atoms: NDArray[np.uint8]
    bonds: NDArray[np.int64]
    bond_features: NDArray[np.uint8]
    centres: NDArray[np.int64]
    handedness: NDArray[np.int8]


def make_template(name: str) -> Template:
    """Template of a residue name; an empty one if the dictionary does not know it."""
    base = ALIASES.get(name, name)
    if len(base) == 4 and base[0] in "NC" and base[1:] in AMINO_ACIDS:
        base = base[1:]  # AMBER's names of terminal residues
    entry = component(base)
    if name in WATERS:
        entry = component("HOH")
    if entry is None:
        nothing = np.zeros((0, 2), np.int64)
        return Template(0, 0, "X", (), np.zeros((0, 7), np.uint8), nothing, np.zeros((0, 4), np.uint8),
                        np.zeros((0, 4), np.int64), np.zeros(0, np.int8))  # fmt: skip
    role = _role(entry, name)
    states = {**USUAL.get(base, {}), **STATES.get(name, {})}
    names, columns, bonds, bond_columns = _perceive(entry, role, states)
    backbone = np.array([role == ROLE["amino_acid"] and n in _BACKBONE for n in names], np.uint8)
    atoms = np.stack(
        [columns[k].astype(np.int64).astype(np.uint8) for k in ATOM_FEATURES[:-1]] + [backbone], 1
    )
    centres, handedness = _stereocentres(entry, names)
    return Template(role, _type(entry, role, base), _letter(entry, role), names, atoms, bonds,
                    np.stack(bond_columns, 1), centres, handedness)  # fmt: skip


def _role(entry: Component, name: str) -> int:
    heavy = int((entry.element > 1).sum())
    if name in WATERS or entry.name in WATERS:
        return ROLE["water"]
    if entry.name in CAPS:
        return ROLE["cap"]
    if entry.is_amino_acid:
        return ROLE["amino_acid"]
    if entry.is_nucleotide:
        return ROLE["nucleotide"]
    if heavy == 1:
        return ROLE["ion"]
    return ROLE["saccharide" if entry.is_saccharide else "small_molecule"]


def _type(entry: Component, role: int, base: str) -> int:
    if base in AMINO_ACIDS or base in NUCLEOTIDES:
        return RESIDUE_TYPES.index(base)
    names = {
        "amino_acid": "modified", "cap": "modified", "nucleotide": "unknown", "water": "water", "ion": "ion",
    }  # fmt: skip
    return RESIDUE_TYPES.index(names.get(ROLES[role], "cofactor"))


def _letter(entry: Component, role: int) -> str:
    if ROLES[role] not in ("amino_acid", "nucleotide"):
        return ""
    parent = component(entry.parent) if len(entry.one_letter) != 1 and "," not in entry.parent else None
    letter = entry.one_letter or (parent.one_letter if parent else "")
    return letter if len(letter) == 1 else "X"


def _perceive(
    entry: Component, role: int, states: dict[str, tuple[int, int]]
) -> tuple[tuple[str, ...], dict[str, NDArray[Any]], NDArray[np.int64], list[NDArray[np.uint8]]]:
    """Heavy atoms and bonds of a component with their features, in a chain if it belongs into one.

    OXT of an amino acid and OP3 of a nucleotide are found in no chain but at its end; they get rows, too.
    """
    heavy = np.flatnonzero(entry.element > 1)
    place = {int(i): k for k, i in enumerate(heavy)}
    n_hydrogens = np.zeros(len(entry.element), np.int64)
    in_chain = ROLES[role] in ("amino_acid", "nucleotide")
    for i, j in entry.bond_atoms.tolist():
        for a, b in ((i, j), (j, i)):
            gone = in_chain and entry.leaving[b] and entry.atom_names[a] in ("N", "O3'")
            if entry.element[b] == 1 and entry.element[a] > 1 and not gone:
                n_hydrogens[a] += 1
    mol = Chem.RWMol()
    for i in heavy.tolist():
        name = entry.atom_names[i]
        charge, hydrogens = states.get(name, (int(entry.charge[i]), int(n_hydrogens[i])))
        if in_chain and name in ("OXT", "OP2", "OP3"):
            charge, hydrogens = -1, 0
        atom = Chem.Atom(int(entry.element[i]))
        atom.SetFormalCharge(charge)
        atom.SetNumExplicitHs(hydrogens)
        atom.SetNoImplicit(True)
        mol.AddAtom(atom)
    for (i, j), order in zip(entry.bond_atoms.tolist(), entry.bond_order.tolist(), strict=True):
        if i in place and j in place:
            mol.AddBond(place[i], place[j], _BOND_TYPES.get(order, Chem.BondType.SINGLE))
    names = tuple(entry.atom_names[i] for i in heavy.tolist())
    found = _features(mol, names, ROLES[role])
    if found is None:
        return _plain(entry, heavy, place, names)
    return found


def _features(
    mol: Any, names: tuple[str, ...], role: str
) -> tuple[tuple[str, ...], dict[str, NDArray[Any]], NDArray[np.int64], list[NDArray[np.uint8]]] | None:
    """Columns that RDKit perceives; None if it cannot."""
    k = len(names)
    skip = -1  # OXT is perceived by itself below: in the chain its place is the next residue's nitrogen
    if role == "amino_acid" and "N" in names and "C" in names:
        skip = names.index("OXT") if "OXT" in names else -1
        _cap(mol, names.index("N"), names.index("C"), skip)
    elif role == "cap" and "N" in names:
        mol.AddBond(_extend(mol, names.index("N"), "C"), mol.AddAtom(Chem.Atom(8)), Chem.BondType.DOUBLE)
    elif role == "cap":
        _extend(mol, names.index("C"), "N")
    with rdBase.BlockLogs():  # clusters make noise on the way to an answer
        if Chem.SanitizeMol(mol, catchErrors=True) and Chem.SanitizeMol(
            mol, Chem.SANITIZE_ALL ^ Chem.SANITIZE_PROPERTIES, catchErrors=True
        ):
            return None
        mol.AddConformer(Chem.Conformer(mol.GetNumAtoms()))
        found = to_ligand(Posed(mol.GetMol(), np.arange(mol.GetNumAtoms())))
    keep = (found.bond_atoms < k).all(axis=1)
    columns: dict[str, NDArray[Any]] = {c: getattr(found, c)[:k] for c in ATOM_FEATURES[:-1]}
    bonds = found.bond_atoms[keep].astype(np.int64)
    features = [getattr(found, f"bond_{c}")[keep] for c in BOND_FEATURES]
    if skip >= 0:  # the carboxylate's second oxygen, conjugated like the first
        columns["hybridisation"][skip] = columns["hybridisation"][names.index("O")]
        columns["hydrogens"][skip] = 0
        bonds = np.vstack([bonds, [[names.index("C"), skip]]])
        extra = (BOND_ORDERS.index("single"), 1, 0, 0)
        features = [np.append(f, np.uint8(v)) for f, v in zip(features, extra, strict=True)]
    return names, columns, bonds, features


def _cap(mol: Any, n: int, c: int, oxt: int) -> None:
    """Acetyl on N, and N-methyl on C in the place of OXT, whose bond goes."""
    carbonyl = _extend(mol, n, "C")
    oxygen, methyl = mol.AddAtom(Chem.Atom(8)), mol.AddAtom(Chem.Atom(6))
    mol.AddBond(carbonyl, oxygen, Chem.BondType.DOUBLE)
    mol.AddBond(carbonyl, methyl, Chem.BondType.SINGLE)
    if oxt >= 0 and mol.GetBondBetweenAtoms(c, oxt) is not None:
        mol.RemoveBond(c, oxt)
    amide = _extend(mol, c, "N")
    mol.AddBond(amide, mol.AddAtom(Chem.Atom(6)), Chem.BondType.SINGLE)


def _extend(mol: Any, at: int, symbol: str) -> int:
    """A new atom bonded to ``at``, which gives up a hydrogen where it has no valence left."""
    new = int(mol.AddAtom(Chem.Atom(symbol)))
    mol.AddBond(at, new, Chem.BondType.SINGLE)
    atom = mol.GetAtomWithIdx(at)
    room = {6: 4, 7: 3}[atom.GetAtomicNum()] - int(sum(b.GetBondTypeAsDouble() for b in atom.GetBonds()))
    atom.SetNumExplicitHs(max(min(atom.GetNumExplicitHs(), room), 0))
    return new


def _plain(
    entry: Component, heavy: NDArray[np.int64], place: dict[int, int], names: tuple[str, ...]
) -> tuple[tuple[str, ...], dict[str, NDArray[Any]], NDArray[np.int64], list[NDArray[np.uint8]]]:
    """What the dictionary itself says, for components beyond RDKit's valences, such as clusters."""
    keep = [k for k, (i, j) in enumerate(entry.bond_atoms.tolist()) if i in place and j in place]
    bonds = np.array([[place[i] for i in entry.bond_atoms[k].tolist()] for k in keep], np.int64).reshape(
        -1, 2
    )
    zeros = np.zeros(len(heavy), np.uint8)
    columns: dict[str, NDArray[Any]] = {
        "element": entry.element[heavy], "charge": entry.charge[heavy], "hybridisation": zeros,
        "hydrogens": zeros, "aromatic": entry.aromatic[heavy].astype(np.uint8), "ring": zeros,
    }  # fmt: skip
    order = np.where(entry.bond_aromatic[keep], BOND_ORDERS.index("aromatic"), entry.bond_order[keep])
    nothing = np.zeros(len(keep), np.uint8)
    return names, columns, bonds, [order.astype(np.uint8), nothing, nothing, entry.bond_stereo[keep]]


def _stereocentres(entry: Component, names: tuple[str, ...]) -> tuple[NDArray[np.int64], NDArray[np.int8]]:
    """Centres whose labels the dictionary knows, and how its ideal coordinates turn."""
    index = {n: i for i, n in enumerate(entry.atom_names)}
    row = {n: k for k, n in enumerate(names)}
    near: dict[int, list[int]] = {}
    for i, j in entry.bond_atoms.tolist():
        near.setdefault(i, []).append(j)
        near.setdefault(j, []).append(i)
    centres, signs = [], []
    for name in names:
        at = index[name]
        around = sorted(j for j in near.get(at, []) if entry.element[j] > 1 and entry.atom_names[j] != "OXT")
        if not entry.stereo[at] or len(around) < 3:
            continue
        legs = entry.ideal[around[:3]] - entry.ideal[at]
        volume = float(np.linalg.det(legs.astype(np.float64)))
        if not np.isfinite(volume) or abs(volume) < 0.1:
            continue
        sign = 1 if volume > 0 else -1
        centres.append([row[name], *(row[entry.atom_names[j]] for j in around[:3])])
        signs.append(sign if entry.stereo[at] == CHIRALITIES.index("R") else -sign)
    return np.array(centres, np.int64).reshape(-1, 4), np.array(signs, np.int8)


class Library:
    """All templates met so far, packed. Append-only; one a process.

    ``rows`` turns residue names into template rows, ``find`` turns (template row, atom name) into rows
    of the packed atom table, -1 where the template has no such atom.
    """

    def __init__(self) -> None:
        self.templates: list[Template] = []
        self._names: list[int] = []
        self._pack()

    def rows(self, names: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Template row of each residue name, made if it is new. Names are S8 read as uint64."""
        found = self._look(names)
        if (found < 0).any():
            for name in np.unique(names[found < 0]).tolist():
                self._names.append(name)
                self.templates.append(make_template(_text(name)))
            self._pack()
            found = self._look(names)
        return found

    def _look(self, names: NDArray[np.uint64]) -> NDArray[np.int64]:
        if not self._names:
            return np.full(len(names), -1, np.int64)
        at = np.minimum(np.searchsorted(self._sorted, names), len(self._sorted) - 1)
        return np.where(self._sorted[at] == names, self._order[at], -1)

    def find(self, rows: NDArray[np.int64], names: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Row in the packed atom table of each atom; names are S8 read as uint64, of which four count."""
        keys = (rows.astype(np.uint64) << np.uint64(32)) | (names & np.uint64(0xFFFFFFFF))
        if not len(self._keys):
            return np.full(len(rows), -1, np.int64)
        at = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        return np.where(self._keys[at] == keys, self._atom_row[at], -1)

    def _pack(self) -> None:
        known = self.templates
        names = np.array(self._names, np.uint64)
        self._order = np.argsort(names)
        self._sorted = names[self._order]
        self.role = np.array([t.role for t in known], np.uint8)
        self.water_model = np.array([_text(name) in WATER_MODELS for name in self._names], bool)
        self.type = np.array([t.type for t in known], np.uint8)
        self.letter = np.array([t.letter.encode() for t in known], "S1")
        self.atom_start = _starts([len(t.names) for t in known])
        self.bond_start = _starts([len(t.bonds) for t in known])
        self.centre_start = _starts([len(t.centres) for t in known])
        nobody = np.zeros((1, len(ATOM_FEATURES)), np.uint8)  # the last row, for atoms that are not found
        self.atoms = np.concatenate([*(t.atoms for t in known), nobody])
        self.bonds = np.concatenate([t.bonds for t in known] or [np.zeros((0, 2), np.int64)])
        self.bond_features = np.concatenate([t.bond_features for t in known] or [np.zeros((0, 4), np.uint8)])
        self.centres = np.concatenate([t.centres for t in known] or [np.zeros((0, 4), np.int64)])
        self.handedness = np.concatenate([t.handedness for t in known] or [np.zeros(0, np.int8)])
        pairs: dict[int, int] = {}
        for row, template in enumerate(known):
            base = int(self.atom_start[row])
            for name, k in _atom_keys(template.names):
                pairs.setdefault(
                    (row << 32) | int.from_bytes(name.encode()[:4].ljust(4, b"\0"), "little"), base + k
                )
        keys = np.array(list(pairs), np.uint64)
        order = np.argsort(keys)
        self._keys = keys[order]
        self._atom_row = np.array(list(pairs.values()), np.int64)[order]


def _text(name: int) -> str:
    return int(name).to_bytes(8, "little").rstrip(b"\0").decode("latin-1")


def _starts(sizes: list[int]) -> NDArray[np.int64]:
    start = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=start[1:])
    return start


def _atom_keys(names: tuple[str, ...]) -> list[tuple[str, int]]:
    """Names that lead to each atom: its own, then older and force-field ones that mean no other atom."""
    keys = [(n, k) for k, n in enumerate(names)]
    place = {n: k for k, n in enumerate(names)}
    keys += [(old, place[new]) for old, new in ATOM_ALIASES.items() if new in place and old not in place]
    return keys + [(n.replace("'", "*"), k) for k, n in enumerate(names) if "'" in n]


LIBRARY: Final = Library()
