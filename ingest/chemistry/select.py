"""Which residues of a structure are the ligand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ...shards.errors import StructureError
from ..read.structure import Link, Structure
from .names import ARTEFACTS, COFACTORS
from .receptor import Receptor
from .templates import ROLE

MAX_PEPTIDE: Final = 30  # residues; a shorter chain beside a longer one may be the ligand
_MIN_LIGAND: Final = 5  # heavy atoms, for a ligand that nothing but its being there speaks for


def find_ligand(receptor: Receptor, selector: str) -> NDArray[np.int64]:
    """Residues of the ligand.

    Parameters
    ----------
    selector : "chain:name:number[insertion]", parts empty for "whichever"; with neither name nor number the
        whole chain is the ligand (a peptide, an oligonucleotide, a ligand of several residues); several
        joined by "+" for a ligand of several residues; "" to choose

    Raises
    ------
    StructureError
        ``ligand_missing``, ``ligand_ambiguous``, ``ligand_artefact``.
    """
    if not selector.strip(": "):
        return choose_ligand(receptor)
    if "+" in selector:  # a ligand of several residues, as :mod:`holoshard.ingest.sites` names it
        return np.unique(np.concatenate([find_ligand(receptor, part) for part in selector.split("+")]))
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
    elif (receptor.role[rows] != ROLE["ion"]).any():
        rows = rows[receptor.role[rows] != ROLE["ion"]]
    if (receptor.role[rows] == ROLE["ion"]).all():
        raise StructureError("ligand_artefact", f"{selector!r} is a single atom, not a ligand")
    return rows


def favour(s: Structure, selector: str) -> Structure | None:
    """A structure, its alternate locations not yet resolved, without residues of other names at the place of
    the one that is asked for; None if there is no such residue, or none beside it.

    Of two names at one place the likelier is kept, which need not be the ligand that was measured.
    """
    if "+" in selector:
        return None
    chain, name, number, insertion = parse_selector(selector)
    fits = s.residue_name == name.encode("latin-1", "replace")
    if number is not None:
        fits &= (s.residue_number == number) & (s.residue_insertion == (ord(insertion) if insertion else 0))
    if chain:
        fits &= _in_chain(s, chain, fits)
    if not fits.any():
        return None
    asked = int(np.flatnonzero(fits)[0])
    rivals = ~fits & (s.residue_chain == s.residue_chain[asked])
    for column in (s.residue_number, s.residue_insertion):
        rivals &= column == column[asked]
    return s.take(~rivals[s.residue]) if rivals.any() else None


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
    """Residues of a chain: by the authors' name, as the first copy of an assembly, or by label."""
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
        raise StructureError(
            "ligand_missing", "no residue can be a ligand: none but polymer, water, ions, artefacts"
        )
    names = [site_name(receptor, site) for site in sites]
    free = main_compounds(names)
    if len(free) > 1:
        raise StructureError(
            "ligand_ambiguous",
            f"{', '.join(free[:6])} could each be the ligand; name one as chain:name:number",
        )
    return sites[names.index(free[0])]


def main_compounds(names: Sequence[str]) -> list[str]:
    """The different compounds among the names of ligand sites; cofactors only where there is nothing else."""
    compounds = list(dict.fromkeys(names))
    return [name for name in compounds if name not in COFACTORS] or compounds


def site_name(receptor: Receptor, site: NDArray[np.int64]) -> str:
    """The compound of a ligand site: its residues' names, joined by "-"."""
    names = receptor.structure.residue_name[site].tolist()
    return "-".join(n.decode("latin-1") for n in names)


def ligand_sites(receptor: Receptor) -> list[NDArray[np.int64]]:
    """Every ligand of a structure, as the residues it is made of.

    Small molecules of at least five heavy atoms, with what is bonded to them by links of the file if that is
    no polymer; without any, chains of up to thirty residues beside a longer one. Never water, single atoms,
    caps of chains, crystallisation artefacts, sugars bonded to the protein, or residues of a chain that are
    not amino acids (bonded by a peptide bond, C to N, that the file states): they belong to their chain.
    """
    s = receptor.structure
    heavy = np.bincount(s.residue[s.element > 1], minlength=s.n_residues)
    small = ~receptor.polymer & ~np.isin(receptor.role, (ROLE["water"], ROLE["ion"], ROLE["cap"]))
    groups = _linked(receptor, small)
    bonded = [link for link in s.links if link.kind in ("covalent", "unknown")]
    sites, pieces = [], []
    for rows in groups:
        names = [n.decode("latin-1") for n in s.residue_name[rows].tolist()]
        if heavy[rows].sum() < _MIN_LIGAND or all(n in ARTEFACTS for n in names):
            continue
        sugar = bool((receptor.role[rows] == ROLE["saccharide"]).all())
        links = [link for link in bonded if _touches(receptor, link, rows)]
        if any({link.first.atom, link.second.atom} == {"C", "N"} for link in links):
            pieces.append(rows)
        elif not (sugar and links):
            sites.append(rows)
    return sites or _short_chains(receptor, pieces)


def residues_of(s: Structure, link: Link) -> tuple[int, int]:
    """Residue rows of a link's two sides, -1 where the structure has no such residue."""
    found = []
    for side in (link.first, link.second):
        fits = (s.residue_number == side.number) & (
            s.residue_name == side.residue.encode("latin-1", "replace")
        )
        fits &= s.residue_chain == side.chain.encode("latin-1", "replace")[:8]
        rows = np.flatnonzero(fits & (s.residue_insertion == (ord(side.insertion) if side.insertion else 0)))
        found.append(int(rows[0]) if len(rows) else -1)
    return found[0], found[1]


def _touches(receptor: Receptor, link: Link, rows: NDArray[np.int64]) -> bool:
    """True if a link bonds one of these residues to a polymer."""
    a, b = residues_of(receptor.structure, link)
    if a < 0 or b < 0:
        return False
    return bool((a in rows and receptor.polymer[b]) or (b in rows and receptor.polymer[a]))


def _linked(receptor: Receptor, small: NDArray[np.bool_]) -> list[NDArray[np.int64]]:
    """Residues of ``small`` in groups that links or peptide bonds hold together, in the order of the file."""
    group = {int(r): {int(r)} for r in np.flatnonzero(small)}
    pairs = [
        residues_of(receptor.structure, k)
        for k in receptor.structure.links
        if k.kind in ("covalent", "unknown")
    ]
    pairs += [(int(r), int(r) + 1) for r in np.flatnonzero(receptor.joined)]
    for a, b in pairs:
        if a in group and b in group and group[a] is not group[b]:
            group[a] |= group[b]
            for member in group[b]:
                group[member] = group[a]
    unique = {id(g): np.array(sorted(g)) for g in group.values()}
    return sorted(unique.values(), key=lambda rows: int(rows[0]))


def _short_chains(receptor: Receptor, pieces: list[NDArray[np.int64]]) -> list[NDArray[np.int64]]:
    """Chains that may be the ligand, with the ``pieces`` of them that are no amino acids."""
    s = receptor.structure
    rows = np.sort(np.concatenate([np.flatnonzero(receptor.polymer), *pieces])).astype(np.int64)
    chains = s.residue_chain[rows]
    parts = [rows[chains == name] for name in dict.fromkeys(chains.tolist())]
    longest = max((len(p) for p in parts), default=0)
    return [p for p in parts if 2 <= len(p) <= MAX_PEPTIDE and longest > 2 * len(p)]
