"""Which atoms of a structure count, what each residue is, and which of them are the ligand.

Alternate locations: one letter a residue, that of the highest mean occupancy, ties to the first letter;
atoms that exist only under a losing letter are dropped. Two residue names at one place
(microheterogeneity) are decided the same way, so that one residue is left.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ...shards.errors import StructureError
from ..read.structure import ENTITIES, Link, Structure
from .names import ARTEFACTS, COFACTORS, WATER_MODELS
from .templates import LIBRARY, ROLE

_POLYMER: Final = np.array([ROLE["amino_acid"], ROLE["nucleotide"], ROLE["cap"]], np.uint8)
_BOND: Final = 2.0  # angstrom: C-N of a peptide bond is 1.33, O3'-P of a nucleic acid 1.61
MAX_PEPTIDE: Final = 30  # residues; a shorter chain beside a longer one may be the ligand
_MIN_LIGAND: Final = 5  # heavy atoms, for a ligand that nothing but its being there speaks for


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
    place = _places(found)[found.residue]
    letter = found.altloc[lettered].astype(np.int64)
    groups, inverse = np.unique(place[lettered] * 256 + letter, return_inverse=True)
    inverse = inverse.ravel()
    occupancy = np.round(found.occupancy[lettered].astype(np.float64), 4)
    mean = np.bincount(inverse, occupancy) / np.bincount(inverse)
    order = np.lexsort((groups % 256, -np.round(mean, 6), groups // 256))
    where = groups[order] // 256
    first = np.ones(len(order), bool)
    first[1:] = where[1:] != where[:-1]
    best = np.zeros(int(place.max()) + 1, np.uint8)
    best[where[first]] = (groups[order[first]] % 256).astype(np.uint8)
    keep = ~lettered | (found.altloc == best[place])
    return _without_doubles(found.take(keep))


def _places(found: Structure) -> NDArray[np.int64]:
    """Number of each residue's place in the chain: residues of two names at one place share it."""
    keys = np.stack([
        found.residue_chain.view(np.uint64).astype(np.int64), found.residue_number.astype(np.int64),
        found.residue_insertion.astype(np.int64),
    ], axis=1)  # fmt: skip
    return np.unique(keys, axis=0, return_inverse=True)[1].ravel()


def _without_doubles(found: Structure) -> Structure:
    """Drop one of two atoms of the same name in a residue, one with a letter and one without."""
    residues = np.unique(found.residue[found.altloc != 0])
    rows = np.flatnonzero(np.isin(found.residue, residues))
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
    here = np.flatnonzero((c[:-1] >= 0) & (n[1:] >= 0))
    if len(here):
        same = found.residue_chain[here] == found.residue_chain[here + 1]
        gap = found.position[c[here]] - found.position[n[here + 1]]
        joined[here] = same & (np.einsum("ij,ij->i", gap, gap) < _BOND**2)
    polymer = np.isin(role, _POLYMER)
    bonded = joined.copy()
    bonded[1:] |= joined[:-1]
    # A free amino acid is a ligand, a modified one written as HETATM is not; a chain of alpha carbons is one.
    polymer &= bonded | (found.residue_entity == ENTITIES.index("polymer")) | ~found.residue_het
    return Receptor(found, template, role, polymer, c, n, joined, _sequences(found, template, polymer))


def _roles(found: Structure, template: NDArray[np.int64]) -> NDArray[np.uint8]:
    role = LIBRARY.role[template]
    water = np.isin(found.residue_name, _WATER_MODELS)
    for row in np.flatnonzero((role == 0) | water).tolist():
        atoms = slice(int(found.residue_start[row]), int(found.residue_start[row + 1]))
        heavy = found.element[atoms] > 1
        names = set(found.name[atoms].tolist())
        if heavy.sum() == 1 and water[row] and found.element[atoms][heavy][0] == 8:
            role[row] = ROLE["water"]
        elif role[row] == 0:
            backbone = {b"N", b"CA", b"C"} <= names or (b"CA" in names and not found.residue_het[row])
            role[row] = ROLE["amino_acid" if backbone else "ion" if heavy.sum() == 1 else "small_molecule"]
    return role


_WATER_MODELS: Final = np.array(sorted(WATER_MODELS), "S8")


def _key(name: str) -> np.uint64:
    return np.frombuffer(name.encode().ljust(8, b"\0"), np.uint64)[0]


_C, _N, _O3, _P = (_key(n) for n in ("C", "N", "O3'", "P"))


def _link_atoms(found: Structure, role: NDArray[np.uint8]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Atoms that bond to the next residue and to the previous one, -1 where there is none."""
    names = found.name.view(np.uint64)
    forward, backward = np.full((2, found.n_residues), -1, np.int64)
    nucleic = role == ROLE["nucleotide"]
    pairs = [(forward, _C, False), (backward, _N, False)]
    if nucleic.any():
        pairs += [(forward, _O3, True), (backward, _P, True)]
    chain = np.isin(role, _POLYMER)
    for column, key, is_nucleic in pairs:
        atoms = np.flatnonzero(names == key)
        residues = found.residue[atoms]
        fits = nucleic[residues] if is_nucleic else (chain & ~nucleic)[residues]
        column[residues[fits]] = atoms[fits]
    return forward, backward


def _sequences(
    found: Structure, template: NDArray[np.int64], polymer: NDArray[np.bool_]
) -> dict[str, str]:
    rows = np.flatnonzero(polymer)
    if not len(rows):
        return {}
    letters = LIBRARY.letter[template[rows]]
    chains = found.residue_chain[rows].view(np.uint64)
    edges = [0, *(np.flatnonzero(chains[1:] != chains[:-1]) + 1).tolist(), len(rows)]
    found_: dict[str, str] = {}
    for start, stop in zip(edges[:-1], edges[1:], strict=True):
        name = found.residue_chain[rows[start]].decode("latin-1")
        found_[name] = found_.get(name, "") + b"".join(letters[start:stop].tolist()).decode()
    return {name: letters for name, letters in found_.items() if letters}


# --- the ligand -------------------------------------------------------------------------------------


def find_ligand(receptor: Receptor, selector: str) -> NDArray[np.int64]:
    """Residues of the ligand.

    Parameters
    ----------
    selector : "chain:name:number[insertion]", parts empty for "whichever"; with neither name nor number the
        whole chain is the ligand (a peptide, an oligonucleotide, a ligand of several residues); several joined
        by "+" for a ligand of several residues; "" to choose

    Raises
    ------
    StructureError
        ``ligand_missing``, ``ligand_ambiguous``, ``ligand_artefact``.
    """
    if not selector.strip(": "):
        return choose_ligand(receptor)
    if "+" in selector:  # a ligand of several residues, as :mod:`holoshard.ingest.sites` names it
        return np.concatenate([find_ligand(receptor, part) for part in selector.split("+")])
    chain, name, number, insertion = parse_selector(selector)
    s = receptor.structure
    solid = receptor.role != ROLE["water"]
    fits = np.ones(s.n_residues, bool)
    if name:
        fits &= s.residue_name == name.encode("latin-1", "replace")
    if number is not None:
        fits &= (s.residue_number == number) & (s.residue_insertion == (ord(insertion) if insertion else 0))
    if chain:
        fits &= _in_chain(s, chain, fits & solid)
    rows = np.flatnonzero(fits & solid)
    if not len(rows):
        water = " (it is water)" if fits.any() else ""
        raise StructureError("ligand_missing", f"no residue is {selector!r}{water}")
    if name or number is not None:  # one residue; the first of several copies
        rows = rows[:1]
    if (receptor.role[rows] == ROLE["ion"]).all():
        raise StructureError("ligand_artefact", f"{selector!r} is a single atom, not a ligand")
    return rows


def parse_selector(selector: str) -> tuple[str, str, int | None, str]:
    """(chain, name, number, insertion code) of "A:FMN:150B"."""
    parts = [p.strip() for p in selector.split(":")]
    if len(parts) < 3:
        parts = ["", *parts] if len(parts) == 2 else ["", parts[0], ""]
    chain, name, text = ":".join(parts[:-2]), parts[-2], parts[-1]
    if not text:
        return chain, name, None, ""
    insertion = text[-1] if not text[-1].isdigit() else ""
    digits = text[:-1] if insertion else text
    if not digits.lstrip("-").isdigit():
        raise StructureError(
            "ligand_missing", f"{selector!r} is no residue; expected chain:name:number, such as A:FMN:150"
        )
    return chain, name, int(digits), insertion


def _in_chain(s: Structure, chain: str, others: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Residues of a chain: by the authors' name, else as the first copy in an assembly, else by mmCIF's label."""
    wanted = chain.encode("latin-1", "replace")[:8]
    for column, value in (
        (s.residue_chain, wanted), (s.residue_chain, wanted + b"1"), (s.residue_subchain, wanted),
        (s.residue_subchain, wanted + b"1"),
    ):  # fmt: skip
        fits: NDArray[np.bool_] = column == value
        if (fits & others).any():
            return fits
    return np.zeros(s.n_residues, bool)


def choose_ligand(receptor: Receptor) -> NDArray[np.int64]:
    """The one ligand that a structure can be about; see :func:`ligand_sites` for what qualifies.

    Copies of one compound are the same answer: the first is taken. Where two compounds qualify and one is a
    common cofactor, it is the other.
    """
    sites = ligand_sites(receptor)
    if not sites:
        raise StructureError("ligand_missing", "no residue can be a ligand: none but polymer, water, ions, artefacts")
    names = [_site_name(receptor, site) for site in sites]
    free = [n for n in dict.fromkeys(names) if n not in COFACTORS] or list(dict.fromkeys(names))
    if len(free) > 1:
        raise StructureError(
            "ligand_ambiguous", f"{', '.join(free[:6])} could each be the ligand; name one as chain:name:number"
        )
    return sites[names.index(free[0])]


def _site_name(receptor: Receptor, site: NDArray[np.int64]) -> str:
    names = receptor.structure.residue_name[site].tolist()
    return "-".join(n.decode("latin-1") for n in names)


def ligand_sites(receptor: Receptor) -> list[NDArray[np.int64]]:
    """Every ligand of a structure, as the residues it is made of.

    Small molecules of at least five heavy atoms, with what is bonded to them by links of the file if that is
    no polymer; without any, chains of up to thirty residues beside a longer one. Never water, single atoms,
    caps of chains, crystallisation artefacts, or sugars bonded to the protein.
    """
    s = receptor.structure
    heavy = np.bincount(s.residue[s.element > 1], minlength=s.n_residues)
    small = ~receptor.polymer & ~np.isin(receptor.role, (ROLE["water"], ROLE["ion"], ROLE["cap"]))
    groups = _linked(receptor, small)
    sites = []
    for rows in groups:
        names = [n.decode("latin-1") for n in s.residue_name[rows].tolist()]
        if heavy[rows].sum() < _MIN_LIGAND or all(n in ARTEFACTS for n in names):
            continue
        sugar = (receptor.role[rows] == ROLE["saccharide"]).all()
        if sugar and any(_touches(receptor, link, rows) for link in s.links):
            continue
        sites.append(rows)
    return sites or _short_chains(receptor)


def residues_of(s: Structure, link: Link) -> tuple[int, int]:
    """Residue rows of a link's two sides, -1 where the structure has no such residue."""
    found = []
    for side in (link.first, link.second):
        fits = (s.residue_number == side.number) & (s.residue_name == side.residue.encode("latin-1", "replace"))
        fits &= s.residue_chain == side.chain.encode("latin-1", "replace")[:8]
        rows = np.flatnonzero(fits & (s.residue_insertion == (ord(side.insertion) if side.insertion else 0)))
        found.append(int(rows[0]) if len(rows) else -1)
    return found[0], found[1]


def _touches(receptor: Receptor, link: Link, rows: NDArray[np.int64]) -> bool:
    """True if a covalent link bonds one of these residues to a polymer."""
    a, b = residues_of(receptor.structure, link)
    if link.kind not in ("covalent", "unknown") or a < 0 or b < 0:
        return False
    return bool((a in rows and receptor.polymer[b]) or (b in rows and receptor.polymer[a]))


def _linked(receptor: Receptor, small: NDArray[np.bool_]) -> list[NDArray[np.int64]]:
    """Residues of ``small`` in groups that links or peptide bonds hold together, in the order of the file."""
    group = {int(r): {int(r)} for r in np.flatnonzero(small)}
    pairs = [residues_of(receptor.structure, k) for k in receptor.structure.links if k.kind in ("covalent", "unknown")]
    pairs += [(int(r), int(r) + 1) for r in np.flatnonzero(receptor.joined)]
    for a, b in pairs:
        if a in group and b in group and group[a] is not group[b]:
            group[a] |= group[b]
            for member in group[b]:
                group[member] = group[a]
    unique = {id(g): np.array(sorted(g)) for g in group.values()}
    return sorted(unique.values(), key=lambda rows: int(rows[0]))


def _short_chains(receptor: Receptor) -> list[NDArray[np.int64]]:
    s = receptor.structure
    rows = np.flatnonzero(receptor.polymer)
    chains = s.residue_chain[rows]
    parts = [rows[chains == name] for name in dict.fromkeys(chains.tolist())]
    longest = max((len(p) for p in parts), default=0)
    return [p for p in parts if 2 <= len(p) <= MAX_PEPTIDE and longest > 2 * len(p)]
