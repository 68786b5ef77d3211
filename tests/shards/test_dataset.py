from __future__ import annotations

import json
import multiprocessing
import os
import pickle
import sys
from concurrent.futures import ThreadPoolExecutor

import h5py
import numpy as np
import pytest
from make_datasets import write_dataset
from random_complexes import assert_same, random_complexes

from holoshard import open_dataset
from holoshard.shards.errors import FormatError, MissingExtraError, UsageError
from holoshard.shards.make.writer import write_part
from holoshard.shards.read import source as source_module


@pytest.fixture(scope="module")
def complexes():
    return list(random_complexes(90))


@pytest.fixture(scope="module", params=["hdf5", "zarr"])
def folder(request, tmp_path_factory, complexes):
    out = tmp_path_factory.mktemp(request.param) / "set"
    write_dataset(out, complexes, container=request.param)
    return out


@pytest.fixture
def dataset(folder):
    return open_dataset(folder)


def test_complexes_by_number(dataset, complexes):
    assert len(dataset) == 90
    for i in (0, 15, 16, 66, 67, 89, -1, -90, np.int64(3)):
        assert_same(dataset[i], complexes[i])
    for i in (90, -91):
        with pytest.raises(IndexError, match=f"row {i} of a data set of 90 complexes"):
            dataset[i]
    with pytest.raises(TypeError):
        dataset["c00000"]


def test_slices(dataset, complexes):
    assert [c.id for c in dataset[10:60:7]] == [c.id for c in complexes[10:60:7]]
    assert [c.id for c in dataset[::-30]] == [c.id for c in complexes[::-30]]
    assert dataset[95:] == []


@pytest.mark.parametrize("as_rows", [list, tuple, np.array])
def test_several_rows_at_once(dataset, complexes, as_rows):
    wanted = [70, 3, -1, 3, 15, 69]
    reads = []
    read = dataset.reader.read
    dataset.reader.read = lambda block, *rest, **options: reads.append(block) or read(block, *rest, **options)
    dataset._cache.max_bytes = 1
    found = dataset[as_rows(wanted)]
    for c, i in zip(found, wanted, strict=True):
        assert_same(c, complexes[i])
    assert len(reads) == len(set(reads)) < len(wanted)
    assert dataset[[]] == []
    with pytest.raises(IndexError, match="row 90"):
        dataset[as_rows([0, 90])]
    for wrong in ([0.5], ["c00000"], np.ones(90, bool)):
        with pytest.raises(TypeError, match="indexed by rows or a slice"):
            dataset[wrong]


def test_a_complex_is_its_own_memory(dataset, complexes):
    first = dataset[0]
    assert all(a.base is None for a in (first.position, first.element, first.bond_atoms, first.centre))
    first.position[:] = 7
    assert_same(dataset[0], complexes[0])


def test_ids_columns_and_splits_without_reading_a_shard(folder, complexes):
    dataset = open_dataset(folder, fetch=lambda path, offset, length: pytest.fail(f"{path} was read"))
    assert dataset.ids() == [c.id for c in complexes]
    assert dataset.splits == {"train": 67, "test": 23}
    np.testing.assert_array_equal(dataset.column("n_atoms"), [c.n_atoms for c in complexes])
    np.testing.assert_array_equal(dataset.column("n_bonds"), [len(c.bond_order) for c in complexes])
    np.testing.assert_array_equal(dataset.column("n_residues"), [len(c.residue_type) for c in complexes])
    np.testing.assert_array_equal(
        dataset.column("pk"), np.array([c.affinity.pk for c in complexes], np.float32)
    )
    np.testing.assert_array_equal(dataset.column("n_ligand_atoms"), [c.n_ligand_atoms for c in complexes])
    assert dataset.column("split").tolist() == ["train"] * 67 + ["test"] * 23
    assert dataset.indices("test").tolist() == list(range(67, 90))
    assert dataset.indices().tolist() == list(range(90))
    assert dataset.select(["c00080", "c00003"]).tolist() == [80, 3]


def test_place_columns_agree_with_the_index_and_the_reader(dataset):
    index = dataset.reader.source.index
    for name in ("shard", "block", "row"):
        np.testing.assert_array_equal(dataset.column(name), index(name), err_msg=name)
    names = list(dataset.splits)
    assert [names[i] for i in index("split")] == dataset.column("split").tolist()
    for i in range(len(dataset)):
        assert dataset.reader.locate(i) == (dataset.column("block")[i], dataset.column("row")[i])


def test_fields_of_several_numbers_come_from_the_shards(dataset, complexes):
    np.testing.assert_array_equal(dataset.column("centre"), [c.centre for c in complexes])


def test_unknown_names_say_what_there_is(dataset):
    with pytest.raises(UsageError, match="no split 'dev' in this data set; it has: train, test"):
        dataset.indices("dev")
    with pytest.raises(UsageError, match=r"no column 'position'; there are: n_atoms, .* pk"):
        dataset.column("position")
    with pytest.raises(UsageError, match="1 of 2 ids are not in this data set, such as 'x'"):
        dataset.select(["c00001", "x"])


def test_a_shard_alone_is_a_data_set(folder, complexes):
    suffix = ".h5" if (folder / "train-00000.h5").exists() else ".zarr"
    alone = open_dataset(folder / f"test-00000{suffix}")
    assert alone.splits == {"all": len(alone)}
    assert alone.ids() == [c.id for c in complexes[67 : 67 + len(alone)]]
    np.testing.assert_array_equal(
        alone.column("n_atoms"), [c.n_atoms for c in complexes[67 : 67 + len(alone)]]
    )
    np.testing.assert_array_equal(
        alone.column("pk"), np.array([c.affinity.pk for c in complexes[67 : 67 + len(alone)]], "f4")
    )
    assert alone.column("id")[0] == complexes[67].id.encode()
    assert_same(alone[0], complexes[67])


def test_opening_reads_the_manifest_only(folder, monkeypatch):
    def fail(*arguments):
        pytest.fail("opening must not read the index or a shard")

    monkeypatch.setattr(source_module.Source, "index", fail)
    monkeypatch.setattr(source_module.Source, "_read_places", fail)
    dataset = open_dataset(folder)
    assert len(dataset) == 90
    assert dataset.indices("train").sum() == 67 * 66 // 2
    assert len(dataset.reader.first_complex) == dataset.reader.n_blocks


def test_a_few_blocks_stay_decoded(folder):
    fetched = []

    def fetch(path, offset, length):
        fetched.append(path)
        with open(path, "rb") as file:
            file.seek(offset)
            return file.read(length)

    dataset = open_dataset(folder, fetch=fetch)
    dataset[0]
    once = len(fetched)
    for i in (1, 2, 15, 0):
        dataset[i]
    assert len(fetched) == once
    dataset[16]
    assert len(fetched) > once


def test_the_cache_keeps_to_its_size(dataset):
    cache = dataset._cache
    cache.max_bytes = 1
    list(map(dataset.__getitem__, range(0, 90, 16)))
    assert len(cache._blocks) == 1
    assert cache._n_bytes == sum(a.nbytes for b in cache._blocks.values() for a in b.columns.values())


def total(dataset):
    return sum(dataset[i].n_atoms for i in range(0, 90, 11))


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_safe_in_processes(dataset, method):
    expected = total(dataset)
    with multiprocessing.get_context(method).Pool(2) as pool:
        assert pool.map(total, [dataset] * 4) == [expected] * 4


def test_safe_in_threads(dataset):
    expected = total(dataset)
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(total, [dataset] * 16)) == [expected] * 16


def test_a_pickle_is_small(dataset):
    total(dataset)
    assert len(pickle.dumps(dataset)) < len(dataset.manifest.to_json()) + 50_000


def test_it_reads_from_a_read_only_folder(tmp_path, complexes):
    write_dataset(tmp_path / "set", complexes[:20])
    for path in (tmp_path / "set").iterdir():
        path.chmod(0o444)
    (tmp_path / "set").chmod(0o555)
    try:
        before = sorted(os.listdir(tmp_path / "set"))
        assert len(list(open_dataset(tmp_path / "set"))) == 20
        assert sorted(os.listdir(tmp_path / "set")) == before
    finally:
        (tmp_path / "set").chmod(0o755)


def test_what_is_not_there_says_so(tmp_path):
    with pytest.raises(UsageError, match="does not exist"):
        open_dataset(tmp_path / "nothing")
    with pytest.raises(FormatError, match=r"has no manifest\.json"):
        open_dataset(tmp_path)


def test_a_missing_or_short_shard_is_found_when_opening(tmp_path, complexes):
    write_dataset(tmp_path / "set", complexes)
    shard = tmp_path / "set" / "train-00001.h5"
    data = shard.read_bytes()
    shard.write_bytes(data[:-1])
    with pytest.raises(
        FormatError, match=rf"train-00001.h5 has {len(data) - 1} bytes, the manifest says {len(data)}"
    ):
        open_dataset(tmp_path / "set")
    shard.unlink()
    with pytest.raises(FormatError, match=r"train-00001.h5 is missing"):
        open_dataset(tmp_path / "set")


def test_stream_sees_every_complex(folder, complexes):
    dataset = open_dataset(folder)
    seen = np.concatenate([b.index for b in dataset.stream("test", batch_size=5, drop_last=False, threads=0)])
    assert sorted(seen.tolist()) == list(range(67, 90))
    batch = next(iter(dataset.stream(None, batch_size=4, fields=["position"], threads=0, shuffle=False)))
    first = complexes[int(batch.index[0])]
    np.testing.assert_array_equal(batch["position"][0, : first.n_atoms], first.position)


def test_words_of_a_newer_vocabulary_are_refused_by_name(tmp_path, complexes):
    from holoshard.shards.format.block import Block
    from holoshard.shards.format.records import complex_at, stack

    block = stack(complexes[:1])
    newer = Block.of(block.fields, {**block.columns, "pk_kind": np.array([99], np.uint8)}, block.counts)
    write_part(tmp_path / "part.h5", complexes[:1])
    with pytest.raises(FormatError, match="pk_kind is 99, known are 0 to"):
        complex_at(newer, 0)


@pytest.mark.parametrize("words", [None, ["unknown", "double"], ["unknown", 1], {"unknown": 0}])
def test_a_shard_with_other_words_is_refused(tmp_path, complexes, words):
    """A word that means something else would be read wrongly without a sign."""
    write_part(tmp_path / "part.h5", complexes[:3])
    with h5py.File(tmp_path / "part.h5", "r+", locking=False) as file:
        header = json.loads(file.attrs["header"])
        header["vocabularies"]["bond_order"] = words
        file.attrs["header"] = json.dumps(header)
    with pytest.raises(FormatError, match="its words for bond_order are"):
        open_dataset(tmp_path / "part.h5")


def test_wrong_calls_say_what_to_do(folder):
    dataset = open_dataset(folder)
    with pytest.raises(TypeError, match=r"not 'c0001'; dataset.select\(\[id\]\) gives the rows of ids"):
        dataset["c0001"]
    for memory in (None, 1 << 30):
        with pytest.raises(UsageError, match=r"no field 'colour'; there are: .*position.*atom_residue_type"):
            dataset.stream(fields=["pk", "colour"], memory=memory)
    with pytest.raises(UsageError, match="a list of names, not the text 'pk'"):
        dataset.stream(fields="pk")
    with pytest.raises(UsageError, match=r"no column 'trust'; .*holoshard shard --number trust"):
        dataset.stream(weights="trust")
    with pytest.raises(UsageError, match=r"'id' is not one number a complex; .*--number"):
        dataset.stream(weights="id")
    assert dataset.stream(fields=["atom_residue_type"], weights="n_atoms").weights is not None


def test_a_batch_is_a_dictionary_of_its_columns(folder):
    batch = next(iter(open_dataset(folder).stream(batch_size=4, fields=["pk", "element"], threads=0)))
    found = dict(batch)
    assert set(found) == set(batch.keys()) == {"pk", "element", "atom_mask", "ligand_mask"}
    assert all(found[key] is array is batch[key] for key, array in batch.items())


def test_tensors_without_torch_name_the_extra(folder, monkeypatch):
    batch = next(iter(open_dataset(folder).stream(batch_size=4, fields=["pk"], threads=0)))
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtraError, match=r"'torch'.*holoshard\[train\]"):
        batch.torch()
