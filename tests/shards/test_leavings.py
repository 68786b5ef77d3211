"""What killed runs leave goes with the next run; what cannot be written is said in one line."""

from __future__ import annotations

import json
import resource
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest
from random_complexes import random_complexes

from holoshard.__main__ import main
from holoshard.shards.errors import FormatError, UsageError, WriteError
from holoshard.shards.export.folder import export
from holoshard.shards.make import owner
from holoshard.shards.make.convert import convert
from holoshard.shards.make.leakage import write_table
from holoshard.shards.make.owner import said_of, scratch
from holoshard.shards.make.pack import pack
from holoshard.shards.make.repair import repair
from holoshard.shards.make.writer import write_part
from holoshard.shards.read.dataset import open_dataset


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("leavings")
    write_part(folder / "part.h5", random_complexes(60))
    pack([folder / "part.h5"], folder / "set")
    return folder


def killed(path: Path) -> Path:
    """What a process that was killed has left beside ``path``: a folder that is claimed."""
    code = (
        "import os, sys; from pathlib import Path; from holoshard.shards.make.owner import beside\n"
        "with beside(Path(sys.argv[1])) as left:\n"
        "    left.mkdir(); (left / 'x').touch(); print(left, flush=True); os.kill(os.getpid(), 9)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == -9, done.stderr
    return Path(done.stdout.strip())


def test_killed_exports_and_conversions_leave_nothing_for_ever(made, tmp_path):
    for name, run in (
        ("e", lambda: export(open_dataset(made / "set"), range(3), tmp_path / "e")),
        ("s.zarr", lambda: convert(made / "set" / "train-00000.h5", tmp_path / "s.zarr")),
    ):
        assert killed(tmp_path / name).is_dir()
        run()
        assert [p.name for p in tmp_path.iterdir()] == [name]
        shutil.rmtree(tmp_path / name)


def test_a_killed_part_goes_with_the_next_of_its_name(tmp_path):
    assert killed(tmp_path / "a.h5").is_dir()
    write_part(tmp_path / "a.h5", random_complexes(2))
    assert [p.name for p in tmp_path.iterdir()] == ["a.h5"]
    with pytest.raises(FormatError, match="twice"):
        write_part(tmp_path / "b.h5", [*random_complexes(1), *random_complexes(1)])
    assert [p.name for p in tmp_path.iterdir()] == ["a.h5"]


def test_files_of_another_program_go_though_the_run_was_killed(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with scratch("program") as folder:
        assert folder.is_dir()
        assert folder.parent.stat().st_mode & 0o077 == 0
    left = killed(folder.parent / "program")
    with scratch("program") as folder:
        assert not left.exists()
    assert list(folder.parent.iterdir()) == []
    folder.parent.rmdir()
    folder.parent.symlink_to(tmp_path)
    with pytest.raises(WriteError, match="TMPDIR"), scratch("program"):
        pass
    monkeypatch.setattr(tempfile, "tempdir", "/proc/nowhere")
    with pytest.raises(WriteError, match="cannot be written"), scratch("program"):
        pass


@pytest.mark.parametrize("hidden", [False, True])
def test_what_a_living_process_of_another_user_makes_is_left_alone(tmp_path, monkeypatch, hidden):
    def kill(number, signal):
        raise PermissionError

    def stat(path):
        raise PermissionError

    owner.claim(tmp_path / ".a.7")
    assert owner.stale(tmp_path, ".a.") == []
    monkeypatch.setattr(owner.os, "kill", kill)
    if hidden:
        monkeypatch.setattr(owner.Path, "read_text", stat)
        monkeypatch.setattr(
            owner, "_machine", lambda: json.loads((tmp_path / ".a.7.owner").read_bytes())["machine"]
        )
    assert owner.stale(tmp_path, ".a.") == []


def test_what_another_container_makes_is_left_alone(tmp_path, monkeypatch):
    """Its processes have numbers of their own, of which none may be here."""
    left = killed(tmp_path / "a")
    monkeypatch.setattr(owner.os, "readlink", lambda path: "pid:[1]")
    assert owner.stale(tmp_path, ".a.") == []
    monkeypatch.undo()
    assert owner.stale(tmp_path, ".a.") == [left]


def test_a_killed_repair_does_not_block_shard(made, tmp_path):
    """Neither with a note of whose it is, nor without one if no process has the number."""
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    shutil.copytree(made / "set", tmp_path / "set")
    names = {p.name for p in (tmp_path / "set").iterdir()}

    def leave():
        (tmp_path / "set" / f".test-00000.h5.{gone.pid}").touch()
        killed(tmp_path / "set" / "train-00000.h5")

    leave()
    pack([made / "part.h5"], tmp_path / "set")
    assert {p.name for p in (tmp_path / "set").iterdir()} == names
    leave()
    (tmp_path / "set" / "test-00000.h5").unlink()
    repair(tmp_path / "set", [made / "part.h5"])
    assert {p.name for p in (tmp_path / "set").iterdir()} == names
    leave()
    assert main(["verify", str(tmp_path / "set"), "--repair-from", str(made / "part.h5")]) == 0
    assert {p.name for p in (tmp_path / "set").iterdir()} == names
    living = tmp_path / "set" / ".test-00000.h5.1"
    for mine in (living, tmp_path / "set" / f".notes.txt.{gone.pid}"):
        mine.touch()
        with pytest.raises(UsageError, match="no part of the data set"):
            pack([made / "part.h5"], tmp_path / "set")
        mine.unlink()


@pytest.mark.parametrize("form", ["lmdb", "parquet", "webdataset", "mds", "sdf"])
def test_a_full_disk_is_said_in_one_line(made, tmp_path, form):
    pytest.importorskip({"parquet": "polars", "lmdb": "lmdb"}.get(form, "json"))
    dataset = open_dataset(made / "set")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, before[1]))
    try:
        with pytest.raises(WriteError) as caught:
            export(dataset, range(60), tmp_path / "out", form)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert str(caught.value).startswith(f"{tmp_path / 'out'} cannot be written: ")
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("room", [0, 2000])
def test_a_full_disk_is_a_typed_error_and_nothing_is_left(made, tmp_path, room):
    """Also where there is no room to say whose the temporary files are."""
    runs = (
        lambda: convert(made / "set", tmp_path / "x"),
        lambda: convert(made / "set" / "train-00000.h5", tmp_path / "x.zarr"),
        lambda: write_table(tmp_path / "x.csv", [("abc",) * 1000] * 20),
        lambda: export(open_dataset(made / "set"), range(60), tmp_path / "x"),
    )
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    for run in runs:
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, before[1]))
        try:
            with pytest.raises(WriteError, match="cannot be written: File too large; ") as caught:
                run()
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        assert str(caught.value).startswith(f"{tmp_path / 'x'}")
        assert list(tmp_path.iterdir()) == []


def test_lmdb_says_input_output_error_of_a_full_disk(tmp_path, monkeypatch):
    lmdb = pytest.importorskip("lmdb")
    for free, reason in ((0, "No space left on device"), (1 << 40, "mdb_txn_commit: Input/output error")):
        monkeypatch.setattr(shutil, "disk_usage", lambda path, n=free: SimpleNamespace(free=n))
        with pytest.raises(WriteError, match=f"cannot be written: {reason}; "), said_of(tmp_path / "x"):
            raise lmdb.DiskError("mdb_txn_commit: Input/output error")


def test_where_nothing_can_be_written(made, tmp_path):
    dataset, shard = open_dataset(made / "set"), made / "set" / "train-00000.h5"
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("nowhere")
    for out in (Path("/proc/x"), tmp_path / "file" / "x"):
        with pytest.raises(WriteError, match="choose another place"):
            export(dataset, [0], out)
    with pytest.raises(WriteError, match="choose another place"):
        convert(shard, tmp_path / "file" / "x.zarr")
    with pytest.raises(WriteError, match="choose another place"):
        convert(made / "set", Path("/proc/x"))
    with pytest.raises(WriteError, match="choose another place"):
        pack([made / "part.h5"], tmp_path / "file" / "set")
    for run in (lambda: export(dataset, [0], tmp_path / "link"), lambda: convert(shard, tmp_path / "link")):
        with pytest.raises(UsageError, match="exists"):
            run()
    assert main(["convert", str(shard), str(tmp_path / "new" / "a.zarr")]) == 0
    assert len(open_dataset(tmp_path / "new" / "a.zarr")) == 48


@pytest.mark.parametrize(("name", "container"), [("z.h5", None), ("z", None), ("z.zarr", "hdf5")])
def test_a_shard_is_named_as_what_it_is(made, tmp_path, name, container):
    with pytest.raises(UsageError, match=r"its name must end in \.(h5|zarr)"):
        convert(made / "set" / "train-00000.h5", tmp_path / name, container)
    assert list(tmp_path.iterdir()) == []
