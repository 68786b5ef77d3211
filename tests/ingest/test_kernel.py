"""Compiled loops: that they compile anywhere, and that they agree with array operations."""

from __future__ import annotations

import subprocess
import sys

import numba
import numpy as np
import pytest

from holoshard.ingest.chemistry.perceive import _crowded
from holoshard.ingest.chemistry.pocket import _around
from holoshard.ingest.chemistry.slots import heavy_and_drawn, parents
from holoshard.ingest.kernel import kernel
from holoshard.ingest.sample import write_sample


def total(values):
    found = 0.0
    for value in values:
        found += value
    return found


@pytest.mark.parametrize("writable", [True, False])
def test_a_kernel_compiles_where_nothing_can_be_kept(monkeypatch, writable):
    plain = numba.njit

    def njit(*functions, cache=False, **options):
        if cache and not writable:
            raise RuntimeError("cannot cache function 'total': no locator available")
        return plain(*functions, **options)

    monkeypatch.setattr(numba, "njit", njit)
    assert kernel(total)(np.arange(5.0)) == 10.0


SIGNATURES = """
import csv, sys
from pathlib import Path
from holoshard.ingest.warm import warm
warm()
kernels = {(m.__name__, k): f for m in list(sys.modules.values()) if m.__name__.startswith("holoshard.ingest")
           for k, f in vars(m).items() if hasattr(f, "nopython_signatures") and f.__module__ == m.__name__}
before = {k: len(f.signatures) for k, f in kernels.items()}
print("cold", sorted(name for (_, name), n in before.items() if not n))
from holoshard.ingest.item import Item, Locator
from holoshard.ingest.pipeline import IngestOptions, process
from holoshard.shards.complex import Complex
folder = Path(sys.argv[1])
for row in csv.DictReader((folder / "labels.csv").open()):
    for hydrogens in (False, True):
        item = Item("x", Locator(folder / row["protein_path"]), Locator(folder / row["ligand_path"]))
        assert isinstance(process(item, IngestOptions(hydrogens=hydrogens)), Complex)
print("new", sorted(k for k, f in kernels.items() if len(f.signatures) != before[k]))
"""


def test_nothing_is_compiled_in_the_time_of_an_item(tmp_path):
    write_sample(tmp_path, n=12, seed=1)
    found = subprocess.run(
        [sys.executable, "-c", SIGNATURES, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert found.stdout.splitlines() == ["cold ['_name', '_number', '_pair']", "new []"]  # loops within loops


@pytest.mark.parametrize("seed", range(5))
def test_the_search_around_a_ligand_agrees_with_every_distance(seed):
    rng = np.random.default_rng(seed)
    position, ligand = rng.uniform(-20, 20, (2000, 3)), rng.normal(0, 3, (30, 3))
    element, residue = rng.choice(np.array([1, 6, 7], np.uint8), 2000), np.arange(2000, dtype=np.int32) // 8
    skip = rng.random(250) < 0.2
    atoms, near, nearest = _around(position, element, residue, skip, ligand, 6.0)
    square = ((position[:, None] - ligand[None]) ** 2).sum(axis=2)
    allowed = (element > 1) & ~skip[residue]
    close = np.flatnonzero(allowed & (square.min(axis=1) <= 36.0))
    assert len(close) > 20
    assert set(close.tolist()) <= set(atoms.tolist()) <= set(np.flatnonzero(allowed).tolist())
    np.testing.assert_array_equal(near, square[atoms].argmin(axis=1))
    np.testing.assert_allclose(nearest, square[atoms].min(axis=1), rtol=1e-12)


def test_drawn_hydrogens_belong_to_the_nearest_heavy_atom_of_their_residue():
    position = np.array([
        [0.0, 0, 0], [1.4, 0, 0], [0.7, 0, 0], [9.0, 0, 0],  # two atoms, a hydrogen between, one far away
        [1.0, 0, 0], [2.0, 0, 0],  # a hydrogen nearer to the other residue's atom than to its own
    ])  # fmt: skip
    element = np.array([6, 7, 1, 1, 1, 8], np.uint8)
    start = np.array([0, 4, 6])
    rows, residue, drawn, owner = heavy_and_drawn(np.array([0, 1]), start, element)
    assert (rows.tolist(), residue.tolist()) == ([0, 1, 5], [0, 0, 1])
    assert (drawn.tolist(), owner.tolist()) == ([2, 3, 4], [0, 0, 1])
    assert parents(drawn, owner, rows, residue, position, 1.5).tolist() == [0, -1, 2]
    rows, _, drawn, _ = heavy_and_drawn(np.array([1]), start, element)
    assert (rows.tolist(), drawn.tolist()) == ([5], [4])


def test_crowded_is_two_atoms_within_reach():
    position = np.array([[0.0, 0, 0], [0, 3.0, 0], [0, 3.0, 0.3]])
    assert not _crowded(position, 0.25)
    assert _crowded(position, 0.31)
    assert not _crowded(position[:1], 1.0)
