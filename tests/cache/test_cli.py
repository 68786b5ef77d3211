"""The commands: stat, warm, verify, clear, advise, on real files and in the command tree."""

from __future__ import annotations

import json
import os
import tomllib

import h5py
import numpy as np
import pytest

from holoshard.__main__ import main
from holoshard.cache.advise import advise, hit_ratio, orders
from holoshard.cache.checksum import crc32
from holoshard.cache.errors import SettingError, SourceError
from holoshard.cache.extents import read_extents
from holoshard.cache.tiered import open_cache
from holoshard.cache.warm import merged, warm

SIZES = (3000, 5000, 100, 9000)


@pytest.fixture
def data(tmp_path):
    """As much of a data set as a cache looks at."""
    folder, rng = tmp_path / "data", np.random.default_rng(0)
    folder.mkdir()
    table = {"offset": [], "length": [], "crc32": []}
    for split in ("train", "test"):
        body, offset = b"header", 6
        for size in SIZES:
            block = rng.bytes(size)
            for name, value in (("offset", offset), ("length", size), ("crc32", crc32(block))):
                table[name].append(value)
            body, offset = body + block, offset + size
        (folder / f"{split}-00000.h5").write_bytes(body)
    with h5py.File(folder / "index.h5", "w") as file:
        for name, values in table.items():
            file[f"blocks/{name}"] = np.array(values, np.int64)
    shards = [{"name": f"{s}-00000.h5", "split": s, "n_complexes": 4 * 8 - 1} for s in ("train", "test")]
    (folder / "manifest.json").write_text(
        json.dumps({"container": "hdf5", "block_size": 8, "fingerprint": "f00d", "shards": shards})
    )
    return folder


def run(capsys, *arguments) -> dict:
    code = main([*map(str, arguments), "--json"])
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert told["exit"] == code
    return told


def test_warm_stat_verify_clear(data, tmp_path, capsys):
    nvme = tmp_path / "nvme"
    nvme.mkdir()
    told = run(capsys, "cache", "warm", data, "--tiers", "memory:1GiB", f"{nvme}:1MiB", "--split", "train")
    assert (told["read"], told["read_bytes"], told["held"], told["refused"]) == (4, sum(SIZES), 0, 0)
    told = run(capsys, "cache", "warm", data, "--tiers", f"{nvme}:1MiB")
    assert (told["read"], told["held"]) == (4, 4)
    told = run(capsys, "cache", "stat", nvme)
    (name,) = told["datasets"]
    assert told["datasets"][name] == {"blocks": 8, "bytes": 2 * sum(SIZES) + 8 * 32, "in_use": False}
    assert told["filling"] == 0

    cache = open_cache([f"{nvme}:1MiB"], data)
    for path, offset, length in cache.extents.ranges():
        body = open_bytes(path)
        assert bytes(cache(path, offset, length)) == body[offset : offset + length]
        assert bytes(cache(path, offset + 10, 20)) == body[offset + 10 : offset + 30]
    assert cache.source.fetches == 0
    cache.close()

    assert run(capsys, "cache", "verify", nvme)["whole"] == 8
    block = next(nvme.rglob(f"{name}/*"))
    block.write_bytes(block.read_bytes()[:-1] + b"\0\0")
    told = run(capsys, "cache", "verify", nvme)
    assert (told["whole"], told["damaged"], told["exit"]) == (7, [f"{name}/{block.name}"], 1)
    assert run(capsys, "cache", "verify", nvme)["exit"] == 0

    told = run(capsys, "cache", "clear", nvme, "--data", data)
    assert told["dropped"] == 7
    assert told["freed_bytes"] == run(capsys, "cache", "stat", nvme)["used_bytes"] + told["freed_bytes"] > 0


def test_warm_says_when_it_cached_nothing(data, tmp_path, capsys, monkeypatch):
    nvme = tmp_path / "nvme"
    told = run(capsys, "cache", "warm", data, "--tiers", f"{nvme}:1MiB")
    assert told["exit"] == 2
    assert f"{nvme} is no folder" in told["error"]
    nvme.mkdir()
    told = run(capsys, "cache", "warm", data, "--tiers", f"{nvme}:10")
    assert (told["read"], told["refused"], told["exit"]) == (8, 8, 1)
    told = run(capsys, "cache", "warm", data, "--tiers", f"{nvme}:1MiB")
    assert (told["refused"], told["exit"]) == (0, 0)
    monkeypatch.setattr("os.access", lambda *_: False)  # an administrator may write anywhere
    told = run(capsys, "cache", "warm", data, "--tiers", f"{nvme}:1MiB")
    assert told["exit"] == 2
    assert "not writable" in told["error"]
    monkeypatch.undo()
    other = tmp_path / "other"
    other.mkdir()
    (other / f"holoshard-cache-{os.getuid()}").touch()  # in the way
    told = run(capsys, "cache", "warm", data, "--tiers", f"{other}:1MiB")
    assert told["exit"] == 2
    assert "cannot be opened" in told["error"]


def open_bytes(path):
    with open(path, "rb") as file:
        return file.read()


def test_warm_reads_neighbours_together_and_stops_at_damage(data):
    ranges = list(read_extents(data).ranges())
    assert [len(run) for run in merged(ranges, 10_000)] == [3, 1, 3, 1]
    assert [len(run) for run in merged(ranges, 1)] == [1] * 8
    assert [len(run) for run in merged([*ranges[:1], *ranges[2:3]], 10**6)] == [1, 1]
    cache = open_cache(["memory:1MiB"], data)
    warm(cache, ranges)
    assert cache.source.fetches == 2
    small = open_cache(["memory:4000"], data)
    assert warm(small, ranges)["refused"] > 0
    path = data / "train-00000.h5"
    body = bytearray(path.read_bytes())
    body[4000] ^= 1
    path.write_bytes(body)
    with pytest.raises(SourceError, match=r"train-00000.h5, block of 5000 bytes at 3006"):
        warm(open_cache(["memory:1MiB"], data), ranges)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["warm", "DATA", "--tiers", "memory:1GiB"], "ends with its process"),
        (["warm", "DATA", "--tiers", "TMP:1GiB", "--split", "trial"], "splits train, test"),
        (["warm", "TMP", "--tiers", "TMP:1GiB"], "manifest.json is missing"),
        (["stat", "TMP"], "holds no cache"),
        (["clear", "TMP", "--kind", "decoded"], "holoshard-decoded"),
        (["advise", "--tiers", "memory:1GiB"], "--size"),
        (["advise", "--size", "1GiB", "--tiers", "memory:1GiB", "--nodes", "0"], "one node"),
    ],
)
def test_wrong_calls_end_with_2_and_say_why(data, tmp_path, capsys, arguments, words):
    named = [a.replace("DATA", str(data)).replace("TMP", str(tmp_path)) for a in arguments]
    told = run(capsys, "cache", *named)
    assert told["exit"] == 2
    assert words in told["error"]


def test_advice_follows_theory(data, capsys):
    told = run(capsys, "cache", "advise", data, "--split", "train", "--tiers", "memory:8550")
    assert told["data_bytes"] == sum(SIZES)
    assert told["hit_ratio"]["global_never"] == pytest.approx(0.5, abs=0.01)
    assert told["hit_ratio"]["global_lru"] == pytest.approx(0.5 + 0.5 * np.log(0.5), abs=0.02)
    assert (told["shuffle"], told["policy"]) == ("global", "never")
    main(["cache", "advise", "--size", "1GiB", "--tiers", "memory:256MiB", "--nodes", "4"])
    said = capsys.readouterr().out
    made = tomllib.loads(said[said.index("[data]") :])
    assert made["data"] == {"shuffle": "local"}
    assert made["cache"] == {"policy": "never", "tiers": ["memory:256MiB"]}

    four = advise(10**12, [10**9, 25 * 10**10], nodes=4)
    assert four.ratios["local", "never"] == 1.0
    assert four.ratios["global", "never"] == pytest.approx(0.25, abs=0.03)
    assert (four.shuffle, four.policy) == ("local", "never")

    weighted = advise(10**12, [10**11], zipf=0.8)
    assert weighted.policy == "clairvoyant"
    # Published for Zipf 0.8 and c = 0.1: LRU .42, never evict .43, Belady .66; they depend on the size, too.
    assert weighted.ratios["global", "clairvoyant"] > weighted.ratios["global", "never"] + 0.1
    with pytest.raises(SettingError, match="not empty"):
        advise(0, [1])


def test_the_shuffle_that_hits_most_is_advised():
    nearly = advise(1000, [997], nodes=2)
    assert nearly.ratios["global", "never"] < nearly.ratios["local", "never"] == 1.0
    assert nearly.ratios["global", "never"] > 0.995
    assert nearly.shuffle == "local"
    equal = advise(1000, [1000])
    assert equal.ratios["global", "never"] == equal.ratios["local", "never"]
    assert equal.shuffle == "global"
    assert any("'local' would hit as many" in line for line in equal.text)


def test_a_nodes_share_of_an_epoch():
    local, spread = orders(4, "local"), orders(4, "global")
    assert len(set(local.tolist())) == 250
    assert len(set(spread.tolist())) > 900
    assert hit_ratio(local, 250, "lru") == 1.0
