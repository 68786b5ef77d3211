"""Which atoms of a structure count, and what each of its residues is.

Alternate locations: one letter a residue, that of the highest mean occupancy, ties to the first letter;
atoms that exist only under a losing letter are dropped. Two residue names at one place
(microheterogeneity) are decided the same way, so that one residue is left.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ..kernel import kernel
from ..read.structure import ENTITIES, Structure
from .templates import LIBRARY, ROLE, ROLES

_POLYMER: Final = np.array([name in ("amino_acid", "nucleotide", "cap") for name in ROLES])  # by role
_BOND: Final = 2.0  # angstrom: C-N of a peptide bond is 1.33, O3'-P of a nucleic acid 1.61


@dataclass(frozen=True, slots=True, eq=False)
class Receptor:
    """A structure with its alternate locations resolved and every residue known for what it is.

    Attributes
    ----------
    structure : atoms of one conformer; hydrogens and waters still in it
    template : int64 (r,), row in ``templates.LIBRARY`` of each residue
    role : uint8 (r,), index into ``templates.ROLES``
    polymer : bool (r,), part of a chain of amino acids or nucleotides
    carbonyl, amide : int64 (r,), atom that bonds to the next and to the previous residue; -1 if missing
    joined : bool (r,), residue i is bonded to residue i + 1
    sequences : chain name -> one-letter codes of the modelled polymer residues
    """

    structure: Structure
    template: NDArray[np.int64]
    role: NDArray[np.uint8]
    polymer: NDArray[np.bool_]
    carbonyl: NDArray[np.int64]
    amide: NDArray[np.int64]
    joined: NDArray[np.bool_]
    sequences: dict[str, str]


def resolve_altlocs(found: Structure) -> Structure:
    """One conformer a residue; the same object if the file has no alternate locations."""
    lettered = found.altloc != 0
    if not lettered.any():
        return found
    rows = lettered.nonzero()[0]
    place = _places(found, found.residue[rows])
    letter = found.altloc[rows]
    groups, inverse = np.unique(place * 256 + letter, return_inverse=True)
    inverse = inverse.ravel()
    occupancy = np.round(found.occupancy[rows].astype(np.float64), 4)
    mean = np.bincount(inverse, occupancy) / np.bincount(inverse)
    order = np.lexsort((groups % 256, -np.round(mean, 6), groups // 256))
    where = groups[order] // 256
    first = np.ones(len(order), bool)
    first[1:] = where[1:] != where[:-1]
    best = np.zeros(int(place.max()) + 1, np.uint8)
    best[where[first]] = (groups[order[first]] % 256).astype(np.uint8)
    lettered[rows[letter == best[place]]] = False
    return _without_doubles(found.take(~lettered))


def _places(found: Structure, residue: NDArray[np.int32]) -> NDArray[np.int64]:
    """Number of the place in the chain of some atoms' residues: two names at one place share it."""
    rows = np.flatnonzero(np.bincount(residue))
    chain = found.residue_chain.view(np.uint64)[rows].tolist()
    number, insertion = found.residue_number[rows].tolist(), found.residue_insertion[rows].tolist()
    known: dict[tuple[int, int, int], int] = {}
    place = np.zeros(found.n_residues, np.int64)
    place[rows] = [known.setdefault(key, len(known)) for key in zip(chain, number, insertion, strict=True)]
    return place[residue]


def _without_doubles(found: Structure) -> Structure:
    """Drop one of two atoms of the same name in a residue, one with a letter and one without."""
    lettered = np.zeros(found.n_residues, bool)
    lettered[found.residue[found.altloc != 0]] = True
    rows = lettered[found.residue].nonzero()[0]
    keys = np.stack([found.residue[rows].astype(np.uint64), found.name[rows].view(np.uint64)], axis=1)
    # Of each name: the highest occupancy, then the one without a letter, then the first.
    order = np.lexsort((rows, found.altloc[rows], -found.occupancy[rows], keys[:, 1], keys[:, 0]))
    again = np.zeros(len(rows), bool)
    again[order[1:]] = (keys[order[1:]] == keys[order[:-1]]).all(axis=1)
    if not again.any():
        return found
    keep = np.ones(found.n_atoms, bool)
    keep[rows[again]] = False
    return found.take(keep)


def as_receptor(found: Structure) -> Receptor:
    """Resolve alternate locations and classify residues."""
    found = resolve_altlocs(found)
    names = found.residue_name.view(np.uint64)
    template = LIBRARY.rows(names)
    role = _roles(found, template)
    c, n = _link_atoms(found, role)
    joined = np.zeros(found.n_residues, bool)
    here = ((c[:-1] >= 0) & (n[1:] >= 0)).nonzero()[0]
    if len(here):
        chain = found.residue_chain.view(np.uint64)[here]
        same = chain == found.residue_chain.view(np.uint64)[here + 1]
        gap = found.position.take(c[here], axis=0) - found.position.take(n[here + 1], axis=0)
        joined[here] = same & (np.einsum("ij,ij->i", gap, gap) < _BOND**2)
    polymer = _POLYMER[role]
    bonded = joined.copy()
    bonded[1:] |= joined[:-1]
    # A free amino acid is a ligand, a modified one written as HETATM is not; a chain of alpha carbons is one.
    polymer &= bonded | (found.residue_entity == ENTITIES.index("polymer")) | ~found.residue_het
    return Receptor(found, template, role, polymer, c, n, joined, _sequences(found, template, polymer))


def _roles(found: Structure, template: NDArray[np.int64]) -> NDArray[np.uint8]:
    role = LIBRARY.role[template]
    water = LIBRARY.water_model[template]
    for row in ((role == 0) | water).nonzero()[0].tolist():  # few, if any
        atoms = slice(int(found.residue_start[row]), int(found.residue_start[row + 1]))
        heavy = found.element[atoms] > 1
        names = set(found.name[atoms].tolist())
        if heavy.sum() == 1 and water[row] and found.element[atoms][heavy][0] == 8:
            role[row] = ROLE["water"]
        elif role[row] == 0:
            backbone = {b"N", b"CA", b"C"} <= names or (b"CA" in names and not found.residue_het[row])
            lone = heavy.sum() == 1 and found.element[atoms][heavy][0] != 6  # a lone carbon is a cut molecule
            role[row] = ROLE["amino_acid" if backbone else "ion" if lone else "small_molecule"]
    return role


def _key(name: str) -> np.uint64:
    return np.uint64(int.from_bytes(name.encode(), "little"))


# Names of the atoms that bond to the next and to the previous residue: none, of peptides, of nucleic acids.
_NEXT: Final = np.array([_key(n) for n in ("", "C", "O3'")])
_PREVIOUS: Final = np.array([_key(n) for n in ("", "N", "P")])


def _link_atoms(found: Structure, role: NDArray[np.uint8]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Atoms that bond to the next residue and to the previous one, -1 where there is none."""
    kind = np.where(role == ROLE["nucleotide"], 2, _POLYMER[role])
    return _ends(found.name.view(np.uint64), found.residue, kind, _NEXT, _PREVIOUS)


@kernel
def _ends(
    name: NDArray[np.uint64],
    residue: NDArray[np.int32],
    kind: NDArray[np.int64],
    following: NDArray[np.uint64],
    previous: NDArray[np.uint64],
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Of each residue the last atom with the name that its kind has for either bond; kind 0 has none."""
    forward, backward = np.full(len(kind), -1, np.int64), np.full(len(kind), -1, np.int64)
    for i in range(len(name)):
        of = kind[residue[i]]
        if of and name[i] == following[of]:
            forward[residue[i]] = i
        if of and name[i] == previous[of]:
            backward[residue[i]] = i
    return forward, backward


def _sequences(found: Structure, template: NDArray[np.int64], polymer: NDArray[np.bool_]) -> dict[str, str]:
    rows = polymer.nonzero()[0]
    if not len(rows):
        return {}
    letters = LIBRARY.letter[template[rows]]
    chains = found.residue_chain[rows].view(np.uint64)
    edges = [0, *((chains[1:] != chains[:-1]).nonzero()[0] + 1).tolist(), len(rows)]
    text = letters.tobytes().decode()
    found_: dict[str, str] = {}
    for start, stop in pairwise(edges):
        name = found.residue_chain[rows[start]].decode("latin-1")
        found_[name] = found_.get(name, "") + text[start:stop].replace("\0", "")
    return {name: letters for name, letters in found_.items() if letters}
