"""Streams: every rank, any number of threads, resume, errors and shutdown."""

from __future__ import annotations

import threading
import tracemalloc
import weakref

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from memory_blocks import MemoryBlocks

from holoshard.shards.errors import FormatError, UsageError
from holoshard.shards.read.stream import Stream, StreamOptions

SOURCE = MemoryBlocks(150)


def stream(source=SOURCE, *, batch_size=8, **options):
    chosen = {k: options.pop(k) for k in list(options) if k in StreamOptions.__dataclass_fields__}
    return Stream(
        source, source.rows, source.lengths, batch_size=batch_size, options=StreamOptions(**chosen), **options
    )


def assert_rows(batch, source=SOURCE):
    """Row b of the batch is complex index[b]."""
    for b, row in enumerate(batch.index):
        c = source.complexes[row]
        n = c.n_atoms
        assert batch["atom_mask"][b].sum() == n
        assert np.array_equal(batch["position"][b, :n], c.position)
        assert np.array_equal(batch["atom_residue_type"][b, :n], c.residue_type[c.residue])
        assert np.array_equal(batch["pk"][b], np.float32(c.affinity.pk), equal_nan=True)


@settings(max_examples=60, deadline=None)
@given(
    world=st.sampled_from([1, 2, 3, 4, 6, 8]),
    threads=st.integers(0, 4),
    batch_size=st.integers(8, 40),
    shuffle=st.sampled_from(["global", "local", "none"]),
    drop_last=st.booleans(),
    window=st.sampled_from([None, 16, 50]),
    epoch=st.integers(0, 3),
    stop=st.integers(0, 20),
)
def test_any_world_any_threads_the_same_global_batches(
    world, threads, batch_size, shuffle, drop_last, window, epoch, stop
):
    options = {
        "batch_size": batch_size,
        "shuffle": shuffle,
        "drop_last": drop_last,
        "window": window,
        "epoch": epoch,
    }
    whole = stream(threads=0, **options)
    expected = [b.index for b in whole]
    assert len(expected) == len(whole)
    served = np.concatenate([*expected, np.zeros(0, np.int64)])
    assert len(np.unique(served)) == len(served) == (150 // batch_size * batch_size if drop_last else 150)
    ranks = []
    for rank in range(world):
        part = stream(threads=threads, rank=rank, world_size=world, **options)
        mine = []
        for batch in part:  # stop somewhere, and go on in another stream
            mine.append(batch)
            if batch.step == stop:
                break
        state = part.state_dict()
        rest = stream(threads=threads, rank=rank, world_size=world, **options)
        if len(mine) < len(whole):
            rest.load_state_dict(state)
            mine += list(rest)
        assert [b.step for b in mine] == list(range(len(whole)))
        assert [b.global_size for b in mine] == [len(e) for e in expected]
        ranks.append(mine)
    for k, rows in enumerate(expected):
        assert np.array_equal(np.concatenate([mine[k].index for mine in ranks]), rows)
    for batch in ranks[-1]:
        assert_rows(batch)


@pytest.mark.parametrize("world", [1, 2, 3, 4, 6, 8])
def test_any_number_of_workers_the_same_global_batches(world):
    """What the workers of a DataLoader serve on every rank, put together again."""
    whole = [b.index for b in stream(batch_size=12, drop_last=False)]
    for workers in (1, 2, 3, 4):
        steps = [[] for _ in whole]
        for rank in range(world):
            for worker in range(workers):
                part = stream(batch_size=12, drop_last=False, threads=0, rank=rank, world_size=world)
                for batch in part.every(workers, worker):
                    assert batch.step % workers == worker
                    steps[batch.step].append(batch.index)
        for rows, parts in zip(whole, steps, strict=True):
            assert len(parts) == world
            assert np.array_equal(np.concatenate(parts), rows)


def test_skip_and_state_do_not_depend_on_the_world():
    whole = [b.index for b in stream(epoch=2)]
    two = stream(epoch=2, world_size=2)
    for batch in two:
        if batch.step == 6:
            break
    state = two.state_dict()
    assert state["step"] == 7
    other = stream(epoch=0, world_size=4, rank=3)
    other.load_state_dict(state)
    assert np.array_equal(next(iter(other)).index, whole[7][6:])
    assert np.array_equal(next(iter(stream(epoch=2, skip=7))).index, whole[7])


def test_resume_reads_only_what_comes():
    source = MemoryBlocks(400)
    late = stream(source, window=40, skip=45, threads=0)
    assert len(list(late)) == 5
    assert len(source.reads) < 12


def test_iterating_again_is_the_next_epoch():
    s = stream()
    first, second = [b.index for b in s], [b.index for b in s]
    assert s.epoch == 2
    assert s.state_dict()["step"] == 0
    assert not np.array_equal(np.concatenate(first), np.concatenate(second))
    assert all(np.array_equal(a, b.index) for a, b in zip(second, stream(epoch=1), strict=True))


@pytest.mark.parametrize(
    "other", [{"seed": 1}, {"batch_size": 9}, {"shuffle": False}, {"window": 16}, {"fingerprint": "x"}]
)
def test_a_state_of_another_order_is_refused(other):
    with pytest.raises(UsageError, match=next(iter(other))):
        stream(**other).load_state_dict(stream().state_dict())


@pytest.mark.parametrize("threads", [0, 1, 3])
def test_an_error_reaches_the_consumer_with_the_block(threads):
    broken = MemoryBlocks(150, broken=7)
    with pytest.raises(FormatError, match=r"block 7 .*unplugged"):
        list(stream(broken, threads=threads))
    assert not workers()


def test_each_block_is_read_once_an_epoch():
    source = MemoryBlocks(400)
    # A block at a cut between two windows is held until the second has it.
    assert len(list(stream(source, window=80, lanes=1, threads=2))) == 50
    assert len(source.reads) == len(set(source.reads)) == 50
    # A block at a cut between two lanes is the first of both, or the last.
    source = MemoryBlocks(400)
    assert len(list(stream(source, window=80, lanes=4, threads=2))) == 50
    assert len(source.reads) == len(set(source.reads)) == 50


@pytest.mark.parametrize("threads", [0, 2])
def test_windows_of_more_and_more_blocks(threads):
    """The first windows hold few blocks, so the pool grows; a block of two windows is still read once."""
    source = MemoryBlocks(400)
    rows = np.concatenate([np.arange(60), np.arange(60, 400, 3)])
    found = [
        b
        for b in Stream(
            source, rows, source.lengths, batch_size=10, shuffle="none", window=20,
            options=StreamOptions(threads=threads),
        )
    ]  # fmt: skip
    served = rows[: len(found) * 10]
    assert np.array_equal(np.concatenate([b.index for b in found]), served)
    for batch in found:
        assert_rows(batch, source)
    assert sorted(source.reads) == sorted(source.expected) == np.unique(served // 8).tolist()


def test_batches_stay_as_they_are():
    """Memory that is used again is never that of a batch which somebody holds, in later epochs neither."""
    s = stream(window=16, threads=2)
    for batch in [b for _ in range(3) for b in s]:
        assert_rows(batch)


def test_stopping_early_leaves_no_thread_and_reads_little():
    source = MemoryBlocks(1000, 4)
    for _ in stream(source, window=16, threads=3):
        break
    assert not workers()
    assert len(source.reads) < 60


def workers():
    return [t for t in threading.enumerate() if t.name.startswith("holoshard-stream")]


def test_weights_repeat_and_leave_out():
    weights = np.where(np.arange(150) < 50, 2.0, 0.0)
    served = np.concatenate([b.index for b in stream(weights=weights, drop_last=False)])
    assert len(served) == 150
    assert np.bincount(served).tolist() == [3] * 50


def test_packed_cropped_and_turned():
    plain = next(iter(stream(batch_size=6)))
    packed = next(iter(stream(batch_size=6, layout="packed", max_atoms=40, rotate=True)))
    again = next(iter(stream(batch_size=6, max_atoms=40, rotate=True)))
    assert np.array_equal(plain.index, packed.index)
    for b, row in enumerate(packed.index):
        c = SOURCE.complexes[row]
        lo, hi = packed["atom_cu_seqlens"][b : b + 2]
        assert hi - lo == min(c.n_atoms, max(40, c.n_ligand_atoms))
        x = packed["position"][lo:hi]
        assert x == pytest.approx(again["position"][b, : hi - lo], abs=1e-4)
        assert not np.allclose(x[: c.n_ligand_atoms], c.position[: c.n_ligand_atoms])
        assert np.linalg.norm(x[: c.n_ligand_atoms], axis=1) == pytest.approx(
            np.linalg.norm(c.position[: c.n_ligand_atoms], axis=1), abs=1e-3
        )


def test_only_the_fields_asked_for():
    batch = next(iter(stream(fields=["pk", "element"])))
    assert set(batch) == {"pk", "element", "atom_mask", "ligand_mask"}


def test_a_rank_may_get_nothing_of_a_last_batch():
    source = MemoryBlocks(9)
    batches = [list(stream(source, rank=r, world_size=8, drop_last=False)) for r in range(8)]
    sizes = [[b.size for b in mine] for mine in batches]
    assert [sum(s) for s in zip(*sizes, strict=True)] == [8, 1]
    empty = next(mine[1] for mine in batches if mine[1].size == 0)
    assert empty["position"].shape == (0, 1, 3)
    assert empty.global_size == 1


def test_a_data_set_smaller_than_a_batch():
    assert list(stream(MemoryBlocks(5))) == []
    (only,) = stream(MemoryBlocks(5), drop_last=False)
    assert only.size == only.global_size == 5


@pytest.mark.parametrize("wrong", [{"rank": 2, "world_size": 2}, {"world_size": 9}, {"skip": -1}])
def test_impossible_options_are_refused(wrong):
    with pytest.raises(UsageError):
        stream(**wrong)


def test_nothing_holds_on_to_a_batch_that_was_served():
    s = stream(MemoryBlocks(300), window=200, threads=0)
    served = []
    for batch in s:
        served.append(weakref.ref(batch["position"]))
    del batch
    assert len(served) == 37
    kept, waiting = [], iter(stream(MemoryBlocks(300), window=200, threads=2))
    for batch in waiting:
        kept.append(weakref.ref(batch["position"]))
        assert sum(r() is not None for r in kept) <= 2
    assert not any(r() for r in served)


def peak_bytes(n, **options):
    """Most memory that one epoch of n complexes allocates on top of the source."""
    source = MemoryBlocks(n, 16)
    s = stream(source, batch_size=16, window=128, **options)
    len(s.order)  # the order holds a few numbers a complex; it is there before the first batch
    tracemalloc.start()
    try:
        for _ in s:
            pass
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("threads", [0, 2])
def test_memory_does_not_grow_with_the_data_set(threads):
    small, large = peak_bytes(400, threads=threads), peak_bytes(4000, threads=threads)
    assert large < 2 * small  # of ten times the data; how far threads are ahead varies
    assert (
        small > 128 * 60 * 20
    )  # a window of complexes of about 60 atoms, 20 bytes each: it is measured at all
