from __future__ import annotations

import contextlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holoshard.shards.complex import FIELDS
from holoshard.shards.errors import FormatError, UsageError
from holoshard.shards.format.codec import CODECS, Codec, codecs_named, from_fixed, parse_codec, to_fixed

POSITION = next(f for f in FIELDS if f.key == "position")
ALL = sorted(
    {c for group in CODECS.values() for c in (group.positions, group.hot, group.cold)}, key=lambda c: c.name
)


@pytest.mark.parametrize("codec", ALL, ids=lambda c: c.name)
@pytest.mark.parametrize("dtype", ["u1", "<i2", "<i4", "<f8"])
def test_round_trip(codec, dtype):
    array = np.random.default_rng(0).integers(0, 100, (301, 3)).astype(dtype)
    out = np.empty_like(array)
    codec.decode(memoryview(codec.encode(array)), out)
    np.testing.assert_array_equal(out, array)


@pytest.mark.parametrize("codec", ALL, ids=lambda c: c.name)
def test_names_come_back(codec):
    assert parse_codec(codec.name) == codec


@pytest.mark.parametrize("name", ["", "blosc", "blosc-lz4", "blosc-snappy-1", "gzip-x", "pickle", "none-1"])
def test_unknown_codec_is_refused(name):
    with pytest.raises(FormatError, match="unknown codec"):
        parse_codec(name)


def test_unknown_option_is_refused():
    with pytest.raises(UsageError, match="one of: blosc"):
        codecs_named("snappy")


@pytest.mark.parametrize("codec", ALL, ids=lambda c: c.name)
def test_wrong_size_is_refused(codec):
    packed = codec.encode(np.zeros(100, "<i4"))
    for out in (np.empty(99, "<i4"), np.empty(101, "<i4")):
        with pytest.raises(FormatError, match="does not unpack"):
            codec.decode(memoryview(packed), out)


@pytest.mark.parametrize("codec", [c for c in ALL if c.kind != "none"], ids=lambda c: c.name)
@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_garbage_is_a_format_error(codec, data):
    """Whatever the bytes, the answer is an array of that size or FormatError."""
    good = codec.encode(np.arange(64, dtype="<i4"))
    cut = data.draw(st.integers(0, len(good)))
    bad = bytearray(good[:cut] + data.draw(st.binary(max_size=64)))
    for _ in range(data.draw(st.integers(0, 4))):
        if bad:
            bad[data.draw(st.integers(0, len(bad) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with contextlib.suppress(FormatError):
        codec.decode(memoryview(bytes(bad)), np.empty(64, "<i4"))


def test_a_zip_bomb_is_not_expanded():
    import zlib

    bomb = zlib.compress(bytes(1 << 26))
    with pytest.raises(FormatError, match="found 1025 bytes or more"):
        Codec("gzip", level=6).decode(bomb, np.empty(1024, np.uint8))


@given(st.lists(st.integers(-2_000_000_000, 2_000_000_000), min_size=1, max_size=30))
def test_fixed_point_is_exact(codes):
    """What has three decimals comes back bit for bit, and is widened only if it must be."""
    values = np.array(codes, np.int64) / 1000
    stored = to_fixed(values, POSITION)
    np.testing.assert_array_equal(stored, codes)
    assert stored.dtype == ("<i2" if max(map(abs, codes)) <= 32767 else "<i4")


def test_reading_divides_rather_than_multiplies():
    codes = np.arange(-32767, 32768, dtype=np.int16)
    printed = np.array([f"{c / 1000:.3f}" for c in codes.tolist()]).astype(np.float32)
    np.testing.assert_array_equal(from_fixed(codes, 1000), printed)


@pytest.mark.parametrize("value", [np.nan, np.inf, 3e6])
def test_what_no_integer_holds_is_refused(value):
    with pytest.raises(FormatError, match="cannot be stored"):
        to_fixed(np.array([value]), POSITION)
