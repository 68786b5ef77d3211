from __future__ import annotations

import pytest
import torch
from exchange_world import sums_in_two_levels, train_at
from worlds import config, largest_difference, metrics, run_world, train

from holoshard.shards.errors import ConfigError
from holoshard.train.compress.sign import Sign
from holoshard.train.config import ModelConfig
from holoshard.train.configfile import parse_config
from holoshard.train.levels import (
    describe,
    exchange_seconds,
    flat,
    of_config,
    packed,
    text_of_levels,
    two_level,
)
from holoshard.train.model.transformer import parameter_count
from holoshard.train.topology import (
    Topology,
    hosts,
    is_even,
    racks_of_slurm,
    racks_of_toml,
    read_racks,
)

SLURM = """\
SwitchName=leaf1 Level=0 LinkSpeed=1 Nodes=gpu[01-02]
SwitchName=leaf2 Level=0 LinkSpeed=1 Nodes=gpu[03-04]
SwitchName=spine Level=1 LinkSpeed=1 Nodes=gpu[01-04] Switches=leaf[1-2]
"""
TOML = '[racks]\nr1 = ["gpu[01-02]"]\nr2 = ["gpu03", "gpu04"]\n'


def four_racks(per_rack=4, gpus=2):
    """16 nodes of two GPUs in racks of four."""
    racks = {f"n{i:02d}": f"r{i // per_rack}" for i in range(16)}
    return Topology.whole(racks, gpus)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("a", ["a"]),
        ("a[1-3]", ["a1", "a2", "a3"]),
        ("a[08-10,12],b,c[1]-ib", ["a08", "a09", "a10", "a12", "b", "c1-ib"]),
    ],
)
def test_host_lists(text, names):
    assert hosts(text) == names


def test_both_sources_say_the_same():
    slurm, toml = racks_of_slurm(SLURM), racks_of_toml(TOML)
    assert slurm == {"gpu01": "leaf1", "gpu02": "leaf1", "gpu03": "leaf2", "gpu04": "leaf2"}
    assert [slurm[n][-1] for n in slurm] == [toml[n][-1] for n in slurm]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x = 1", r"expected a table \[racks\]"),
        ("[racks]\nr1 = 3", r"expected a table \[racks\]"),
        ("[racks", r"expected a table \[racks\]"),
        ('[racks]\nr1 = ["a"]\nr2 = ["a"]', "node a is in r1 and in r2"),
        ("[racks]", "no nodes found"),
    ],
)
def test_what_is_no_topology_is_refused(text, expected):
    with pytest.raises(ConfigError, match=expected):
        racks_of_toml(text)


def test_sources_that_are_not_there(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match=r"name a topology\.toml instead"):
        read_racks("slurm")
    with pytest.raises(ConfigError, match="no such file"):
        read_racks(str(tmp_path / "none.toml"))
    fake = tmp_path / "scontrol"
    fake.write_text(f"#!/bin/sh\n/bin/cat <<'END'\n{SLURM}END\n")
    fake.chmod(0o755)
    assert read_racks("slurm")["gpu03"] == "leaf2"


def test_order_brings_neighbours_together():
    """Ranks dealt over nodes in turn: the order undoes it, and rank 0 stays first."""
    racks = racks_of_toml(TOML)
    topology = Topology.of(["gpu03", "gpu01", "gpu04", "gpu02"] * 2, racks)
    assert topology.order() == [0, 4, 2, 6, 1, 5, 3, 7]
    assert topology.level(0, 4) == "node"
    assert topology.level(0, 2) == "rack"
    assert topology.level(0, 1) == "cross"
    with pytest.raises(ConfigError, match="no node 'gpu09'"):
        Topology.of(["gpu09"], racks)
    assert Topology.of(["gpu01.cluster.example"], racks).places[0].rack == "r1"


def test_bytes_by_level():
    topology, n = four_racks(gpus=1), 64 * 1024
    group = topology.order()
    assert flat(topology, group, n) == {
        "node": 0,
        "rack": 12 * 2 * 15 / 16 * 4 * n,
        "cross": 4 * 2 * 15 / 16 * 4 * n,
    }
    two = two_level(topology, group, n, flat)
    # Four pieces, each summed by a ring of the four racks: every step of these crosses.
    assert two["cross"] == 4 * 4 * 2 * 3 / 4 * 4 * n / 4
    assert two["rack"] == 4 * (4 * 2 * 3 / 4 * 4 * n)
    one = packed(topology, group, n, Sign())
    chunk = Sign().packed_size(n // 16)
    assert one["cross"] == 16 * 12 * chunk + 4 * 15 * chunk  # from everyone to everyone, then a ring
    # A ring in the order of ranks that are dealt over racks crosses at every step.
    dealt = [i * 4 % 15 for i in range(15)] + [15]
    assert flat(topology, dealt, n)["cross"] > 3 * flat(topology, group, n)["cross"]
    uneven = Topology.of(["a", "b", "c"], {"a": "r1", "b": "r1", "c": "r2"})
    assert two_level(uneven, [0, 1, 2], n, flat) == flat(uneven, [0, 1, 2], n)
    assert not is_even([[0, 1], [2]])
    assert not is_even([[0], [1]])


def test_what_travels_while_others_pack_costs_no_time():
    topology, n, speed = four_racks(gpus=1), 64 * 1024, 1e5
    group = topology.order()
    chunk = Sign().packed_size(n // 16)
    early, late = 16 * 12 * chunk / 4 / speed, 4 * 15 * chunk / 4 / speed

    def seconds(way, free, turns):
        return exchange_seconds(topology, group, way, n, speed, free, turns)

    assert seconds("1-bit", 10.0, 1) == pytest.approx(10 + early + late)
    assert seconds("1-bit", 10.0, 8) == pytest.approx(10 + early / 8 + late)
    assert seconds("1-bit", 0.0, 8) == pytest.approx(early + late)
    assert seconds("flat", 10.0, 8) == pytest.approx(10 + flat(topology, group, n)["cross"] / 4 / speed)
    one_rack = Topology.of(["a", "b"], {"a": "r", "b": "r"})
    assert exchange_seconds(one_rack, [0, 1], "flat", n, speed, 0.5) == 0.5


def test_description():
    found = describe(four_racks(), 2, 10_000_000)
    assert found["shard_groups"] == [[2 * i, 2 * i + 1] for i in range(16)]
    assert found["replica_groups"] == [list(range(0, 32, 2)), list(range(1, 32, 2))]
    assert found["shard_level"] == "node"
    crossing = {way: count["cross"] for way, count in found["bytes"].items()}
    assert crossing["flat"] > crossing["two-level"] > crossing["1-bit"] > crossing["two-level, 1-bit across"]
    assert all(count["node"] == 0 for count in found["bytes"].values())  # replicas have nodes of their own
    text = text_of_levels(found)
    assert "16 copies of the model, each in 2 processes within one node" in text
    assert "across racks" in text_of_levels(describe(four_racks(), 16, 1000))


def test_description_of_a_configuration(tmp_path):
    path = tmp_path / "topology.toml"
    path.write_text(TOML)
    text = f'[parallel]\nreplicate = 4\ntopology = "{path}"'
    found = of_config(parse_config(text, "x.toml"), per_node=2)
    assert found["shard_groups"] == [[0, 1], [2, 3], [4, 5], [6, 7]]
    n = -(-parameter_count(ModelConfig()) // 2)
    assert found["bytes"]["flat"]["cross"] == pytest.approx(2 * 2 * (2 * 3 / 4 * 4 * n))
    assert found["link_seconds"] == {}
    path.write_text("rack_gb_per_s = 0.5\n" + TOML)
    stated = of_config(parse_config(text, "x.toml"), per_node=2)
    assert stated["link_seconds"]["flat"] == pytest.approx(found["bytes"]["flat"]["cross"] / 2 / 0.5e9)
    assert "links, s" in text_of_levels(stated)
    assert "links, s" not in text_of_levels(found)
    path.write_text("rack_gb_per_s = -1\n" + TOML)
    with pytest.raises(ConfigError, match=r"rack_gb_per_s = -1, expected GB a second"):
        of_config(parse_config(text, "x.toml"), per_node=2)
    path.write_text(TOML)
    with pytest.raises(ConfigError, match="expected a divisor of the 8 processes"):
        of_config(parse_config(text.replace("replicate = 4", "replicate = 3"), "x.toml"), per_node=2)


@pytest.mark.parametrize("racks", [[[0, 1], [2, 3]], [[0, 3], [1, 2]]], ids=str)
def test_two_levels_sum_what_one_does(tmp_path, racks):
    run_world(4, sums_in_two_levels, str(tmp_path), racks)
    found = [torch.load(tmp_path / f"{rank}.pt", weights_only=True) for rank in range(4)]
    mean = torch.stack([f["given"] for f in found]).mean(0)
    for each in found:
        assert torch.equal(each["exact"], torch.arange(101.0).view(1, 101) * 10)
        assert torch.equal(each["mean"], found[0]["mean"])
    error = (found[0]["mean"] - mean).norm() / mean.norm()
    assert 0 < error < 0.02


NODES = ["gpu01", "gpu03", "gpu02", "gpu04"]  # dealt over racks in turn
NO_CLIP = {"clip": 0.0}


@pytest.mark.parametrize(("replicate", "shard"), [(4, 1), (2, 2)])
def test_the_trainer_follows_the_topology(shards, tmp_path, replicate, shard):
    topology = tmp_path / "topology.toml"
    topology.write_text(TOML)
    run_world(1, train, config(shards, optimizer=NO_CLIP), str(tmp_path / "one"))
    parallel = {"replicate": replicate, "shard": shard, "topology": str(topology)}
    text = config(shards, optimizer=NO_CLIP, parallel=parallel)
    run_world(4, train_at, text, str(tmp_path / "four"), NODES)
    assert largest_difference(tmp_path / "one", tmp_path / "four") <= 1e-5


def test_packed_across_racks_alone(shards, tmp_path):
    topology = tmp_path / "topology.toml"
    topology.write_text(TOML)
    parallel = {"replicate": 4, "topology": str(topology)}
    text = config(
        shards, parallel=parallel, compression={"warmup": 3}, optimizer={"kind": "onebit-adam", **NO_CLIP}
    )
    run_world(4, train_at, text, str(tmp_path), NODES)
    losses = [m["loss"] for m in metrics(tmp_path).values()]
    assert losses[-1] < losses[0]
