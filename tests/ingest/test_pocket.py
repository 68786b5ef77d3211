from __future__ import annotations

import numpy as np
import pytest
from pdbtext import atom_line, chain_lines, residue_lines

from holoshard.ingest.chemistry.pocket import find_pocket
from holoshard.ingest.chemistry.receptor import as_receptor
from holoshard.ingest.chemistry.templates import ROLE
from holoshard.ingest.read.components import component
from holoshard.ingest.read.structure import read_structure
from holoshard.shards.errors import StructureError


def receptor(text: str):
    return as_receptor(read_structure(text.encode(), "x"))


def heavy_atoms(name: str, shift=(0.0, 0.0, 0.0)) -> tuple[np.ndarray, np.ndarray]:
    entry = component(name)
    heavy = entry.element > 1
    return entry.ideal[heavy].astype(float) + np.asarray(shift), entry.element[heavy]


def plainly(found, position, radius, waters=False) -> list[int]:
    """The pocket by every distance there is."""
    s = found.structure
    rows = []
    for r in range(s.n_residues):
        atoms = np.arange(s.residue_start[r], s.residue_start[r + 1])
        atoms = atoms[s.element[atoms] > 1]
        gap = (
            np.linalg.norm(s.position[atoms][:, None] - position[None], axis=2)
            if len(atoms)
            else np.array([99.0])
        )
        if gap.min() <= radius and (waters or found.role[r] != ROLE["water"]):
            rows.append(r)
    return rows


@pytest.mark.parametrize("radius", [3.0, 5.0, 8.0, 10.0])
@pytest.mark.parametrize("waters", [False, True])
def test_pocket_is_what_brute_force_finds(shared, radius, waters):
    data = (shared / "data/real/nasty/plip/1xdn.pdb").read_bytes()
    found = as_receptor(read_structure(data, "1xdn"))
    rng = np.random.default_rng(3)
    s = found.structure
    for at in rng.choice(np.flatnonzero(s.element > 1), 6):
        position = s.position[at] + rng.normal(0, 2.5, (12, 3))
        element = np.full(12, 6, np.uint8)
        if not plainly(found, position, radius, waters):
            continue
        pocket = find_pocket(found, position, element, radius, waters=waters)
        if not len(pocket.copies):
            assert pocket.residues.tolist() == plainly(found, position, radius, waters)


def test_whole_residues_and_no_hydrogen_reach():
    chain = chain_lines(["ALA"] * 6)
    probe = np.array([[0.0, -5.0, 0.0]])
    found = receptor(chain)
    pocket = find_pocket(found, probe, np.array([6], np.uint8), 5.2)
    assert pocket.residues.tolist() == plainly(found, probe, 5.2)
    # A hydrogen nearer than any heavy atom draws nothing in.
    far = receptor(chain + atom_line("HB1", "ALA", "A", 6, (0.0, -4.0, 0.0), "H"))
    assert find_pocket(far, probe, np.array([6], np.uint8), 5.2).residues.tolist() == pocket.residues.tolist()


def test_own_residue_is_left_out_and_metals_stay():
    text = chain_lines(["ALA"] * 5) + residue_lines("ATP", "A", 900, (3, 8, 0), het=True)
    text += atom_line("MG", "MG", "A", 901, (3, 10, 4), "Mg", het=True)
    found = receptor(text)
    own = np.array([5])
    pocket = find_pocket(found, *heavy_atoms("ATP", (3, 8, 0)), 8.0, own=own)
    assert 5 not in pocket.residues
    assert 6 in pocket.residues
    assert len(pocket.copies) == 0


def test_nothing_near_is_an_empty_pocket():
    with pytest.raises(StructureError, match="8 angstrom") as caught:
        find_pocket(receptor(chain_lines(["ALA"])), np.array([[99.0, 0, 0]]), np.array([6], np.uint8), 8.0)
    assert caught.value.reason == "pocket_empty"


def test_the_ligand_in_the_protein_file_is_no_pocket():
    text = chain_lines(["ALA"] * 5) + residue_lines("STI", "A", 900, (3, 8, 0), het=True)
    found = receptor(text)
    rng = np.random.default_rng(1)
    position, element = heavy_atoms("STI", (3, 8, 0))
    for noise in (0.0, 0.1):  # as deposited, and after a minimisation
        pocket = find_pocket(found, position + rng.normal(0, noise, position.shape), element, 8.0)
        assert pocket.copies.tolist() == [5]
        assert 5 not in pocket.residues
        assert pocket.nearest > 0.5


def test_the_crystal_ligand_beside_a_docked_pose_is_no_pocket():
    text = chain_lines(["ALA"] * 5) + residue_lines("STI", "A", 900, (3, 8, 0), het=True)
    position, element = heavy_atoms("STI", (3.5, 8.5, 0.3))
    pocket = find_pocket(receptor(text), position, element, 8.0)
    assert pocket.copies.tolist() == [5]


def test_a_clashing_pose_drops_no_protein():
    found = receptor(chain_lines(["ALA"] * 12))
    position, element = heavy_atoms("STI")
    rng = np.random.default_rng(2)
    for _ in range(40):  # ligands thrown right onto the chain
        pose = position + rng.uniform(-2, 2, 3) + np.array([18.0, 2.0, 0.0])
        pocket = find_pocket(found, pose, element, 8.0)
        assert len(pocket.copies) == 0
        assert pocket.residues.tolist() == plainly(found, pose, 8.0)


def test_a_bonded_atom_does_not_count_as_a_clash():
    found = receptor(chain_lines(["ALA"] * 3))
    probe = found.structure.position[4:5] + np.array([[0.0, 0.0, -1.5]])
    near = find_pocket(found, probe, np.array([6], np.uint8), 8.0).nearest
    assert near == pytest.approx(1.5)
    assert find_pocket(found, probe, np.array([6], np.uint8), 8.0, bonded=[4]).nearest > 2.0


@pytest.mark.parametrize(("gap", "clash"), [(2.0, False), (1.2, True)])
def test_a_metal_that_the_ligand_coordinates_is_no_clash(gap, clash):
    position, element = heavy_atoms("IBP", (0, 8, 0))
    oxygen = position[np.flatnonzero(element == 8)[0]]
    away = oxygen - position.mean(axis=0)
    zinc = oxygen + away / np.linalg.norm(away) * gap
    found = receptor(chain_lines(["ALA"] * 5) + atom_line("ZN", "ZN", "B", 1, zinc, "ZN", het=True))
    pocket = find_pocket(found, position, element, 8.0)
    metal = int(np.flatnonzero(found.structure.residue_name == b"ZN")[0])
    assert metal in pocket.residues
    assert (pocket.nearest < 2.0) is clash
