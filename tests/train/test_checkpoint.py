from __future__ import annotations

import json
import logging
import shutil

import pytest
import torch
from toy_model import make, random_batch
from worlds import config, largest_difference, metrics, run_world, train

from holoshard.shards.errors import UsageError
from holoshard.train.checkpoint import Checkpoints, set_optimizer_steps, training_tensors
from holoshard.train.config import OptimizerConfig
from holoshard.train.optimizer import make_optimizer
from holoshard.train.parallel.mesh import AXES, World

ALONE = World(0, 1, 0, 1, torch.device("cpu"), dict.fromkeys(AXES, 1), None)
SAME = {"seed": 0}


def trained(steps, seed=0):
    """A model and its optimizer after some steps, and its tensors."""
    model = make(seed=seed).train()
    optimizer = make_optimizer(model, OptimizerConfig())
    tensors = training_tensors(model, optimizer)
    go_on(model, optimizer, steps)
    return model, optimizer, tensors


def go_on(model, optimizer, steps):
    for _ in range(steps):
        optimizer.zero_grad()
        model(random_batch()).square().sum().backward()
        optimizer.step()
    return torch.cat([p.detach().ravel() for p in model.parameters()])


def save_some(folder, steps=(1, 2, 3), keep=9):
    checkpoints = Checkpoints(folder, ALONE, keep)
    for step in steps:
        _, _, tensors = trained(step)
        checkpoints.save(step, tensors, {"position": {"step": step}, "same": SAME})
    return checkpoints


def restored(folder, same=SAME):
    model, optimizer, tensors = trained(0, seed=5)
    state = Checkpoints(folder, ALONE).restore(tensors, same)
    return model, optimizer, state and state["position"]["step"]


def test_what_is_saved_comes_back_and_goes_on_bit_for_bit(tmp_path):
    save_some(tmp_path)
    model, optimizer, step = restored(tmp_path)
    assert step == 3
    set_optimizer_steps(optimizer, step)
    straight = trained(5)[0]
    expected = torch.cat([p.detach().ravel() for p in straight.parameters()])
    assert torch.equal(go_on(model, optimizer, 2), expected)


def test_only_the_newest_are_kept_and_nothing_half_written_stays(tmp_path):
    save_some(tmp_path, (1, 2, 3, 4), keep=2)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["latest", "step-00000003", "step-00000004"]
    assert (tmp_path / "latest").read_text().strip() == "step-00000004"


def flip(path):
    data = bytearray(path.read_bytes())
    data[-5] ^= 1
    path.write_bytes(bytes(data))


def cut(path):
    path.write_bytes(path.read_bytes()[:-100])


def reshape(folder, **values):
    state = json.loads((folder / "state.json").read_text())
    (folder / "state.json").write_text(json.dumps({**state, **values}))


DAMAGES = {
    "a bit flipped": lambda folder: flip(next(folder.glob("*.safetensors"))),
    "cut short": lambda folder: cut(next(folder.glob("*.safetensors"))),
    "a file lost": lambda folder: next(folder.glob("*.safetensors")).unlink(),
    "no state": lambda folder: (folder / "state.json").unlink(),
    "state cut short": lambda folder: cut(folder / "state.json"),
    "of a newer version": lambda folder: (folder / "state.json").write_text(
        json.dumps({**json.loads((folder / "state.json").read_text()), "version": 99})
    ),
    "state of another shape": lambda folder: (folder / "state.json").write_text("[1, 2]"),
    "version of another shape": lambda folder: reshape(folder, version="1"),
    "files of another shape": lambda folder: reshape(folder, files={"a": 1}),
    "file names of another shape": lambda folder: reshape(folder, files=[1]),
    "a run of another shape": lambda folder: reshape(folder, same=[]),
    "folder lost": shutil.rmtree,
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_checkpoint_is_skipped(tmp_path, caplog, damage):
    save_some(tmp_path)
    DAMAGES[damage](tmp_path / "step-00000003")
    with caplog.at_level(logging.WARNING, "holoshard"):
        assert restored(tmp_path)[2] == 2
    assert damage == "folder lost" or "step-00000003 is skipped" in caplog.text


def test_all_damaged(tmp_path, caplog):
    save_some(tmp_path, (1, 2))
    for folder in tmp_path.glob("step-*"):
        flip(next(folder.glob("*.safetensors")))
    with caplog.at_level(logging.WARNING, "holoshard"):
        assert restored(tmp_path)[2] is None
    assert "none of the 2 checkpoints" in caplog.text
    assert "starts over from step 0" in caplog.text


def test_half_written_is_ignored_and_overwritten(tmp_path):
    save_some(tmp_path, (1,))
    shutil.copytree(tmp_path / "step-00000001", tmp_path / ".step-00000002.partial")
    (tmp_path / ".step-00000002.partial" / "rubbish").write_text("x")
    assert restored(tmp_path)[2] == 1
    save_some(tmp_path, (2,))
    assert restored(tmp_path)[2] == 2
    assert not (tmp_path / "step-00000002" / "rubbish").exists()


def test_another_setting_is_refused(tmp_path):
    save_some(tmp_path, (1,))
    with pytest.raises(UsageError, match="other values of seed; give the same to continue"):
        restored(tmp_path, {"seed": 1})


def test_nothing_on_disk_is_pickled(tmp_path):
    save_some(tmp_path, (1,))
    for path in (tmp_path / "step-00000001").iterdir():
        assert path.suffix in (".json", ".safetensors")


@pytest.fixture(scope="module")
def pair(shards, tmp_path_factory):
    """Ten steps of two processes, with a checkpoint at the fifth."""
    folder = tmp_path_factory.mktemp("pair")
    text = config(shards, model={"dropout": 0.1}, data={"noise": 0.1})
    run_world(2, train, text, str(folder))
    return folder, text


def back_to_step_5(folder, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    shutil.rmtree(copy / "checkpoints" / "step-00000010")
    lines = (copy / "metrics.jsonl").read_text().splitlines()
    (copy / "metrics.jsonl").write_text("\n".join(lines[:6]) + "\n")
    return copy


def test_resumed_run_is_the_same_bit_for_bit(pair, tmp_path):
    folder, text = pair
    copy = back_to_step_5(folder, tmp_path)
    run_world(2, train, text, str(copy))
    assert metrics(copy)[10]["loss"] == metrics(folder)[10]["loss"]
    assert largest_difference(folder, copy) == 0
    assert largest_difference(folder, copy, "grad_norm") == 0
    assert (copy / "best.safetensors").read_bytes() == (folder / "best.safetensors").read_bytes()


@pytest.mark.parametrize(("size", "parallel"), [(1, {}), (4, {}), (4, {"replicate": 2}), (4, {"tensor": 2})])
def test_resumed_by_another_number_of_processes(shards, tmp_path, size, parallel):
    # Without dropout, whose draws belong to a process.
    folder, copy = tmp_path / "two", tmp_path / "copy"
    run_world(2, train, config(shards), str(folder))
    copy = back_to_step_5(folder, tmp_path)
    run_world(size, train, config(shards, parallel=parallel), str(copy))
    assert largest_difference(folder, copy) <= 1e-6


def test_written_in_the_background(shards, tmp_path):
    text = config(shards, checkpoint={"background": True, "every": 2})
    run_world(2, train, text, str(tmp_path))
    assert len(list((tmp_path / "checkpoints").glob("step-*"))) == 5
    copy = back_to_step_5(tmp_path, tmp_path)
    run_world(2, train, text, str(copy))
    assert metrics(copy)[10]["loss"] == metrics(tmp_path)[10]["loss"]
