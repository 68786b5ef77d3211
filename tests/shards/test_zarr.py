from __future__ import annotations

import filecmp
import subprocess
import sys
import warnings

import numpy as np
import pytest
from make_datasets import write_dataset
from random_complexes import assert_same, random_complexes
from test_hdf5 import assert_agrees, reader_from_format

from holoshard.shards.errors import ChecksumError, FormatError, UsageError
from holoshard.shards.make.convert import convert
from holoshard.shards.make.writer import write_part
from holoshard.shards.read.dataset import open_dataset

CODECS = ["blosc", "blosc-lz4", "gzip", "none"]


def identical(a, b):
    compared = filecmp.dircmp(a, b)
    if compared.left_only or compared.right_only or compared.funny_files:
        return False
    same = all((a / name).read_bytes() == (b / name).read_bytes() for name in compared.common_files)
    return same and all(identical(a / name, b / name) for name in compared.common_dirs)


@pytest.mark.parametrize("codec", CODECS)
def test_the_plain_reader_of_format_md_agrees(tmp_path, codec):
    write_dataset(tmp_path / "set", list(random_complexes(20)), container="zarr", codec=codec)
    read = reader_from_format(1)
    for name in ("train-00000.zarr", "test-00000.zarr"):
        dataset = open_dataset(tmp_path / "set" / name)
        for i in range(0, len(dataset), 5):
            with warnings.catch_warnings():  # numcodecs.zlib has no specification of its own
                warnings.filterwarnings("ignore", "Numcodecs codecs")
                assert_agrees(read(tmp_path / "set" / name, i), dataset[i])


@pytest.mark.parametrize("codec", CODECS)
def test_there_and_back_gives_the_same_bytes(tmp_path, codec):
    complexes = list(random_complexes(60))
    write_dataset(tmp_path / "a", complexes, codec=codec, making={"seed": 3})
    there = convert(tmp_path / "a", tmp_path / "b")
    assert there.container == "zarr"
    convert(tmp_path / "b", tmp_path / "c")
    assert identical(tmp_path / "a", tmp_path / "c")
    write_dataset(tmp_path / "d", complexes, codec=codec, container="zarr", making={"seed": 3})
    assert identical(tmp_path / "b", tmp_path / "d")
    for found, expected in zip(open_dataset(tmp_path / "b"), complexes, strict=True):
        assert_same(found, expected)


def test_one_shard_there_and_back(tmp_path):
    write_part(tmp_path / "a.h5", random_complexes(40), block_size=16)
    convert(tmp_path / "a.h5", tmp_path / "b.zarr")
    convert(tmp_path / "b.zarr", tmp_path / "c.h5")
    assert (tmp_path / "a.h5").read_bytes() == (tmp_path / "c.h5").read_bytes()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.h5", "b.zarr", "c.h5"]


def test_chunk_bytes_are_the_same(tmp_path):
    complexes = list(random_complexes(60))
    for container in ("hdf5", "zarr"):
        write_dataset(tmp_path / container, complexes, container=container)
    a, b = (open_dataset(tmp_path / name).reader for name in ("hdf5", "zarr"))
    assert a.n_blocks == b.n_blocks > 3
    assert [a.read_bytes(i) for i in range(a.n_blocks)] == [b.read_bytes(i) for i in range(b.n_blocks)]
    assert a.source.manifest.fingerprint == b.source.manifest.fingerprint


def test_convert_refuses_damaged_blocks_and_existing_places(tmp_path):
    write_dataset(tmp_path / "a", list(random_complexes(20)))
    with pytest.raises(UsageError, match="data set itself"):
        convert(tmp_path / "a", tmp_path / "a", "hdf5")
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "mine").touch()
    with pytest.raises(UsageError, match="b exists; choose another folder"):
        convert(tmp_path / "a", tmp_path / "b")
    shard = tmp_path / "a" / "train-00000.h5"
    data = bytearray(shard.read_bytes())
    data[int(open_dataset(tmp_path / "a").reader.table["offset"][0]) + 9] ^= 1
    shard.write_bytes(data)
    with pytest.raises(ChecksumError, match=r"train-00000\.h5, block 0"):
        convert(tmp_path / "a", tmp_path / "c")
    assert not (tmp_path / "c").exists()


def test_zarr_is_not_imported_to_read(tmp_path):
    write_dataset(tmp_path / "set", list(random_complexes(20)), container="zarr")
    code = (
        "import sys; sys.modules.update(zarr=None, google_crc32c=None)\n"
        "from holoshard import open_dataset\n"
        "print(sum(c.n_atoms for c in open_dataset(sys.argv[1])))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, tmp_path / "set"], capture_output=True, text=True, check=True
    )
    assert int(done.stdout) == open_dataset(tmp_path / "set").column("n_atoms").sum()


@pytest.mark.parametrize(
    "what", ["zarr.json", "blocks/rows/zarr.json", "blocks/rows/c/0/0", "atom/element/c/0"]
)
@pytest.mark.parametrize("content", [None, b"", b"{}", b"[]", b'{"attributes": 3}', b"{" * 99_999])
def test_a_damaged_folder_is_a_format_error(tmp_path, what, content):
    write_dataset(tmp_path / "set", list(random_complexes(20)), container="zarr")
    shard = tmp_path / "set" / "train-00000.zarr"
    (shard / what).unlink()
    if content is not None:
        (shard / what).write_bytes(content)
    if what == "zarr.json" and content is None:
        return  # then it is a folder without a manifest; see test_manifest
    with pytest.raises(FormatError):
        open_dataset(shard)


def test_a_table_that_claims_much_is_refused(tmp_path):
    write_dataset(tmp_path / "set", list(random_complexes(20)), container="zarr")
    meta = tmp_path / "set" / "train-00000.zarr" / "blocks" / "rows" / "zarr.json"
    meta.write_text(meta.read_text().replace('"shape": [\n  1,', '"shape": [\n  99999999999999,'))
    assert "99999999999999" in meta.read_text()
    with pytest.raises(FormatError, match="needs 3199999999999968"):
        open_dataset(tmp_path / "set" / "train-00000.zarr")


def test_position_is_readable_as_an_array(tmp_path):
    import zarr

    complexes = list(random_complexes(20))
    write_dataset(tmp_path / "set", complexes, container="zarr")
    array = zarr.open_array(tmp_path / "set" / "train-00000.zarr" / "atom" / "position", mode="r")
    assert array.attrs["per_unit"] == 1000
    n = complexes[0].n_atoms
    np.testing.assert_array_equal(array[:n], np.rint(complexes[0].position * 1000).astype(np.int16))
