from __future__ import annotations

import itertools

import numpy as np
import pytest
from pdbtext import SYMBOLS, atom_line, chain_lines, residue_lines
from rdkit import Chem
from rdkit.Chem import rdCIPLabeler

from holoshard.ingest.chemistry.features import pocket_atoms, ragged
from holoshard.ingest.chemistry.names import ALIASES, STATES
from holoshard.ingest.chemistry.receptor import as_receptor
from holoshard.ingest.chemistry.templates import LIBRARY, make_template
from holoshard.ingest.read.structure import read_structure
from holoshard.shards.complex import (
    AMINO_ACIDS,
    BOND_ORDERS,
    CHIRALITIES,
    HYBRIDISATIONS,
    NUCLEOTIDES,
    RESIDUE_TYPES,
)


def receptor(text: str):
    return as_receptor(read_structure(text.encode(), "x"))


def features(text: str, **options):
    """Features of every residue that is no water, and "RES:NAME" of each atom."""
    found = receptor(text)
    atoms = pocket_atoms(found, np.flatnonzero(found.role != 4), **options)
    s = found.structure
    names = [
        f"{s.residue_name[r].decode()}:{n.decode()}"
        for r, n in zip(s.residue[atoms.rows], s.name[atoms.rows], strict=True)
    ]
    return atoms, names


def bonds_of(atoms, names) -> dict[frozenset[str], str]:
    ends = [frozenset((names[i], names[j])) for i, j in atoms.bond_atoms.tolist()]
    return dict(zip(ends, (BOND_ORDERS[o] for o in atoms.bonds["order"]), strict=True))


def of(atoms, names, atom: str, column: str) -> int:
    return int(atoms.columns[column][names.index(atom)])


def test_ragged():
    assert ragged(np.array([5, 0, 9]), np.array([2, 0, 3])).tolist() == [5, 6, 9, 10, 11]
    assert len(ragged(np.zeros(0, int), np.zeros(0, int))) == 0


@pytest.mark.parametrize("name", AMINO_ACIDS)
def test_templates_of_the_twenty(name):
    found = make_template(name)
    assert RESIDUE_TYPES[found.type] == name
    assert len(found.letter) == 1
    table = {n: row for n, row in zip(found.names, found.atoms, strict=True)}
    assert HYBRIDISATIONS[table["N"][2]] == "sp2"  # an amide, as it stands in a chain
    assert table["N"][3] == (0 if name == "PRO" else 1)
    assert table["CA"][3] == (2 if name == "GLY" else 1)
    assert {n for n in found.names if table[n][6]} == {"N", "CA", "C", "O", "OXT"}
    assert int(found.atoms[:, 1].view(np.int8).sum()) + 1 == {"ASP": -1, "GLU": -1, "LYS": 1, "ARG": 1}.get(
        name, 0
    )
    assert len(found.centres) == {"GLY": 0, "ILE": 2, "THR": 2}.get(name, 1)


@pytest.mark.parametrize("name", NUCLEOTIDES)
def test_templates_of_nucleotides(name):
    found = make_template(name)
    assert RESIDUE_TYPES[found.type] == name
    table = dict(zip(found.names, found.atoms.view(np.int8), strict=True))
    assert (table["OP1"][1], table["OP2"][1]) == (0, -1)
    assert table["N1"][4] == 1  # aromatic


def test_templates_of_modified_residues_caps_and_clusters():
    assert RESIDUE_TYPES[make_template("MSE").type] == "modified"
    assert make_template("MSE").letter == "M"
    assert make_template("SEP").letter == "S"
    ace = dict(zip(make_template("ACE").names, make_template("ACE").atoms, strict=True))
    assert (ace["C"][3], ace["CH3"][3]) == (0, 3)
    nme = dict(zip(make_template("NME").names, make_template("NME").atoms, strict=True))
    assert (HYBRIDISATIONS[nme["N"][2]], nme["N"][3]) == ("sp2", 1)
    assert len(make_template("SF4").names) == 8
    assert make_template("SF4").atoms[:, 0].max() == 26
    assert make_template("ZZZZZ").names == ()


def test_aliases_have_the_atoms_of_what_they_stand_for():
    for alias, base in ALIASES.items():
        assert make_template(alias).names == make_template(base).names
    for alias, states in STATES.items():
        table = dict(zip(make_template(alias).names, make_template(alias).atoms.view(np.int8), strict=True))
        for atom, (charge, hydrogens) in states.items():
            assert (table[atom][1], table[atom][3]) == (charge, hydrogens), (alias, atom)


def test_a_chain_is_bonded_along_its_peptides_and_not_over_a_gap():
    atoms, names = features(chain_lines(["ALA", "GLY"]) + chain_lines(["SER"], start=7, shift=(40, 0, 0)))
    bonds = bonds_of(atoms, names)
    assert bonds[frozenset(("ALA:C", "GLY:N"))] == "single"
    assert frozenset(("GLY:C", "SER:N")) not in bonds
    assert bonds[frozenset(("ALA:C", "ALA:O"))] == "double"
    assert of(atoms, names, "GLY:N", "degree") == 2
    assert of(atoms, names, "ALA:C", "degree") == 3
    assert of(atoms, names, "ALA:CB", "degree") == 1
    along = [
        k for k, (i, j) in enumerate(atoms.bond_atoms.tolist()) if {names[i], names[j]} == {"ALA:C", "GLY:N"}
    ]
    assert atoms.bonds["conjugated"][along[0]] == 1


def test_degree_counts_neighbours_outside_the_pocket():
    found = receptor(chain_lines(["ALA", "SER", "GLY"]))
    atoms = pocket_atoms(found, np.array([1]))
    names = found.structure.name[atoms.rows].tolist()
    assert atoms.columns["degree"][names.index(b"N")] == 2
    assert atoms.columns["degree"][names.index(b"C")] == 3
    assert atoms.bond_atoms.max() < len(atoms.rows)


def test_disulfides_are_found_by_distance_once_and_lose_their_hydrogens():
    one, two = residue_lines("CYS", "A", 1), residue_lines("CYS", "B", 1, mirror=True)
    text = receptor(one + two).structure
    sg = [text.position[i] for i in np.flatnonzero(text.name == b"SG")]
    shift = sg[0] - sg[1] + np.array([2.05, 0, 0])
    both = one + residue_lines("CYS", "B", 1, shift, mirror=True)
    link = "SSBOND   1 CYS A    1    CYS B    1                          1555   1555  2.05  \n"
    for head in ("", link):
        atoms, names = features(head + both)
        ends = [sorted((names[i], names[j])) for i, j in atoms.bond_atoms.tolist()]
        assert ends.count(["CYS:SG", "CYS:SG"]) == 1
        sulfurs = [k for k, n in enumerate(names) if n == "CYS:SG"]
        assert atoms.columns["degree"][sulfurs].tolist() == [2, 2]
        assert atoms.columns["hydrogens"][sulfurs].tolist() == [0, 0]
    free, names = features(one)
    assert of(free, names, "CYS:SG", "hydrogens") == 1


def test_handedness_comes_from_the_coordinates():
    for name, letter in (("ALA", "S"), ("CYS", "R"), ("THR", "S")):
        atoms, names = features(residue_lines(name, "A", 1))
        assert CHIRALITIES[of(atoms, names, f"{name}:CA", "chirality")] == letter
        turned, names = features(residue_lines(name, "A", 1, mirror=True))
        assert CHIRALITIES[of(turned, names, f"{name}:CA", "chirality")] == ("S" if letter == "R" else "R")
    atoms, names = features(residue_lines("THR", "A", 1))
    assert CHIRALITIES[of(atoms, names, "THR:CB", "chirality")] == "R"


def test_a_flat_centre_is_unassigned_and_a_cut_one_none():
    flat = {
        "N": (-1.2, 0.8, 0.0),
        "CA": (0.0, 0.0, 0.0),
        "C": (1.2, 0.8, 0.0),
        "CB": (0.0, -1.5, 0.0),
        "O": (2.2, 0.2, 0.0),
    }
    text = "".join(atom_line(a, "ALA", "A", 1, xyz, a[0]) for a, xyz in flat.items())
    atoms, names = features(text)
    assert CHIRALITIES[of(atoms, names, "ALA:CA", "chirality")] == "unassigned"
    atoms, names = features(residue_lines("ALA", "A", 1, skip=("CB",)))
    assert CHIRALITIES[of(atoms, names, "ALA:CA", "chirality")] == "none"


def test_drawn_hydrogens_say_how_a_residue_is_protonated():
    def state(name: str, skip=()) -> dict[str, tuple[int, int]]:
        atoms, names = features(residue_lines(name, "A", 1, hydrogens=True, skip=skip))
        return {n: (of(atoms, names, n, "charge"), of(atoms, names, n, "hydrogens")) for n in names}

    asp = state("ASP")  # the dictionary draws the free acid
    assert asp["ASP:OD2"] == (0, 1)
    assert asp["ASP:OD1"] == (0, 0)
    assert state("ASP", ("HD2",))["ASP:OD2"] == (-1, 0)
    assert state("LYS")["LYS:NZ"] == (1, 3)
    assert state("LYS", ("HZ3",))["LYS:NZ"] == (0, 2)
    doubly = state("HIS")
    assert doubly["HIS:ND1"][1] == doubly["HIS:NE2"][1] == 1
    assert doubly["HIS:ND1"][0] + doubly["HIS:NE2"][0] == 1
    delta = state("HIS", ("HE2",))
    assert (delta["HIS:ND1"], delta["HIS:NE2"]) == ((0, 1), (0, 0))
    epsilon = state("HIS", ("HD1",))
    assert (epsilon["HIS:ND1"], epsilon["HIS:NE2"]) == ((0, 0), (0, 1))


def test_polar_hydrogens_alone_leave_carbons_as_they_are():
    from holoshard.ingest.read.components import component

    entry = component("SER")
    apolar = tuple(
        n for n, z in zip(entry.atom_names, entry.element, strict=True) if z == 1 and n not in ("H", "HG")
    )
    atoms, names = features(residue_lines("SER", "A", 1, hydrogens=True, skip=apolar))
    assert of(atoms, names, "SER:OG", "hydrogens") == 1
    assert of(atoms, names, "SER:CB", "hydrogens") == 2


def test_hydrogens_become_atoms_by_option():
    text = residue_lines("SER", "A", 1, hydrogens=True)
    without, _ = features(text)
    atoms, names = features(text, hydrogens=True)
    assert len(atoms.rows) > len(without.rows)
    light = atoms.columns["element"] == 1
    assert (np.diff(atoms.rows) > 0).all()  # the order of the file
    assert (atoms.columns["degree"][light] == 1).all()
    assert bonds_of(atoms, names)[frozenset(("SER:OG", "SER:HG"))] == "single"
    heavy = np.flatnonzero(~light)
    for key, column in without.columns.items():
        np.testing.assert_array_equal(atoms.columns[key][heavy], column, err_msg=key)


def test_a_stated_charge_comes_before_the_template():
    text = atom_line("FE", "FE2", "A", 1, (0, 0, 0), "Fe", het=True, charge="3+")
    atoms, names = features(text)
    assert of(atoms, names, "FE2:FE", "charge") == 3


@pytest.mark.parametrize("name", ["Q1Q", "ZZ9"])  # nobody, and another molecule with atoms C1, C2, C, N1, too
def test_an_unknown_residue_gets_its_bonds_from_distances(name):
    text = residue_lines("BEN", "A", 1, het=True).replace("BEN", name)
    atoms, _names = features(text)
    known, _ = features(residue_lines("BEN", "A", 1, het=True))
    assert atoms.bond_atoms.tolist() == known.bond_atoms.tolist()
    assert (atoms.bonds["order"] == 0).all()
    assert atoms.columns["degree"].tolist() == known.columns["degree"].tolist()


def test_links_of_the_file_are_bonds_but_not_to_metals():
    zinc = atom_line("ZN", "ZN", "B", 1, (3.5, 0.5, 0.5), "Zn", het=True)
    text = residue_lines("CYS", "A", 1) + zinc
    link = "LINK         SG  CYS A   1                ZN    ZN B   1     1555   1555  2.30  \n"
    atoms, names = features(link + text)
    assert not any("ZN:ZN" in pair for pair in bonds_of(atoms, names))
    sugar = residue_lines("NAG", "C", 1, (9, 0, 0), het=True)
    glyco = "LINK         ND2 ASN A   1                 C1  NAG C   1     1555   1555  1.45  \n"
    atoms, names = features(glyco + residue_lines("ASN", "A", 1) + sugar)
    assert bonds_of(atoms, names)[frozenset(("ASN:ND2", "NAG:C1"))] == "single"
    assert of(atoms, names, "ASN:ND2", "hydrogens") == 1


def test_every_bond_is_there_once_first_before_second(shared):
    data = (shared / "data/real/nasty/plip/1xdn.pdb").read_bytes()
    found = as_receptor(read_structure(data, "x"))
    atoms = pocket_atoms(found, np.flatnonzero(found.role != 4))
    pairs = [tuple(p) for p in atoms.bond_atoms.tolist()]
    assert len(set(pairs)) == len(pairs)
    assert all(i < j for i, j in pairs)
    assert pairs == sorted(pairs)
    assert atoms.bond_atoms.max() < len(atoms.rows)


def test_features_agree_with_rdkit_on_a_whole_protein(shared):
    """RDKit's own reader of PDB files as oracle. What differs is protonation, which it leaves out, and the
    ends of chains, which it takes for termini."""
    data = (shared / "data/real/nasty/ngl/1CKB.pdb").read_bytes()
    found = as_receptor(read_structure(data, "1CKB"))
    s = found.structure
    atoms = pocket_atoms(found, np.flatnonzero(found.polymer))
    mol = Chem.MolFromPDBBlock(data.decode())
    Chem.AssignStereochemistryFrom3D(mol)
    rdCIPLabeler.AssignCIPLabels(mol)
    place = {}
    for atom in mol.GetAtoms():
        info = atom.GetPDBResidueInfo()
        place[info.GetChainId(), info.GetResidueNumber(), info.GetName().strip()] = atom
    spell = {"S": "s", "SP2": "sp2", "SP3": "sp3"}
    differ = set()
    partner = {}
    for k, row in enumerate(atoms.rows.tolist()):
        r = int(s.residue[row])
        atom = place[s.residue_chain[r].decode(), int(s.residue_number[r]), s.name[row].decode()]
        partner[k] = atom.GetIdx()
        theirs = {
            "element": atom.GetAtomicNum(), "charge": atom.GetFormalCharge(), "degree": atom.GetDegree(),
            "hydrogens": atom.GetTotalNumHs(), "aromatic": int(atom.GetIsAromatic()),
            "ring": int(atom.IsInRing()),
            "hybridisation": HYBRIDISATIONS.index(spell[str(atom.GetHybridization())]),
            "chirality": CHIRALITIES.index(atom.GetProp("_CIPCode") if atom.HasProp("_CIPCode") else "none"),
        }  # fmt: skip
        for column, value in theirs.items():
            if int(atoms.columns[column][k]) != value:
                differ.add((column, s.residue_name[r].decode(), s.name[row].decode()))
    protonation = {
        (c, r, a) for c, (r, a) in itertools.product(
            ("hydrogens", "charge"), (("GLU", "OE2"), ("ASP", "OD2"), ("ARG", "NH2"), ("LYS", "NZ")))
    }  # fmt: skip
    ends = {(c, r, a) for c in ("hydrogens", "hybridisation") for r, a in (
        ("ALA", "N"), ("PRO", "N"), ("TYR", "C"), ("ARG", "C"))}  # fmt: skip
    cut = {("chirality", "TYR", "CA"), ("chirality", "ARG", "CA"), ("hydrogens", "ARG", "CB")}
    assert differ == protonation | ends | cut
    bonds = {
        frozenset(partner[i] for i in pair): o
        for pair, o in zip(atoms.bond_atoms.tolist(), atoms.bonds["order"], strict=True)
    }
    known = set(partner.values())
    kinds = {"SINGLE": "single", "DOUBLE": "double", "AROMATIC": "aromatic"}
    expected = {
        frozenset((b.GetBeginAtomIdx(), b.GetEndAtomIdx())): kinds[str(b.GetBondType())]
        for b in mol.GetBonds()
        if {b.GetBeginAtomIdx(), b.GetEndAtomIdx()} <= known
    }  # fmt: skip
    assert {pair: BOND_ORDERS[o] for pair, o in bonds.items()} == expected


def test_the_library_grows_without_changing_its_answers():
    names = np.array([b"ALA", b"TRP"], "S8").view(np.uint64)
    before = LIBRARY.rows(names).tolist()
    LIBRARY.rows(np.array([b"A1D51", b"ZZZZ8"], "S8").view(np.uint64))
    assert LIBRARY.rows(names).tolist() == before
    assert SYMBOLS[6] == "C"


def test_of_two_atoms_of_one_name_the_one_that_fits_is_kept():
    lines = residue_lines("LEU", "A", 1).splitlines(keepends=True)
    cd1 = next(line for line in lines if " CD1 " in line)
    stray = cd1[:30] + f"{20.0:8.3f}" + cd1[38:]
    clean, _ = features("".join(lines))
    for text in ("".join([stray, *lines]), "".join([*lines, stray])):
        atoms, names = features(text)
        assert names.count("LEU:CD1") == 1
        assert atoms.n_doubled == 1
        assert of(atoms, names, "LEU:CD1", "degree") == 1
        assert len(atoms.bond_atoms) == len(clean.bond_atoms)


def test_residues_of_one_number_in_a_file_without_chains_stay_two():
    one = residue_lines("SER", " ", 5)
    text = one + residue_lines("GLY", " ", 6, (9, 0, 0)) + residue_lines("SER", " ", 5, (25, 0, 0))
    found = receptor(text)
    assert found.structure.residue_name.tolist() == [b"SER", b"GLY", b"SER"]
    atoms = pocket_atoms(found, np.arange(3))
    assert atoms.n_doubled == 0
