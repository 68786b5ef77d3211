"""What stands in the folder while a data set is made there, and what a kill leaves."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap

import pytest
from make_datasets import write_dataset
from random_complexes import random_complexes

from holoshard.shards.errors import UsageError
from holoshard.shards.format.records import stack
from holoshard.shards.make.staging import begin
from holoshard.shards.make.writer import DatasetWriter
from holoshard.shards.read.dataset import open_dataset


def test_an_old_data_set_stays_until_the_new_one_is_complete(tmp_path):
    write_dataset(tmp_path / "set", list(random_complexes(20)))
    with DatasetWriter(tmp_path / "set", block_size=16) as writer:
        writer.write("train", [stack(list(random_complexes(5, seed=1)))])
        assert len(open_dataset(tmp_path / "set")) == 20
        writer.finish()
    assert len(open_dataset(tmp_path / "set")) == 5
    assert sorted(p.name for p in (tmp_path / "set").iterdir()) == [
        "index.h5",
        "manifest.json",
        "train-00000.h5",
    ]


def test_a_folder_with_other_things_is_not_replaced(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(UsageError, match="not a data set"):
        DatasetWriter(tmp_path)
    assert (tmp_path / "thesis.tex").exists()


def test_a_killed_writer_leaves_the_old_data_set(tmp_path):
    write_dataset(tmp_path / "set", list(random_complexes(20)))
    code = textwrap.dedent(
        """
        import sys, time
        sys.path.insert(0, sys.argv[2])
        from pathlib import Path
        from random_complexes import random_complexes
        from holoshard.shards.format.records import stack
        from holoshard.shards.make.writer import DatasetWriter
        with DatasetWriter(Path(sys.argv[1]), block_size=8) as writer:
            writer.write("train", [stack(list(random_complexes(30)))])
            print("half", flush=True)
            time.sleep(60)
        """
    )
    arguments = [sys.executable, "-c", code, str(tmp_path / "set"), os.path.dirname(__file__)]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"half\n"
        process.send_signal(signal.SIGKILL)
    assert len(open_dataset(tmp_path / "set")) == 20
    assert len(list(tmp_path.iterdir())) == 3  # what the kill left, and whose it is
    write_dataset(tmp_path / "set", list(random_complexes(12)))
    assert [p.name for p in tmp_path.iterdir()] == ["set"]


def test_a_folder_with_anything_else_in_it_is_not_replaced(tmp_path):
    web = tmp_path / "web"
    web.mkdir()
    (web / "manifest.json").write_text('{"name": "app"}')
    (web / "index.html").write_text("mine")
    with pytest.raises(UsageError, match="not a data set"):
        begin(web)
    (web / "manifest.json").write_text('{"format": "holoshard", "shards": []}')
    with pytest.raises(UsageError, match="index"):
        begin(web)
    (tmp_path / "link").symlink_to(web)
    with pytest.raises(UsageError, match="link"):
        begin(tmp_path / "link")
    assert (web / "index.html").read_text() == "mine"
