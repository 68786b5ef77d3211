from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace

import h5py
import numpy as np
import pytest
from make_datasets import write_dataset
from random_complexes import random_complexes

from holoshard.shards.errors import FormatError, UsageError
from holoshard.shards.format.manifest import _checksum
from holoshard.shards.format.records import stack
from holoshard.shards.make.files import file_sha256
from holoshard.shards.make.repair import repair
from holoshard.shards.make.verify import faults, verify, wrong_starts
from holoshard.shards.make.writer import write_part
from holoshard.shards.read.dataset import open_dataset


@pytest.fixture(scope="module")
def complexes():
    return list(random_complexes(90))


@pytest.fixture(scope="module", params=["hdf5", "zarr"])
def good(request, tmp_path_factory, complexes):
    out = tmp_path_factory.mktemp(request.param) / "set"
    write_dataset(out, complexes, container=request.param)
    return out


@pytest.fixture
def folder(good, tmp_path):
    shutil.copytree(good, tmp_path / "set")
    return tmp_path / "set"


@pytest.fixture(scope="module")
def parts(tmp_path_factory, complexes):
    folder = tmp_path_factory.mktemp("parts")
    shuffled = [complexes[i] for i in np.random.default_rng(0).permutation(len(complexes))]
    for i in range(3):
        write_part(folder / f"part-{i}.h5", shuffled[i * 30 : (i + 1) * 30], block_size=8)
    return sorted(folder.iterdir())


def flip(path, at, bit=1):
    data = bytearray(path.read_bytes())
    data[at] ^= bit
    path.write_bytes(data)


def first_file(folder):
    return "train-00000.h5" if (folder / "train-00000.h5").exists() else "train-00000.zarr"


def test_a_good_data_set_is_good(good):
    report = verify(good)
    assert report.ok
    assert report.n_complexes == 90
    assert report.n_blocks == open_dataset(good).reader.n_blocks
    assert report.lines() == [f"{good}: 90 complexes in {report.n_blocks} blocks, all as written"]


def test_one_flipped_bit_anywhere_is_found(good, tmp_path):
    """Any file of the data set, any byte, any bit."""
    rng = np.random.default_rng(0)
    files = sorted(p.relative_to(good) for p in good.rglob("*") if p.is_file())
    sizes = np.array([(good / f).stat().st_size for f in files])
    chosen = [*range(min(len(files), 40)), *rng.choice(len(files), 40, p=sizes / sizes.sum())]
    shutil.copytree(good, tmp_path / "set")
    for i in chosen:
        path, at = tmp_path / "set" / files[i], int(rng.integers(sizes[i])) if sizes[i] else None
        if at is None:
            continue
        bit = 1 << int(rng.integers(8))
        flip(path, at, bit)
        try:
            assert not verify(tmp_path / "set").ok, (files[i], at, bit)
        except FormatError:
            assert files[i].name == "manifest.json"
        flip(path, at, bit)
    assert verify(tmp_path / "set").ok


def damage_block(folder, number, key="position"):
    """Flip a bit of one column of a block; returns the ids of the block."""
    dataset = open_dataset(folder)
    span = next(
        s
        for s in dataset.reader.spans(number, [key])
        if dataset.reader.places(number)[0].layout.index[key] in s.columns
    )
    with open(span.path, "r+b") as file:
        file.seek(span.offset + span.length - 3)
        byte = file.read(1)[0]
        file.seek(span.offset + span.length - 3)
        file.write(bytes([byte ^ 16]))
    first = int(dataset.reader.first_complex[number])
    return dataset.ids()[first : first + int(dataset.reader.block_complexes[number])]


def test_damaged_blocks_and_complexes_are_named(folder):
    ids = damage_block(folder, 1) + damage_block(folder, 4)
    report = verify(folder)
    assert not report.ok
    assert sorted(report.damaged_ids) == sorted(ids)
    blocks = {(d.file, d.block) for d in report.damage if d.block is not None}
    assert (first_file(folder), 1) in blocks
    assert len(blocks) == 2
    assert any(ids[0] in line and "has checksum" in line for line in report.lines())


def test_a_missing_shard_is_named_with_its_complexes(folder):
    path = folder / first_file(folder)
    n = len(open_dataset(path))
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    report = verify(folder)
    assert report.damaged_ids == [f"c{i:05d}" for i in range(n)]
    assert any("missing" in d.reason for d in report.damage)


def test_a_truncated_shard_is_found(folder):
    path = folder / first_file(folder)
    path = path / "atom/position/c/0/0" if path.is_dir() else path
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    report = verify(folder)
    assert any("cut short" in d.reason for d in report.damage)
    assert 0 < len(report.damaged_ids) < 90


def test_a_part_alone_is_verified(parts, tmp_path):
    assert verify(parts[0]).ok
    shutil.copy(parts[0], tmp_path / "part.h5")
    ids = damage_block(tmp_path / "part.h5", 2)
    report = verify(tmp_path / "part.h5")
    assert [(d.file, d.block) for d in report.damage] == [("part.h5", 2)]
    assert report.damaged_ids == ids


@pytest.mark.parametrize(("name", "change"), [
    ("residue", lambda b: {"residue": b.columns["residue"] + np.uint16(500)}),
    ("bond", lambda b: {"bond_atoms": b.columns["bond_atoms"] + np.uint16(500)}),
    ("not in order", lambda b: {"bond_atoms": b.columns["bond_atoms"][:, ::-1]}),
    ("n_ligand_atoms", lambda b: {"n_ligand_atoms": b.columns["n_ligand_atoms"] * np.uint16(0)}),
    ("vocabulary", lambda b: {"bond_order": b.columns["bond_order"] + np.uint8(99)}),
    ("centre", lambda b: {"centre": b.columns["centre"] * np.nan}),
    ("JSON", lambda b: {"text_json": b.columns["text_json"][::-1]}),
])  # fmt: skip
def test_records_that_make_no_sense_are_found(complexes, tmp_path, name, change):
    """Checksums cannot find what was wrong when it was written."""
    block = stack(complexes[:20])
    assert not list(faults(block))
    bad = replace(block, columns={**block.columns, **change(block)})
    assert any(name in reason for reason in faults(bad))


def test_starts_that_are_not_where_the_rows_are_are_found(complexes):
    block = stack(complexes[:20])
    padded = {"atom": 512, "bond": 256, "residue": 0, "text": 2048}
    starts = {f"{a}_start": block.starts[a] + n for a, n in padded.items()}
    assert not list(wrong_starts(block, starts, padded))
    starts["bond_start"] = starts["bond_start"] + 1
    assert list(wrong_starts(block, starts, padded)) == [
        "bond_start does not say where the rows of its complexes begin"
    ]


def test_a_table_that_was_exchanged_is_found(folder):
    path = folder / first_file(folder)
    if path.is_dir():
        pytest.skip("HDF5 only")
    with h5py.File(path, "r+") as file:
        file["blocks/crc32"][0] += 1
    assert any("sha256" in d.reason for d in verify(folder).damage)


# Repair


def test_only_what_is_damaged_is_made_anew(folder, good, parts):
    damage_block(folder, 1)
    damage_block(folder, 4, "text_json")
    kept = {p: p.stat().st_mtime_ns for p in folder.iterdir()}
    mended = repair(folder, parts)
    assert mended.n_blocks == 2
    assert verify(folder).ok
    for path in good.rglob("*"):
        if path.is_file():
            assert (folder / path.relative_to(good)).read_bytes() == path.read_bytes()
    changed = {p.name for p in folder.iterdir() if p.stat().st_mtime_ns != kept.get(p)}
    assert changed == set(mended.shards)
    assert sorted(p.name for p in folder.iterdir()) == sorted(p.name for p in good.iterdir())


def test_a_lost_shard_is_made_anew(folder, parts):
    path = folder / first_file(folder)
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    repair(folder, parts)
    assert verify(folder).ok


def test_damage_outside_the_blocks_needs_no_parts(folder, good):
    path = folder / first_file(folder)
    flip(path / "atom/zarr.json" if path.is_dir() else path, 9)
    assert repair(folder, []).n_blocks == 0
    assert verify(folder).ok


def test_a_copy_of_the_data_set_serves_as_parts(folder, good):
    damage_block(folder, 2)
    repair(folder, [good])
    assert verify(folder).ok


def test_parts_that_lack_a_complex_or_hold_another_are_refused(folder, tmp_path, parts, complexes):
    damage_block(folder, 1)
    before = {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    with pytest.raises(UsageError, match="not in the parts"):
        repair(folder, parts[:1])
    other = [replace(c, charge=np.zeros(c.n_atoms, np.int8)) for c in complexes]
    write_part(tmp_path / "other.h5", other)
    with pytest.raises(FormatError, match="hold other data"):
        repair(folder, [tmp_path / "other.h5"])
    assert {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()} == before


def test_a_damaged_index_cannot_be_mended(folder, parts):
    flip(folder / "index.h5", 1500)
    with pytest.raises(FormatError, match="run holoshard shard again"):
        repair(folder, parts)


# What is said twice, with checksums that are right


def rewritten(folder, change):
    """Change the manifest's plain data, and make its checksum right again."""
    path = folder / "manifest.json"
    data = json.loads(path.read_text())
    data.pop("checksum")
    change(data)
    path.write_text(json.dumps({**data, "checksum": _checksum(data)}))


@pytest.mark.parametrize(("name", "change"), [
    ("statistics.train.n_labelled", lambda d: d["statistics"]["train"].update(n_labelled=1)),
    ("statistics.test.pk_mean", lambda d: d["statistics"]["test"].update(pk_mean=5.0)),
    ("statistics.train.position.max", lambda d: d["statistics"]["train"]["position"].update(max=[1, 2, 3])),
    ("statistics.valid", lambda d: d["statistics"].update(valid={"n_complexes": 3})),
    ("44 complexes were kept", lambda d: d["making"].update(
        seen=46, same_id=1, same_content=0, id_conflicts=0,
        split={"method": "random", "seed": 0, "n_groups": 44, "left_out": 1, "groups_by": "complex"})),
])  # fmt: skip
def test_a_manifest_that_contradicts_the_shards_is_found(folder, name, change):
    rewritten(folder, change)
    (found,) = verify(folder).damage
    assert found.file == "manifest.json"
    assert name.partition("statistics.")[2] in found.reason
    with pytest.raises(FormatError, match="run holoshard shard again"):
        repair(folder, [])


@pytest.mark.parametrize(("message", "change"), [
    ("splits are not those", lambda d: d["splits"].update(train=1)),
    ("n_complexes", lambda d: d.update(n_complexes=91)),
    ("its words for bond_order", lambda d: d["vocabularies"].update(bond_order=["single", "unknown"])),
    ("position_scale", lambda d: d.update(position_scale=-1.0)),
    ("generation 0", lambda d: d.update(generation=0)),
    ("the index is called", lambda d: d["index"].update(name="index-2.h5.bak")),
])  # fmt: skip
def test_a_manifest_that_contradicts_itself_is_not_opened(folder, message, change):
    rewritten(folder, change)
    with pytest.raises(FormatError, match=message):
        verify(folder)


@pytest.mark.parametrize("name", ["pk", "n_atoms", "split", "row", "id", "flags"])
def test_an_index_that_contradicts_the_shards_is_found(folder, name):
    with h5py.File(folder / "index.h5", "r+", locking=False) as file:
        column = file[f"index/{name}"]
        column[1] = b"else" if name == "id" else column[1] + 1
    rewritten(folder, lambda d: d["index"].update(
        sha256=file_sha256(folder / "index.h5"), n_bytes=(folder / "index.h5").stat().st_size
    ))  # fmt: skip
    (found,) = verify(folder).damage
    assert found.file == "index.h5"
    assert found.reason.startswith(f"{name} of 1 complexes is not that of the shards: row 1 has")


@pytest.mark.timeout(30)
@pytest.mark.parametrize("name", ["train-00000.h5", "index.h5", "manifest.json"])
def test_a_pipe_in_the_place_of_a_file_is_not_waited_for(tmp_path, complexes, name):
    write_dataset(tmp_path / "set", complexes[:40])
    (tmp_path / "set" / name).unlink()
    os.mkfifo(tmp_path / "set" / name)
    if name == "train-00000.h5":
        with pytest.raises(FormatError, match="has 0 bytes"):
            open_dataset(tmp_path / "set")
        assert any("neither a file nor a folder" in d.reason for d in verify(tmp_path / "set").damage)
    elif name == "index.h5":
        assert any("neither a file nor a folder" in d.reason for d in verify(tmp_path / "set").damage)
    else:
        with pytest.raises(FormatError, match="neither a file nor a folder"):
            verify(tmp_path / "set")
    with pytest.raises(FormatError, match="neither a file nor a folder"):
        open_dataset(tmp_path / "set" / name)
