"""The user's own columns, from the label table and from code, to batches."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from random_complexes import random_complexes

from holoshard.shards.errors import UsageError
from holoshard.shards.make.append import append
from holoshard.shards.make.pack import pack
from holoshard.shards.make.repair import repair
from holoshard.shards.make.rule import Rule
from holoshard.shards.make.verify import verify
from holoshard.shards.make.writer import write_part
from holoshard.shards.read.dataset import open_dataset


def weighted(complexes, start=0):
    """Complex i has the weight i / 4, every fifth none."""
    for i, c in enumerate(complexes, start):
        columns = {"weight": "" if i % 5 == 0 else f" {i / 4} ", "note": "high"}
        yield replace(c, text={**c.text, "columns": columns})


@pytest.fixture
def data(tmp_path):
    write_part(tmp_path / "a.h5", weighted(random_complexes(40)))
    write_part(tmp_path / "b.h5", weighted(random_complexes(20, seed=2, prefix="d"), 40))
    pack([tmp_path / "a.h5"], tmp_path / "set", rule=Rule(seed=1), numbers=["weight"], memory=1 << 17)
    append(tmp_path / "set", [tmp_path / "b.h5"])
    return tmp_path / "set"


def expected(id_):
    i = int(id_[1:]) + (40 if id_[0] == "d" else 0)
    return np.float32("nan") if i % 5 == 0 else np.float32(i / 4)


def test_a_column_of_the_table_is_a_number_of_each_complex(data):
    dataset = open_dataset(data)
    np.testing.assert_array_equal(dataset.column("weight"), [expected(i) for i in dataset.ids()])
    np.testing.assert_array_equal(dataset[7].extra["complex/weight"], expected(dataset[7].id))
    assert dataset.manifest.making["numbers"] == ["weight"]
    assert verify(data).ok


def test_damage_is_mended_from_the_parts(data):
    before = {p.name: p.read_bytes() for p in data.iterdir()}
    for name in ("train-00000.h5", "train-00001.h5"):  # of the first generation, and of the second
        damaged = bytearray(before[name])
        damaged[int(open_dataset(data / name).reader.table[0]["offset"]) + 9] ^= 1
        (data / name).write_bytes(damaged)
    assert repair(data, [data.parent / "a.h5", data.parent / "b.h5"]).n_blocks == 2
    assert {p.name: p.read_bytes() for p in data.iterdir()} == before


def test_it_comes_with_batches(data):
    dataset = open_dataset(data)
    found = [
        v
        for b in dataset.stream("train", 8, fields=["weight"], drop_last=False)
        for v in b["weight"].tolist()
    ]
    wanted = [float(expected(dataset.ids()[i])) for i in dataset.indices("train")]
    np.testing.assert_array_equal(np.sort(found), np.sort(wanted))


def test_columns_of_atoms_come_with_batches(tmp_path):
    complexes = [
        replace(
            c, extra={"atom/burial": np.arange(c.n_atoms, dtype=np.float32) / 8, "complex/fold": np.int32(i)}
        )
        for i, c in enumerate(random_complexes(24))
    ]
    write_part(tmp_path / "a.h5", complexes)
    pack([tmp_path / "a.h5"], tmp_path / "set")
    for batch in open_dataset(tmp_path / "set").stream("train", 4, fields=["position", "burial", "fold"]):
        for row, fold in enumerate(batch["fold"].tolist()):
            n = complexes[fold].n_atoms
            np.testing.assert_array_equal(batch["burial"][row, :n], np.arange(n, dtype=np.float32) / 8)
            assert batch["atom_mask"][row].sum() == n


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("note", "'high' of 'c00000' is not a number"),
        ("mass", "no complex has this column; the columns are note, weight"),
        ("pk", "no field's own name"),
        ("my-score", "letters, digits and underscores"),
    ],
)
def test_what_is_no_number_is_refused(tmp_path, name, message):
    write_part(tmp_path / "a.h5", weighted(random_complexes(10)))
    with pytest.raises(UsageError, match=message):
        pack([tmp_path / "a.h5"], tmp_path / "set", numbers=[name])
    assert not (tmp_path / "set").exists()
