"""PDB files for tests, written atom by atom or from a component's ideal coordinates."""

from __future__ import annotations

import numpy as np

from holoshard.ingest.read.components import component


def atom_line(
    name: str, residue: str, chain: str, number: int, xyz, element: str, *, het=False, altloc=" ",
    occupancy=1.0, insertion=" ", b_factor=20.0, serial=1, charge="  ",
) -> str:  # fmt: skip
    """One line of eighty columns."""
    padded = name if len(name) == 4 or len(element) == 2 else f" {name}"
    x, y, z = xyz
    return (
        f"{'HETATM' if het else 'ATOM':<6}{serial:>5} {padded:<4}{altloc}{residue:>3} {chain}{number:>4}"
        f"{insertion}   "
        f"{x:8.3f}{y:8.3f}{z:8.3f}{occupancy:6.2f}{b_factor:6.2f}          {element.upper():>2}{charge}\n"
    )


SYMBOLS = {
    1: "H",
    6: "C",
    7: "N",
    8: "O",
    15: "P",
    16: "S",
    9: "F",
    17: "Cl",
    35: "Br",
    12: "Mg",
    30: "Zn",
    34: "Se",
}


def residue_lines(
    name: str, chain: str, number: int, shift=(0.0, 0.0, 0.0), *, het=False, hydrogens=False, skip=(),
    mirror=False,
) -> str:  # fmt: skip
    """A component at its ideal coordinates, shifted; leaving atoms of amino acids left out."""
    entry = component(name)
    assert entry is not None
    lines = []
    for i, atom in enumerate(entry.atom_names):
        leaving = entry.is_amino_acid and entry.leaving[i]
        if leaving or atom in skip or (entry.element[i] == 1 and not hydrogens):
            continue
        xyz = entry.ideal[i].astype(float) * (np.array([-1.0, 1, 1]) if mirror else 1.0) + np.asarray(shift)
        lines.append(atom_line(atom, name, chain, number, xyz, SYMBOLS[int(entry.element[i])], het=het))
    return "".join(lines)


PEPTIDE = {"N": (0.0, 0.0, 0.0), "CA": (1.458, 0.0, 0.0), "C": (2.009, 1.420, 0.0), "O": (1.251, 2.390, 0.0)}
NEXT = (
    3.332,
    1.536,
    0.0,
)  # place of the nitrogen 1.33 angstrom after C; residues follow each other by this step


def chain_lines(names, chain="A", start=1, shift=(0.0, 0.0, 0.0)) -> str:
    """Backbones in a row, each C 1.33 angstrom from the next N, with CB for all but glycine."""
    lines = []
    for k, name in enumerate(names):
        at = np.asarray(shift) + k * np.array(NEXT)
        atoms = dict(PEPTIDE) if name == "GLY" else {**PEPTIDE, "CB": (1.988, -0.773, -1.199)}
        lines += [atom_line(a, name, chain, start + k, at + np.array(xyz), a[0]) for a, xyz in atoms.items()]
    return "".join(lines)
