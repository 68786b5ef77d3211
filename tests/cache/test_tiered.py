"""Tiers in a row in front of files: the right bytes, one fetch, retries, blocks checked at the source."""

from __future__ import annotations

import errno
import pickle
import tempfile
import zlib
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holoshard.cache.disk import DiskTier
from holoshard.cache.errors import SettingError, SourceError
from holoshard.cache.extents import Extents, read_extents
from holoshard.cache.memory import MemoryTier
from holoshard.cache.source import Patient, PosixSource
from holoshard.cache.tiered import TieredCache, open_cache, parse_tier

N, SIZE = 20, 1000


@pytest.fixture
def folder(tmp_path):
    root = tmp_path / "data"
    root.mkdir()
    rng = np.random.default_rng(0)
    (root / "train-00000.h5").write_bytes(rng.bytes(N * SIZE + 100))
    return root


@pytest.fixture
def path(folder):
    return str(folder / "train-00000.h5")


def extents(folder) -> Extents:
    data = (folder / "train-00000.h5").read_bytes()
    rows = [(100 + i * SIZE, SIZE, zlib.crc32(data[100 + i * SIZE : 100 + (i + 1) * SIZE])) for i in range(N)]
    return Extents("f00d", folder, {"train-00000.h5": np.array(rows, np.int64)}, {"train-00000.h5": "train"})


class Counting(PosixSource):
    """Counts its calls, and fails when told to."""

    def __init__(self):
        super().__init__()
        self.calls, self.errors = [], []

    def __call__(self, path, offset, length):
        self.calls.append((offset, length))
        if self.errors:
            raise self.errors.pop(0)
        return super().__call__(path, offset, length)


def test_ranges_come_from_the_fastest_tier_that_has_them(folder, path, tmp_path):
    (tmp_path / "nvme").mkdir()
    source = Counting()
    data = Path(path).read_bytes()
    memory, disk = MemoryTier(3 * SIZE), DiskTier(tmp_path / "nvme", 1 << 20, spare=0)
    cache = TieredCache([memory, disk], source, dataset="x", root=folder)
    for _ in range(2):
        for i in range(N):
            assert bytes(cache(path, i * SIZE, SIZE)) == data[i * SIZE : (i + 1) * SIZE]
    assert len(source.calls) == N
    assert memory.counters.hits == 3
    assert disk.counters.hits == N - 3
    counted = cache.counters()
    assert counted["source"]["fetches"] == N
    assert counted["memory"]["hit_bytes"] == 3 * SIZE
    again = TieredCache([DiskTier(tmp_path / "nvme", 1 << 20)], source, dataset="x", root=folder)
    assert bytes(again(path, 0, SIZE)) == data[:SIZE]
    assert len(source.calls) == N
    changed = TieredCache([DiskTier(tmp_path / "nvme", 1 << 20)], source, dataset="y", root=folder)
    changed(path, 0, SIZE)
    assert len(source.calls) == N + 1


def test_with_extents_the_unit_is_a_block(folder, path, monkeypatch):
    source, data = Counting(), Path(path).read_bytes()
    cache = TieredCache([MemoryTier(1 << 20)], source, extents=extents(folder))
    assert bytes(cache(path, 150, 20)) == data[150:170]
    assert bytes(cache(path, 900, 200)) == data[900:1100]
    assert source.calls == [(100, SIZE)]
    assert bytes(cache(path, 1000, 200)) == data[1000:1200]  # over two blocks: as asked
    assert bytes(cache(path, 0, 50)) == data[:50]  # before the first
    assert source.calls == [(100, SIZE), (1000, 200), (0, 50)]
    monkeypatch.chdir(folder.parent)
    assert bytes(cache("data/train-00000.h5", 150, 20)) == data[150:170]  # the same file
    assert len(source.calls) == 3


def test_damage_at_the_source_is_not_kept(folder, path):
    known, tier = extents(folder), MemoryTier(1 << 20)
    with open(path, "r+b") as file:
        file.seek(500)
        byte = file.read(1)
        file.seek(500)
        file.write(bytes([byte[0] ^ 1]))
    cache = TieredCache([tier], extents=known)
    with pytest.raises(SourceError, match=r"train-00000.h5, block of 1000 bytes at 100: .*holoshard verify"):
        cache(path, 150, 20)
    assert tier.used() == 0
    assert len(cache(path, 1150, 20)) == 20


def test_transient_errors_are_tried_again_and_lasting_ones_told(path):
    source = Counting()
    patient = Patient(source, attempts=3, pause_s=0.001)
    source.errors = [OSError(errno.EIO, "Input/output error"), OSError(errno.ESTALE, "Stale file handle")]
    assert len(patient(path, 0, 10)) == 10
    assert patient.retries == 2
    source.errors = [OSError(errno.EIO, "Input/output error") for _ in range(9)]
    with pytest.raises(SourceError, match=r"10 bytes at 0: tried 3 times in .*Input/output error") as caught:
        patient(path, 0, 10)
    assert caught.value.errno == errno.EIO
    assert caught.value.exit_code == 1
    source.errors, source.calls = [OSError(errno.EACCES, "Permission denied")], []
    with pytest.raises(SourceError, match="Permission denied"):
        patient(path, 0, 10)
    assert len(source.calls) == 1
    with pytest.raises(SourceError, match="copy the file again"):
        PosixPatient(path + ".nothing")


def PosixPatient(path):
    return Patient(PosixSource())(path, 0, 1)


def test_errors_that_are_not_the_systems_pass_unchanged():
    def source(path, offset, length):
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        Patient(source)("x", 0, 1)


def test_posix_source_reopens_after_an_error_and_closes(path, monkeypatch):
    import os

    source = PosixSource()
    assert len(source(path, 0, 10)) == 10
    (file,) = source._open.values()
    real, state = os.pread, {"fail": True}

    def stale(fd, n, offset):
        if state.pop("fail", False):
            raise OSError(errno.ESTALE, "Stale file handle")
        return real(fd, n, offset)

    monkeypatch.setattr(os, "pread", stale)
    assert len(Patient(source, pause_s=0)(path, 0, 10)) == 10
    assert file.fd == -1
    assert source(path, 10**9, 10) == b""
    source.close()
    assert not source._open


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.integers(0, N - 1), max_size=12), st.integers(0, N * SIZE), st.integers(0, 8),
    st.lists(st.tuples(st.integers(0, N - 1), st.integers(1, 8)), min_size=1, max_size=6),
)  # fmt: skip
def test_runs_against_a_model(folder, path, before, capacity, pages, runs):
    """Any entries held by any of two tiers: right bytes, and what is held is in no request."""
    data, known = Path(path).read_bytes(), extents(folder)
    with tempfile.TemporaryDirectory() as nvme:
        source = Counting()
        cache = TieredCache(
            [MemoryTier(capacity), DiskTier(nvme, pages * 4096, spare=0)], source, extents=known
        )
        entries = list(known.ranges())
        for i in before:
            cache(*entries[i])
        for first, n in runs:
            some = entries[first : first + n]
            held = [cache.holds(cache.key(*entry)) for entry in some]
            source.calls.clear()
            for (_, offset, length), found in zip(some, cache.run(path, some), strict=True):
                assert bytes(found) == data[offset : offset + length]
            asked = Counter(
                at for offset, length in source.calls for at in range(offset, offset + length, SIZE)
            )
            assert asked == Counter(e[1] for e, was in zip(some, held, strict=True) if not was)
            stretches = sum(not was and (i == 0 or held[i - 1]) for i, was in enumerate(held))
            assert len(source.calls) == stretches
        cache.close()


def test_damage_in_a_run_is_named_and_fetched_again_alone(folder, path):
    known, source = extents(folder), Counting()
    with open(path, "r+b") as file:
        file.seek(100 + 2 * SIZE)
        byte = file.read(1)
        file.seek(100 + 2 * SIZE)
        file.write(bytes([byte[0] ^ 1]))
    cache = TieredCache([MemoryTier(1 << 20)], source, extents=known)
    with pytest.raises(SourceError, match=r"block of 1000 bytes at 2100"):
        cache.run(path, list(known.ranges())[:5])
    assert source.calls[1] == (2100, SIZE)


def test_a_cache_without_an_identity_is_refused():
    with pytest.raises(SettingError, match="fingerprint"):
        TieredCache([])


def test_pickled_caches_go_on(folder, path, tmp_path):
    cache = TieredCache([MemoryTier(100), DiskTier(tmp_path, 1 << 20)], extents=extents(folder))
    first = bytes(cache(path, 150, 20))
    copy = pickle.loads(pickle.dumps(cache))
    assert bytes(copy(path, 150, 20)) == first
    assert copy.counters()[str(tmp_path)]["hits"] == 1


def test_tiers_in_words(tmp_path):
    assert parse_tier("memory:2GiB").capacity == 2 << 30
    spaced = parse_tier("/mnt/pmem0: 64 GiB")
    assert (spaced.folder, spaced.capacity) == (Path("/mnt/pmem0"), 64 << 30)
    disk = parse_tier(f"{tmp_path}:256GiB", read_only=True)
    assert (disk.capacity, disk.name, disk.read_only) == (256 << 30, str(tmp_path), True)
    for wrong in ("memory", "/local/nvme", ":3GiB", "/x:many"):
        with pytest.raises(SettingError):
            parse_tier(wrong)


def test_folders_that_are_no_data_sets(tmp_path):
    with pytest.raises(SettingError, match=r"manifest.json is missing"):
        read_extents(tmp_path)
    (tmp_path / "manifest.json").write_text('{"shards": [{"name": "../x"}]}')
    with pytest.raises(SettingError, match="not a readable data set"):
        open_cache(["memory:1MiB"], tmp_path)
