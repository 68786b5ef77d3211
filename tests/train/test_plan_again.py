from __future__ import annotations

import json

import pytest
from worlds import config, largest_difference, metrics, run_world, train

from holoshard.__main__ import main
from holoshard.shards.errors import UsageError
from holoshard.train.configfile import load_config
from holoshard.train.plan import advise
from holoshard.train.plan.again import measured, plan_again
from holoshard.train.plan.strategies import Cluster
from holoshard.train.plan.traffic import Traffic


def line(step, seconds, **parts):
    return {
        "step": step,
        "loss": 1.0,
        "flops_per_s": 6e9,
        "seconds": seconds,
        "peak_memory": 100 + step,
        **parts,
    }


def write_log(run, *lines):
    run.mkdir(exist_ok=True)
    (run / "metrics.jsonl").write_text("".join(json.dumps(each) + "\n" for each in lines))


def test_what_a_run_measured(tmp_path):
    """Of the newest start, without its first line; flops without what was waited."""
    parts = {"forward": 1.0, "backward": 2.0, "communication": 3.0}
    write_log(
        tmp_path / "run",
        {"run": {"processes": 9}},
        line(1, 1.0, forward=1.0),
        {"run": {"processes": 4}},
        line(10, 500.0, forward=1.0, backward=1.0),
        line(20, 6.0, **parts),
        {"step": 20, "eval": {}},
        [1, 2],
        "step",
        {"run": 3},
        {"step": 25, "flops_per_s": "fast"},
        line(26, None, forward=1.0),
        line(27, 1.0, forward="long"),
        line(30, 8.0, **{**parts, "communication": 5.0}),
    )
    found = measured(tmp_path / "run")
    assert found.processes == 4
    assert found.step_s == pytest.approx(0.7)
    assert found.flops == pytest.approx((6e9 * 6 / 3 + 6e9 * 8 / 3) / 2)
    assert found.memory == 130


def test_a_run_too_short_to_tell(tmp_path):
    write_log(tmp_path / "run", {"run": {"processes": 1}}, line(1, 1.0, forward=1.0))
    with pytest.raises(UsageError, match="1 lines of metrics since its newest start, expected 2"):
        measured(tmp_path / "run")
    with pytest.raises(UsageError, match="0 lines of metrics"):
        measured(tmp_path / "none")


@pytest.fixture
def run(shards, tmp_path):
    run_world(1, train, config(shards), str(tmp_path / "run"))
    return tmp_path / "run"


def chooser(monkeypatch, parallel, seconds=1.0, now=9.0, tensors=0):
    """In place of the plan, which takes long: it sees what was measured, and chooses `parallel`."""
    seen = []

    def plan(config, cluster):
        seen.append(cluster)
        return {"recommended": parallel and {"parallel": parallel, "seconds": seconds}}

    def running(config, cluster):
        held = {"activations": tensors}
        return advise.Estimate("as it runs", config, 1, held, now, Traffic(0, 0, 0, 0))

    monkeypatch.setattr(advise, "plan", plan)
    monkeypatch.setattr(advise, "running", running)
    return seen


def test_a_run_goes_on_in_the_layout_that_is_chosen_anew(run, shards, tmp_path, monkeypatch):
    seen = chooser(monkeypatch, '[parallel]\nreplicate = 2\nreshard = "grad_op"\n')
    made = plan_again(run, Cluster(2, 2, 2**40))
    assert made["changed"]
    assert seen[0].flops == measured(run).flops > 0
    assert seen[0].memory == 2**40 - measured(run).memory
    changed = load_config(run / "config.toml")
    assert (changed.parallel.replicate, changed.parallel.reshard) == (2, "grad_op")
    assert changed.data == load_config(run / "config.toml").data
    # Ten steps of one process, ten of four in the new layout: as twenty of one.
    text = (run / "config.toml").read_text().replace("steps = 10", "steps = 20")
    run_world(4, train, text, str(run))
    run_world(1, train, config(shards), str(tmp_path / "alone"))
    text = config(shards, run={"steps": 20})
    run_world(1, train, text, str(tmp_path / "alone"))
    assert max(metrics(run)) == 20
    assert largest_difference(run, tmp_path / "alone") <= 1e-5


def test_nothing_is_written_unless_it_fits_and_is_wanted(run, monkeypatch):
    before = (run / "config.toml").read_text()
    chooser(monkeypatch, "[parallel]\nreplicate = 2\n")
    assert not plan_again(run, Cluster(2, 2, 2**40), write=False)["changed"]
    chooser(monkeypatch, None)
    with pytest.raises(UsageError, match="no layout of 4 processes fits"):
        plan_again(run, Cluster(2, 2, 2**40))
    assert (run / "config.toml").read_text() == before


def test_a_layout_that_fits_is_left_only_for_a_shorter_step(run, monkeypatch):
    wanted, here = '[parallel]\ncheckpointing = "full"\n', Cluster(1, 1, 2**40)
    for seconds, now, changes in ((0.95, 1.0, False), (1.0, 1.0, False), (0.85, 1.0, True)):
        chooser(monkeypatch, wanted, seconds, now)
        assert plan_again(run, here, write=False, margin=0.1)["changed"] is False
        before = (run / "config.toml").read_text()
        assert plan_again(run, here, margin=0.1)["changed"] == changes
        (run / "config.toml").write_text(before)
    chooser(monkeypatch, wanted, 5.0, 1.0, tensors=2**41)  # what runs does not fit there
    assert plan_again(run, here, margin=0.1)["changed"]


@pytest.mark.slow
def test_command_with_the_real_plan(run, capsys):
    assert main(["plan", str(run), "--nodes", "1", "--gpus-per-node", "2", "--memory", "4GiB", "--json"]) == 0
    out = capsys.readouterr().out
    assert "s a step of 1 processes" in out
    made = json.loads(out.splitlines()[-1])
    assert made["measured"]["step_s"] > 0
    assert load_config(run / "config.toml").parallel is not None
    assert made["recommended"]["fits"]


def test_a_plan_says_what_crosses_which_level(tmp_path, monkeypatch, capsys):
    chooser(monkeypatch, "[parallel]\n")
    monkeypatch.setattr(advise, "text_of", lambda made: "the plan")
    (tmp_path / "topology.toml").write_text('[racks]\na = ["n[1-2]"]\nb = ["n[3-4]"]\n')
    file = tmp_path / "run.toml"
    file.write_text(f'[parallel]\nreplicate = 4\ntopology = "{tmp_path / "topology.toml"}"\n')
    assert main(["plan", str(file), "--nodes", "4", "--gpus-per-node", "2", "--json"]) == 0
    out = capsys.readouterr().out
    assert "4 copies of the model, each in 2 processes within one node" in out
    made = json.loads(out.splitlines()[-1])
    assert made["levels"]["bytes"]["flat"]["cross"] > 2 * made["levels"]["bytes"]["1-bit"]["cross"] > 0
