"""Exports as records: read back with the libraries of those formats, field by field."""

from __future__ import annotations

import gc
import io
import json
import tarfile
import warnings

import numpy as np
import pytest
from make_datasets import write_dataset
from random_complexes import random_complexes

from holoshard.__main__ import main
from holoshard.shards.errors import UsageError
from holoshard.shards.export.folder import export
from holoshard.shards.export.records import records
from holoshard.shards.read.dataset import open_dataset

ROWS = [3, 0, 39, 21]


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    out = tmp_path_factory.mktemp("export") / "set"
    rng = np.random.default_rng(1)
    complexes = list(random_complexes(38, seed=4))
    single = list(random_complexes(2, seed=5, prefix="s", n_atoms=1))  # no bonds
    for c in (*complexes, *single):
        c.extra["atom/mass"] = rng.random(c.n_atoms).astype(np.float32)
    write_dataset(out, complexes + single)
    return open_dataset(out)


def assert_record(found, text, dataset, row):
    """Arrays and text are those of the complex, in value, shape and dtype."""
    c = dataset[row]
    assert text["id"] == c.id
    assert text["split"] == dataset.column("split")[row]
    assert text["columns"] == c.text["columns"]
    for key in ("position", "element", "name", "bond_atoms", "bond_order", "residue_chain", "b_factor"):
        expected = getattr(c, key)
        assert found[key].dtype == expected.dtype, key
        np.testing.assert_array_equal(found[key], expected, err_msg=key)
    np.testing.assert_array_equal(found["mass"], c.extra["atom/mass"])
    np.testing.assert_array_equal(np.float32(found["pk"]).ravel(), np.float32([c.affinity.pk]))
    np.testing.assert_array_equal(np.ravel(found["centre"]), c.centre)


def test_records_are_every_field(dataset):
    for record, row in zip(records(dataset, ROWS), ROWS, strict=True):
        assert set(record.arrays) == {k for k, f in dataset.manifest.fields.items() if f.axis != "text"}
        assert_record(record.arrays, record.text, dataset, row)


def test_webdataset(dataset, tmp_path):
    assert export(dataset, ROWS, tmp_path / "out", "webdataset") == 4
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["fields.json", "shard-00000.tar"]
    with tarfile.open(tmp_path / "out" / "shard-00000.tar") as tar:  # by the standard library and numpy
        for i, row in enumerate(ROWS):
            arrays = np.load(io.BytesIO(tar.extractfile(f"{i:08d}.npz").read()))
            assert_record(arrays, json.load(tar.extractfile(f"{i:08d}.json")), dataset, row)
    wds = pytest.importorskip("webdataset", reason="webdataset is not installed")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # webdataset leaves its files to the collector
        found = list(wds.WebDataset(str(tmp_path / "out" / "shard-00000.tar"), shardshuffle=False).decode())
        gc.collect()
    assert [f["json"]["id"] for f in found] == [dataset[r].id for r in ROWS]
    assert_record(found[2]["npz"], found[2]["json"], dataset, ROWS[2])


def test_lmdb(dataset, tmp_path, monkeypatch):
    lmdb = pytest.importorskip("lmdb", reason="lmdb is not installed")
    monkeypatch.setattr("holoshard.shards.export.lmdb.FIRST_MAP", 1 << 16)  # it has to grow
    export(dataset, range(40), tmp_path / "out", "lmdb")
    with lmdb.open(str(tmp_path / "out"), readonly=True, lock=False) as store, store.begin() as transaction:
        assert transaction.get(b"__len__") == b"40"
        for row in (0, 25, 39):
            arrays = np.load(io.BytesIO(transaction.get(b"%08d" % row)))
            assert_record(arrays, json.loads(transaction.get(b"%08d.json" % row)), dataset, row)


@pytest.mark.parametrize("reader", ["polars", "pyarrow.parquet"])
def test_parquet(dataset, tmp_path, reader, monkeypatch):
    library = pytest.importorskip(reader, reason=f"{reader} is not installed")
    monkeypatch.setattr("holoshard.shards.export.parquet.FILE_ROWS", 3)
    export(dataset, ROWS, tmp_path / "out", "parquet")
    paths = sorted((tmp_path / "out").glob("*.parquet"))
    assert len(paths) == 2
    table = library.read_parquet(paths) if reader == "polars" else library.read_table(paths)
    rows = table.to_dicts() if reader == "polars" else table.to_pylist()
    dtypes = {k: f.value_dtype for k, f in dataset.manifest.fields.items()}
    shapes = {k: f.shape for k, f in dataset.manifest.fields.items()}
    for found, row in zip(rows, ROWS, strict=True):
        assert found["id"] == dataset[row].id
        assert found["pk_relation"] == dataset[row].affinity.relation
        assert found["pk_kind"] == dataset[row].affinity.kind
        arrays = {
            k: np.array(v, dtypes[k]).reshape(-1, *shapes[k]) for k, v in found.items() if k in dtypes
            and k not in ("pk_relation", "pk_kind")
        }  # fmt: skip
        assert_record(arrays, json.loads(found["json"]), dataset, row)


def test_mds(dataset, tmp_path, monkeypatch):
    monkeypatch.setattr("holoshard.shards.export.mds.SHARD_BYTES", 20_000)
    export(dataset, range(40), tmp_path / "out", "mds")
    index = json.loads((tmp_path / "out" / "index.json").read_text())
    assert sum(s["samples"] for s in index["shards"]) == 40
    assert len(index["shards"]) > 2
    for shard in index["shards"]:
        assert (tmp_path / "out" / shard["raw_data"]["basename"]).stat().st_size == shard["raw_data"]["bytes"]
    samples = [sample for shard in index["shards"] for sample in mds_samples(tmp_path / "out", shard)]
    assert len(samples) == 40
    for row, found in enumerate(samples):
        text = json.loads(found.pop("json"))
        assert_record(mds_arrays(found, dataset), text, dataset, row)


def mds_samples(folder, shard):
    """Each sample's columns, decoded from the published description of MDS alone."""
    data = (folder / shard["raw_data"]["basename"]).read_bytes()
    n = int(np.frombuffer(data, "<u4", 1)[0])
    offsets = np.frombuffer(data, "<u4", n + 1, 4)
    assert n == shard["samples"]
    assert offsets[-1] == len(data)
    assert json.loads(data[4 + 4 * (n + 1) : offsets[0]])["column_names"] == shard["column_names"]
    for start in offsets[:-1].tolist():
        sizes = np.frombuffer(data, "<u4", len(shard["column_names"]), start)
        ends = start + sizes.nbytes + np.cumsum(sizes)
        yield {
            name: mds_value(data[end - size : end], encoding)
            for name, encoding, end, size in zip(
                shard["column_names"], shard["column_encodings"], ends, sizes, strict=True
            )
        }


def mds_value(data, encoding):
    if not encoding.startswith("ndarray:"):
        return data
    dimensions, width = data[0] >> 2, 1 << (data[0] & 3)
    shape = np.frombuffer(data, f"<u{width}", dimensions, 1)
    return np.frombuffer(data, encoding[8:], offset=1 + shape.nbytes).reshape(shape)


def mds_arrays(found, dataset):
    fields = dataset.manifest.fields
    return {
        k: np.frombuffer(v, fields[k].value_dtype).reshape(-1, *fields[k].shape)
        if isinstance(v, bytes)
        else v
        for k, v in found.items()
    }


def test_mds_by_its_own_library(dataset, tmp_path, monkeypatch):
    pytest.importorskip("streaming", reason="mosaicml-streaming is not installed", exc_type=ImportError)
    from streaming.base.format import reader_from_json

    monkeypatch.setattr("holoshard.shards.export.mds.SHARD_BYTES", 20_000)
    export(dataset, range(40), tmp_path / "out", "mds")
    index = json.loads((tmp_path / "out" / "index.json").read_text())
    row = 0
    for shard in index["shards"]:
        reader = reader_from_json(str(tmp_path / "out"), None, shard)
        for i in range(shard["samples"]):
            found = reader[i]
            text = found.pop("json")
            assert_record(mds_arrays(found, dataset), text, dataset, row)
            row += 1


def test_the_command_and_what_it_refuses(dataset, tmp_path, capsys):
    data, out = str(dataset.reader.source.root), tmp_path / "out"
    assert main(["export", data, "--split", "test", "--out", str(out), "--format", "mds"]) == 0
    assert "10 complexes as mds" in capsys.readouterr().out
    told = json.loads((out / "fields.json").read_text())
    assert told["position"]["unit"] == "angstrom"
    assert told["pk_relation"]["words"][1] == "="
    assert main(["export", data, "--out", str(out), "--format", "lmdb"]) == 2  # it exists
    with pytest.raises(UsageError, match="one of: sdf, mds"):
        export(dataset, ROWS, tmp_path / "no", "tfrecord")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out"]  # nothing half-done is left
