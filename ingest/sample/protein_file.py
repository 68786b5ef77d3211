"""A pocket as the text of a PDB or mmCIF file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

# Charges of the ions that the sample uses.
ION_CHARGES: Final = {"ZN": 2, "MG": 2, "NA": 1, "CL": -1}


@dataclass(frozen=True, slots=True)
class AtomLine:
    """One line of atoms; position in angstrom, B-factor in angstrom^2."""

    hetero: bool
    name: str
    altloc: str
    residue: str
    chain: str
    number: int
    insertion: str
    x: float
    y: float
    z: float
    occupancy: float
    b_factor: float
    element: str


def write_pdb(title: str, atoms: Sequence[AtomLine]) -> str:
    """PDB format 3.3; says in TITLE, EXPDTA and REMARK that it is synthetic."""
    lines = [
        f"HEADER    SYNTHETIC{'':40}",
        f"TITLE     {title}",
        "EXPDTA    THEORETICAL MODEL",
        "REMARK   2 RESOLUTION. NOT APPLICABLE.",
        "REMARK  99 SYNTHETIC POCKET WRITTEN BY HOLOSHARD SAMPLE: NOT A MEASURED STRUCTURE.",
    ]
    serial, last = 0, None
    for atom in atoms:
        serial += 1
        if last is not None and not last.hetero and (atom.hetero or atom.chain != last.chain):
            lines.append(
                f"TER   {serial:5d}      {last.residue:>3} {last.chain}{last.number:4d}{last.insertion}"
            )
            serial += 1
        lines.append(_pdb_line(serial, atom))
        last = atom
    return "\n".join([*lines, "END", ""])


def _pdb_line(serial: int, atom: AtomLine) -> str:
    record = "HETATM" if atom.hetero else "ATOM  "
    # A one-letter element leaves the first of the four columns free, unless the name needs it.
    name = atom.name if len(atom.name) == 4 or len(atom.element) == 2 else " " + atom.name
    charge = ION_CHARGES.get(atom.residue, 0)
    sign = f"{abs(charge)}{'+' if charge > 0 else '-'}" if charge else "  "
    return (
        f"{record}{serial:5d} {name:<4}{atom.altloc or ' '}{atom.residue:>3} {atom.chain}{atom.number:4d}"
        f"{atom.insertion or ' '}   {atom.x:8.3f}{atom.y:8.3f}{atom.z:8.3f}{atom.occupancy:6.2f}"
        f"{atom.b_factor:6.2f}          {atom.element.upper():>2}{sign}"
    )


def write_cif(title: str, name: str, atoms: Sequence[AtomLine]) -> str:
    """mmCIF (PDBx) with entities; one polymer entity a chain, then ions and waters."""
    chains = list(dict.fromkeys(a.chain for a in atoms if not a.hetero))
    others = list(dict.fromkeys(a.residue for a in atoms if a.hetero))
    entities = {chain: k for k, chain in enumerate(chains, start=1)}
    entities |= {f"het {r}": k for k, r in enumerate(others, start=len(chains) + 1)}
    kinds = ["polymer"] * len(chains) + ["water" if r == "HOH" else "non-polymer" for r in others]
    lines = [
        f"data_{name}", f"_entry.id {name}", f"_struct.entry_id {name}", f"_struct.title '{title}'",
        f"_exptl.entry_id {name}", "_exptl.method 'THEORETICAL MODEL'",
        "loop_", "_entity.id", "_entity.type",
        *(f"{k} {kind}" for k, kind in enumerate(kinds, start=1)),
        "loop_", "_entity_poly.entity_id", "_entity_poly.type", "_entity_poly.pdbx_strand_id",
        *(f"{entities[chain]} polypeptide(L) {chain}" for chain in chains),
        "loop_", *(f"_atom_site.{column}" for column in _ATOM_SITE),
    ]  # fmt: skip
    first = {chain: min(a.number for a in atoms if a.chain == chain and not a.hetero) for chain in chains}
    inserted = 0
    for serial, atom in enumerate(atoms, start=1):
        if serial > 1 and atom.insertion and atom.insertion != atoms[serial - 2].insertion:
            inserted += 1
        key = f"het {atom.residue}" if atom.hetero else atom.chain
        position = "." if atom.hetero else str(atom.number - first[atom.chain] + 1 + inserted)
        asym = f"{atom.chain}{entities[key]}" if atom.hetero else atom.chain
        charge = ION_CHARGES.get(atom.residue)
        lines.append(
            f"{'HETATM' if atom.hetero else 'ATOM'} {serial} {atom.element.upper()} {atom.name} "
            f"{atom.altloc or '.'} {atom.residue} {asym} {entities[key]} {position} {atom.insertion or '?'} "
            f"{atom.x:.3f} {atom.y:.3f} {atom.z:.3f} {atom.occupancy:.2f} {atom.b_factor:.2f} "
            f"{'?' if charge is None else charge} {atom.number} {atom.residue} {atom.chain} {atom.name} 1"
        )
    return "\n".join([*lines, "#", ""])


_ATOM_SITE: Final = (
    "group_PDB", "id", "type_symbol", "label_atom_id", "label_alt_id", "label_comp_id", "label_asym_id",
    "label_entity_id", "label_seq_id", "pdbx_PDB_ins_code", "Cartn_x", "Cartn_y", "Cartn_z", "occupancy",
    "B_iso_or_equiv", "pdbx_formal_charge", "auth_seq_id", "auth_comp_id", "auth_asym_id", "auth_atom_id",
    "pdbx_PDB_model_num",
)  # fmt: skip
