from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import time
from dataclasses import replace

import numpy as np
import pytest
from make_datasets import write_dataset
from random_complexes import assert_same, random_complex, random_complexes

from holoshard.shards.complex import NO_AFFINITY, Affinity, Flag
from holoshard.shards.errors import FormatError, NothingKeptError
from holoshard.shards.format.block import concatenate
from holoshard.shards.format.records import stack
from holoshard.shards.make.files import file_sha256
from holoshard.shards.make.verify import verify
from holoshard.shards.make.writer import DatasetWriter, recut, write_part
from holoshard.shards.read.dataset import open_dataset


@pytest.mark.parametrize("n", [1, 15, 16, 17, 100])
def test_a_part_comes_back(tmp_path, n):
    complexes = list(random_complexes(n))
    info = write_part(tmp_path / "part.h5", complexes, block_size=16)
    dataset = open_dataset(tmp_path / "part.h5")
    assert info.n_complexes == len(dataset) == n
    assert info.n_bytes == (tmp_path / "part.h5").stat().st_size
    assert info.sha256 == file_sha256(tmp_path / "part.h5")
    for found, expected in zip(dataset, complexes, strict=True):
        assert_same(found, expected)
    assert [p.name for p in tmp_path.iterdir()] == ["part.h5"]


def test_an_empty_part_is_a_part(tmp_path):
    write_part(tmp_path / "part.h5", [])
    dataset = open_dataset(tmp_path / "part.h5")
    assert len(dataset) == 0
    assert dataset.ids() == []
    assert list(dataset) == []


def test_the_same_complexes_give_the_same_bytes(tmp_path):
    complexes = list(random_complexes(40))
    first = write_part(tmp_path / "a.h5", complexes, block_size=16)
    time.sleep(1.1)  # a date in the file would have another second
    second = write_part(tmp_path / "b.h5", iter(complexes), block_size=16)
    assert (tmp_path / "a.h5").read_bytes() == (tmp_path / "b.h5").read_bytes()
    assert first.sha256 == second.sha256


@pytest.mark.parametrize("container", ["hdf5", "zarr"])
def test_a_data_set_comes_back(tmp_path, container):
    complexes = list(random_complexes(90))
    manifest = write_dataset(tmp_path / "set", complexes, container=container, making={"seed": 3})
    assert manifest.splits == {"train": 67, "test": 23}
    assert len(manifest.shards) > 2
    assert manifest.making == {"seed": 3}
    dataset = open_dataset(tmp_path / "set")
    for found, expected in zip(dataset, complexes, strict=True):
        assert_same(found, expected)
    assert os.listdir(tmp_path) == ["set"]


def test_block_sizes_of_the_input_do_not_matter(tmp_path):
    complexes = list(random_complexes(50))
    for name, step in (("a", 50), ("b", 7)):
        with DatasetWriter(tmp_path / name, block_size=16) as writer:
            writer.write("train", (stack(complexes[i : i + step]) for i in range(0, 50, step)))
            writer.finish()
    files = sorted(p.name for p in (tmp_path / "a").iterdir())
    assert files == sorted(p.name for p in (tmp_path / "b").iterdir())
    for name in files:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes(), name


def test_recut_keeps_every_complex_in_order():
    complexes = list(random_complexes(61))
    blocks = [stack(complexes[i : i + 9]) for i in range(0, 61, 9)]
    cut = list(recut(blocks, 16))
    assert [b.n_complexes for b in cut] == [16, 16, 16, 13]
    whole, again = concatenate(blocks), concatenate(cut)
    for key, column in whole.columns.items():
        np.testing.assert_array_equal(again.columns[key], column)


def test_a_wide_complex_that_comes_late_widens_the_shard(tmp_path):
    complexes = list(random_complexes(40))
    far = complexes[-1].position.copy()
    far[0] = (40.0, -1234.567, 0.001)
    complexes[-1] = replace(complexes[-1], position=far, flags=Flag.SYNTHETIC | Flag.OUT_OF_RANGE)
    write_part(tmp_path / "part.h5", complexes, block_size=16)
    dataset = open_dataset(tmp_path / "part.h5")
    assert dataset.manifest.fields["position"].dtype == "<i4"
    for found, expected in zip(dataset, complexes, strict=True):
        assert_same(found, expected)


def test_out_of_range_is_flagged_by_the_writer(tmp_path):
    inside, outside = random_complexes(2)
    inside = replace(inside, flags=Flag.SYNTHETIC | Flag.OUT_OF_RANGE)
    outside = replace(outside, position=outside.position + np.float32(32.001))
    write_part(tmp_path / "part.h5", [inside, outside])
    flags = open_dataset(tmp_path / "part.h5").column("flags").tolist()
    assert [bool(f & Flag.OUT_OF_RANGE) for f in flags] == [False, True]


def test_own_columns_come_back(tmp_path):
    rng = np.random.default_rng(0)
    complexes = []
    for i in range(40):
        plain = random_complex(rng, f"c{i}")
        own = {
            "atom/partial_charge": rng.normal(size=plain.n_atoms).astype(np.float32),
            "complex/docking_score": np.float64(rng.normal()),
            "complex/descriptor": rng.integers(0, 9, 5),
            "residue/buried": rng.random(len(plain.residue_type)) < 0.5,
        }
        complexes.append(replace(plain, extra=own))
    write_dataset(tmp_path / "set", complexes)
    dataset = open_dataset(tmp_path / "set")
    for found, expected in zip(dataset, complexes, strict=True):
        assert_same(found, expected)
    np.testing.assert_array_equal(
        dataset.column("docking_score"), [c.extra["complex/docking_score"] for c in complexes]
    )
    assert dataset.column("descriptor").shape == (40, 5)
    assert dataset.reader.read(0, ["partial_charge"]).columns["partial_charge"].dtype == np.float32


def test_an_own_column_that_some_lack_is_blank_there(tmp_path):
    complexes = list(random_complexes(40))
    complexes[35] = replace(
        complexes[35],
        extra={"complex/score": np.float32(7), "atom/mark": np.ones(complexes[35].n_atoms, np.int16)},
    )
    write_part(tmp_path / "part.h5", complexes, block_size=16)
    dataset = open_dataset(tmp_path / "part.h5")
    score = dataset.column("score")
    assert score[35] == 7
    assert np.isnan(np.delete(score, 35)).all()
    assert dataset[0].extra["atom/mark"].tolist() == [0] * dataset[0].n_atoms
    assert dataset[35].extra["atom/mark"].tolist() == [1] * dataset[35].n_atoms


def broken(name):
    c = next(random_complexes(1))
    n = c.n_atoms
    bonds = np.array([[0, 1]], np.uint16)
    bond = {"bond_order": np.ones(1, np.uint8), "bond_conjugated": np.zeros(1, np.uint8),
            "bond_ring": np.zeros(1, np.uint8), "bond_stereo": np.zeros(1, np.uint8)}  # fmt: skip
    return {
        "short element": replace(c, element=c.element[:-1]),
        "short charge": replace(c, charge=c.charge[:-1]),
        "flat position": replace(c, position=c.position[:, :2]),
        "nan position": replace(c, position=np.full((n, 3), np.nan, np.float32)),
        "float element": replace(c, element=c.element.astype(np.float32)),
        "large charge": replace(c, charge=np.full(n, 300, np.int32)),
        "no ligand": replace(c, n_ligand_atoms=0),
        "too much ligand": replace(c, n_ligand_atoms=n + 1),
        "lost residue": replace(c, residue=np.full(n, len(c.residue_type), np.uint16)),
        "lost bond": replace(c, bond_atoms=bonds + np.uint16(n - 1), **bond),
        "bond to itself": replace(c, bond_atoms=np.zeros((1, 2), np.uint16), **bond),
        "unknown word": replace(c, hybridisation=np.full(n, 200, np.uint8)),
        "unknown kind": replace(c, affinity=Affinity(5.0, "=", "Km")),
        "bound without value": replace(c, affinity=replace(NO_AFFINITY, relation="<")),
        "infinite pk": replace(c, affinity=Affinity(np.inf)),
        "no id": replace(c, text={}),
        "number as id": replace(c, text={"id": 7}),
        "empty id": replace(c, text={"id": ""}),
        "id with a line break": replace(c, text={"id": "a\nb"}),
        "unknown text": replace(c, text={"id": "a", "note": "x"}),
        "text that is not JSON": replace(c, text={"id": "a", "columns": {1, 2}}),
        "own column without axis": replace(c, extra={"score": np.float32(1)}),
        "own column of text": replace(c, extra={"complex/note": np.array("a")}),
        "own column of objects": replace(c, extra={"complex/note": np.array([None])}),
        "own column with a taken name": replace(c, extra={"atom/element": c.element}),
        "own column of another length": replace(c, extra={"atom/mark": np.ones(n + 1)}),
    }[name]  # fmt: skip


@pytest.mark.parametrize("name", [
    "short element", "short charge", "flat position", "nan position", "float element", "large charge",
    "no ligand",
    "too much ligand", "lost residue", "lost bond", "bond to itself", "unknown word", "unknown kind",
    "bound without value", "infinite pk", "no id", "number as id", "empty id", "id with a line break",
    "unknown text", "text that is not JSON", "own column without axis", "own column of text",
    "own column of objects", "own column with a taken name", "own column of another length",
])  # fmt: skip
def test_a_broken_complex_is_refused(tmp_path, name):
    with pytest.raises(FormatError):
        write_part(tmp_path / "part.h5", [broken(name)])
    assert not list(tmp_path.iterdir())


def test_an_id_that_comes_twice_is_refused(tmp_path):
    one = next(random_complexes(1))
    with pytest.raises(FormatError, match="'c00000' comes twice"):
        write_part(tmp_path / "part.h5", [one, one])
    with DatasetWriter(tmp_path / "set") as writer:
        writer.write("train", [stack([one, one])])
        with pytest.raises(FormatError, match="'c00000' comes twice"):
            writer.finish()
    assert not list(tmp_path.iterdir())


def test_what_is_not_finished_leaves_nothing(tmp_path):
    def failing():
        yield stack(list(random_complexes(20)))
        raise RuntimeError("the source broke")

    with (
        pytest.raises(RuntimeError, match="the source broke"),
        DatasetWriter(tmp_path / "set", block_size=4) as writer,
    ):
        writer.write("train", failing())
    assert not list(tmp_path.iterdir())


def test_a_data_set_without_complexes_is_refused(tmp_path):
    with DatasetWriter(tmp_path / "set") as writer:
        writer.write("train", [])
        with pytest.raises(NothingKeptError, match="at least one complex"):
            writer.finish()


def test_files_are_written_where_hdf5_has_no_blosc_filter(tmp_path):
    """The base install has no hdf5plugin; the filter must still be declared for those who have it."""
    code = textwrap.dedent(
        """
        import sys
        sys.path.insert(0, sys.argv[2])
        sys.modules["hdf5plugin"] = None
        from pathlib import Path
        import h5py
        from random_complexes import random_complexes
        from holoshard.shards.make.writer import write_part
        write_part(Path(sys.argv[1]), random_complexes(9))
        assert not h5py.h5z.filter_avail(32001)
        """
    )
    subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "part.h5"), os.path.dirname(__file__)], check=True
    )
    import h5py
    import hdf5plugin  # noqa: F401

    with h5py.File(tmp_path / "part.h5") as file:
        assert file["complex/n_ligand_atoms"][0] == next(random_complexes(1)).n_ligand_atoms
    # HDF5 puts the name of a filter that it knows into the file: it may not matter who knows it.
    write_part(tmp_path / "here.h5", random_complexes(9))
    assert (tmp_path / "here.h5").read_bytes() == (tmp_path / "part.h5").read_bytes()


def test_settings_of_others_do_not_change_the_bytes(tmp_path):
    import h5py
    from numcodecs import blosc

    write_part(tmp_path / "a.h5", random_complexes(9))
    settings, threads = h5py.get_config(), blosc.use_threads
    try:
        settings.track_order, blosc.use_threads = True, True
        write_part(tmp_path / "b.h5", random_complexes(9))
    finally:
        settings.track_order, blosc.use_threads = False, threads
    assert (tmp_path / "a.h5").read_bytes() == (tmp_path / "b.h5").read_bytes()


def test_a_full_disk_is_one_line_and_leaves_nothing(tmp_path):
    """A limit on the size of files stands in for the disk."""
    code = textwrap.dedent(
        """
        import resource, signal, sys
        sys.path.insert(0, sys.argv[2])
        from pathlib import Path
        from random_complexes import random_complexes
        from holoshard.shards.errors import WriteError
        from holoshard.shards.make.writer import write_part
        complexes = list(random_complexes(60))
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        for size in (1000, 20_000, 60_000):
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
            try:
                write_part(Path(sys.argv[1]) / "part.h5", complexes)
            except WriteError as error:
                print(error)
        """
    )
    arguments = [sys.executable, "-c", code, str(tmp_path), os.path.dirname(__file__)]
    done = subprocess.run(arguments, capture_output=True, text=True, check=True)
    assert len(done.stdout.splitlines()) == 3, done.stderr
    assert all(line.endswith("cannot be written: File too large") for line in done.stdout.splitlines())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("container", ["hdf5", "zarr"])
def test_a_data_set_is_extended_without_rewriting(tmp_path, container):
    complexes = list(random_complexes(60))
    own = [
        replace(c, extra={"complex/score": np.float32(1)}) for c in random_complexes(50, seed=1, prefix="d")
    ]
    out = tmp_path / "a"
    old = write_dataset(out, complexes, container=container, making={"seed": 3})
    files = {p: (p.stat().st_ino, p.stat().st_mtime_ns) for p in out.rglob("*") if p.is_file()}
    before = {p: p.read_bytes() for p in files}
    with DatasetWriter(out, extend=True, making={"added": 50}) as writer:
        writer.write("train", [stack(own[:30])])
        writer.write("valid", [stack(own[30:])])
        manifest = writer.finish()
    assert manifest.shards[: len(old.shards)] == old.shards
    assert manifest.making == {"seed": 3, "added": 50}
    assert manifest.splits == {"train": 75, "test": 15, "valid": 20}
    for path, data in before.items():
        if path.name == "manifest.json":
            assert (out / "manifest.1.json").read_bytes() == data
        else:
            assert (path.stat().st_ino, path.stat().st_mtime_ns) == files[path]
            assert path.read_bytes() == data
    assert (manifest.generation, manifest.parent, manifest.index_name) == (2, old.fingerprint, "index-2.h5")
    dataset = open_dataset(out)
    found = {c.id: c for c in dataset}
    for c in complexes:
        assert np.isnan(found[c.id].extra["complex/score"])
        assert_same(replace(found[c.id], extra={}), c)
    for c in own:
        assert_same(found[c.id], c)
    assert dataset.ids() == [c.id for c in (*complexes, *own)]
    assert dataset.indices("train").tolist() == [*range(45), *range(60, 90)]
    assert np.isnan(dataset.column("score")[:60]).all()
    assert verify(out).ok


def test_extending_by_an_id_that_is_there_is_refused(tmp_path):
    complexes = list(random_complexes(20))
    write_dataset(tmp_path / "set", complexes)
    with DatasetWriter(tmp_path / "set", extend=True) as writer:
        writer.write("train", [stack(complexes[3:4])])
        with pytest.raises(FormatError, match="'c00003' comes twice"):
            writer.finish()
    assert len(open_dataset(tmp_path / "set")) == 20


def test_threads_do_not_change_the_bytes(tmp_path):
    complexes = list(random_complexes(50))
    for threads in (1, 3):
        write_dataset(tmp_path / str(threads), complexes, threads=threads)
    for path in (tmp_path / "1").iterdir():
        assert path.read_bytes() == (tmp_path / "3" / path.name).read_bytes()


def test_statistics_of_coordinates_are_those_of_the_data(tmp_path):
    complexes = list(random_complexes(70))
    far = np.array([[40.0, -3.0, 0.5]], np.float32)
    complexes[3] = replace(complexes[3], position=np.concatenate([far, complexes[3].position[1:]]))
    whole = write_dataset(tmp_path / "whole", complexes)
    dataset = open_dataset(tmp_path / "whole")
    for split in ("train", "test"):
        xyz = np.concatenate([dataset[i].position for i in dataset.indices(split)]).astype(np.float64)
        found = whole.statistics[split]["position"]
        assert found["n"] == len(xyz)
        np.testing.assert_allclose(found["mean"], xyz.mean(axis=0), atol=2e-6)
        np.testing.assert_allclose(found["std"], xyz.std(axis=0), atol=2e-6)
        np.testing.assert_allclose(found["max"], np.abs(xyz).max(axis=0), atol=2e-6)
    beyond = np.flatnonzero(dataset.column("flags") & Flag.OUT_OF_RANGE)
    assert [dataset[i].id for i in beyond.tolist()] == [complexes[3].id]
    assert whole.statistics["train"]["position"]["max"][0] == 40.0 > whole.position_scale
    half = [[c for c in complexes if (c.id in dataset.ids()[:20]) == first] for first in (True, False)]
    with DatasetWriter(tmp_path / "a") as writer:
        writer.write("train", [stack(half[0])])
        writer.finish()
    with DatasetWriter(tmp_path / "a", extend=True) as writer:
        writer.write("train", [stack(half[1])])
        grown = writer.finish()
    with DatasetWriter(tmp_path / "b") as writer:
        writer.write("train", [stack(half[0] + half[1])])
        once = writer.finish()
    for key, value in once.statistics["train"]["position"].items():
        np.testing.assert_allclose(grown.statistics["train"]["position"][key], value, atol=1e-4)
