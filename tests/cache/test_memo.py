"""Remembered transforms: found again by content, code and version, and by nothing else; no pickles."""

from __future__ import annotations

import functools
import subprocess
import sys
from dataclasses import dataclass
from enum import IntFlag

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from holoshard.cache import plain
from holoshard.cache.memo import code_digest, memoize


@dataclass(frozen=True)
class Point:
    x: np.ndarray
    label: str
    colour: IntFlag


class Colour(IntFlag):
    RED = 1
    BLUE = 2


def point(x, label="a", colour=Colour.RED | Colour.BLUE):
    return Point(np.asarray(x, np.float32), label, colour)


calls: list = []


def test_the_same_content_is_computed_once(tmp_path):
    calls.clear()

    def count(item):
        return {"sum": item.x.sum(), "shape": item.x.shape}

    class Watch:
        def __call__(self, item):
            calls.append(item)
            return count(item)

    transform = memoize(Watch(), tmp_path, version="1")
    first = transform(point([1, 2, 3]))
    assert first == transform(point([1, 2, 3])) == {"sum": 6.0, "shape": (3,)}
    assert type(first["sum"]) is type(transform(point([1, 2, 3]))["sum"]) is np.float32
    assert len(calls) == 1
    transform(point([1, 2, 4]))
    transform(point([1, 2, 3], "b"))
    transform(point([[1, 2, 3]]))
    assert len(calls) == 4
    memoize(Watch(), tmp_path, version="1")(point([1, 2, 3]))
    assert len(calls) == 4
    memoize(Watch(), tmp_path, version="2")(point([1, 2, 3]))
    assert len(calls) == 5
    assert not [p for p in tmp_path.rglob("*") if p.suffix in (".pkl", ".pickle")]


def scaled(factor):
    return lambda item: item * factor


def test_code_tells_transforms_apart(tmp_path):
    assert memoize(scaled(2), tmp_path)(3) == 6
    assert memoize(scaled(5), tmp_path)(3) == 15
    assert memoize(lambda item: item + 1, tmp_path)(3) == 4
    assert memoize(functools.partial(lambda b, a: a - b, 1), tmp_path)(3) == 2
    assert memoize(functools.partial(lambda b, a: a - b, 2), tmp_path)(3) == 1
    assert code_digest(scaled(2)) == code_digest(scaled(2)) != code_digest(scaled(3))
    with pytest.raises(TypeError, match="wrap it"):
        code_digest(abs)


def test_a_damaged_result_is_computed_again(tmp_path):
    transform = memoize(lambda item: np.arange(item), tmp_path)
    transform(4)
    (path,) = tmp_path.rglob("result.npz")
    data = bytearray(path.read_bytes())
    data[-30] ^= 1
    path.write_bytes(data)
    for _ in range(2):
        assert transform(4).tolist() == [0, 1, 2, 3]
    assert path.read_bytes() != bytes(data)


def test_dataclasses_come_back_if_they_are_expected(tmp_path):
    transform = memoize(lambda item: point([item]), tmp_path, types=(Point, Colour))
    transform(1)
    again = transform(1)
    assert isinstance(again, Point)
    assert again.colour == Colour.RED | Colour.BLUE
    assert again.x.dtype == np.float32
    with pytest.raises(ValueError, match="not among the types"):
        plain.load(plain.dump(point([1])))


def test_what_is_not_plain_is_refused(tmp_path):
    with pytest.raises(TypeError, match="set cannot be kept"):
        memoize(lambda item: {1, 2}, tmp_path)(1)
    with pytest.raises(TypeError, match="Python objects"):
        plain.digest(np.array([object()]))


def test_another_process_finds_the_result(tmp_path):
    code = (
        "import sys\nfrom holoshard.cache.memo import memoize\n"
        "def slow(x):\n    print('computed'); return [x, 1.5, None, b'z']\n"
        "assert memoize(slow, sys.argv[1])(7) == [7, 1.5, None, b'z']\n"
    )
    script = tmp_path / "script.py"
    script.write_text(code)
    outputs = [
        subprocess.run(
            [sys.executable, script, tmp_path / "memo"], capture_output=True, text=True, check=True
        )
        for _ in range(2)
    ]
    assert [o.stdout.strip() for o in outputs] == ["computed", ""]


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary()
    | hnp.arrays(st.sampled_from([np.int16, np.float32, np.bool_, "U3"]), hnp.array_shapes(min_side=0)),
    lambda inner: st.lists(inner) | st.tuples(inner, inner) |
    st.dictionaries(st.text() | st.integers(), inner),
    max_leaves=8,
)  # fmt: skip


def same(a, b):
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and np.array_equal(a, b, equal_nan=a.dtype.kind == "f")
    if isinstance(a, list | tuple):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(v, b[k]) for k, v in a.items())
    return type(a) is type(b) and a == b


@settings(max_examples=60, deadline=None)
@given(values)
def test_plain_values_come_back_as_they_were(value):
    back = plain.load(plain.dump(value))
    assert same(value, back)
    assert plain.digest(value) == plain.digest(back)
