"""The shard stage: however the complexes were cut into parts, the same bytes, and none lost."""

from __future__ import annotations

import dataclasses
import hashlib
import os

import numpy as np
import pytest
from random_complexes import assert_same, random_complexes

from holoshard.shards.errors import FormatError, NothingKeptError, UsageError
from holoshard.shards.make.gather import PartSource
from holoshard.shards.make.pack import block_size_for, mixed, pack
from holoshard.shards.make.rule import Rule
from holoshard.shards.make.writer import write_part
from holoshard.shards.read.dataset import open_dataset

COMPLEXES = list(random_complexes(300, seed=11))


def write_parts(folder, complexes, cut):
    folder.mkdir(parents=True)
    for k, start in enumerate(range(0, len(complexes), cut)):
        write_part(folder / f"part-{k:03d}.h5", complexes[start : start + cut], block_size=1 + cut // 3)
    return folder


def contents(folder):
    return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in sorted(folder.iterdir())}


@pytest.mark.parametrize("split_by", ["random", "cluster", "scaffold", "time"])
def test_the_cut_into_parts_does_not_matter(tmp_path, split_by):
    made = []
    for cut, complexes in ((300, COMPLEXES), (7, COMPLEXES[::-1]), (64, COMPLEXES[150:] + COMPLEXES[:150])):
        parts = write_parts(tmp_path / f"in{cut}" / "parts", complexes, cut)
        out = tmp_path / f"out{cut}"
        pack([parts.parent], out, rule=Rule(split_by), memory=1 << (18 if cut == 7 else 30))
        made.append(contents(out))
    assert made[0] == made[1] == made[2]
    assert len(made[0]) == 5


def test_every_complex_is_there_unchanged(tmp_path):
    write_parts(tmp_path / "parts", COMPLEXES, 50)
    manifest = pack([tmp_path / "parts"], tmp_path / "out", rule=Rule(seed=4))
    dataset = open_dataset(tmp_path / "out")
    assert manifest.splits == dataset.splits == {"train": 240, "valid": 30, "test": 30}
    assert sorted(dataset.ids()) == [c.id for c in COMPLEXES]
    by_id = {c.id: c for c in COMPLEXES}
    for c in dataset:
        assert_same(c, by_id[c.id])


def test_the_seed_decides_split_and_order(tmp_path):
    write_parts(tmp_path / "parts", COMPLEXES, 100)
    ids = []
    for seed in (0, 0, 1):
        out = tmp_path / f"out{len(ids)}"
        pack([tmp_path / "parts"], out, rule=Rule(seed=seed))
        ids.append(open_dataset(out).ids())
    assert ids[0] == ids[1] != ids[2]


def test_duplicates_are_counted_and_dropped(tmp_path):
    same_content = dataclasses.replace(COMPLEXES[0], text={**COMPLEXES[0].text, "id": "zzz"})
    conflict = dataclasses.replace(COMPLEXES[1], text={**COMPLEXES[1].text, "id": COMPLEXES[2].id})
    for k, extra in enumerate([COMPLEXES[:40], [same_content, COMPLEXES[5]], [conflict]]):
        write_part(tmp_path / f"part-{k}.h5", extra)
    manifest = pack([tmp_path], tmp_path / "out")
    making = manifest.making
    assert (making["seen"], making["same_id"], making["same_content"], making["id_conflicts"]) == (
        43,
        1,
        1,
        1,
    )
    ids = open_dataset(tmp_path / "out").ids()
    # If the conflict's digest is the smaller it stays, and complex 1 is the one of the same content.
    assert len(ids) == 40 - (COMPLEXES[1].id not in ids)
    assert "zzz" not in ids


def test_positions_too_large_for_int16_do_not_change_what_is_a_duplicate(tmp_path):
    far = dataclasses.replace(
        COMPLEXES[9], position=COMPLEXES[9].position + np.float32(100), text={"id": "far"}
    )
    write_part(tmp_path / "a.h5", [far, COMPLEXES[3]])
    write_part(tmp_path / "b.h5", COMPLEXES[3:5])
    manifest = pack([tmp_path / "a.h5", tmp_path / "b.h5"], tmp_path / "out")
    assert manifest.making["same_id"] == 1
    dataset = open_dataset(tmp_path / "out")
    (row,) = dataset.select(["far"])
    assert dataset[int(row)].position == pytest.approx(far.position, abs=0.0006)


def test_a_given_split_leaves_out_what_it_does_not_name(tmp_path):
    values = ["train", "valid", "test", "removed"]
    complexes = [
        dataclasses.replace(c, text={**c.text, "columns": {"fold": values[i % 4]}})
        for i, c in enumerate(COMPLEXES[:40])
    ]
    write_part(tmp_path / "part.h5", complexes)
    manifest = pack([tmp_path / "part.h5"], tmp_path / "out", rule=Rule("given", column="fold"))
    assert manifest.splits == {"train": 10, "valid": 10, "test": 10}
    assert manifest.making["split"]["left_out"] == 10
    dataset = open_dataset(tmp_path / "out")
    assert {dataset[int(i)].text["columns"]["fold"] for i in dataset.indices("valid")} == {"valid"}


def test_a_data_set_can_be_packed_again(tmp_path):
    write_part(tmp_path / "part.h5", COMPLEXES)
    pack([tmp_path / "part.h5"], tmp_path / "a", rule=Rule(seed=1))
    pack([tmp_path / "a"], tmp_path / "b", rule=Rule(seed=2))
    pack([tmp_path / "part.h5"], tmp_path / "c", rule=Rule(seed=2))
    assert contents(tmp_path / "b") == contents(tmp_path / "c")


def test_a_failed_run_leaves_the_old_data_set(tmp_path):
    write_part(tmp_path / "part.h5", COMPLEXES[:50])
    pack([tmp_path / "part.h5"], tmp_path / "out")
    before = contents(tmp_path / "out")
    damaged = bytearray((tmp_path / "part.h5").read_bytes())
    block = open_dataset(tmp_path / "part.h5").reader.table[0]
    damaged[int(block["offset"] + block["length"] // 2)] ^= 1
    (tmp_path / "bad.h5").write_bytes(damaged)
    with pytest.raises(Exception, match="bad"):
        pack([tmp_path / "bad.h5"], tmp_path / "out")
    assert contents(tmp_path / "out") == before
    assert {p.name for p in tmp_path.iterdir()} == {"part.h5", "bad.h5", "out"}


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("memory", [1 << 16, 1 << 21, 1 << 30], ids=["files", "passes", "at once"])
def test_memory_and_threads_do_not_change_the_bytes(tmp_path, packed, memory, threads):
    parts, expected = packed
    pack([parts], tmp_path / "out", rule=Rule("cluster", seed=2), memory=memory, threads=threads)
    assert contents(tmp_path / "out") == expected
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


@pytest.fixture(scope="module")
def packed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("packed")
    write_parts(folder / "parts", COMPLEXES, 40)
    pack([folder / "parts"], folder / "out", rule=Rule("cluster", seed=2))
    return folder / "parts", contents(folder / "out")


@pytest.mark.parametrize(("memory", "way"), [(1 << 16, "_in_files"), (1 << 21, "_in_passes")])
def test_each_way_of_gathering_is_taken(monkeypatch, packed, tmp_path, memory, way):
    """Else the test above would compare one way with itself."""
    taken = []
    for name in ("_in_files", "_in_passes"):
        real = getattr(PartSource, name)

        def noted(self, stretches, pool, real=real, name=name):
            taken.append((name, len(stretches)))
            return real(self, stretches, pool)

        monkeypatch.setattr(PartSource, name, noted)
    pack([packed[0]], tmp_path / "out", rule=Rule("cluster", seed=2), memory=memory)
    assert way in {name for name, _ in taken}
    assert max(n for _, n in taken) > (20 if way == "_in_files" else 1)


def test_nothing_to_pack(tmp_path):
    with pytest.raises(UsageError, match="does not exist"):
        pack([tmp_path / "none"], tmp_path / "out")
    with pytest.raises(UsageError, match="holds no part"):
        pack([tmp_path], tmp_path / "out")
    write_part(tmp_path / "part.h5", [])
    with pytest.raises(NothingKeptError):
        pack([tmp_path], tmp_path / "out")


@pytest.mark.timeout(30)
def test_a_pipe_is_no_part(tmp_path):
    os.mkfifo(tmp_path / "part.h5")
    with pytest.raises(UsageError, match="neither a file nor a folder"):
        pack([tmp_path / "part.h5"], tmp_path / "out")
    with pytest.raises(FormatError, match="neither a file nor a folder"):
        pack([tmp_path], tmp_path / "out")


def test_groups_are_spread_evenly():
    groups = np.repeat([0, 1, 2], [600, 300, 100])
    order = mixed(groups, 3)
    assert np.array_equal(np.sort(order), np.arange(1000))
    for start in range(0, 1000, 100):
        found = np.bincount(groups[order[start : start + 100]], minlength=3)
        assert np.abs(found - [60, 30, 10]).max() <= 1
    first = np.concatenate([mixed(groups, s)[:10] for s in range(200)])
    assert len(np.unique(first)) > 700  # members of a group come in random order


@pytest.mark.parametrize(("n", "size"), [(1, 8), (256, 8), (1476, 16), (9000, 128), (10**6, 256)])
def test_small_data_sets_have_small_blocks(n, size):
    assert block_size_for(n) == size
