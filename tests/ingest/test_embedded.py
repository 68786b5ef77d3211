"""Ligands inside the structure file: what the dictionary expects of them and the file lacks."""

from __future__ import annotations

import numpy as np
import pytest
from pdbtext import atom_line, chain_lines, residue_lines

from holoshard.ingest.chemistry.embedded import embedded_ligand
from holoshard.ingest.chemistry.receptor import as_receptor
from holoshard.ingest.chemistry.select import find_ligand, ligand_sites
from holoshard.ingest.read.components import component
from holoshard.ingest.read.structure import read_structure

CHAIN = chain_lines(["ALA", "GLY", "SER", "VAL", "LEU", "THR"])


def ligand(text: str, selector: str):
    receptor = as_receptor(read_structure(text.encode(), "x"))
    return embedded_ligand(receptor, find_ligand(receptor, selector))


def carboxyl_end(name: str, chain: str, number: int) -> str:
    """The OXT that ``residue_lines`` leaves out."""
    entry = component(name)
    assert entry is not None
    at = entry.ideal[entry.atom_names.index("OXT")].astype(float)
    return atom_line("OXT", name, chain, number, at, "O", het=True)


def test_an_acid_without_its_last_oxygen_lacks_an_atom():
    cut = CHAIN + residue_lines("TRP", "B", 101, het=True)
    assert ligand(cut, "B:TRP:101").repairs == ("atoms_missing",)
    whole = ligand(cut + carboxyl_end("TRP", "B", 101), "B:TRP:101")
    assert whole.repairs == ()
    assert whole.smiles == "N[C@@H](Cc1c[nH]c2ccccc12)C(=O)O"


def test_a_peptide_lacks_an_atom_only_where_no_bond_takes_its_place():
    peptide = chain_lines(["GLY", "GLY", "GLY"], "P")
    assert ligand(peptide + CHAIN, "P::").repairs == ("atoms_missing",)
    end = np.add((2.009, 1.420, 0.0), (0.7, -0.6, 0.9)) + 2 * np.array((3.332, 1.536, 0.0))
    closed = ligand(peptide + atom_line("OXT", "GLY", "P", 3, end, "O") + CHAIN, "P::")
    assert (closed.repairs, closed.smiles) == ((), "NCC(=O)NCC(=O)NCC(=O)O")


@pytest.mark.parametrize(("bond", "repairs"), [(True, ()), (False, ("atoms_missing",))])
def test_a_sugar_on_a_protein_has_given_its_oxygen_away(bond, repairs):
    link = "LINK         OG  SER A   3                 C1  NAG B 101     1555   1555  1.43  \n"
    oxygen = atom_line("OG", "SER", "A", 3, (8.0, 2.0, 1.2), "O")
    text = CHAIN.replace("ATOM      1  N   VAL", oxygen + "ATOM      1  N   VAL")
    text = link * bond + text + residue_lines("NAG", "B", 101, (8, 6, 5), het=True, skip=("O1",))
    assert ligand(text, "B:NAG:101").repairs == repairs


@pytest.mark.parametrize("name", ["1PG", "JEF", "UMQ", "LCP", "144"])
def test_additives_are_no_ligands(name):
    text = CHAIN + residue_lines(name, "B", 101, (8, 6, 5), het=True)
    assert ligand_sites(as_receptor(read_structure(text.encode(), "x"))) == []
