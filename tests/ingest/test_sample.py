from __future__ import annotations

import csv
import gzip
import json
import math
import os
import subprocess
import sys
import tarfile
from collections import Counter
from pathlib import Path

import gemmi
import numpy as np
import pytest
from rdkit import Chem
from rdkit.Chem import Crippen, rdMolDescriptors

from holoshard.ingest.item import Rejection
from holoshard.ingest.pipeline import IngestOptions, process
from holoshard.ingest.reasons import REASONS
from holoshard.ingest.sample import draft, formula, score, write_sample, writer
from holoshard.ingest.sample.dirt import DIRT, plan
from holoshard.ingest.sample.label import write_label
from holoshard.ingest.sample.residue import peptide, template
from holoshard.ingest.sources.layouts import choose, items
from holoshard.shards.complex import AMINO_ACIDS, Flag
from holoshard.shards.errors import UsageError

N, N_DIRTY = 144, 80


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("clean") / "sample"
    write_sample(out, n=N)
    return out


@pytest.fixture(scope="module")
def dirty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("dirty") / "sample"
    write_sample(out, n=N_DIRTY, dirty=0.6, seed=1)
    return out


def table(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def content(path: Path) -> str:
    data = path.read_bytes()
    return (gzip.decompress(data) if path.suffix == ".gz" else data).decode("ascii")


def protein_atoms(folder: Path, row: dict[str, str]) -> list[tuple[str, int, str, str, tuple[float, ...]]]:
    """(chain, number + insertion, residue, atom, position) by gemmi; of alternates the first."""
    text = content(folder / row["protein_path"])
    if ".cif" in row["protein_path"]:
        structure = gemmi.make_structure_from_block(gemmi.cif.read_string(text).sole_block())
    else:
        structure = gemmi.read_pdb_string(text)
    return [
        (chain.name, f"{residue.seqid}", residue.name, atom.name, tuple(atom.pos))
        for chain in structure[0]
        for residue in chain
        for atom in residue
        if atom.altloc in ("\0", "A") and atom.element != gemmi.Element("H")
    ]


def ligand_mol(folder: Path, row: dict[str, str]) -> Chem.Mol:
    text = content(folder / row["ligand_path"])
    if ".mol2" in row["ligand_path"]:
        mol = Chem.MolFromMol2Block(text, removeHs=False)
    else:
        mol = Chem.MolFromMolBlock(text.split("$$$$\n")[int(row["ligand_record"])], removeHs=False)
    assert mol is not None, row["ligand_path"]
    return mol


def heavy_positions(mol: Chem.Mol) -> np.ndarray:
    rows = [a.GetIdx() for a in mol.GetAtoms() if a.GetAtomicNum() > 1]
    return mol.GetConformer().GetPositions()[rows]


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def test_tables_and_files_are_a_real_mixture(clean: Path) -> None:
    rows = table(clean / "labels.csv")
    assert len({row["id"] for row in rows}) == N
    assert {row["synthetic"] for row in rows} == {"true"}
    named = {row[column] for row in rows for column in ("protein_path", "ligand_path")}
    assert named == {str(p.relative_to(clean)) for p in clean.rglob("*") if p.parent.name.startswith("T0")}
    suffixes = Counter(name.partition(".")[2] for name in named)
    assert set(suffixes) == {"pdb", "pdb.gz", "cif", "cif.gz", "sdf", "sdf.gz", "mol2", "mol2.gz"}
    assert {row["ligand_record"] for row in rows} == {"0", "1"}
    assert {"Kd", "Ki", "IC50", "dG"} <= {row["affinity_type"] for row in rows}
    assert {"nM", "uM", "kcal/mol", "kJ/mol", ""} <= {row["unit"] for row in rows}
    assert {"=", ">"} <= {row["relation"] for row in rows}
    assert table(clean / "dirt.csv") == []


def test_label_is_the_formula_of_the_written_coordinates(clean: Path) -> None:
    truths = {row["id"]: row for row in table(clean / "truth.csv")}
    noise = []
    for row in table(clean / "labels.csv"):
        atoms, truth = protein_atoms(clean, row), truths[row["id"]]
        mol = ligand_mol(clean, row)
        terms = score(mol, [a[2] for a in atoms], [a[3] for a in atoms], np.array([a[4] for a in atoms]))
        assert terms.pk == pytest.approx(float(truth["formula"]), abs=2e-4), row["id"]
        found = Chem.MolToSmiles(Chem.RemoveHs(mol), isomericSmiles=False)
        assert found == truth["smiles"]
        noise.append(float(truth["noisy"]) - terms.pk)
    assert np.std(noise) == pytest.approx(0.3, abs=0.06)
    assert abs(np.mean(noise)) < 0.1
    pk = np.array([float(t["noisy"]) for t in truths.values()])
    assert 2.5 <= pk.min() < 4.5
    assert 8.0 < pk.max() <= 11.5
    assert 1.1 < pk.std() < 1.8


def test_written_labels_say_the_noisy_pk(clean: Path) -> None:
    molar = {"nM": 1e-9, "uM": 1e-6, "mM": 1e-3, "M": 1.0}
    per_pk = {"kcal/mol": 1.36422, "kJ/mol": 5.70791}  # RT ln 10 at 298.15 K
    for row, truth in zip(table(clean / "labels.csv"), table(clean / "truth.csv"), strict=True):
        value, unit = float(row["value"]), row["unit"]
        if unit in molar:
            said = -math.log10(value * molar[unit])
        elif unit in per_pk:
            said = -value / per_pk[unit]
        else:
            said = value
        assert said == pytest.approx(float(truth["written"]), abs=1e-3)
        noisy = float(truth["noisy"])
        if row["relation"] == ">":  # a concentration above the bound is a pK below it
            assert truth["written_relation"] == "<"
            assert noisy <= said
        elif row["relation"] == "<":
            assert truth["written_relation"] == ">"
            assert noisy >= said
        else:
            assert said == pytest.approx(noisy, abs=0.01)


def test_every_style_of_label_occurs_and_bounds_are_true() -> None:
    written = [write_label(pk, np.random.default_rng(k)) for k in range(400) for pk in (3.2, 6.0, 9.9)]
    assert {w.relation for w in written} == {"=", ">", "<", "~"}
    assert {w.unit for w in written} == {"nM", "uM", "mM", "M", "kcal/mol", "kJ/mol", ""}
    assert all(w.pk == 4.0 for w in written if w.relation == ">")
    assert all(w.pk == 9.0 for w in written if w.relation == "<")


def test_poses_do_not_clash_and_residues_are_whole(clean: Path) -> None:
    for row in table(clean / "labels.csv"):
        atoms = protein_atoms(clean, row)
        ligand = heavy_positions(ligand_mol(clean, row))
        protein = np.array([a[4] for a in atoms])
        distance = np.linalg.norm(ligand[:, None] - protein[None], axis=-1)
        assert distance.min() > 2.8, row["id"]
        names: dict[tuple[str, str, str], set[str]] = {}
        for chain, number, residue, atom, _ in atoms:
            names.setdefault((chain, number, residue), set()).add(atom)
        amino = {key: found for key, found in names.items() if key[2] in AMINO_ACIDS}
        assert len(amino) >= 10
        for (*_, residue), found in amino.items():
            whole = template(residue)
            assert found == set(whole.names[: whole.n_heavy])


def test_a_target_keeps_its_residues_and_another_has_its_own(clean: Path) -> None:
    sequences: dict[str, set[tuple[str, ...]]] = {}
    for row in table(clean / "labels.csv"):
        residues = dict.fromkeys(
            f"{a[0]}{a[1]}{a[2]}" for a in protein_atoms(clean, row) if a[2] in AMINO_ACIDS
        )
        sequences.setdefault(row["target"], set()).add(tuple(residues))
    assert len(sequences) == N // 16
    assert all(len(found) == 1 for found in sequences.values())
    assert len(set.union(*sequences.values())) == len(sequences)


def test_the_pocket_decides_more_than_the_ligand(clean: Path) -> None:
    rows = table(clean / "labels.csv")
    pk = np.array([float(t["noisy"]) for t in table(clean / "truth.csv")])
    alone, contacts = [], []
    for row in rows:
        mol = Chem.RemoveHs(ligand_mol(clean, row))
        alone.append([
            mol.GetNumAtoms(), Crippen.MolLogP(mol), rdMolDescriptors.CalcTPSA(mol),
            rdMolDescriptors.CalcNumRotatableBonds(mol), rdMolDescriptors.CalcNumHBD(mol),
        ])  # fmt: skip
        atoms = [a for a in protein_atoms(clean, row) if a[2] in AMINO_ACIDS]
        distance = np.linalg.norm(
            heavy_positions(mol)[:, None] - np.array([a[4] for a in atoms])[None], axis=-1
        )
        ours = np.array([a.GetSymbol() in "NO" for a in mol.GetAtoms()])
        theirs = np.array([a[3][0] in "NO" for a in atoms])
        contacts.append([
            (distance < 5.0).sum() / len(ours),
            ((distance < 3.5) & ours[:, None] & theirs).sum(),
            ((distance < 4.5) & ~ours[:, None] & ~theirs).sum(),
        ])  # fmt: skip
    assert explained(np.array(alone), pk) < 0.4
    assert explained(np.array(contacts), pk) > explained(np.array(alone), pk) + 0.25


def explained(features: np.ndarray, goal: np.ndarray) -> float:
    """R² of linear regression on left-out tenths."""
    design = np.column_stack([features, np.ones(len(goal))])
    fold = np.arange(len(goal)) % 10
    predicted = np.empty(len(goal))
    for k in range(10):
        weights, *_ = np.linalg.lstsq(design[fold != k], goal[fold != k], rcond=None)
        predicted[fold == k] = design[fold == k] @ weights
    return float(1.0 - ((predicted - goal) ** 2).sum() / ((goal - goal.mean()) ** 2).sum())


def test_formula_of_a_hand_made_pocket() -> None:
    mol = Chem.AddHs(Chem.MolFromSmiles("CO"))
    conformer = Chem.Conformer(mol.GetNumAtoms())
    conformer.SetAtomPosition(0, (-1.4, 0.0, 0.0))
    conformer.SetAtomPosition(1, (0.0, 0.0, 0.0))
    mol.AddConformer(conformer)
    residues, names = ["ASP", "LEU", "HOH", "LEU"], ["OD1", "CD1", "O", "HD11"]
    position = np.array([[3.5, 0.0, 0.0], [0.0, 4.5, 0.0], [0.0, 0.0, 2.8], [0.0, 0.0, 3.0]])
    terms = score(mol, residues, names, position)
    # O..OD1 at 3.5 is halfway from 3.3 to 3.7; the water and the hydrogen count for nothing
    assert terms.hydrogen_bonds == pytest.approx(0.5)
    # O..CD1 at 4.5 is halfway from 4.2 to 4.8: half a lipophilic neighbour of two that make it full
    assert terms.unpaired_polar_atoms == pytest.approx(0.5 * 0.5 / 2)
    assert terms.lipophilic_atoms == 0.0  # the carbon is bonded to oxygen
    # O: OD1 1, CD1 1; C: OD1 at 4.9 gives 0.6, CD1 at 4.713 gives 0.787; mean over two atoms
    assert terms.burial == pytest.approx((2 + 0.6 + 5.5 - math.hypot(1.4, 4.5)) / 2)
    expected = 3.4 + 0.5 * 0.5 - 0.2 * 0.125 + 0.4 * terms.burial
    assert terms.pk == pytest.approx(expected)


@pytest.mark.parametrize(
    ("smiles", "positive", "negative", "donors", "acceptors"),
    [
        ("CC(=O)[O-]", set(), {2, 3}, set(), {2, 3}),
        ("C[NH3+]", {1}, set(), {1}, set()),
        ("CC(=[NH2+])N", {2, 3}, set(), {2, 3}, set()),
        ("c1cc[nH]c1", set(), set(), {3}, set()),
        ("c1ccncc1", set(), set(), set(), {3}),
        ("CC(=O)N(C)C", set(), set(), set(), {2}),
    ],
)
def test_sites_of_ligands(
    smiles: str, positive: set[int], negative: set[int], donors: set[int], acceptors: set[int]
) -> None:
    sites = formula.ligand_sites(Chem.MolFromSmiles(smiles))
    found = [sites.positive, sites.negative, sites.donor, sites.acceptor]
    assert [set(np.flatnonzero(s).tolist()) for s in found] == [positive, negative, donors, acceptors]


def test_peptides_have_ideal_geometry() -> None:
    built = peptide(("TYR", "PRO", "LYS"), np.array([[0.0, 140.0], [-65.0, 130.0], [-120.0, 0.0]]))
    names = [name for residue in built.residues for name in residue.names]
    at = {(int(r), n): p for r, n, p in zip(built.residue, names, built.position, strict=True)}
    for k in range(2):
        c, n, ca = at[k, "C"], at[k + 1, "N"], at[k + 1, "CA"]
        assert np.linalg.norm(n - c) == pytest.approx(1.329)
        assert np.linalg.norm(at[k, "O"] - n) == pytest.approx(2.25, abs=0.03)
        axes = np.cross(c - at[k, "CA"], n - c), np.cross(n - c, ca - n)
        trans = axes[0] @ axes[1] / np.linalg.norm(axes[0]) / np.linalg.norm(axes[1])
        assert trans == pytest.approx(-1.0, abs=1e-6)
    ring = at[1, "CD"] - at[1, "N"]
    assert np.linalg.norm(ring) == pytest.approx(1.47, abs=0.03)


def test_same_seed_same_bytes_and_a_smaller_sample_is_a_beginning(clean: Path, tmp_path: Path) -> None:
    code = f"from holoshard.ingest.sample import write_sample; write_sample({str(tmp_path / 'few')!r}, n=20)"
    environment = {**os.environ, "PYTHONHASHSEED": "123"}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment, cwd=tmp_path)
    few, many = files_of(tmp_path / "few"), files_of(clean)
    structures = [name for name in few if name.startswith("structures")]
    assert len(structures) == 2 * (12 + 2 + 4)
    assert all(few[name] == many[name] for name in structures)
    assert few["labels.csv"] == b"".join(many["labels.csv"].splitlines(keepends=True)[:21])
    write_sample(tmp_path / "other", n=4, seed=5)
    assert files_of(tmp_path / "other")["labels.csv"] != few["labels.csv"]


def test_archives_hold_the_same_files_whatever_the_workers(clean: Path, tmp_path: Path) -> None:
    write_sample(tmp_path / "tar", n=20, archive=True)
    with tarfile.open(tmp_path / "tar" / "structures-00000.tar") as tar:
        members = {m.name: tar.extractfile(m).read() for m in tar.getmembers()}
        assert {(m.mtime, m.uid, m.mode) for m in tar.getmembers()} == {(0, 0, 0o644)}
    many = files_of(clean)
    assert all(many[name] == data for name, data in members.items())
    rows = table(tmp_path / "tar" / "labels.csv")
    assert {row["protein_path"].partition("!")[2] for row in rows} <= set(members)
    kept = [process(item, IngestOptions()) for item in items([choose(tmp_path / "tar")])]
    assert [c.id for c in kept] == [row["id"] for row in rows]
    assert not any(isinstance(c, Rejection) for c in kept)
    write_sample(tmp_path / "two", n=20, workers=2)
    write_sample(tmp_path / "one", n=20)
    assert files_of(tmp_path / "two") == files_of(tmp_path / "one")


def test_every_kind_of_dirt_gets_its_code(dirty: Path) -> None:
    expected = {row["id"]: row for row in table(dirty / "dirt.csv")}
    written = {row["id"]: float(row["written"]) for row in table(dirty / "truth.csv")}
    assert {row["dirt"] for row in expected.values()} == {d.name for d in DIRT}
    seen = 0
    for item in items([choose(dirty)]):
        seen += 1
        row = expected.get(item.id, {"dirt": "", "expected": "kept", "strict": "kept"})
        for key, options in (("expected", IngestOptions()), ("strict", IngestOptions(unlabelled="refuse"))):
            made = process(item, options)
            found = made.reason if isinstance(made, Rejection) else "kept"
            assert found == row[key], (item.id, row["dirt"], made)
        if row["strict"] == "kept":
            assert Flag.SYNTHETIC in made.flags
            assert Flag.CLASH not in made.flags
            assert made.affinity.pk == pytest.approx(written[item.id], abs=1e-3)
    assert seen == N_DIRTY


@pytest.mark.parametrize("share", [0.0, 0.05, 0.3, 1.0])
def test_plan_of_dirt(share: float) -> None:
    chosen = plan(1000, share)
    assert len(chosen) == pytest.approx(1000 * share, abs=2)
    assert all(d.strict in REASONS or d.strict == "kept" for d in chosen.values())
    assert all(d.file == "label" for k, d in chosen.items() if draft.is_pair(k))
    assert {k: d for k, d in chosen.items() if k < 300} == plan(300, share)
    if share >= 0.05:
        assert {d.name for d in chosen.values()} == {d.name for d in DIRT}


def test_only_a_sample_is_replaced_and_failure_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    write_sample(out, n=2)
    (out / "extra").write_text("gone with the next")
    result = write_sample(out, n=3)
    assert not (out / "extra").exists()
    assert result["n"] == len(table(out / "labels.csv")) == 3
    assert json.loads((out / "sample.json").read_text())["synthetic"] is True

    def fail(*_: object) -> None:
        raise OSError("disk full")

    before = files_of(out)
    monkeypatch.setattr(writer, "draft", fail)
    with pytest.raises(OSError, match="disk full"):
        write_sample(out, n=4)
    assert files_of(out) == before
    assert [p.name for p in tmp_path.iterdir()] == ["out"]

    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "thesis.txt").write_text("mine")
    with pytest.raises(UsageError, match="no sample"):
        write_sample(foreign, n=1)
    assert (foreign / "thesis.txt").read_text() == "mine"


@pytest.mark.parametrize("wrong", [{"n": 0}, {"dirty": 1.5}, {"seed": -1}, {"workers": 0}])
def test_wrong_calls(tmp_path: Path, wrong: dict[str, int]) -> None:
    with pytest.raises(UsageError):
        write_sample(tmp_path / "out", **wrong)
    assert not (tmp_path / "out").exists()
