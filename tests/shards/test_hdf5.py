from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import h5py
import hdf5plugin  # noqa: F401
import numpy as np
import pytest
from make_datasets import write_dataset
from random_complexes import random_complexes

import holoshard.shards
from holoshard.shards.complex import FIELDS, TEXT_KEYS, VOCABULARIES
from holoshard.shards.errors import FormatError, VersionError
from holoshard.shards.format.codec import codecs_named
from holoshard.shards.format.hdf5 import HDF5
from holoshard.shards.format.table import crc32
from holoshard.shards.make.writer import write_part
from holoshard.shards.read.dataset import open_dataset

FORMAT = (Path(holoshard.shards.__file__).parent / "FORMAT.md").read_text()


def reader_from_format(number):
    """One of the readers that FORMAT.md prints."""
    code = re.findall(r"```python\n(.*?)```", FORMAT, flags=re.DOTALL)[number]
    assert len([line for line in code.splitlines() if line.strip()]) <= 30
    assert "holoshard" not in code
    names = {}
    exec(compile(code, "FORMAT.md", "exec"), names)
    return names["read_complex"]


def assert_agrees(plain, complex_):
    """A plain reader's arrays against ds[i], on every field."""
    for f in FIELDS:
        if f.axis in ("atom", "bond", "residue"):
            found, expected = plain[f.path], getattr(complex_, f.key)
            assert found.dtype == expected.dtype
            np.testing.assert_array_equal(found, expected, err_msg=f.path)
    for name in ("n_ligand_atoms", "pocket_radius", "resolution", "deposited"):
        np.testing.assert_equal(
            plain[f"complex/{name}"][0], np.asarray(getattr(complex_, name), plain[f"complex/{name}"].dtype)
        )
    np.testing.assert_array_equal(plain["complex/centre"][0], complex_.centre)
    np.testing.assert_equal(plain["complex/pk"][0], np.float32(complex_.affinity.pk))
    assert plain["complex/flags"][0] == int(complex_.flags)
    assert plain["text"] == complex_.text


@pytest.mark.parametrize("codec", ["blosc", "blosc-zstd", "gzip", "none"])
def test_the_plain_reader_of_format_md_agrees(tmp_path, codec):
    write_part(tmp_path / "part.h5", random_complexes(40), block_size=16, codecs=codecs_named(codec))
    dataset, read = open_dataset(tmp_path / "part.h5"), reader_from_format(0)
    for i, complex_ in enumerate(dataset):
        assert_agrees(read(tmp_path / "part.h5", i), complex_)


@pytest.mark.parametrize(("codec", "readable"), [("blosc", False), ("gzip", True), ("none", True)])
def test_h5py_without_plugins_reads_what_the_documents_say(tmp_path, codec, readable):
    write_part(tmp_path / "part.h5", random_complexes(4), codecs=codecs_named(codec))
    read = "import h5py, sys; h5py.File(sys.argv[1])['atom/position'][:1]"
    plain = {k: v for k, v in os.environ.items() if k != "HDF5_PLUGIN_PATH"}
    done = subprocess.run(
        [sys.executable, "-c", read, str(tmp_path / "part.h5")], capture_output=True, text=True, env=plain
    )
    assert (done.returncode == 0) is readable, done.stderr
    readme = Path(holoshard.__file__).with_name("README.md").read_text()
    assert all("--codec gzip" in text and "pip install hdf5plugin" in text for text in (FORMAT, readme))


def test_format_md_names_every_field_and_word():
    for f in FIELDS:
        assert f"| `{f.path}` | `{f.dtype}` |" in FORMAT
    for name, words in VOCABULARIES.items():
        assert f"- `{name}`: {', '.join(words)}\n" in FORMAT
    for key in TEXT_KEYS:
        assert f"- `{key}`: " in FORMAT


@pytest.mark.parametrize("codec", ["blosc", "none"])
def test_each_block_is_one_range_of_the_file(tmp_path, codec):
    write_part(tmp_path / "part.h5", random_complexes(70), block_size=16, codecs=codecs_named(codec))
    header, places = HDF5.open(tmp_path / "part.h5")
    data = (tmp_path / "part.h5").read_bytes()
    at = {}
    with h5py.File(tmp_path / "part.h5") as file:
        for c in header.layout.columns:
            dataset = file[c.field.path]
            at[c.field.key] = [dataset.id.get_chunk_info(i) for i in range(dataset.id.get_num_chunks())]
    for block in range(len(places.table)):
        start, length = int(places.table.offset[block]), int(places.table.length[block])
        assert crc32(data[start : start + length]) == places.table.crc32[block]
        for i, c in enumerate(header.layout.columns):
            n = int(places.n_chunks[block, i])
            chunks, at[c.field.key] = at[c.field.key][:n], at[c.field.key][n:]
            assert chunks[0].byte_offset == start + places.in_block[block, i]
            assert sum(chunk.size for chunk in chunks) == places.size[block, i]
    assert not any(at.values())


def test_a_newer_major_version_is_refused(tmp_path):
    write_part(tmp_path / "part.h5", random_complexes(3))
    with h5py.File(tmp_path / "part.h5", "r+") as file:
        header = bytes(file.attrs["header"]).replace(b'"version": "1.0"', b'"version": "2.0"')
        file.attrs["header"] = np.bytes_(header)
    with pytest.raises(VersionError, match="install a newer one"):
        open_dataset(tmp_path / "part.h5")


def test_extra_arrays_and_attributes_are_ignored(tmp_path):
    write_part(tmp_path / "part.h5", random_complexes(3))
    with h5py.File(tmp_path / "part.h5", "r+") as file:
        file["atom/mine"] = np.arange(7)
        file.attrs["note"] = "hello"
    assert len(list(open_dataset(tmp_path / "part.h5"))) == 3


@pytest.mark.parametrize(
    "how", ["external link", "soft link", "external storage", "virtual", "group", "huge", "text"]
)
def test_tables_that_point_elsewhere_are_refused(tmp_path, how):
    """A hostile file may not make us read another one, or fill the memory."""
    write_part(tmp_path / "part.h5", random_complexes(3))
    with h5py.File(tmp_path / "other.h5", "w") as other:
        other["x"] = np.zeros(1, "<i8")
    with h5py.File(tmp_path / "part.h5", "r+") as file:
        del file["blocks/offset"]
        if how == "external link":
            file["blocks/offset"] = h5py.ExternalLink("other.h5", "x")
        elif how == "soft link":
            file["blocks/offset"] = h5py.SoftLink("/blocks/length")
        elif how == "external storage":
            file.create_dataset("blocks/offset", (1,), "<i8", external=[(str(tmp_path / "other.h5"), 0, 8)])
        elif how == "virtual":
            layout = h5py.VirtualLayout((1,), "<i8")
            layout[:] = h5py.VirtualSource(tmp_path / "other.h5", "x", (1,))
            file.create_virtual_dataset("blocks/offset", layout)
        elif how == "group":
            file.create_group("blocks/offset")
        elif how == "huge":
            file.create_dataset("blocks/offset", (1 << 50,), "<i8", chunks=(1 << 20,))
        else:
            file["blocks/offset"] = "text"
    with pytest.raises(FormatError):
        open_dataset(tmp_path / "part.h5")


@pytest.mark.parametrize("content", [b"", b"hello", b"\x89HDF\r\n\x1a\n" + bytes(2000)])
def test_what_is_not_hdf5_is_a_format_error(tmp_path, content):
    (tmp_path / "part.h5").write_bytes(content)
    with pytest.raises(FormatError, match="not readable as HDF5"):
        open_dataset(tmp_path / "part.h5")


def test_a_foreign_hdf5_file_is_a_format_error(tmp_path):
    with h5py.File(tmp_path / "part.h5", "w") as file:
        file["x"] = 1
    with pytest.raises(FormatError, match="not a holoshard shard"):
        open_dataset(tmp_path / "part.h5")


def test_reading_takes_no_locks(tmp_path):
    """A writer that holds the file, or a file system without locks, does not stop a reader."""
    import fcntl

    write_dataset(tmp_path / "set", list(random_complexes(20)))
    with (
        (tmp_path / "set" / "index.h5").open("rb+") as index,
        (tmp_path / "set" / "train-00000.h5").open("rb+") as shard,
    ):
        for file in (index, shard):
            fcntl.flock(file, fcntl.LOCK_EX)
        assert len(open_dataset(tmp_path / "set").column("pk")) == 20
        assert len(open_dataset(tmp_path / "set" / "train-00000.h5").ids()) == 15
