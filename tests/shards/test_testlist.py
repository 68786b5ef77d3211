"""Test lists that others use, and what is near them."""

from __future__ import annotations

import numpy as np
import pytest
from families import founder, relative
from test_split import facts, shares, split

from holoshard.shards.errors import UsageError
from holoshard.shards.make.rule import FREE, LEFT_OUT
from holoshard.shards.make.testlist import members, read_list, read_splits

RINGS = ["c1ccccc1C(=O)NCCO", "C1CCNCC1CCCC(=O)O", "c1ccc2[nH]ccc2c1S(=O)(=O)N", "CC(C)(C)OC(=O)NCCOC"]


def test_casf_2016_is_285_codes(shared):
    codes = read_list("casf-2016")
    assert len(codes) == 285
    assert codes == set((shared / "data/lists/casf2016_core_ids.txt").read_text().lower().split())


def test_an_id_is_on_a_list_of_codes_by_its_first_word():
    ids = ["1a30", "1A30", "1a30_ligand", "1a30__1__1.A__1.B", "1a30b", "x1a30", "9zzz"]
    assert members(ids, "casf-2016").tolist() == [True, True, True, True, False, False, False]


def test_a_file_names_ids_whole(tmp_path):
    path = tmp_path / "mine.txt"
    path.write_text("# mine\nAlpha-1  # the first\n\nbeta\n")
    assert members(["alpha-1", "alpha", "BETA", "beta_2"], str(path)).tolist() == [True, False, True, False]
    path.write_text("\n# none\n")
    with pytest.raises(UsageError, match="holds no id"):
        members(["a"], str(path))


def test_the_list_is_the_test_set_and_the_rest_is_divided():
    n = 100
    ids = sorted(
        [f"{code}" for code in sorted(read_list("casf-2016"))[:20]] + [f"x{i:03d}" for i in range(80)]
    )
    found = split(facts(n, ids=ids, columns={}), "random", test_list="casf-2016", fractions=(0.6, 0.2, 0.2))
    listed = np.array([not i.startswith("x") for i in ids])
    assert np.array_equal(found.of == 2, listed)
    assert np.bincount(found.of).tolist() == [60, 20, 20]
    assert found.record["test_list"] == {"name": "casf-2016", "found": 20}


@pytest.fixture(scope="module")
def kin():
    """Complex 0 is the test set; the others have its protein, its ligand, both, a salt of it, or nothing."""
    rng = np.random.default_rng(3)
    mine, other = founder(rng), founder(rng)
    near = relative(rng, mine, 0.85)
    table = [
        ("1a30", mine, RINGS[0]), ("x-both", near, RINGS[0] + "C"), ("x-ligand", other, RINGS[0]),
        ("x-like", other, RINGS[0] + "C"), ("x-none", other, RINGS[2]), ("x-none2", other, RINGS[3]),
        ("x-protein", near, RINGS[1]),
    ]  # fmt: skip
    ids, sequences, smiles = (list(c) for c in zip(*table, strict=True))
    return facts(len(ids), ids=ids, sequences=sequences, smiles=smiles, columns={})


@pytest.mark.parametrize(
    ("near", "gone"),
    [
        ("no", []),
        ("protein", ["x-both", "x-protein"]),
        ("ligand", ["x-both", "x-ligand", "x-like"]),
        ("either", ["x-both", "x-ligand", "x-like", "x-protein"]),
        ("both", ["x-both", "x-ligand"]),  # the same ligand is near whatever the protein
    ],
)
def test_what_is_near_the_test_set_is_left_out(kin, near, gone):
    pytest.importorskip("rdkit")
    found = split(kin, "random", test_list="casf-2016", exclude=near, fractions=(0.5, 0.5, 0.0),
                  cluster_with="built-in")  # fmt: skip
    assert [i for i, s in zip(kin.ids, found.of, strict=True) if s == LEFT_OUT] == gone
    assert found.record.get("excluded", {"n": 0})["n"] == len(gone)
    rest = 6 - len(gone)
    assert sorted(np.bincount(found.of[found.of >= 0], minlength=3).tolist()[:2]) == [
        rest // 2,
        -(-rest // 2),
    ]


def test_any_test_set_can_be_kept_apart(kin):
    pytest.importorskip("rdkit")
    fixed = np.full(7, FREE, np.int8)
    built_in = {"cluster_with": "built-in"}
    found = split(kin, "random", exclude="protein", fractions=(0.5, 0.2, 0.3), seed=1, **built_in)
    test = {kin.sequences[i] for i in np.flatnonzero(found.of == 2)}
    rest = {kin.sequences[i] for i in np.flatnonzero((found.of == 0) | (found.of == 1))}
    assert not test & rest
    # What has its place stays there, and is counted.
    fixed[1] = 0
    found = split(kin, "random", fixed, test_list="casf-2016", exclude="both", **built_in)
    assert found.of[1] == 0
    assert found.record["excluded"] == {
        "near": "both", "by": "protein sequence, built in", "n": 1, "stay": 1,
    }  # fmt: skip


def test_alike_in_protein_and_ligand_stays_together():
    pytest.importorskip("rdkit")
    rng = np.random.default_rng(8)
    proteins = [founder(rng) for _ in range(6)]
    rows = [(relative(rng, p, 0.85), ring + "C" * k) for p in proteins for ring in RINGS for k in (3, 4)]
    sequences, smiles = (list(c) for c in zip(*rows, strict=True))
    some = facts(len(rows), sequences=sequences, smiles=smiles, columns={})
    found = split(some, "protein-ligand", cluster_with="built-in", fractions=(0.5, 0.25, 0.25))
    # A pair differs by one carbon of a chain: alike. The same ligand with another protein: linked, too.
    assert found.record["groups_by"] == "protein sequence, built in, ligand fingerprint"
    groups = found.groups.reshape(6, 4, 2)
    assert (groups[:, :, 0] == groups[:, :, 1]).all()
    assert all(len(set(groups[:, k, 0].tolist())) == 1 for k in range(4))
    assert found.record["n_groups"] == 4
    assert shares(found.of) == pytest.approx([0.5, 0.25, 0.25])


def test_like_ligands_of_other_proteins_may_be_divided():
    pytest.importorskip("rdkit")
    from holoshard.shards.make.fingerprints import fingerprints, tanimoto
    from holoshard.shards.make.groups import pairs_alike

    smiles = [RINGS[0] + "CC", RINGS[0] + "CCOC"]
    (share,) = tanimoto(*fingerprints(smiles[:1]), *fingerprints(smiles[1:]))[0]
    assert 0.6 <= share < 0.9
    assert pairs_alike(["a", "a"], smiles).tolist() == [0, 0]
    assert pairs_alike(["a", "b"], smiles).tolist() == [0, 1]
    assert pairs_alike(["a", "b"], smiles[:1] * 2).tolist() == [0, 0]


def test_new_complexes_follow_their_groups():
    """Old ones stay; of a group in one split the new ones go there; of a group in two they are left out."""
    clusters = ["a"] * 4 + ["b"] * 4 + ["c"] * 4 + ["new"] * 8
    some = facts(20, columns={"cluster": clusters})
    fixed = np.full(20, FREE, np.int8)
    fixed[[0, 1]], fixed[4], fixed[[8, 9]] = 0, 2, [0, 2]
    found = split(some, "cluster", fixed, fractions=(0.5, 0.0, 0.5))
    assert found.of[:4].tolist() == [0] * 4
    assert found.of[4:8].tolist() == [2] * 4
    assert found.of[8:12].tolist() == [0, 2, LEFT_OUT, LEFT_OUT]
    assert len(set(found.of[12:].tolist())) == 1
    assert found.record["between_splits"] == 2


def test_the_command_keeps_casf_apart_and_append_goes_on_so(tmp_path, capsys):
    pytest.importorskip("rdkit")
    from random_complexes import random_complex

    from holoshard.__main__ import main
    from holoshard.shards.make.writer import write_part
    from holoshard.shards.read.dataset import open_dataset

    rng = np.random.default_rng(0)
    proteins = [founder(rng, 150) for _ in range(8)]

    def part(name, rows):
        write_part(tmp_path / name, [
            random_complex(rng, i, n_atoms=20, sequences={"A": proteins[p]}, smiles=RINGS[r], columns={})
            for i, p, r in rows
        ])  # fmt: skip

    # 1a30 is on the list; t1 has its protein and ligand, t2 its protein alone.
    part(
        "a.h5", [("1a30", 0, 0), ("t1", 0, 0), ("t2", 0, 1), *((f"u{k}", k, 1 + k % 3) for k in range(1, 8))]
    )
    call = ["shard", str(tmp_path / "a.h5"), "--out", str(tmp_path / "set"), "--split", "cluster",
            "--cluster-with", "built-in", "--test-list", "casf-2016", "--exclude-neighbours", "both",
            "--fractions", "0.7", "0.3", "0"]  # fmt: skip
    assert main(call) == 0
    text = capsys.readouterr().out
    assert "in no split: 1 (1 near the test set)" in text
    assert "test list casf-2016: 1 found here" in text
    dataset = open_dataset(tmp_path / "set")
    assert dataset.splits["test"] == 1
    assert "t1" not in dataset.ids()
    # 1bcu is on the list, too; v1 is near 1a30, v2 near 1bcu.
    part("b.h5", [("1bcu", 3, 0), ("v1", 0, 0), ("v2", 3, 0), ("v3", 2, 1)])
    assert main(["append", str(tmp_path / "set"), str(tmp_path / "b.h5")]) == 0
    dataset = open_dataset(tmp_path / "set")
    assert {dataset[int(i)].id for i in dataset.indices("test")} == {"1a30", "1bcu"}
    assert not {"v1", "v2"} & set(dataset.ids())
    assert "v3" in dataset.ids()


@pytest.mark.parametrize(("text", "said"), [
    ("id,split\na,train\nb\n", "line 3 has another number of fields than the 2 of the header"),
    ("id,split\na,train,x\n", "line 2 has another number of fields"),
    ("id\tsplit\n\nb\n", "line 3 has another number of fields"),
    ("id,split\na," + "x" * 300_000 + "\n", "line 2 is no row of a table: field larger"),
    ("id,split," + "x" * 300_000 + "\n", "line 1 is no row of a table: field larger"),
])  # fmt: skip
def test_a_broken_row_of_a_split_file_is_named(tmp_path, text, said):
    path = tmp_path / "folds.csv"
    path.write_text(text)
    with pytest.raises(UsageError) as caught:
        read_splits(path)
    assert said in str(caught.value)
    assert str(path) in str(caught.value)
    path.write_text("id,split,more\na,train,\n\nb,test,x\nc,,\n")
    assert read_splits(path) == {"a": "train", "b": "test", "c": ""}
