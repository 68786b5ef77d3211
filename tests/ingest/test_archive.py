"""Bytes from anywhere: plain, packed, members read in place; nothing leaves its folder."""

from __future__ import annotations

import bz2
import gc
import gzip
import hashlib
import io
import lzma
import random
import tarfile
import warnings
import zipfile
from pathlib import Path

import pytest
import zstandard

from holoshard.ingest.item import Locator
from holoshard.ingest.read import archive, frames
from holoshard.shards.errors import StructureError

TEXT = b"ATOM  some text\n" * 40


def add(tar: tarfile.TarFile, name: str, data: bytes, kind: bytes = tarfile.REGTYPE, link: str = "") -> None:
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname, entry.size = kind, link, len(data)
    tar.addfile(entry, io.BytesIO(data))


def write_archive(path: Path, files: dict[str, bytes]) -> Path:
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
            for name, data in files.items():
                packed.writestr(name, data)
        return path
    with tarfile.open(path, "w:gz" if path.suffix == ".gz" else "w") as packed:
        for name, data in files.items():
            add(packed, name, data)
    return path


def fault(locator: Locator) -> str:
    with pytest.raises(StructureError) as caught:
        archive.load(locator)
    assert str(locator.path) in str(caught.value)
    return caught.value.reason


def zstd_stream(data: bytes) -> bytes:
    """Without the content's size in the header, as a pipe writes it."""
    packer = zstandard.ZstdCompressor().compressobj()
    return packer.compress(data) + packer.flush()


@pytest.mark.parametrize(
    ("name", "pack"),
    [
        ("a.pdb", bytes),
        ("a.pdb.gz", gzip.compress),
        ("not_named_so.pdb", gzip.compress),
        ("named_but_is_not.gz", bytes),
        ("two_members.gz", lambda data: gzip.compress(data[:100]) + gzip.compress(data[100:])),
        ("a.pdb.zst", zstandard.compress),
        ("stream.zst", zstd_stream),
    ],
)
def test_a_file_is_what_its_content_says(tmp_path, name, pack):
    (tmp_path / name).write_bytes(pack(TEXT))
    locator = Locator(tmp_path / name)
    assert archive.load(locator) == TEXT
    assert archive.digest(locator) == hashlib.sha256(pack(TEXT)).hexdigest()


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32"])
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_text_with_a_byte_order_mark_is_utf8(tmp_path, encoding, pack):
    text = "TITLE µ Å\nATOM\n"
    (tmp_path / "a.pdb").write_bytes(pack(text.encode(encoding)))
    assert archive.load(Locator(tmp_path / "a.pdb")) == text.encode()


@pytest.mark.parametrize("order", ["le", "be"])
def test_either_order_of_bytes_is_read(tmp_path, order):
    (tmp_path / "a.sdf").write_bytes(("\ufeff" + TEXT.decode()).encode(f"utf-16-{order}"))
    assert archive.load(Locator(tmp_path / "a.sdf")) == TEXT


@pytest.mark.parametrize(("pack", "name"), [(bz2.compress, "bzip2"), (lzma.compress, "xz")])
def test_other_compression_is_named(tmp_path, pack, name):
    (tmp_path / "a.pdb").write_bytes(pack(TEXT))
    with pytest.raises(StructureError, match=f"compressed by {name}") as caught:
        archive.load(Locator(tmp_path / "a.pdb"))
    assert caught.value.reason == "format_unknown"


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "empty_file"),
        (b"\0" * 512, "empty_file"),
        (gzip.compress(b"", mtime=0), "empty_file"),
        (gzip.compress(TEXT, mtime=0)[:-9], "file_unreadable"),
        (gzip.compress(TEXT, mtime=0)[:12], "file_unreadable"),
        (gzip.compress(TEXT, mtime=0)[:20] + b"\xff" * 20, "file_unreadable"),
        (zstd_stream(TEXT)[:-4], "file_unreadable"),
        (archive.ZSTD + b"junk", "file_unreadable"),
    ],
)
def test_broken_files_have_a_reason(tmp_path, data, reason):
    (tmp_path / "x").write_bytes(data)
    assert fault(Locator(tmp_path / "x")) == reason


def test_missing_files_have_a_reason(tmp_path):
    (tmp_path / "file").write_bytes(TEXT)
    assert fault(Locator(tmp_path / "none")) == "file_missing"
    assert fault(Locator(tmp_path / "file" / "below")) == "file_missing"
    assert fault(Locator(tmp_path)) == "file_unreadable"
    assert fault(Locator(tmp_path / "file", "member")) == "file_unreadable"
    assert archive.stamp(Locator(tmp_path / "none")) == "missing"


def test_an_archive_is_no_file_unless_a_member_is_named(tmp_path):
    with tarfile.open(tmp_path / "plain.pdb", "w") as tar:
        tar.addfile(tarfile.TarInfo("a.pdb"), io.BytesIO())
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as zipped:
        zipped.writestr("a.pdb", TEXT)
    (tmp_path / "x.tar.gz").write_bytes(gzip.compress((tmp_path / "plain.pdb").read_bytes()))
    for name in ("plain.pdb", "x.zip", "x.tar.gz"):
        assert fault(Locator(tmp_path / name)) == "format_mismatch"
    assert archive.load(Locator(tmp_path / "x.zip", "a.pdb")) == TEXT


def test_a_bomb_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(archive, "MAX_BYTES", 1 << 20)
    (tmp_path / "bomb.gz").write_bytes(gzip.compress(b"x" * (3 << 20)))
    assert fault(Locator(tmp_path / "bomb.gz")) == "too_large"
    write_archive(tmp_path / "bomb.zip", {"a": b"x" * (3 << 20)})
    assert fault(Locator(tmp_path / "bomb.zip", "a")) == "too_large"
    for name, pack in (("whole", zstandard.compress), ("stream", zstd_stream)):
        (tmp_path / name).write_bytes(pack(b"x" * (3 << 20)))
        assert fault(Locator(tmp_path / name)) == "too_large"


def test_a_bomb_is_refused_before_it_is_in_memory(tmp_path, monkeypatch):
    """Zeros, with and without a size that is told; what lies about its size is broken."""
    import resource

    size = 150_000_000
    monkeypatch.setattr(archive, "MAX_BYTES", 1 << 27)
    with (
        zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as packed,
        packed.open("a", "w") as file,
    ):
        for _ in range(150):
            file.write(bytes(1_000_000))
    lie = bytearray((tmp_path / "a.zip").read_bytes())
    lie[22:26] = bytes(4)  # the local header's, as where a descriptor follows
    (tmp_path / "lie.zip").write_bytes(lie)
    packer = zstandard.ZstdCompressor().compressobj()
    stream = b"".join(packer.compress(bytes(1_000_000)) for _ in range(150)) + packer.flush()
    (tmp_path / "a.zst").write_bytes(stream)
    told = (
        zstandard.MAGIC_NUMBER.to_bytes(4, "little") + bytes([0b11100000]) + (size // 2).to_bytes(8, "little")
    )
    (tmp_path / "lie.zst").write_bytes(told + bytes([1, 0, 0]))  # an empty block, and the last
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for name, member, reason in (("a.zip", "a", "too_large"), ("lie.zip", "a", "too_large"),
                                 ("a.zst", "", "too_large"), ("lie.zst", "", "file_unreadable")):  # fmt: skip
        assert fault(Locator(tmp_path / name, member)) == reason
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000  # KiB


@pytest.mark.parametrize("size", [0, 1, 255, 256, 300, 65_791, 65_792, 131_072, 131_073, 400_000])
def test_what_zstandard_unpacks_to_is_told_by_its_headers(size):
    """Exactly, where the size is told; else within a block."""
    data = random.Random(size).randbytes(size // 2) + bytes(size - size // 2)
    for checksum in (False, True):
        packer = zstandard.ZstdCompressor(write_checksum=checksum)
        whole = packer.compress(data)
        assert frames.most(whole) == size
        assert frames.most(whole + b"\x50\x2a\x4d\x18\x02\0\0\0ab" + whole) == 2 * size
        packed = packer.compressobj()
        stream = packed.compress(data) + packed.flush()
        assert size <= frames.most(stream) <= size + 2 * frames.BLOCK
        for broken in (whole[:-6], stream[:-6], whole + b"junk"):
            with pytest.raises(ValueError, match=r"cut short|is none"):
                frames.most(broken)


@pytest.mark.parametrize("name", ["a.tar", "a.tar.gz", "a.zip"])
def test_members_are_read_in_place(tmp_path, name):
    rng = random.Random(0)
    files = {f"s/{k:03d}.pdb": rng.randbytes(rng.randrange(1, 5000)) for k in range(60)}
    files["s/deep/ü.pdb.gz"] = gzip.compress(TEXT, mtime=0)
    path = write_archive(tmp_path / name, files)
    listed = {member.name: member for member in archive.members(path)}
    assert list(listed) == list(files)
    order = list(files)
    rng.shuffle(order)
    for hinted in (True, False):
        for member in order:
            found = listed[member]
            locator = Locator(path, member, *((found.offset, found.size) if hinted else ()))
            assert archive.read_raw(locator) == files[member]
            assert archive.digest(locator) == hashlib.sha256(files[member]).hexdigest()
    assert archive.load(Locator(path, "s/deep/ü.pdb.gz")) == TEXT
    assert fault(Locator(path, "s/none")) == "file_missing"


def test_a_compressed_tar_is_read_forward_within_bounds(tmp_path, monkeypatch):
    monkeypatch.setattr(archive, "KEPT_BYTES", 4096)
    rng = random.Random(1)
    files = {f"{k:03d}": rng.randbytes(rng.randrange(1, 3000)) for k in range(200)}
    path = write_archive(tmp_path / "a.tar.gz", files)
    listed = {member.name: member for member in archive.members(path)}
    order = sorted(files, key=lambda name: int(name) + rng.randrange(-3, 4))
    for member in order:
        assert (
            archive.read_raw(Locator(path, member, listed[member].offset, listed[member].size))
            == files[member]
        )
    opened = archive._archive(path, archive.stamp(Locator(path)))
    assert len(opened.window) < 4 * 4096 + (1 << 20)


@pytest.mark.parametrize("name", ["a.tar", "a.tar.gz", "a.zip"])
def test_a_cut_archive_has_a_reason(tmp_path, name):
    rng = random.Random(0)
    path = write_archive(tmp_path / name, {f"{k}": rng.randbytes(3000) for k in range(9)})
    members = list(archive.members(path))
    path.write_bytes(path.read_bytes()[:8000])
    with pytest.raises(StructureError, match="cut short or broken"):
        list(archive.members(path))
    last = members[-1]
    assert fault(Locator(path, last.name, last.offset, last.size)) == "file_unreadable"
    assert fault(Locator(path, last.name)) == "file_unreadable"


@pytest.mark.parametrize("name", ["../x.pdb", "/abs.pdb", "a/../../x.pdb", "..\\x.pdb", "C:\\x.pdb"])
def test_names_that_leave_the_folder_are_refused(tmp_path, name):
    for end in ("tar", "zip"):
        path = tmp_path / f"a.{end}"
        write_archive(path, {name: TEXT, "good": TEXT})
        members = {member.name: member.fault for member in archive.members(path)}
        assert members.pop("good") == ""
        assert all(members.values())
        assert fault(Locator(path, name)) == "unsafe_member"
        assert archive.load(Locator(path, "good")) == TEXT


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE])
def test_links_and_devices_are_refused(tmp_path, kind):
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        add(tar, "link", b"", kind, "/etc/passwd")
    assert [member.fault for member in archive.members(tmp_path / "a.tar")] == ["it is a link or a device"]
    assert fault(Locator(tmp_path / "a.tar", "link")) == "unsafe_member"


def test_a_link_in_a_zip_is_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as packed:
        entry = zipfile.ZipInfo("link")
        entry.external_attr = 0o120777 << 16
        packed.writestr(entry, "/etc/passwd")
    assert fault(Locator(tmp_path / "a.zip", "link")) == "unsafe_member"


def test_a_changed_file_has_a_new_digest(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"one")
    first = archive.digest(Locator(path))
    path.write_bytes(b"two")
    assert archive.digest(Locator(path)) != first


def test_case_47(shared):
    expected = (shared / "cases" / "47-tar-member-escape" / "expected.json").read_text()
    assert "unsafe_member" in expected  # the archive itself is built above


def test_a_pipe_is_refused_and_not_waited_for(tmp_path):
    import os

    os.mkfifo(tmp_path / "pipe.pdb")
    for read in (archive.load, archive.digest):
        with pytest.raises(StructureError, match="no regular file") as error:
            read(Locator(tmp_path / "pipe.pdb"))
        assert error.value.reason == "file_unreadable"


@pytest.mark.parametrize("name", ["nul\0byte.pdb", "x" * 5000])
def test_a_name_that_no_file_can_have(tmp_path, name):
    with pytest.raises(StructureError):
        archive.load(Locator(tmp_path / name))


@pytest.mark.parametrize("whole", [True, False])
def test_an_archive_that_only_the_collector_finds_is_closed(tmp_path, whole):
    """A traceback makes a ring of the objects of its frames; the collector takes them in any order."""
    path = tmp_path / "a"
    with zipfile.ZipFile(path, "w") as made:
        made.writestr("b", "content")
    if not whole:
        path.write_text("no archive")

    def ring() -> None:
        try:
            opened = archive._archive.__wrapped__(path, "")
            kept = [opened]
        except StructureError as error:
            kept = [error]  # its traceback has the frame that opened the file
        kept.append(kept)

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        ring()
        gc.collect()
    assert [str(one.message) for one in said] == []
