from __future__ import annotations

import numpy as np
import pytest
from pdbtext import atom_line, chain_lines, residue_lines

from holoshard.ingest.chemistry.receptor import as_receptor, resolve_altlocs
from holoshard.ingest.chemistry.select import choose_ligand, find_ligand, ligand_sites, parse_selector
from holoshard.ingest.chemistry.templates import ROLES
from holoshard.ingest.read.structure import read_structure
from holoshard.shards.errors import StructureError

PROTEIN = chain_lines(["ALA", "SER", "GLY", "LEU", "VAL"])


def receptor(text: str):
    return as_receptor(read_structure(text.encode(), "x"))


def names(found, rows) -> list[str]:
    return [n.decode() for n in found.structure.residue_name[rows].tolist()]


def roles(found) -> list[str]:
    return [ROLES[r] for r in found.role]


def letters(text: str) -> list[tuple[str, str]]:
    found = resolve_altlocs(read_structure(text.encode(), "x"))
    return [(n.decode(), chr(a) if a else "") for n, a in zip(found.name.tolist(), found.altloc, strict=True)]


def alternate(name: str, letter: str, occupancy: float, x=0.0, residue="SER") -> str:
    return atom_line(name, residue, "A", 1, (x, 1, 2), name[0], altloc=letter, occupancy=occupancy)


def test_without_alternates_nothing_is_copied():
    found = read_structure(PROTEIN.encode(), "x")
    assert resolve_altlocs(found) is found


def test_the_letter_of_highest_mean_occupancy_wins_for_the_whole_residue():
    # OG alone would go to A (0.6), the mean goes to B.
    text = (
        alternate("CB", "A", 0.2)
        + alternate("CB", "B", 0.8)
        + alternate("OG", "A", 0.6)
        + alternate("OG", "B", 0.4)
    )
    assert letters(text) == [("CB", "B"), ("OG", "B")]


def test_ties_go_to_the_first_letter_and_digits_count():
    assert letters(alternate("CB", "B", 0.5) + alternate("CB", "A", 0.5)) == [("CB", "A")]
    assert letters(alternate("CB", "1", 0.3) + alternate("CB", "2", 0.7)) == [("CB", "2")]


def test_atoms_of_a_losing_letter_alone_are_dropped_and_shared_ones_kept():
    text = (
        alternate("N", " ", 1.0)
        + alternate("CB", "A", 0.9)
        + alternate("CB", "B", 0.1)
        + alternate("OG", "B", 0.1)
    )
    assert letters(text) == [("N", ""), ("CB", "A")]


def test_an_atom_with_and_without_a_letter_is_one_atom():
    assert letters(alternate("CB", " ", 0.6) + alternate("CB", "B", 0.4, 1.0)) == [("CB", "")]
    assert letters(alternate("CB", " ", 0.3) + alternate("CB", "B", 0.7, 1.0)) == [("CB", "B")]


def test_each_residue_chooses_for_itself():
    one = alternate("CB", "A", 0.9) + alternate("CB", "B", 0.1)
    two = one.replace("SER A   1", "SER A   2").replace("0.90", "0.05")
    assert letters(one + two) == [("CB", "A"), ("CB", "B")]


def test_microheterogeneity_leaves_one_residue():
    text = alternate("CA", "A", 0.4, residue="PRO") + alternate("CA", "B", 0.6, residue="SER")
    found = resolve_altlocs(read_structure(text.encode(), "x"))
    assert found.residue_name.tolist() == [b"SER"]


def test_roles():
    text = (
        PROTEIN + residue_lines("ATP", "A", 900, (20, 0, 0), het=True)
        + atom_line("ZN", "ZN", "A", 901, (30, 0, 0), "Zn", het=True)
        + atom_line("O", "HOH", "A", 902, (40, 0, 0), "O", het=True)
        + atom_line("O", "DOD", "A", 903, (44, 0, 0), "O", het=True)
        + residue_lines("NAG", "A", 904, (60, 0, 0), het=True)
        + residue_lines("MSE", "A", 905, (80, 0, 0), het=True)
        + atom_line("O", "SOL", "A", 906, (90, 0, 0), "O", het=True)
    )  # fmt: skip
    found = receptor(text)
    assert roles(found) == ["amino_acid"] * 5 + [
        "small_molecule", "ion", "water", "water", "saccharide", "amino_acid", "water",
    ]  # fmt: skip
    assert found.polymer.tolist() == [True] * 5 + [False] * 7  # the lone MSE is bonded to nothing


def test_force_field_names_are_the_residues_they_mean():
    text = chain_lines(["HIE", "CYX", "ASH", "GLH", "LYN"])
    found = receptor(text)
    assert roles(found) == ["amino_acid"] * 5
    assert found.sequences == {"A": "HCDEK"}


def test_sequences_are_of_modelled_residues_by_chain():
    text = PROTEIN + chain_lines(["MSE", "TRP"], chain="B", shift=(0, 20, 0)).replace("ATOM  ", "HETATM")
    text += atom_line("O", "HOH", "A", 902, (40, 0, 0), "O", het=True)
    assert receptor(text).sequences == {"A": "ASGLV", "B": "MW"}


def test_neighbours_in_the_chain_are_joined_and_breaks_are_not():
    gap = chain_lines(["ALA", "GLY"]) + chain_lines(["SER"], start=9, shift=(30, 0, 0))
    assert receptor(gap).joined.tolist() == [True, False, False]


def test_the_one_ligand_is_chosen_among_ions_water_and_artefacts():
    text = (
        PROTEIN + residue_lines("GOL", "A", 801, (12, 9, 0), het=True)
        + residue_lines("SO4", "A", 802, (15, 9, 0), het=True)
        + residue_lines("STI", "A", 803, (30, 9, 0), het=True)
        + atom_line("CL", "CL", "A", 804, (50, 0, 0), "Cl", het=True)
    )  # fmt: skip
    found = receptor(text)
    assert names(found, choose_ligand(found)) == ["STI"]


def test_copies_are_one_answer_and_a_cofactor_steps_back():
    sti = residue_lines("STI", "A", 803, (30, 9, 0), het=True) + residue_lines(
        "STI", "B", 803, (60, 9, 0), het=True
    )
    nad = residue_lines("NAD", "A", 900, (90, 0, 0), het=True)
    found = receptor(PROTEIN + nad + sti)
    rows = choose_ligand(found)
    assert names(found, rows) == ["STI"]
    assert found.structure.residue_chain[rows].tolist() == [b"A"]
    assert len(ligand_sites(found)) == 3
    only = receptor(PROTEIN + nad)
    assert names(only, choose_ligand(only)) == ["NAD"]


def test_two_candidates_are_ambiguous_and_none_is_missing():
    two = residue_lines("STI", "A", 803, (30, 9, 0), het=True) + residue_lines(
        "FK5", "A", 804, (60, 9, 0), het=True
    )
    with pytest.raises(StructureError, match="STI, FK5") as caught:
        choose_ligand(receptor(PROTEIN + two))
    assert caught.value.reason == "ligand_ambiguous"
    with pytest.raises(StructureError) as caught:
        choose_ligand(receptor(PROTEIN))
    assert caught.value.reason == "ligand_missing"


def test_a_short_chain_is_the_ligand_where_there_is_no_other():
    text = chain_lines(["ALA"] * 20) + chain_lines(["LEU", "VAL", "SER"], chain="P", shift=(0, 10, 0))
    found = receptor(text)
    rows = choose_ligand(found)
    assert names(found, rows) == ["LEU", "VAL", "SER"]
    assert find_ligand(found, "P::").tolist() == rows.tolist()


def test_a_residue_within_a_chain_is_no_ligand_whatever_the_dictionary_calls_it():
    # 22Q is a non-polymer there; LINK bonds its C to the N of the next residue, as in 4OZ7.
    link = "LINK         C   22Q B   1                 N   ALA B   2     1555   1555  1.34  \n"
    head = residue_lines("22Q", "B", 1, (0, 30, 0), het=True)
    alone = receptor(link + head + chain_lines(["ALA", "SER"], "B", 2, (9, 30, 0)))
    assert ligand_sites(alone) == []
    beside = receptor(link + PROTEIN + PROTEIN.replace(" A ", " C ") + head + chain_lines(["ALA"], "B", 2))
    assert [names(beside, site) for site in ligand_sites(beside)] == [["22Q", "ALA"]]
    unbound = receptor(PROTEIN + head)
    assert [names(unbound, site) for site in ligand_sites(unbound)] == [["22Q"]]


def test_a_sugar_on_the_protein_is_no_ligand():
    # The C1 of the sugar on the ND2 of an asparagine, as a LINK record says.
    text = chain_lines(["ALA", "ASN"]) + residue_lines("NAG", "A", 901, (10, 0, 0), het=True)
    link = "LINK         ND2 ASN A   2                 C1  NAG A 901     1555   1555  1.45  \n"
    assert len(ligand_sites(receptor(text))) == 1
    assert ligand_sites(receptor(link + text)) == []


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("A:FMN:150", ("A", "FMN", 150, "")),
        ("A:FMN:150B", ("A", "FMN", 150, "B")),
        (":FMN:", ("", "FMN", None, "")),
        ("FMN", ("", "FMN", None, "")),
        ("A::-5", ("A", "", -5, "")),
        ("B::", ("B", "", None, "")),
    ],
)
def test_selectors(selector, expected):
    assert parse_selector(selector) == expected


def test_selected_residues():
    one, two = (residue_lines("STI", c, 803, (30 + 20 * k, 9, 0), het=True) for k, c in enumerate("AB"))
    found = receptor(PROTEIN + one + two + atom_line("ZN", "ZN", "A", 901, (99, 0, 0), "Zn", het=True))
    assert found.structure.residue_chain[find_ligand(found, "B:STI:803")].tolist() == [b"B"]
    assert found.structure.residue_chain[find_ligand(found, ":STI:")].tolist() == [b"A"]
    for selector, reason in (
        ("A:ZN:901", "ligand_artefact"),
        ("C:STI:803", "ligand_missing"),
        ("A:STI:x", "ligand_missing"),
    ):
        with pytest.raises(StructureError) as caught:
            find_ligand(found, selector)
        assert caught.value.reason == reason


def test_insertion_codes_tell_residues_apart():
    text = PROTEIN + residue_lines("STI", "A", 80, (30, 9, 0), het=True)
    text += residue_lines("STI", "A", 80, (60, 9, 0), het=True).replace("A  80 ", "A  80B")
    found = receptor(text)
    plain, lettered = find_ligand(found, "A:STI:80"), find_ligand(found, "A:STI:80B")
    assert not np.array_equal(plain, lettered)
