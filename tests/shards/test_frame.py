from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from make_datasets import write_dataset
from random_complexes import random_complexes

from holoshard.shards.errors import UsageError
from holoshard.shards.read.dataset import open_dataset

pl = pytest.importorskip("polars")


@pytest.fixture(scope="module")
def complexes():
    return [replace(c, extra={"complex/score": np.float32(i)}) for i, c in enumerate(random_complexes(60))]


@pytest.fixture(scope="module")
def dataset(tmp_path_factory, complexes):
    folder = tmp_path_factory.mktemp("frame") / "set"
    write_dataset(folder, complexes)
    return open_dataset(folder, fetch=lambda path, offset, length: pytest.fail("a shard was read"))


def test_select_by_ids_keeps_their_order(dataset):
    assert dataset.select(["c00050", "c00003"]).tolist() == [50, 3]
    assert dataset.select(np.array(["c00007"])).tolist() == [7]
    assert dataset.select([]).tolist() == []


def test_select_by_expression(dataset, complexes):
    rows = dataset.select((pl.col("pk_relation") == "=") & (pl.col("n_atoms") < 60) & (pl.col("score") > 5))
    expected = [i for i, c in enumerate(complexes) if c.affinity.relation == "=" and c.n_atoms < 60 and i > 5]
    assert rows.dtype == np.int64
    assert rows.tolist() == expected != []
    assert dataset.select(pl.col("split") == "test").tolist() == dataset.indices("test").tolist()


def test_select_by_function_and_mask(dataset, complexes):
    rows = dataset.select(lambda c: (c["pk_relation"] == "=") & (c["n_atoms"] < 60))
    expected = [i for i, c in enumerate(complexes) if c.affinity.relation == "=" and c.n_atoms < 60]
    assert rows.tolist() == expected != []
    assert dataset.select(dataset.column("n_atoms") < 60).tolist() == [
        i for i, c in enumerate(complexes) if c.n_atoms < 60
    ]


@pytest.mark.parametrize(
    "which",
    [
        lambda c: c["colour"] == 1,
        lambda c: c["pk"],
        np.ones(3, bool),
        "c00001",
        7,
        pl.col("colour") == 1,
        pl.col("n_atoms") == "x",
    ],
)
def test_what_is_not_a_selection_is_refused(dataset, which):
    with pytest.raises(UsageError, match=r"select|no column"):
        dataset.select(which)


def test_tables_say_words(dataset, complexes):
    for frame in (dataset.to_pandas(), dataset.to_polars()):
        assert list(frame["id"]) == [c.id for c in complexes]
        assert list(frame["pk_kind"]) == [c.affinity.kind for c in complexes]
        assert list(frame["pk_relation"]) == [c.affinity.relation for c in complexes]
        assert list(frame["n_atoms"]) == [c.n_atoms for c in complexes]
        assert list(frame["split"]) == ["train"] * 45 + ["test"] * 15
        assert "centre" not in frame.columns
