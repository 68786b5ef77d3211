from __future__ import annotations

import numpy as np
import pytest

from holoshard.ingest.read.components import atomic_number, component, is_placeholder
from holoshard.shards.complex import BOND_ORDERS, CHIRALITIES


def test_alanine():
    found = component("ALA")
    assert found.type == "L-PEPTIDE LINKING"
    assert (found.one_letter, found.parent) == ("A", "")
    assert found.is_amino_acid
    assert not found.is_nucleotide
    names = list(found.atom_names)
    assert names[:5] == ["N", "CA", "C", "O", "CB"]
    assert found.element[:5].tolist() == [7, 6, 6, 8, 6]
    assert {names[i] for i in np.flatnonzero(found.leaving)} == {"OXT", "H2", "HXT"}
    assert CHIRALITIES[found.stereo[1]] == "S"
    bonds = {
        frozenset((names[i], names[j])): o
        for (i, j), o in zip(found.bond_atoms, found.bond_order, strict=True)
    }
    assert BOND_ORDERS[bonds[frozenset(("C", "O"))]] == "double"
    assert BOND_ORDERS[bonds[frozenset(("CA", "CB"))]] == "single"
    ca, cb = found.ideal[1], found.ideal[4]
    assert np.linalg.norm(ca - cb) == pytest.approx(1.53, abs=0.02)


def test_charges_elements_and_parents():
    assert int(component("ARG").charge.sum()) == 1
    assert 34 in component("MSE").element
    assert component("MSE").parent == "MET"
    assert component("ZN").element.tolist() == [30]
    assert 1 in component("DOD").element  # deuterium is hydrogen
    assert component("DA").is_nucleotide
    assert component("NAG").is_saccharide


def test_five_letter_names_are_known():
    assert len(component("A1D51").atom_names) == 66


@pytest.mark.parametrize("name", ["LIG", "UNL", "UNK", "DRG", "INH", "01", "99", "7", ""])
def test_placeholders_are_nobody(name):
    assert component(name) is None
    assert name == "" or is_placeholder(name)


@pytest.mark.parametrize("name", ["FMN", "032", "A1D51", "1PE"])
def test_real_names_are_no_placeholders(name):
    assert not is_placeholder(name)
    assert component(name).name == name


def test_unknown_names_are_none():
    assert component("ZZZZZ") is None
    assert component("ala") is None


@pytest.mark.parametrize(
    ("symbol", "number"), [("C", 6), ("BR", 35), ("D", 1), ("T", 1), ("X", 0), ("zn", 30)]
)
def test_atomic_numbers(symbol, number):
    assert atomic_number(symbol) == number


def test_bonds_join_atoms_of_the_component():
    for name in ("TRP", "HEM", "ATP", "FES", "SF4", "DG"):
        found = component(name)
        n = len(found.atom_names)
        assert len(set(found.atom_names)) == n
        assert len(found.element) == len(found.charge) == len(found.ideal) == n
        assert found.bond_atoms.min() >= 0
        assert found.bond_atoms.max() < n
        assert len(found.bond_order) == len(found.bond_atoms)
        assert (found.bond_order > 0).all()
