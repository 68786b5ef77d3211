from __future__ import annotations

import csv
import dataclasses
import math
from pathlib import Path

import numpy as np
import pytest
from pdbtext import atom_line, chain_lines, residue_lines
from rdkit import Chem

from holoshard.ingest.chemistry.quality import Filters
from holoshard.ingest.item import Item, Label, Locator, Rejection
from holoshard.ingest.pipeline import IngestOptions, Trace, clear_caches, process
from holoshard.ingest.reasons import REASONS, REPAIRS
from holoshard.shards.complex import FIELDS, RESIDUE_TYPES, TEXT_KEYS, Complex, Flag

OPTIONS = IngestOptions()
PROTEIN = chain_lines(["ALA", "SER", "GLY", "LEU", "VAL", "ASP", "LYS"])
LIGAND_AT = (8.0, 9.0, 1.0)


@pytest.fixture(autouse=True)
def _fresh():
    clear_caches()


def write(folder: Path, text: str | bytes, name="complex.pdb") -> Locator:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return Locator(path)


def read(folder: Path, text: str, residue="", **options) -> Complex | Rejection:
    clear_caches()
    return process(Item("x", write(folder, text), residue=residue), dataclasses.replace(OPTIONS, **options))


def kept(found: Complex | Rejection) -> Complex:
    assert isinstance(found, Complex), found
    return found


def ligand_file(folder: Path, name="STI", at=LIGAND_AT) -> Locator:
    """The component as an SDF, written by RDKit from its SMILES-free dictionary entry."""
    from holoshard.ingest.read.components import component

    entry = component(name)
    mol = Chem.RWMol()
    for z, q in zip(entry.element.tolist(), entry.charge.tolist(), strict=True):
        atom = Chem.Atom(z)
        atom.SetFormalCharge(q)
        mol.AddAtom(atom)
    kinds = {1: Chem.BondType.SINGLE, 2: Chem.BondType.DOUBLE, 3: Chem.BondType.TRIPLE}
    for (i, j), order in zip(entry.bond_atoms.tolist(), entry.bond_order.tolist(), strict=True):
        mol.AddBond(i, j, kinds[order])
    conformer = Chem.Conformer(mol.GetNumAtoms())
    conformer.SetPositions(entry.ideal.astype(float) + np.array(at))
    mol.AddConformer(conformer)
    return write(folder, Chem.MolToMolBlock(mol), "ligand.sdf")


def check_record(found: Complex) -> None:
    """Shapes, dtypes and the promises of the field table."""
    sizes = {"atom": found.n_atoms, "bond": len(found.bond_atoms), "residue": len(found.residue_type)}
    for field in FIELDS:
        if field.axis in sizes:
            column = getattr(found, field.key)
            assert column.shape == (sizes[field.axis], *field.shape), field.key
            assert column.dtype == field.value_dtype, field.key
    assert set(found.text) <= set(TEXT_KEYS)
    assert found.residue.max() == len(found.residue_type) - 1
    assert (np.diff(found.residue[found.n_ligand_atoms :].astype(int)) >= 0).all()
    pairs = found.bond_atoms.astype(int)
    assert (pairs[:, 0] < pairs[:, 1]).all()
    assert len(np.unique(pairs, axis=0)) == len(pairs)
    heavy = found.is_ligand & (found.element != 1)
    assert np.abs(found.position[heavy].mean(axis=0)).max() < 1.1e-3
    thousandths = found.position.astype(np.float64) * 1000
    np.testing.assert_allclose(thousandths, np.rint(thousandths), atol=2e-2)
    assert RESIDUE_TYPES[found.residue_type[0]] == "ligand"


def test_a_ligand_inside_the_file_and_the_same_in_a_file_of_its_own(tmp_path):
    inside = kept(read(tmp_path, PROTEIN + residue_lines("STI", "A", 900, LIGAND_AT, het=True)))
    check_record(inside)
    item = Item("y", write(tmp_path, PROTEIN, "protein.pdb"), ligand_file(tmp_path))
    apart = kept(process(item, OPTIONS))
    check_record(apart)
    assert inside.text["smiles"] == apart.text["smiles"]
    assert inside.text["inchikey"] == apart.text["inchikey"] == "KTUFNOKKBVMGRW-UHFFFAOYSA-N"  # imatinib
    assert inside.n_ligand_atoms == apart.n_ligand_atoms == 37
    assert inside.n_atoms == apart.n_atoms
    np.testing.assert_allclose(np.sort(inside.xyz, axis=0), np.sort(apart.xyz, axis=0), atol=2e-3)
    assert inside.text["ligand"] == "STI"
    assert bytes(inside.residue_name[0]).rstrip(b"\0") == b"STI"
    assert inside.residue_number[0] == 900


def test_the_ligand_in_both_files_does_not_leak_into_its_pocket(tmp_path):
    both = PROTEIN + residue_lines("STI", "A", 900, LIGAND_AT, het=True)
    found = kept(process(Item("y", write(tmp_path, both), ligand_file(tmp_path)), OPTIONS))
    alone = kept(process(Item("y", write(tmp_path, PROTEIN, "p.pdb"), ligand_file(tmp_path)), OPTIONS))
    assert found.n_atoms == alone.n_atoms
    assert found.text["repairs"] == ["ligand_copy_removed"]
    assert Flag.REPAIRED in found.flags
    assert alone.text["repairs"] == []


def test_metals_and_cofactors_stay_and_water_goes_unless_asked_for(tmp_path):
    text = PROTEIN + residue_lines("STI", "A", 900, LIGAND_AT, het=True)
    text += atom_line("MG", "MG", "A", 901, (8, 4, 5), "Mg", het=True)
    text += residue_lines("ATP", "A", 902, (20, 4, 10), het=True)
    text += atom_line("O", "HOH", "A", 903, (8, 5, -4), "O", het=True)
    types = [RESIDUE_TYPES[t] for t in kept(read(tmp_path, text, "A:STI:900", pocket=20.0)).residue_type]
    assert types.count("ion") == types.count("cofactor") == 1
    assert "water" not in types
    wet = kept(read(tmp_path, text, "A:STI:900", waters=True))
    assert [RESIDUE_TYPES[t] for t in wet.residue_type].count("water") == 1


def test_hydrogens_by_option(tmp_path):
    text = residue_lines("SER", "A", 1, hydrogens=True) + residue_lines(
        "BEN", "A", 9, (6, 0, 0), het=True, hydrogens=True
    )
    dry = kept(read(tmp_path, text, "A:BEN:9"))
    full = kept(read(tmp_path, text, "A:BEN:9", hydrogens=True))
    check_record(full)
    assert (dry.element != 1).all()
    assert (full.element == 1).sum() > 10
    assert full.n_ligand_atoms > dry.n_ligand_atoms == 9
    np.testing.assert_array_equal(full.xyz[full.element != 1], dry.xyz)


def test_a_covalent_ligand_is_bonded_flagged_and_named(tmp_path):
    cys = residue_lines("CYS", "A", 12, (0, 0, 0))
    sg = next(line for line in cys.splitlines() if " SG " in line)
    at = np.array([float(sg[k : k + 8]) for k in (30, 38, 46)])
    from holoshard.ingest.read.components import component

    entry = component("BEN")
    shift = at + np.array([1.0, 1.0, 1.0]) - entry.ideal[entry.atom_names.index("C4")]
    link = "LINK         SG  CYS A  12                 C4  BEN A 201     1555   1555  1.73  \n"
    text = cys + residue_lines("BEN", "A", 201, shift, het=True)
    loose, bound = kept(read(tmp_path, text, "A:BEN:201")), kept(read(tmp_path, link + text, "A:BEN:201"))
    assert Flag.COVALENT in bound.flags
    assert Flag.COVALENT not in loose.flags
    assert bound.text["links"] == [["C4", "A:CYS:12:SG"]]
    assert "links" not in loose.text
    assert len(bound.bond_atoms) == len(loose.bond_atoms) + 1
    names = bound.names()
    across = [p for p in bound.bond_atoms.tolist() if p[0] < bound.n_ligand_atoms <= p[1]]
    assert [[names[i] for i in p] for p in across] == [["C4", "SG"]]
    carbon = across[0][0]
    assert bound.degree[carbon] == loose.degree[carbon] + 1
    assert bound.hydrogens[carbon] == 0
    assert bound.hydrogens[across[0][1]] == 0


def test_flags(tmp_path):
    base = PROTEIN + residue_lines("STI", "A", 900, LIGAND_AT, het=True)
    assert kept(read(tmp_path, base)).flags == Flag(0)
    zero = base.replace("1.00 20.00", "0.00 20.00", 1)
    assert kept(read(tmp_path, zero)).flags == Flag.ZERO_OCCUPANCY
    models = f"MODEL        1\n{base}ENDMDL\nMODEL        2\n{base}ENDMDL\n"
    assert kept(read(tmp_path, models)).flags == Flag.MULTI_MODEL
    near = PROTEIN + residue_lines("STI", "A", 900, (8.0, 3.5, 1.0), het=True)
    assert Flag.CLASH in kept(read(tmp_path, near)).flags
    item = Item("x", write(tmp_path, base), synthetic=True, predicted=True)
    assert kept(process(item, OPTIONS)).flags == Flag.SYNTHETIC | Flag.PREDICTED


def refuse(found: Complex | Rejection, reason: str) -> str:
    assert isinstance(found, Rejection), "kept"
    assert found.reason == reason, found
    assert found.reason in REASONS
    assert "\n" not in found.message
    return found.message


def test_refusals_have_their_reasons(tmp_path):
    ligand = residue_lines("STI", "A", 900, LIGAND_AT, het=True)
    refuse(process(Item("x", Locator(tmp_path / "none.pdb")), OPTIONS), "file_missing")
    refuse(read(tmp_path, PROTEIN), "ligand_missing")
    refuse(read(tmp_path, ligand), "no_protein")
    refuse(read(tmp_path, PROTEIN + ligand, "A:FMN:1"), "ligand_missing")
    doubtful = residue_lines("BEN", "B", 1, (6, 6, 0), het=True).replace("BEN", "LIG")  # in the protein
    refuse(read(tmp_path, PROTEIN + doubtful), "ligand_no_bond_orders")
    refuse(read(tmp_path, PROTEIN + residue_lines("STI", "A", 900, (500, 0, 0), het=True)), "pocket_empty")
    refuse(read(tmp_path, PROTEIN + ligand, max_atoms=40), "too_large")
    item = Item("x", write(tmp_path, PROTEIN), write(tmp_path, b"", "empty.sdf"))
    refuse(process(item, OPTIONS), "empty_file")


def test_a_fault_of_ours_is_a_row_in_the_ledger_and_not_the_end(tmp_path, monkeypatch):
    def fault(*_args):
        raise ZeroDivisionError("by design")

    monkeypatch.setattr("holoshard.ingest.pipeline.read_structure", fault)
    found = process(Item("x", write(tmp_path, PROTEIN)), OPTIONS)
    message = refuse(found, "internal_error")
    assert "ZeroDivisionError" in message
    assert "test_pipeline.py" in message


def test_an_alternate_file_is_taken_and_recorded(tmp_path):
    good = ligand_file(tmp_path)
    bad = write(tmp_path, "nothing\n", "bad.mol2")
    found = kept(process(Item("x", write(tmp_path, PROTEIN), bad, alternates=(good,)), OPTIONS))
    assert found.text["repairs"] == ["alternate_file"]
    assert [name for name, _ in found.text["files"]] == ["complex.pdb", "bad.mol2", "ligand.sdf"]
    refuse(process(Item("x", write(tmp_path, PROTEIN), bad, alternates=(bad,)), OPTIONS), "format_unknown")


def test_labels_and_the_option_to_refuse_the_unlabelled(tmp_path):
    where = write(tmp_path, PROTEIN + residue_lines("STI", "A", 900, LIGAND_AT, het=True))
    strict = IngestOptions(unlabelled="refuse")
    relative = Label("dG_relative", "=", "-0.4", "kcal/mol")
    found = kept(process(Item("x", where, labels=(relative,)), OPTIONS))
    assert math.isnan(found.affinity.pk)
    assert found.affinity.count == 0
    assert found.text["label"]
    refuse(process(Item("x", where, labels=(relative,)), strict), "label_relative")
    refuse(process(Item("x", where), strict), "label_missing")
    assert math.isnan(kept(process(Item("x", where), OPTIONS)).affinity.pk)
    for options in (OPTIONS, strict):
        refuse(process(Item("x", where, labels=(Label("Kd", "=", "0", "nM"),)), options), "label_nonpositive")
        refuse(process(Item("x", where, labels=(Label("Kd", "=", "1", "kg"),)), options), "label_unreadable")


@pytest.mark.parametrize(
    ("limits", "word"),
    [
        (Filters(max_resolution=2.0), "resolution"),
        (Filters(min_occupancy=0.9), "occupancy"),
        (Filters(min_distance=30.0), "clash"),
        (Filters(max_distance=0.5), "distance"),
        (Filters(max_missing=0.01), "missing"),
        (Filters(min_ligand_atoms=60), "ligand size"),
        (Filters(max_ligand_atoms=10), "ligand size"),
        (Filters(elements=("C", "O")), "elements"),
    ],
)
def test_each_filter_refuses_and_says_which(tmp_path, limits, word):
    head = "REMARK   2 RESOLUTION.    3.10 ANGSTROMS.\n"
    text = (
        head
        + PROTEIN.replace("1.00 20.00", "0.50 20.00")
        + residue_lines("STI", "A", 900, LIGAND_AT, het=True)
    )
    assert math.isclose(kept(read(tmp_path, text)).resolution, 3.1)
    assert word in refuse(read(tmp_path, text, filters=limits), "filtered")


def test_the_trace_tells_of_kept_and_refused(tmp_path):
    where = write(tmp_path, PROTEIN)
    trace = Trace()
    refuse(process(Item("x", where), OPTIONS, trace), "ligand_missing")
    assert [name for name, _ in trace.files] == ["complex.pdb"]
    assert all(len(digest) == 64 for _, digest in trace.files)
    assert {"load", "structure", "select"} <= set(trace.seconds)
    again = Trace()
    process(Item("x", where), OPTIONS, again)
    assert again.files == trace.files
    assert "structure" not in again.seconds  # remembered


def test_a_changed_file_is_read_again(tmp_path):
    text = PROTEIN + residue_lines("STI", "A", 900, LIGAND_AT, het=True)
    item = Item("x", write(tmp_path, text))
    before = kept(process(item, OPTIONS))
    write(tmp_path, text.replace("SER", "THR"))
    assert kept(process(item, OPTIONS)).text["sequences"] != before.text["sequences"]


def test_turning_and_shifting_the_files_changes_nothing_but_the_frame(tmp_path):
    rng = np.random.default_rng(8)
    text = PROTEIN + residue_lines("STI", "A", 900, LIGAND_AT, het=True)
    turn, _ = np.linalg.qr(rng.normal(size=(3, 3)))
    turn *= np.linalg.det(turn)
    moved = []
    for line in text.splitlines(keepends=True):
        xyz = np.array([float(line[k : k + 8]) for k in (30, 38, 46)]) @ turn.T + np.array([12.0, -30, 5])
        moved.append(line[:30] + "".join(f"{v:8.3f}" for v in xyz) + line[54:])
    a, b = kept(read(tmp_path, text)), kept(read(tmp_path, "".join(moved)))
    np.testing.assert_allclose(a.position @ turn.T, b.position, atol=3e-3)
    for field in FIELDS:
        if field.axis in ("atom", "bond", "residue") and field.name != "position":
            np.testing.assert_array_equal(getattr(a, field.key), getattr(b, field.key), err_msg=field.key)


def test_the_same_bytes_give_the_same_record(tmp_path):
    text = PROTEIN + residue_lines("STI", "A", 900, LIGAND_AT, het=True)
    a, b = kept(read(tmp_path, text)), kept(read(tmp_path, text))
    for field in FIELDS:
        if field.axis in ("atom", "bond", "residue"):
            assert getattr(a, field.key).tobytes() == getattr(b, field.key).tobytes()
    assert a.text == b.text
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    assert kept(read(folder, text)).text == a.text  # no path of this machine in a record


@pytest.mark.parametrize("seed", range(60))
def test_damaged_files_never_raise(tmp_path, seed):
    rng = np.random.default_rng(seed)
    data = bytearray((PROTEIN + residue_lines("STI", "A", 900, LIGAND_AT, het=True)).encode())
    how = seed % 3
    if how == 0:
        for at in rng.integers(0, len(data), 30):
            data[at] = int(rng.integers(0, 256))
    elif how == 1:
        del data[int(rng.integers(0, len(data))) :]
    else:
        lines = bytes(data).splitlines(keepends=True)
        rng.shuffle(lines)
        data = bytearray(b"".join(lines[: int(rng.integers(1, len(lines)))]))
    found = process(Item("x", write(tmp_path, bytes(data))), OPTIONS)
    if isinstance(found, Rejection):
        assert found.reason != "internal_error", found
        assert found.reason in REASONS
    else:
        check_record(found)


def real_items(shared: Path) -> list[tuple[Item, dict[str, str]]]:
    root = shared / "data/real"
    out = []
    with (root / "complexes.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            inside = row["protein_path"] == row["ligand_path"]
            label = Label(row["affinity_type"], row["relation"], row["value"], row["unit"])
            out.append((Item(
                row["id"], Locator(root / row["protein_path"]),
                None if inside else Locator(root / row["ligand_path"]), int(row["ligand_record"] or 0),
                row["ligand_name"] if inside else "", labels=(label,), source=row["source"],
            ), row))  # fmt: skip
    return out


@pytest.mark.parametrize("part", [0, *(pytest.param(k, marks=pytest.mark.slow) for k in range(1, 12))])
def test_the_real_pack_is_kept_with_its_labels(shared, part):
    for item, row in real_items(shared)[part::12]:
        found = kept(process(item, OPTIONS))
        check_record(found)
        assert set(found.text["repairs"]) <= set(REPAIRS)
        if row["affinity_type"] == "dG_relative":
            assert math.isnan(found.affinity.pk)
            continue
        assert found.affinity.pk == pytest.approx(float(row["pK"]), abs=0.02)
        assert found.affinity.is_censored == (row["relation"] != "=")
        if row["min_heavy_dist_A"]:
            gaps = found.xyz[: found.n_ligand_atoms][:, None] - found.xyz[found.n_ligand_atoms :][None]
            nearest = float(np.sqrt((gaps**2).sum(axis=2).min()))
            assert (nearest < 2.0) == (Flag.CLASH in found.flags)


def test_a_nearest_distance_of_the_pack_is_what_its_table_says(shared):
    """Independent figures: the pack's own column, computed by others from the same files."""
    checked = 0
    for item, row in real_items(shared)[::60]:
        if row["min_heavy_dist_A"]:
            found = kept(process(item, OPTIONS))
            gaps = found.xyz[: found.n_ligand_atoms][:, None] - found.xyz[found.n_ligand_atoms :][None]
            nearest = float(np.sqrt((gaps**2).sum(axis=2).min()))
            if "water" not in row["note"] and abs(nearest - float(row["min_heavy_dist_A"])) > 0.02:
                assert nearest > float(row["min_heavy_dist_A"])  # a water or a copy of the ligand was nearer
                continue
            checked += 1
    assert checked >= 15
