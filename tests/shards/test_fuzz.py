"""Files that were changed at random: what comes out is data or a typed error, never a crash."""

from __future__ import annotations

import shutil
from contextlib import suppress

import numpy as np
import pytest
from make_datasets import write_dataset
from random_complexes import random_complexes

from holoshard.shards.errors import FormatError
from holoshard.shards.make.convert import convert
from holoshard.shards.make.verify import verify
from holoshard.shards.make.writer import write_part
from holoshard.shards.read.dataset import open_dataset

ROUNDS = 60


def mutate(rng: np.random.Generator, data: bytes) -> bytes:
    """Flip bits, set bytes, cut, insert or repeat."""
    new = bytearray(data)
    for _ in range(int(rng.integers(1, 6))):
        if not new:
            break
        at, what = int(rng.integers(len(new))), int(rng.integers(5))
        if what == 0:
            new[at] ^= 1 << int(rng.integers(8))
        elif what == 1:
            new[at : at + 8] = rng.choice([b"\x00", b"\xff", b"\x7f"]).ljust(1) * 8
        elif what == 2:
            del new[at : at + int(rng.integers(1, 64))]
        elif what == 3:
            new[at:at] = rng.bytes(int(rng.integers(1, 64)))
        elif rng.random() < 0.2:
            del new[at:]
    return bytes(new)


def use(path):
    """Everything a reader does."""
    dataset = open_dataset(path)
    dataset.ids()
    for name in ("n_atoms", "pk", "split", "centre"):
        dataset.column(name)
    for complex_ in dataset:
        complex_.names()


@pytest.mark.parametrize("seed", range(3))
def test_a_part_that_was_changed(tmp_path, seed):
    rng = np.random.default_rng(seed)
    write_part(tmp_path / "good.h5", random_complexes(12), block_size=4)
    data = (tmp_path / "good.h5").read_bytes()
    for _ in range(ROUNDS):
        path = tmp_path / "bad.h5"
        # Half of the time only the first bytes, where HDF5 keeps its structures.
        head = 20_000 if rng.random() < 0.5 else len(data)
        path.write_bytes(mutate(rng, data[:head]) + data[head:])
        for work in (use, verify, lambda p: convert(p, tmp_path / "bad.zarr")):
            with suppress(FormatError):
                work(path)
        shutil.rmtree(tmp_path / "bad.zarr", ignore_errors=True)


@pytest.mark.parametrize("container", ["hdf5", "zarr"])
def test_a_data_set_that_was_changed(tmp_path, container):
    """Any of its files, changed in the same way."""
    rng = np.random.default_rng(0)
    write_dataset(tmp_path / "set", list(random_complexes(12)), container=container, block_size=4)
    files = sorted(p for p in (tmp_path / "set").rglob("*") if p.is_file() and p.name != "manifest.json")
    for _ in range(ROUNDS):
        path = files[int(rng.integers(len(files)))] if rng.random() < 0.6 else tmp_path / "set" / "index.h5"
        good = path.read_bytes()
        path.write_bytes(mutate(rng, good))
        with suppress(FormatError):
            use(tmp_path / "set")
        if path.read_bytes() != good:
            assert not verify(tmp_path / "set").ok, path
        path.write_bytes(good)
    use(tmp_path / "set")
    assert verify(tmp_path / "set").ok
