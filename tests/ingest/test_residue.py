from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rdkit import Chem

from holoshard.ingest.read.components import Component, component
from holoshard.ingest.read.ligand import Ligand, ligand_from_residue
from holoshard.ingest.read.structure import read_structure
from holoshard.shards.complex import BOND_ORDERS, CHIRALITIES, decode_names
from holoshard.shards.errors import StructureError


def entry(name: str) -> Component:
    found = component(name)
    assert found is not None
    return found


def read(
    found: Component | None,
    drop: Sequence[str] = (),
    *,
    hydrogens: bool = False,
    names: Sequence[str] | None = None,
    of: Component | None = None,
    position: np.ndarray | None = None,
) -> Ligand:
    """The idealised atoms of an entry, some left out, some renamed, read with an entry."""
    source = of or found
    assert source is not None
    keep = np.array([name not in drop for name in source.atom_names]) & np.isfinite(source.ideal).all(axis=1)
    rows = np.flatnonzero(keep)
    return ligand_from_residue(
        residue_name=source.name,
        names=[(names or source.atom_names)[i] for i in rows],
        element=source.element[rows],
        charge=np.zeros(len(rows), np.int8),
        position=(source.ideal.astype(float) if position is None else position)[rows],
        b_factor=np.arange(len(rows), dtype=np.float32),
        occupancy=np.full(len(rows), 0.5, np.float32),
        component=found,
        hydrogens=hydrogens,
    )


def reason_of(*args: object, **kwargs: object) -> str:
    with pytest.raises(StructureError) as caught:
        read(*args, **kwargs)  # type: ignore[arg-type]
    return caught.value.reason


@pytest.mark.parametrize(
    ("name", "smiles"),
    [
        ("BEN", "N=C(N)c1ccccc1"),
        ("STI", "Cc1ccc(NC(=O)c2ccc(CN3CCN(C)CC3)cc2)cc1Nc1nccc(-c2cccnc2)n1"),
        ("RTL", "CC1=C(/C=C/C(C)=C/C=C/C(C)=C/CO)C(C)(C)CCC1"),
        ("SAM", "C[S@@+](CC[C@H](N)C(=O)[O-])C[C@H]1O[C@@H](n2cnc3c(N)ncnc32)[C@H](O)[C@@H]1O"),
        ("GLC", "OC[C@H]1O[C@H](O)[C@H](O)[C@@H](O)[C@@H]1O"),
        ("NO3", "O=[N+]([O-])[O-]"),
    ],
)
def test_bonds_charges_and_stereo_of_the_dictionary(name: str, smiles: str) -> None:
    ligand = read(entry(name))
    assert ligand.smiles == Chem.CanonSmiles(smiles)
    assert (ligand.repairs, ligand.title) == ((), name)
    assert ligand.charge.sum() == entry(name).charge.sum()
    assert ligand.b_factor.tolist() == ligand.row.tolist()
    assert set(ligand.occupancy.tolist()) == {0.5}


@pytest.mark.parametrize(
    "name", ["ATP", "NAD", "FAD", "HEM", "SF4", "PTR", "BTN", "CLR", "TRP", "A1D51", "MTX"]
)
def test_hydrogen_counts_are_those_of_the_dictionary(name: str) -> None:
    found = entry(name)
    counts = np.zeros(len(found.element), int)
    for i, j in found.bond_atoms.tolist():
        counts[i] += found.element[j] == 1
        counts[j] += found.element[i] == 1
    ligand = read(found)
    by_name = dict(zip(found.atom_names, counts.tolist(), strict=True))
    complete = [n for n, row in zip(found.atom_names, found.ideal, strict=True) if np.isfinite(row).all()]
    assert [by_name[complete[i]] for i in ligand.row.tolist()] == ligand.hydrogens.tolist()


def test_five_letter_codes(shared: Path) -> None:
    path = shared / "cases/21-ccd-five-chars/complex.cif"
    structure = read_structure(path.read_bytes(), path.name)
    row = structure.residue_name.tolist().index(b"A1D51")
    atoms = np.flatnonzero(structure.residue == row)
    found = entry("A1D51")
    ligand = ligand_from_residue(
        residue_name="A1D51", names=[n.decode() for n in structure.name[atoms].tolist()],
        element=structure.element[atoms], charge=structure.charge[atoms], position=structure.position[atoms],
        b_factor=structure.b_factor[atoms], occupancy=structure.occupancy[atoms], component=found,
    )  # fmt: skip
    orders = {}
    for (i, j), order in zip(found.bond_atoms.tolist(), found.bond_order.tolist(), strict=True):
        orders[frozenset((found.atom_names[i], found.atom_names[j]))] = order
    names = decode_names(ligand.name)
    assert ligand.n_atoms == np.count_nonzero(structure.element[atoms] != 1)
    for (i, j), order in zip(ligand.bond_atoms.tolist(), ligand.bond_order.tolist(), strict=True):
        if order != BOND_ORDERS.index("aromatic"):
            assert orders[frozenset((names[i], names[j]))] == order


def test_the_order_of_atoms_does_not_matter() -> None:
    found = entry("STI")
    order = np.random.default_rng(3).permutation(len(found.atom_names))
    shuffled = ligand_from_residue(
        residue_name="STI", names=[found.atom_names[i] for i in order], element=found.element[order],
        charge=found.charge[order], position=found.ideal[order].astype(float),
        b_factor=np.zeros(len(order), np.float32), occupancy=np.ones(len(order), np.float32), component=found,
    )  # fmt: skip
    plain = read(found)
    assert shuffled.smiles == plain.smiles
    assert np.array_equal(found.element[order][shuffled.row], shuffled.element)
    assert sorted(decode_names(shuffled.name)) == sorted(decode_names(plain.name))


def test_missing_atoms_are_recorded_and_the_rest_is_right() -> None:
    whole = read(entry("STI"))
    part = read(entry("STI"), drop=["C49", "C54"])
    assert part.n_atoms == whole.n_atoms - 2
    assert part.repairs == ("atoms_missing",)
    assert part.aromatic.sum() == whole.aromatic.sum()


def test_leaving_atoms_are_not_missed() -> None:
    bound = read(entry("GLC"), drop=["O1", "HO1"])
    assert bound.repairs == ()
    c1 = decode_names(bound.name).index("C1")
    assert bound.hydrogens[c1] == 1  # the bond to what it is linked to is no hydrogen


def test_an_anomeric_centre_keeps_its_stereo_from_the_coordinates() -> None:
    found = entry("GLC")
    mirror = read(found, position=found.ideal.astype(float) * [1, 1, -1])
    for one, other in zip(read(found).chirality.tolist(), mirror.chirality.tolist(), strict=True):
        assert {"R": "S", "S": "R"}.get(CHIRALITIES[one], "none") == CHIRALITIES[other]


def test_hydrogens_by_nearness_whatever_their_names() -> None:
    found = entry("BEN")
    renamed = [
        f"X{i}" if z == 1 else n for i, (n, z) in enumerate(zip(found.atom_names, found.element, strict=True))
    ]
    ligand = read(found, names=renamed, hydrogens=True)
    assert (ligand.n_atoms, ligand.n_heavy_atoms) == (len(found.atom_names), 9)
    assert ligand.smiles == read(found).smiles
    assert np.array_equal(ligand.hydrogens[ligand.element != 1], read(found).hydrogens)


def test_metal_complexes() -> None:
    haem = read(entry("HEM"))
    names = decode_names(haem.name)
    iron = names.index("FE")
    partners = {names[i if j == iron else j] for i, j in haem.bond_atoms.tolist() if iron in (i, j)}
    assert partners == {"NA", "NB", "NC", "ND"}
    assert haem.inchikey


def test_old_names_of_sugars() -> None:
    found = entry("ATP")
    starred = read(found, names=[name.replace("'", "*") for name in found.atom_names])
    assert starred.smiles == read(found).smiles


def test_no_entry() -> None:
    assert reason_of(None, of=entry("BEN")) == "ligand_no_bond_orders"


def test_a_name_the_entry_lacks() -> None:
    found = entry("BEN")
    assert (
        reason_of(found, names=["Q9" if n == "N1" else n for n in found.atom_names])
        == "ligand_no_bond_orders"
    )


def test_another_element_under_a_name() -> None:
    found = entry("BEN")
    swapped = {"N1": "C1", "C1": "N1"}
    assert reason_of(found, names=[swapped.get(n, n) for n in found.atom_names]) == "ligand_no_bond_orders"


def test_two_atoms_of_one_name() -> None:
    found = entry("BEN")
    assert reason_of(found, names=["C1" if n == "C2" else n for n in found.atom_names]) == "ligand_unreadable"


def test_another_molecule_under_the_name() -> None:
    """Atom names fit, as they do between ligands numbered C1, C2, ...; the distances betray it."""
    found = entry("STI")
    position = found.ideal.astype(float)
    carbons = np.flatnonzero(found.element == 6)
    position[carbons] = position[np.random.default_rng(0).permutation(carbons)]
    assert reason_of(found, position=position) == "ligand_no_bond_orders"


def test_entries_of_another_kind_of_table_do() -> None:
    """Several residues come as one merged table: any object with these columns serves."""
    merged = replace(entry("GLY"), name="", leaving=np.zeros_like(entry("GLY").leaving))
    assert read(merged, of=entry("GLY")).smiles == "NCC(=O)O"
