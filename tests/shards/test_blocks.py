from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from make_datasets import write_dataset
from random_complexes import random_complexes

from holoshard.shards.complex import RAGGED_AXES
from holoshard.shards.errors import ChecksumError, FormatError, UsageError
from holoshard.shards.format.block import Block, concatenate, ragged_rows
from holoshard.shards.format.layout import MAX_BLOCK_BYTES
from holoshard.shards.format.records import complex_at, stack
from holoshard.shards.format.table import place
from holoshard.shards.make.writer import write_part
from holoshard.shards.read import index
from holoshard.shards.read.blocks import BlockReader
from holoshard.shards.read.dataset import open_dataset
from holoshard.shards.read.fetch import Pread


@pytest.fixture(scope="module")
def complexes():
    return list(random_complexes(90))


@pytest.fixture(scope="module", params=["hdf5", "zarr"])
def folder(request, tmp_path_factory, complexes):
    out = tmp_path_factory.mktemp(request.param) / "set"
    write_dataset(out, complexes, container=request.param)
    return out


def test_blocks_tell_where_their_complexes_are(folder, complexes):
    reader = BlockReader(folder)
    assert reader.block_complexes.sum() == reader.n_complexes == 90
    assert (reader.first_complex == np.cumsum(reader.block_complexes) - reader.block_complexes).all()
    for number in range(reader.n_blocks):
        block = reader.read(number, ["element"])
        first = int(reader.first_complex[number])
        assert block.n_complexes == reader.block_complexes[number]
        for i in range(block.n_complexes):
            assert reader.locate(first + i) == (number, i)
            start, count = block.starts["atom"][i], block.counts["atom"][i]
            expected = complexes[first + i].element
            np.testing.assert_array_equal(block.columns["element"][start : start + count], expected)


def test_only_the_columns_asked_for_are_decoded_and_fetched(folder):
    fetched = []

    def fetch(path, offset, length):
        fetched.append((path, offset, length))
        return Pread()(path, offset, length)

    reader = BlockReader(folder)
    block = reader.read(1, ["pk", "element"], fetch=fetch)
    assert set(block.columns) == {"pk", "element"}
    assert set(block.counts) == set(RAGGED_AXES)
    assert fetched == [(s.path, s.offset, s.length) for s in reader.spans(1, ["pk", "element"])]
    assert sum(f[2] for f in fetched) < reader.table["length"][1] / 2
    if reader.source.manifest.container == "hdf5":
        assert len(fetched) == 1


def test_raw_blocks_hold_the_stored_integers(folder):
    reader = BlockReader(folder)
    raw, values = reader.read(0, ["position"], raw=True), reader.read(0, ["position"])
    assert raw.columns["position"].dtype == np.int16
    np.testing.assert_array_equal(raw.columns["position"] / np.float32(1000), values.columns["position"])


def test_unknown_fields_and_blocks_are_refused(folder):
    reader = BlockReader(folder)
    with pytest.raises(UsageError, match="no field 'colour' in this data set; it has: aromatic"):
        reader.read(0, ["colour"])
    for number in (-1, reader.n_blocks):
        with pytest.raises(UsageError, match=f"block {number} of"):
            reader.read(number)


def test_every_flipped_bit_of_a_column_is_found(folder):
    """A fetch that flips one bit of what was asked for, at any place of any block."""
    reader = BlockReader(folder)
    rng = np.random.default_rng(0)
    keys = [*reader.source.manifest.fields, "atom_count", "text_count"]
    for number in range(reader.n_blocks):
        for _ in range(20):
            places, row = reader.places(number)
            key = keys[int(rng.integers(len(keys)))]
            i = places.layout.index[key]
            span = next(s for s in reader.spans(number) if i in s.columns)
            first = int(places.in_block[row, i] - places.in_block[row, span.columns[0]])
            at, bit = first + int(rng.integers(places.size[row, i])), 1 << int(rng.integers(8))

            def fetch(path, offset, length, span=span, at=at, bit=bit):
                data = bytearray(Pread()(path, offset, length))
                if (path, offset) == (span.path, span.offset):
                    data[at] ^= bit
                return bytes(data)

            where = f"{Path(reader.name(number)).name}: {places.layout.columns[i].field.path} has checksum"
            with pytest.raises(ChecksumError, match=where):
                reader.read(number, fetch=fetch)


def test_without_checksums_damage_is_still_no_crash(folder):
    reader = BlockReader(folder, verify=False)
    rng = np.random.default_rng(0)

    def fetch(path, offset, length):
        data = bytearray(Pread()(path, offset, length))
        for _ in range(3):
            data[int(rng.integers(length))] ^= 1 << int(rng.integers(8))
        return bytes(data)

    for _ in range(100):
        with contextlib.suppress(FormatError):
            reader.read(0, fetch=fetch)


@pytest.mark.parametrize("length", [0, 1, 100])
def test_a_short_read_is_a_format_error(folder, length):
    with pytest.raises(FormatError, match="cut short"):
        BlockReader(folder).read(0, fetch=lambda path, offset, n: bytes(min(n, length)))


def test_a_column_that_a_shard_lacks_is_blank(tmp_path, complexes):
    some = [
        replace(c, extra={"complex/score": np.float32(1), "atom/mark": np.ones(c.n_atoms, "i2")})
        for c in complexes[60:]
    ]
    write_dataset(tmp_path / "set", [*complexes[:60], *some], shard_bytes=1, block_size=10)
    reader = BlockReader(tmp_path / "set")
    assert len(reader.source.manifest.layouts) == 2
    first = reader.read(0, ["score", "mark", "element"])
    assert np.isnan(first.columns["score"]).all()
    assert first.columns["mark"].tolist() == [0] * len(first.columns["element"])
    assert (reader.read(reader.n_blocks - 1, ["score"]).columns["score"] == 1).all()
    score = open_dataset(tmp_path / "set").column("score")
    assert np.isnan(score[:60]).all()
    assert (score[60:] == 1).all()


def test_the_index_is_read_once_for_all_shards(tmp_path, complexes, monkeypatch):
    write_dataset(tmp_path / "set", complexes, shard_bytes=1, block_size=10)
    opened = []
    read = index.open_file
    monkeypatch.setattr(index, "open_file", lambda path: opened.append(path) or read(path))
    reader = BlockReader(tmp_path / "set")
    assert len(reader.source.manifest.shards) == 10
    room = reader.room(["position"])
    most = max(int(reader.read(b, ["element"]).counts["atom"].sum()) for b in range(reader.n_blocks))
    assert most <= room.rows["atom"] < 2 * most
    assert len(opened) == 1


@pytest.mark.parametrize("rows", [-1, 1 << 40])
def test_rows_that_cannot_be_are_refused_before_memory_is_taken(tmp_path, complexes, rows):
    write_dataset(tmp_path / "set", complexes)
    with h5py.File(tmp_path / "set" / "index.h5", "r+") as file:
        file["blocks/rows"][0] = rows
    with pytest.raises(FormatError, match="impossible number of rows"):
        BlockReader(tmp_path / "set").room(["position"])


def read_all(reader):
    return sum(int(reader.read(b, ["element"]).columns["element"].sum()) for b in range(reader.n_blocks))


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_safe_after_use_in_other_processes(folder, method):
    reader = BlockReader(folder)
    expected = read_all(reader)
    with multiprocessing.get_context(method).Pool(2) as pool:
        assert pool.map(read_all, [reader] * 4) == [expected] * 4


def test_a_fork_while_a_thread_reads_does_not_hang(folder):
    reader, stop = BlockReader(folder), threading.Event()
    expected = read_all(reader)

    def busy():
        while not stop.is_set():
            reader.read(0, ["element"])

    thread = threading.Thread(target=busy)
    thread.start()
    try:
        for _ in range(20):
            pid = os.fork()
            if pid == 0:
                os._exit(0 if read_all(reader) == expected else 1)
            assert os.waitpid(pid, 0)[1] == 0
    finally:
        stop.set()
        thread.join()


def test_safe_in_threads_with_few_descriptors(folder):
    reader = BlockReader(folder, fetch=Pread(max_open=2))
    expected = read_all(reader)
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(read_all, [reader] * 16)) == [expected] * 16
    assert len(reader.fetch._open) <= 8 + 2


def test_descriptors_are_not_pickled(folder):
    reader = BlockReader(folder)
    read_all(reader)
    again = pickle.loads(pickle.dumps(reader))
    assert not again.fetch._open
    assert read_all(again) == read_all(reader)


def test_a_missing_shard_is_a_format_error(tmp_path, complexes):
    write_part(tmp_path / "part.h5", complexes[:5])
    reader = BlockReader(tmp_path / "part.h5")
    (tmp_path / "part.h5").unlink()
    with pytest.raises(FormatError, match="missing"):
        reader.read(0)


# Blocks as values


def ragged():
    return st.lists(st.integers(0, 5), min_size=1, max_size=6)


@given(ragged(), st.data())
def test_ragged_rows(counts, data):
    counts = np.array(counts)
    starts = np.cumsum(counts) - counts
    order = np.array(data.draw(st.lists(st.integers(0, len(counts) - 1), max_size=8)), np.int64)
    expected = [r for i in order for r in range(starts[i], starts[i] + counts[i])]
    assert ragged_rows(starts[order], counts[order]).tolist() == expected


def test_take_slice_and_concatenate_agree(complexes):
    block = stack(complexes[:20])
    rows = np.array([3, 0, 0, 19, 7])
    for i, row in enumerate(rows):
        one, other = block.take(rows).slice(i, i + 1), block.slice(row, row + 1)
        joined = concatenate([block.slice(k, k + 1) for k in rows]).slice(i, i + 1)
        for key in block.columns:
            np.testing.assert_array_equal(one.columns[key], other.columns[key])
            np.testing.assert_array_equal(joined.columns[key], other.columns[key])
    assert block.slice(4, 4).n_complexes == 0
    assert len(block.slice(4, 4).columns["element"]) == 0


def test_one_column_with_two_shapes_is_refused(complexes):
    a = replace(complexes[0], extra={"complex/x": np.zeros(3)})
    b = replace(complexes[1], extra={"complex/x": np.zeros(4)})
    with pytest.raises(FormatError, match="complex/x"):
        stack([a, b])
    with pytest.raises(FormatError, match="complex/x"):
        concatenate([stack([a]), stack([b])])


# Hostile tables


@given(data=st.data())
@settings(max_examples=150, deadline=None)
def test_any_table_is_used_or_refused(tmp_path_factory, data):
    """Change numbers of a block table at random: arrays of bounded size come out, or FormatError."""
    folder = tmp_path_factory.getbasetemp() / "hostile"
    if not folder.exists():
        write_part(folder / "part.h5", random_complexes(40), block_size=16)
    reader = BlockReader(folder / "part.h5", verify=False)
    good = reader.source.places(0)
    arrays = {name: array.copy() for name, array in good.table.arrays().items()}
    for _ in range(data.draw(st.integers(1, 3))):
        array = arrays[data.draw(st.sampled_from(sorted(arrays)))].reshape(-1)
        limits = np.iinfo(array.dtype)
        near = st.integers(-3, 3).map(lambda x, array=array: int(array[0]) + x)
        value = data.draw(
            st.sampled_from([limits.min, limits.max, 0, 1]) | near | st.integers(limits.min, limits.max)
        )
        array[data.draw(st.integers(0, len(array) - 1))] = min(max(value, limits.min), limits.max)
    n_bytes = (folder / "part.h5").stat().st_size
    try:
        table = type(good.table)(**arrays)
        reader.source._places[0] = place(good.layout, table, n_bytes)
        for number in range(reader.n_blocks):
            block = reader.read(number)
            assert sum(a.nbytes for a in block.columns.values()) < MAX_BLOCK_BYTES
    except FormatError:
        pass


def test_a_block_too_large_to_be_read_is_not_written():
    from holoshard.shards.format.codec import Codecs
    from holoshard.shards.make.spool import ShardSpool

    one = stack(list(random_complexes(1)))
    wide = np.zeros((1, 65536), "<f8")
    from holoshard.shards.complex import Field

    field = Field("complex", "wide", "<f8", (65536,))
    block = Block.of({**one.fields, "wide": field}, {**one.columns, "wide": wide}, one.counts)
    spool = ShardSpool("/nowhere", 65536, Codecs())
    with pytest.raises(FormatError, match="smaller block_size"):
        spool.append(block)
    spool.close()


def test_reading_stays_readable_for_complexes(folder, complexes):
    block = BlockReader(folder).read(0)
    assert complex_at(block, 3).id == complexes[3].id


@pytest.mark.timeout(20)
@pytest.mark.parametrize("kind", ["pipe", "folder"])
def test_a_shard_that_is_no_file_is_an_error_and_no_hang(tmp_path, kind):
    path = tmp_path / "train-00000.h5"
    (os.mkfifo if kind == "pipe" else os.mkdir)(path)
    with pytest.raises(FormatError, match="no regular file"):
        Pread()(str(path), 0, 10)


def test_advice_to_the_kernel_never_fails_and_lets_go_of_files(tmp_path):
    fetch, path = Pread(max_open=1), tmp_path / "file"
    path.write_bytes(bytes(range(200)) * 10_000)
    fetch.expect(str(path), 100, 1_500_000)
    fetch.expect(str(path), 10**9, 10)  # beyond the end
    fetch.expect(str(tmp_path / "missing"), 0, 10)
    assert bytes(fetch(str(path), 5, 3)) == bytes([5, 6, 7])
    other = tmp_path / "other"
    other.write_bytes(b"other")
    assert bytes(fetch(str(other), 0, 5)) == b"other"
    assert [Path(p).name for p in fetch._open] == ["other"]  # nobody was reading the first
