"""Decoded blocks in tiers: the same arrays, a byte-exact budget, one making, and nothing unpacked twice."""

from __future__ import annotations

import json
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of_numpy

from holoshard.cache.decoded import Decoded
from holoshard.cache.errors import SettingError
from holoshard.cache.memory import MemoryTier
from holoshard.cache.packed import pack, unpack
from holoshard.cache.prefetch import Prefetcher
from holoshard.cache.shared import SharedTier
from holoshard.cache.tiered import open_cache, parse_tier
from holoshard.shards.read.dataset import open_dataset

ANY = arrays_of_numpy.arrays(
    st.sampled_from(["u1", "<i2", ">i4", "f4", "?", "<u8"]), arrays_of_numpy.array_shapes(min_side=0)
)


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(st.text(max_size=5), ANY, max_size=5))
def test_arrays_come_back_as_they_were(arrays):
    found = unpack(pack(arrays))
    assert list(found) == list(arrays)
    for name, array in arrays.items():
        assert found[name].dtype == array.dtype
        assert found[name].shape == array.shape
        assert found[name].tobytes() == array.tobytes()
        assert not found[name].flags.writeable
        assert found[name].size == 0 or found[name].__array_interface__["data"][0] % array.itemsize == 0


def test_what_is_not_plain_numbers_is_refused():
    with pytest.raises(SettingError, match="plain numbers"):
        pack({"x": np.array([{}], object)})
    whole = bytes(pack({"x": np.arange(100)}))
    with pytest.raises(ValueError, match="does not lie within"):
        unpack(whole[:-64])
    rows = json.dumps([["x", "<i8", [1 << 40], 0]]).encode()
    with pytest.raises(ValueError, match="does not lie within"):
        unpack(len(rows).to_bytes(8, "little") + rows + b"\0" * 4096)


def tiers(kind, capacity, tmp_path):
    return MemoryTier(capacity) if kind == "memory" else SharedTier(capacity, folder=tmp_path)


@pytest.mark.parametrize("kind", ["memory", "shared"])
def test_arrays_are_made_once_and_within_the_budget(tmp_path, kind):
    tier, made, reused = tiers(kind, 5 * 4096, tmp_path), [], []
    keep = Decoded(tier, "d", reused.append)
    for _ in range(2):
        for i in range(8):
            found = keep(f"block {i}", lambda i=i: made.append(i) or {"x": np.full(800, i, np.int32)})
            assert (found["x"] == i).all()
            assert tier.used() <= tier.capacity
    kept = [i for i in range(8) if keep.holds(f"block {i}")]
    assert len(kept) == (20_480 // len(pack({"x": np.zeros(800, np.int32)})) if kind == "memory" else 5)
    assert made == [*range(8), *range(len(kept), 8)]
    assert reused == [f"block {i}" for i in kept]
    other = Decoded(tier, "another")
    assert (other("block 0", lambda: {"x": np.array([-1])})["x"] == -1).all()
    tier.close()


@pytest.mark.parametrize("kind", ["memory", "shared"])
@pytest.mark.parametrize("ahead", [False, True])
def test_a_warm_stream_decodes_and_fetches_nothing(small_dataset, tmp_path, kind, ahead, monkeypatch):
    dataset, tier = open_dataset(small_dataset), tiers(kind, 1 << 24, tmp_path)
    cache = open_cache([], small_dataset)
    names, of_name = {}, {}

    def streams(**options):
        return [
            dataset.stream("train", 4, epoch=e, window=8, max_atoms=30, threads=1, **options)
            for e in range(3)
        ]

    def future():
        for stream in streams():
            for name, spans in stream.needs():
                ranges = [(s.path, s.offset, s.length) for s in spans]
                names.update({cache.key(*r).name: name for r in ranges})
                of_name[name] = ranges
                yield from ranges

    ranges = list(future())
    keep = Decoded(tier, "d", lambda name: [prefetcher.passed(*r) for r in of_name[name]])
    prefetcher = Prefetcher(
        cache, ranges if ahead else [], readers=2, needless=lambda k: keep.holds(names[k.name])
    )
    with prefetcher:
        for number, (plain, kept) in enumerate(
            zip(streams(), streams(keep=keep, fetch=prefetcher), strict=True)
        ):
            if number == 2:
                monkeypatch.setattr("holoshard.shards.read.blocks.unpack_block", None)  # no more of it
            for a, b in zip(list(open_plain(plain, monkeypatch)), kept, strict=True):
                assert all(np.array_equal(a[k], b[k], equal_nan=a[k].dtype.kind == "f") for k in a)
    blocks = len(of_name)
    assert tier.counters.misses == blocks
    assert tier.counters.hits == 2 * blocks
    assert prefetcher.ahead.requests == blocks
    if not ahead:
        assert cache.source.fetches == blocks
    else:  # a few fetched ahead before they were known to be kept
        assert prefetcher._plan.bytes == 0
    tier.close()


def open_plain(stream, monkeypatch):
    """Batches by the decoder as it is, even once the test has taken it away."""
    from holoshard.shards.format.chunks import unpack_block
    from holoshard.shards.read import blocks

    taken, blocks.unpack_block = blocks.unpack_block, unpack_block
    try:
        yield from stream
    finally:
        blocks.unpack_block = taken


def test_the_configuration_names_it():
    raw, decoded = parse_tier("shared:1MiB"), parse_tier("shared:2MiB", kind="decoded")
    assert isinstance(raw, SharedTier)
    assert (raw.capacity, decoded.capacity) == (1 << 20, 2 << 20)
    assert raw.root != decoded.root  # each has an account of its own
    again = pickle.loads(pickle.dumps(decoded))
    assert (again.root, again.capacity) == (decoded.root, decoded.capacity)
