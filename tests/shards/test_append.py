"""More parts for a data set: nothing old is touched, nothing comes twice, no group is divided."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from random_complexes import assert_same, random_complexes

from holoshard.__main__ import main
from holoshard.shards.errors import UsageError
from holoshard.shards.make import generations
from holoshard.shards.make.append import append
from holoshard.shards.make.convert import convert
from holoshard.shards.make.pack import pack
from holoshard.shards.make.rule import Rule
from holoshard.shards.make.verify import verify
from holoshard.shards.make.writer import write_part
from holoshard.shards.read.dataset import open_dataset

COMPLEXES = list(random_complexes(160, seed=4))


def clustered(complexes, of):
    """The complexes with the clusters that ``of`` gives their places."""
    return [
        replace(c, text={**c.text, "columns": {**c.text["columns"], "cluster": of(i)}})
        for i, c in enumerate(complexes)
    ]


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    """Forty clusters of four; the first part has two of each of the first thirty."""
    folder = tmp_path_factory.mktemp("append")
    complexes = clustered(COMPLEXES, lambda i: f"k{i % 40}")
    first = [c for i, c in enumerate(complexes) if i < 80 and i % 40 < 30]
    ids = {c.id for c in first}
    write_part(folder / "first.h5", first)
    write_part(folder / "more.h5", [c for c in complexes if c.id not in ids] + first[:7])
    return folder


def make(parts, out, **options):
    return pack([parts / "first.h5"], out, rule=Rule("cluster", fractions=(0.6, 0.2, 0.2)), **options)


def state(folder):
    return {
        p: (p.stat().st_ino, p.stat().st_mtime_ns, p.read_bytes())
        for p in sorted(folder.rglob("*"))
        if p.is_file()
    }


@pytest.mark.parametrize("container", ["hdf5", "zarr"])
def test_nothing_old_is_touched_and_the_rule_goes_on(parts, tmp_path, container):
    out = tmp_path / "set"
    old = make(parts, out, container=container)
    was, before = open_dataset(out), state(out)
    cluster_of = {c.text["columns"]["cluster"]: s for c, s in zip(was, was.column("split"), strict=True)}
    manifest = append(out, [parts / "more.h5"])
    now = state(out)
    for path, told in before.items():
        kept = path.with_name("manifest.1.json") if path.name == "manifest.json" else path
        assert now[kept][2] == told[2]
        assert kept != path or now[path] == told
    assert (manifest.generation, manifest.parent) == (2, old.fingerprint)
    assert manifest.shards[: len(old.shards)] == old.shards
    assert manifest.n_complexes == 160
    assert manifest.making["same_id"] == manifest.making["appended"][0]["same_id"] == 7
    assert verify(out).ok
    dataset = open_dataset(out)
    by_id = {c.id: c for c in clustered(COMPLEXES, lambda i: f"k{i % 40}")}
    places: dict[str, set[str]] = {}
    for c, s in zip(dataset, dataset.column("split"), strict=True):
        assert_same(c, by_id[c.id])
        places.setdefault(c.text["columns"]["cluster"], set()).add(str(s))
    assert all(len(found) == 1 for found in places.values())
    assert all(places[cluster] == {str(s)} for cluster, s in cluster_of.items())
    # Ten clusters are new: they go where the fractions lack most.
    assert dataset.splits == {"train": 96, "valid": 32, "test": 32}
    assert [p.name for p in out.iterdir() if p.name.startswith(".")] == []


def test_who_reads_the_old_generation_goes_on(parts, tmp_path):
    out = tmp_path / "set"
    make(parts, out)
    old = open_dataset(out)
    stream = iter(old.stream("train", batch_size=4, seed=1))
    first = next(stream)
    append(out, [parts / "more.h5"])
    assert len(old) == 60
    assert len(old.column("pk")) == 60
    rest = [batch["pk"] for batch in stream]
    again = open_dataset(out / "manifest.1.json")
    assert again.manifest.fingerprint == old.manifest.fingerprint
    assert again.ids() == old.ids() == open_dataset(out).ids()[:60]
    batches = [batch["pk"] for batch in again.stream("train", batch_size=4, seed=1)]
    np.testing.assert_array_equal(np.stack([first["pk"], *rest]), np.stack(batches))
    assert verify(out / "manifest.1.json").ok


def test_the_same_bytes_however_the_parts_are_cut(parts, tmp_path):
    more = list(open_dataset(parts / "more.h5"))
    write_part(tmp_path / "b.h5", more[60:])
    write_part(tmp_path / "c.h5", more[:60][::-1])
    found = []
    for name, files, threads in (
        ("x", [parts / "more.h5"], 1),
        ("y", [tmp_path / "b.h5", tmp_path / "c.h5"], 3),
    ):
        make(parts, tmp_path / name)
        append(tmp_path / name, files, threads=threads)
        found.append({p.name: p.read_bytes() for p in (tmp_path / name).iterdir()})
    assert found[0] == found[1]


def test_a_later_generation_is_converted_and_back(parts, tmp_path):
    make(parts, tmp_path / "set")
    append(tmp_path / "set", [parts / "more.h5"])
    convert(tmp_path / "set", tmp_path / "zarr")
    assert verify(tmp_path / "zarr").ok
    convert(tmp_path / "zarr", tmp_path / "back")
    names = {p.name for p in (tmp_path / "set").iterdir()} - {"manifest.1.json", "index.h5"}
    assert {p.name for p in (tmp_path / "back").iterdir()} == names
    for name in names:
        assert (tmp_path / "back" / name).read_bytes() == (tmp_path / "set" / name).read_bytes()
    # What was converted can grow, too.
    fresh = clustered(random_complexes(5, seed=77, prefix="z"), lambda i: f"k{i}")
    write_part(tmp_path / "z.h5", fresh)
    assert append(tmp_path / "zarr", [tmp_path / "z.h5"]).generation == 3
    assert verify(tmp_path / "zarr").ok


def test_nothing_new_changes_nothing(parts, tmp_path, capsys):
    out = tmp_path / "set"
    make(parts, out)
    before = state(out)
    other_id = replace(next(iter(open_dataset(parts / "first.h5"))), text={"id": "another-name"})
    write_part(tmp_path / "again.h5", [other_id])
    assert main(["append", str(out), str(parts / "first.h5"), str(tmp_path / "again.h5")]) == 0
    assert "nothing new; generation 1 stays" in capsys.readouterr().out
    assert state(out) == before
    assert main(["append", str(out), str(parts / "more.h5")]) == 0
    assert "100 complexes added, generation 2" in capsys.readouterr().out


def test_an_id_that_is_there_stays_what_it_was(parts, tmp_path):
    out = tmp_path / "set"
    make(parts, out)
    old = next(iter(open_dataset(parts / "first.h5")))
    other = replace(old, charge=np.zeros(old.n_atoms, np.int8) + 1)
    fresh = clustered(random_complexes(3, seed=9, prefix="n"), lambda i: "k0")
    write_part(tmp_path / "conflict.h5", [other, *fresh])
    manifest = append(out, [tmp_path / "conflict.h5"])
    assert manifest.making["id_conflicts"] == 1
    dataset = open_dataset(out)
    assert len(dataset) == 63
    assert_same(dataset[int(dataset.select([old.id])[0])], old)


def test_what_ties_two_splits_together_is_left_out(tmp_path):
    """Chains a and b are in different splits; a complex of both belongs to neither."""
    rng = np.random.default_rng(0)
    a, b, c = ("".join(rng.choice(list("ACDEFGHIKLMNPQRSTVWY"), 150)) for _ in range(3))

    def named(complexes, *chains):
        return [
            replace(x, text={**x.text, "columns": {}, "sequences": dict(zip("AB", chains, strict=False))})
            for x in complexes
        ]

    write_part(tmp_path / "p.h5", named(COMPLEXES[:5], a) + named(COMPLEXES[5:10], b))
    rule = Rule("cluster", fractions=(0.5, 0.0, 0.5), cluster_with="built-in")
    pack([tmp_path / "p.h5"], tmp_path / "set", rule=rule)
    more = named(COMPLEXES[10:12], a, b) + named(COMPLEXES[12:13], a, c)
    write_part(tmp_path / "q.h5", more)
    manifest = append(tmp_path / "set", [tmp_path / "q.h5"])
    # The bridge joins all three chains to one group: none of the new ones can be placed.
    assert manifest.generation == 1
    write_part(tmp_path / "q.h5", named(COMPLEXES[12:13], a, c))
    dataset = open_dataset(tmp_path / "set")
    of_a = {
        str(s)
        for x, s in zip(dataset, dataset.column("split"), strict=True)
        if a in x.text["sequences"].values()
    }
    manifest = append(tmp_path / "set", [tmp_path / "q.h5"])
    assert manifest.n_complexes == 11
    dataset = open_dataset(tmp_path / "set")
    assert {str(dataset.column("split")[10])} == of_a


def test_by_time_the_cuts_stay(tmp_path):
    write_part(tmp_path / "p.h5", [replace(c, deposited=20000101 + i) for i, c in enumerate(COMPLEXES[:20])])
    manifest = pack([tmp_path / "p.h5"], tmp_path / "set", rule=Rule("time", fractions=(0.5, 0.25, 0.25)))
    assert manifest.making["split"]["cuts"] == [20000111, 20000116]
    days = [19990101, 20000112, 20000130, 0, 20000113]
    write_part(
        tmp_path / "q.h5", [replace(c, deposited=d) for c, d in zip(COMPLEXES[20:25], days, strict=True)]
    )
    manifest = append(tmp_path / "set", [tmp_path / "q.h5"])
    assert manifest.splits == {"train": 11, "valid": 7, "test": 6}
    assert manifest.making["split"]["left_out"] == 1


def test_files_that_divided_it_are_asked_for_again(tmp_path, parts):
    table = tmp_path / "folds.csv"
    table.write_text(
        "id,split\n"
        + "".join(f"{c.id},{'test' if i % 4 == 0 else 'train'}\n" for i, c in enumerate(COMPLEXES))
    )
    pack([parts / "first.h5"], tmp_path / "set", rule=Rule("given", file=str(table)))
    with pytest.raises(UsageError, match="divided by a file: name it with --split-file"):
        append(tmp_path / "set", [parts / "more.h5"])
    manifest = append(tmp_path / "set", [parts / "more.h5"], split_file=str(table))
    assert manifest.splits == {"train": 120, "test": 40}
    with pytest.raises(UsageError, match="is not a data set; make one"):
        append(tmp_path / "none", [parts / "more.h5"])


@pytest.mark.parametrize(("container", "steps"), [("hdf5", [0, 1, 3, 5, 6, 8]), ("zarr", [3, 20])])
def test_a_kill_at_any_moment_leaves_a_whole_data_set(parts, tmp_path, container, steps):
    """Each step of the commit in turn is where the process dies; the next append cleans up and completes."""
    code = textwrap.dedent(
        """
        import os, signal, sys
        from pathlib import Path
        from holoshard.shards.make import generations
        from holoshard.shards.make.append import append
        left = int(sys.argv[3])
        def dying(real):
            def call(*a, **k):
                global left
                left -= 1
                if left < 0:
                    os.kill(os.getpid(), signal.SIGKILL)
                return real(*a, **k)
            return call
        class Os:
            replace, rename = staticmethod(dying(os.replace)), staticmethod(dying(os.rename))
            def __getattr__(self, name):
                return getattr(os, name)
        generations.os = Os()
        append(Path(sys.argv[1]), [Path(sys.argv[2])])
        print("done")
        """
    )
    make(parts, tmp_path / "first", container=container)
    shutil.copytree(tmp_path / "first", tmp_path / "whole")
    expected = append(tmp_path / "whole", [parts / "more.h5"])
    codes = []
    for step in steps:
        out = tmp_path / f"set{step}"
        shutil.copytree(tmp_path / "first", out)
        arguments = [sys.executable, "-c", code, str(out), str(parts / "more.h5"), str(step)]
        done = subprocess.run(arguments, capture_output=True, text=True, check=False)
        assert done.returncode in (0, -signal.SIGKILL), done.stderr
        dataset = open_dataset(out)
        assert len(dataset) in (60, 160)
        assert verify(out).ok
        manifest = append(out, [parts / "more.h5"])
        assert manifest.fingerprint == expected.fingerprint
        assert {p.name for p in out.iterdir()} == {p.name for p in (tmp_path / "whole").iterdir()}
        codes.append(done.returncode)
    assert codes[0] == -signal.SIGKILL
    assert codes[-1] == 0


def test_two_at_once_are_refused(parts, tmp_path):
    make(parts, tmp_path / "set")
    with generations.alone(tmp_path / "set"), pytest.raises(UsageError, match="another holoshard append"):
        append(tmp_path / "set", [parts / "more.h5"])


def test_a_killed_shard_is_cleaned_up_by_the_next(parts, tmp_path):
    """Its temporary folder goes; that of a process that lives, or of another machine, stays."""
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    for number in (gone.pid, os.getppid()):
        (tmp_path / f".set.{number}").mkdir()
        (tmp_path / f".set.{number}" / "train-00000.h5").touch()
    from holoshard.shards.make import owner

    def note(machine, process):
        text = json.dumps({"machine": machine, "process": process})
        (tmp_path / f".set.{process[0]}.owner").write_text(text)

    note(owner._machine(), [gone.pid, 12345])
    note(owner._machine(), owner._process(os.getppid()))
    (tmp_path / ".set.99").mkdir()
    note("elsewhere", [99, 1])
    (tmp_path / ".set.77").mkdir()
    make(parts, tmp_path / "set")
    left = {p.name for p in tmp_path.iterdir()}
    assert left == {
        "set",
        ".set.77",
        ".set.99",
        ".set.99.owner",
        f".set.{os.getppid()}",
        f".set.{os.getppid()}.owner",
    }


def test_a_data_set_that_was_moved_aside_comes_back(parts, tmp_path):
    make(parts, tmp_path / "set")
    from holoshard.shards.make import owner, staging

    before = {p.name: p.read_bytes() for p in (tmp_path / "set").iterdir()}
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    Path(tmp_path / "set").rename(tmp_path / f".set.{gone.pid}.old")
    (tmp_path / f".set.{gone.pid}").mkdir()
    note = {"machine": owner._machine(), "process": [gone.pid, 1]}
    (tmp_path / f".set.{gone.pid}.owner").write_text(json.dumps(note))
    staging.clear(tmp_path / "set")
    assert {p.name: p.read_bytes() for p in (tmp_path / "set").iterdir()} == before
    assert [p.name for p in tmp_path.iterdir()] == ["set"]


@pytest.mark.parametrize(
    "name", ["../victim.txt", "ABSOLUTE", "mine.txt", "manifest.json", "a/../../victim.txt"]
)
def test_only_files_of_our_own_kinds_are_removed(parts, tmp_path, name):
    """Whatever the manifest to be of a killed append names, or a manifest that lies there."""
    out, victim = tmp_path / "set", tmp_path / "victim.txt"
    make(parts, out)
    name = str(victim) if name == "ABSOLUTE" else name
    for path in (victim, out / "mine.txt"):
        path.write_text("precious")
    told = json.loads((out / "manifest.json").read_text())
    told["shards"].append({**told["shards"][0], "name": name})
    (out / generations.NEXT).write_text(json.dumps(told))
    before = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    for again in (lambda: append(out, [parts / "more.h5"]), lambda: make(parts, out)):
        with pytest.raises(UsageError, match=r"names what is no file of a data set\); nothing was removed"):
            again()
    (out / generations.NEXT).rename(out / "manifest.json")  # as if it were the data set's own
    with pytest.raises(UsageError, match="is not a data set"):
        make(parts, out)
    before[out / "manifest.json"] = before.pop(out / generations.NEXT)
    assert {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()} == before
