"""Atoms on symmetry axes: a ligand on a twofold axis stays one ligand, with or without its assembly."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from pdbtext import SYMBOLS, atom_line, chain_lines
from rdkit import Chem

from holoshard.ingest.item import Item, Locator
from holoshard.ingest.pipeline import IngestOptions, clear_caches, process
from holoshard.ingest.read.components import component
from holoshard.shards.complex import Complex

HEADER = (
    "CRYST1   90.000   90.000   90.000  90.00  90.00  90.00 P 1 2 1       2\n"
    "REMARK 350 BIOMOLECULE: 1\n"
    "REMARK 350 APPLY THE FOLLOWING TO CHAINS: A, B, W\n"
    "REMARK 350   BIOMT1   1  1.000000  0.000000  0.000000        0.00000\n"
    "REMARK 350   BIOMT2   1  0.000000  1.000000  0.000000        0.00000\n"
    "REMARK 350   BIOMT3   1  0.000000  0.000000  1.000000        0.00000\n"
    "REMARK 350   BIOMT1   2 -1.000000  0.000000  0.000000        0.00000\n"
    "REMARK 350   BIOMT2   2  0.000000  1.000000  0.000000        0.00000\n"
    "REMARK 350   BIOMT3   2  0.000000  0.000000 -1.000000        0.00000\n"
)


def benzamidine(occupancy: float) -> str:
    """Its own twofold axis on that of the crystal, so that the copy lies on it."""
    entry = component("BEN")
    assert entry is not None
    place = {name: entry.ideal[i].astype(float) for i, name in enumerate(entry.atom_names)}
    axis = place["C"] - place["C4"]
    axis /= np.linalg.norm(axis)
    side = place["N1"] - place["N2"]
    side -= axis * (side @ axis)
    side /= np.linalg.norm(side)
    frame = np.stack([side, axis, np.cross(side, axis)])
    lines = []
    for i, name in enumerate(entry.atom_names):
        if entry.element[i] != 1:
            xyz = frame @ (place[name] - place["C1"]) + [0.0, 5.0, 0.0]
            symbol = SYMBOLS[int(entry.element[i])]
            lines.append(atom_line(name, "BEN", "B", 1, xyz, symbol, het=True, occupancy=occupancy))
    return "".join(lines)


@pytest.fixture
def item(tmp_path) -> Item:
    protein = chain_lines(["ALA", "SER", "GLY", "LEU", "VAL"], shift=(4.5, 1.0, 3.0))
    water = atom_line("O", "HOH", "W", 1, (0.0, 12.0, 0.0), "O", het=True, occupancy=0.5)
    (tmp_path / "x.pdb").write_text(HEADER + protein + benzamidine(0.5) + water + "END\n")
    clear_caches()
    return Item("x", Locator(tmp_path / "x.pdb"))


def read(item: Item, **options) -> Complex:
    found = process(item, dataclasses.replace(IngestOptions(waters=True), **options))
    assert isinstance(found, Complex), found
    return found


def names(found: Complex) -> list[str]:
    return [bytes(name).rstrip(b"\0").decode() for name in found.residue_name]


def test_as_deposited(item):
    found = read(item)
    assert Chem.CanonSmiles(found.text["smiles"]) == "N=C(N)c1ccccc1"
    assert found.n_ligand_atoms == 9
    assert found.occupancy[:9] == pytest.approx(0.5)
    assert found.text["repairs"] == []
    assert names(found).count("HOH") == 1


def test_in_the_assembly_the_copies_of_the_ligand_and_the_water_merge(item):
    plain, whole = read(item), read(item, assembly="1")
    assert whole.text["smiles"] == plain.text["smiles"]
    assert whole.n_ligand_atoms == 9
    assert names(whole).count("BEN") == 1
    assert names(whole).count("HOH") == 1
    assert names(whole).count("ALA") == 2 * names(plain).count("ALA") > 0  # the other half of the pocket
    gaps = np.linalg.norm(whole.position[:9, None] - whole.position[None, 9:], axis=2)
    assert gaps.min() > 1.0
