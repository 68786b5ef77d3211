"""Each ligand of a structure as a complex, and which of them a label of the structure speaks of."""

from __future__ import annotations

import pytest
from pdbtext import chain_lines, residue_lines

from holoshard.ingest.item import Item, Label, Locator, Rejection
from holoshard.ingest.pipeline import IngestOptions, process
from holoshard.ingest.sites import find_sites
from holoshard.shards.complex import Complex

CHAIN = chain_lines(["ALA", "GLY", "SER", "VAL", "LEU", "THR"])
DRUG = residue_lines("IBP", "B", 1, (8, 8, 5), het=True)
COPY = residue_lines("IBP", "C", 1, (8, -12, 5), het=True)
OTHER = residue_lines("BEN", "B", 2, (20, 8, 5), het=True)
COFACTOR = residue_lines("NAP", "B", 3, (8, 8, -18), het=True)
GLYCEROL = residue_lines("GOL", "B", 4, (20, 0, 5), het=True)
LABEL = Label("Ki", "=", "5", "nM")


@pytest.mark.parametrize(
    ("ligands", "columns", "labelled", "bare"),
    [
        (DRUG + GLYCEROL, {}, ["x:B:IBP:1"], []),
        (DRUG + COPY, {}, ["x:B:IBP:1", "x:C:IBP:1"], []),
        (DRUG + COFACTOR, {}, ["x:B:IBP:1"], ["x:B:NAP:3"]),
        (COFACTOR, {}, ["x:B:NAP:3"], []),
        (DRUG + OTHER, {}, [], ["x:B:BEN:2", "x:B:IBP:1"]),  # which of the two nobody says
        (DRUG + OTHER, {"ligand_name": "ben"}, ["x:B:BEN:2"], ["x:B:IBP:1"]),
        (DRUG + COFACTOR, {"het code": "NAP"}, ["x:B:NAP:3"], ["x:B:IBP:1"]),
        (DRUG + OTHER, {"ligand_id": "B:IBP:1"}, ["x:B:IBP:1"], ["x:B:BEN:2"]),
    ],
)
def test_a_label_goes_to_the_compound_it_can_speak_of(tmp_path, ligands, columns, labelled, bare):
    (tmp_path / "x.pdb").write_text(CHAIN + ligands + "END\n")
    item = Item("x", Locator(tmp_path / "x.pdb"), labels=(LABEL,), columns=columns, sites=True)
    found = find_sites(item, IngestOptions())
    assert not isinstance(found, Rejection)
    assert sorted(one.id for one in found if one.labels == (LABEL,)) == labelled
    assert sorted(one.id for one in found if one.labels == ()) == bare


def at_one_place(name: str, letter: str, occupancy: float) -> str:
    lines = residue_lines(name, "B", 1, (8, 8, 5), het=True).splitlines()
    return "".join(f"{line[:16]}{letter}{line[17:54]}{occupancy:6.2f}{line[60:]}\n" for line in lines)


@pytest.mark.parametrize(
    ("selector", "ligand"),
    [("B:IBP:1", "IBP"), (":IBP:", "IBP"), ("B:BEN:1", "BEN"), ("", "BEN"), ("B:NAP:1", None)],
)
def test_the_ligand_that_is_asked_for_keeps_its_place(tmp_path, selector, ligand):
    both = at_one_place("IBP", "A", 0.4) + at_one_place("BEN", "B", 0.6)
    (tmp_path / "x.pdb").write_text(CHAIN + both + "END\n")
    found = process(Item("x", Locator(tmp_path / "x.pdb"), residue=selector), IngestOptions())
    if ligand is None:
        assert isinstance(found, Rejection)
        assert (found.reason, found.message) == ("ligand_missing", "no residue is 'B:NAP:1'")
        return
    assert isinstance(found, Complex)
    assert found.text["ligand"] == ligand
    assert found.occupancy[: found.n_ligand_atoms].max() == pytest.approx(0.4 if ligand == "IBP" else 0.6)
    assert len(found.text["files"]) == 1
