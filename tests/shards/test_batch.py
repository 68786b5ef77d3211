"""Ragged gather, padding, packing, the crop, rotation: each against a plain loop over complexes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from memory_blocks import MemoryBlocks

from holoshard.shards.errors import FormatError
from holoshard.shards.format.block import Block
from holoshard.shards.format.codec import from_fixed
from holoshard.shards.read.batch import ATOM_RESIDUE_TYPE, DEFAULT_FIELDS, Batch, rotations
from holoshard.shards.read.crop import crop, nearest, with_residue_type
from holoshard.shards.read.gather import Gather
from holoshard.shards.read.pool import Pool, Room

SOURCE = MemoryBlocks(40)


def pool_of(blocks, multiple=1):
    room = Room.widest([Room.of(b) for b in blocks])
    pool = Pool(room, len(blocks), [*DEFAULT_FIELDS], multiple)
    pool.buffer[:] = 0xA5  # whatever was there before must not come through
    for i, block in enumerate(blocks):
        pool.land(i, block)
    return pool


POOLS = {
    m: pool_of([with_residue_type(SOURCE.read(b, raw=m == 1)) for b in range(len(SOURCE.blocks))], m)
    for m in (1, 8)
}
POOL = POOLS[1]


def gather(slots, multiple=1):
    """The batch of some slots, the second of three."""
    steps = [np.array(some, np.int64) for some in ([7, 0, 7], slots, [])]
    return Gather(POOLS[multiple], steps, DEFAULT_FIELDS, multiple)


def expected(c, key):
    if key == ATOM_RESIDUE_TYPE:
        return c.residue_type[c.residue]
    return getattr(c, key)


ATOMS = [k for k in DEFAULT_FIELDS if POOL.axes[k] == "atom"]


@settings(max_examples=50, deadline=None)
@given(slots=st.lists(st.integers(0, 39), max_size=20), multiple=st.sampled_from([1, 8]))
def test_padded_is_each_complex_and_zeros(slots, multiple):
    found = gather(slots, multiple).padded(1)
    assert set(found) == {*DEFAULT_FIELDS, "atom_mask", "ligand_mask", "bond_mask"}
    longest = max((SOURCE.complexes[s].n_atoms for s in slots), default=1)
    assert found["element"].shape == (len(slots), -(-longest // multiple) * multiple)
    for b, s in enumerate(slots):
        c = SOURCE.complexes[s]
        for key, mask in [
            *((k, "atom_mask") for k in ATOMS),
            ("bond_atoms", "bond_mask"),
            ("bond_order", "bond_mask"),
        ]:
            assert found[key].dtype == expected(c, key).dtype
            assert np.array_equal(found[key][b, : found[mask][b].sum()], expected(c, key))
            assert not found[key][b, ~found[mask][b]].any()
        assert found["atom_mask"][b].sum() == c.n_atoms
        assert found["ligand_mask"][b].sum() == c.n_ligand_atoms == found["n_ligand_atoms"][b]
        assert np.array_equal(found["pk"][b], np.float32(c.affinity.pk), equal_nan=True)
        assert found["flags"][b] == c.flags


@settings(max_examples=50, deadline=None)
@given(slots=st.lists(st.integers(0, 39), max_size=20))
def test_packed_is_each_complex_end_to_end(slots):
    found = gather(slots).packed(1)
    bounds = found["atom_cu_seqlens"]
    assert bounds.dtype == np.int32
    assert bounds.tolist() == [0, *np.cumsum([SOURCE.complexes[s].n_atoms for s in slots])]
    for b, s in enumerate(slots):
        c, here = SOURCE.complexes[s], slice(bounds[b], bounds[b + 1])
        for key in ATOMS:
            assert np.array_equal(found[key][here], expected(c, key))
        assert (found["atom_batch"][here] == b).all()
        assert np.array_equal(found["ligand_mask"][here], c.is_ligand)
        bonds = slice(*found["bond_cu_seqlens"][b : b + 2])
        assert np.array_equal(found["bond_atoms"][bonds], c.bond_atoms.astype(int) + bounds[b])


def test_distances():
    columns = gather([3, 5]).padded(1)
    found = Batch(columns, np.array([3, 5]), 2).distances()
    for b, s in enumerate((3, 5)):
        x = SOURCE.complexes[s].position.astype(float)
        n = len(x)
        assert found[b, :n, :n] == pytest.approx(np.linalg.norm(x[:, None] - x, axis=-1), abs=1e-4)
        assert not found[b, n:].any()
        assert not found[b, :, n:].any()


def test_a_missing_key_names_the_others():
    batch = Batch({"pk": np.zeros(1)}, np.zeros(1, np.int64), 1)
    with pytest.raises(KeyError, match="it has pk"):
        batch["charge"]
    assert "pk" in batch
    assert "charge" not in batch


def test_torch_tensors():
    torch = pytest.importorskip("torch")
    batch = Batch(gather([0, 1]).padded(1), np.array([0, 1]), 2)
    tensors = batch.torch()
    assert tensors["position"].dtype == torch.float32
    assert tensors["position"].data_ptr() == batch["position"].ctypes.data
    assert tensors["flags"].dtype == torch.int64
    assert tensors["index"].tolist() == [0, 1]
    assert np.array_equal(tensors["bond_atoms"].numpy(), batch["bond_atoms"])


def plain_crop(c, most):
    """The same by a loop: indices of the atoms that stay."""
    if c.n_atoms <= most:
        return np.arange(c.n_atoms)
    x = np.rint(c.position * 1000.0).astype(np.int64)
    square = ((x[:, None] - x[None, : c.n_ligand_atoms]) ** 2).sum(-1).min(1)
    square[: c.n_ligand_atoms] = -1
    return np.sort(np.argsort(square, kind="stable")[: max(most, c.n_ligand_atoms)])


@pytest.mark.parametrize("most", [1, 30, 57, 80, 200])
def test_crop_keeps_the_nearest_atoms_and_their_bonds(most):
    for source in (SOURCE, MemoryBlocks(300, 300, seed=2)):
        block = source.read(0, raw=True)
        found = crop(block, most)
        for i, c in enumerate(source.complexes[: block.n_complexes]):
            one, stay = found.take(np.array([i])), plain_crop(c, most)
            assert np.array_equal(from_fixed(one.columns["position"], 1000), c.position[stay])
            assert np.array_equal(one.columns["residue"], c.residue[stay])
            pairs = [tuple(p) for p in c.bond_atoms.tolist() if set(p) <= set(stay.tolist())]
            assert [tuple(stay[list(p)].tolist()) for p in one.columns["bond_atoms"]] == pairs
            whole = np.isin(c.bond_atoms, stay).all(1)
            assert np.array_equal(one.columns["bond_order"], c.bond_order[whole])
            assert np.array_equal(one.columns["residue_type"], c.residue_type)


def test_nearest_is_the_squared_distance():
    x = np.array([[[0, 0, 0], [3, 0, 0], [3, 4, 0]]], np.int16)
    assert nearest(x, np.array([1])).tolist() == [[-1, 9, 25]]
    assert nearest(x, np.array([2])).tolist() == [[-1, -1, 16]]


@pytest.mark.parametrize(
    ("key", "derive"), [("residue", with_residue_type), ("bond_atoms", lambda b: crop(b, 20))]
)
def test_rows_outside_the_complex_are_refused(key, derive):
    block = SOURCE.read(0, raw=True)
    columns = {**block.columns, key: block.columns[key] + np.uint16(5000)}
    with pytest.raises(FormatError, match="outside its complex"):
        derive(Block.of(block.fields, columns, block.counts))


def test_rotations_are_proper_uniform_and_pure():
    turn = rotations(np.arange(4000), 0, 1)
    assert np.einsum("nij,nkj->nik", turn, turn) == pytest.approx(np.tile(np.eye(3), (4000, 1, 1)), abs=1e-5)
    assert np.linalg.det(turn) == pytest.approx(np.ones(4000), abs=1e-5)
    # Haar: every entry has mean 0 and variance 1/3; the trace has mean 0 and variance 1.
    assert np.abs(turn.mean(0)).max() < 0.05
    assert turn.var(0) == pytest.approx(np.full((3, 3), 1 / 3), abs=0.03)
    assert np.trace(turn, axis1=1, axis2=2).var() == pytest.approx(1, abs=0.1)
    assert np.array_equal(rotations(np.array([17, 3, 17]), 0, 1), turn[[17, 3, 17]])
    assert not np.array_equal(rotations(np.arange(4000), 0, 2), turn)
