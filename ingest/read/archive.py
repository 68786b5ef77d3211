"""Bytes of a file, wherever they lie: plain, compressed, or a member of an archive that stays packed.

What a file is comes from its first bytes, never from its name. A member is read in place: from a tar or a
zip by its offset, from a compressed tar by reading forward.
"""

from __future__ import annotations

import codecs
import hashlib
import io
import os
import stat
import struct
import tarfile
import weakref
import zipfile
import zlib
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, Final, Literal, cast

from isal import igzip as untyped_igzip
from isal import isal_zlib
from numcodecs import zstd

from ...shards.errors import StructureError
from ..item import Locator
from .frames import MAGIC, most

igzip: Any = untyped_igzip
IsalError: Any = isal_zlib.IsalError

MAX_BYTES: Final = 1 << 30  # of one file, unpacked: no structure is larger, a decompression bomb is
GZIP: Final = b"\x1f\x8b"
ZSTD: Final = MAGIC
_FOREIGN: Final = {b"BZh": "bzip2", b"\xfd7zXZ": "xz", b"\x04\x22\x4d\x18": "LZ4"}
_MARKS: Final = {  # byte order marks; that of UTF-16 begins as that of UTF-32
    codecs.BOM_UTF32_LE: "utf-32-le", codecs.BOM_UTF32_BE: "utf-32-be", codecs.BOM_UTF16_LE: "utf-16-le",
    codecs.BOM_UTF16_BE: "utf-16-be", codecs.BOM_UTF8: "",
}  # fmt: skip
DEFLATE_RATIO: Final = 1032  # Deflate cannot expand more: 258 bytes of two bits
PIECE: Final = 1 << 14
ZIP_HEADERS: Final = (b"PK\x03\x04", b"PK\x05\x06")
KEPT_BYTES: Final = 32 << 20  # of a compressed tar that were passed and may be asked for soon

Kind = Literal["", "tar", "tar.gz", "zip"]


@dataclass(frozen=True, slots=True)
class Member:
    """One entry of an archive that is not a folder.

    Attributes
    ----------
    name : as stored
    offset, size : the hints of ``Locator``
    fault : why it must not be read, "" if it may
    """

    name: str
    offset: int
    size: int
    fault: str = ""


def load(locator: Locator) -> bytes:
    """The content of a file, unpacked.

    Raises StructureError with ``file_missing``, ``file_unreadable``, ``empty_file``, ``unsafe_member``,
    ``too_large``, or ``format_mismatch`` for an archive of which no member is named.
    """
    seen = stamp(locator)
    raw = read_raw(locator)
    _remember(locator, seen, raw)
    data = as_utf8(inflate(raw, str(locator)))
    if not data.strip(b"\0"):
        raise StructureError("empty_file", f"{locator} has no content")
    if data[:4] in ZIP_HEADERS or (data[257:262] == b"ustar" and b"\0" in data[:257]):
        said = f"{locator} is an archive where one file is due; name a member of it, as in ARCHIVE!MEMBER"
        raise StructureError("format_mismatch", said)
    foreign = next((name for magic, name in _FOREIGN.items() if data.startswith(magic)), "")
    if foreign:
        said = f"{locator} is compressed by {foreign}, which is not read; gzip and Zstandard are"
        raise StructureError("format_unknown", said)
    return data


def as_utf8(data: bytes) -> bytes:
    """Text that says by its first bytes that it is UTF-16, UTF-32 or UTF-8 as UTF-8 without that mark."""
    if data[:1] not in (b"\xff", b"\xfe", b"\xef", b"\0"):
        return data
    for mark, encoding in _MARKS.items():
        if data.startswith(mark):
            return data[len(mark) :].decode(encoding, "replace").encode() if encoding else data[len(mark) :]
    return data


def digest(locator: Locator, seen: str = "") -> str:
    """SHA-256 of the file as it lies, compressed if it is: what ``sha256sum`` prints. Raises as `load`.

    ``seen`` is the stamp of a moment ago, where the caller has it.
    """
    seen = seen or stamp(locator)
    known = _DIGESTS.get(locator)
    if known and known[0] == seen:
        return known[1]
    return _remember(locator, seen, read_raw(locator))


def stamp(locator: Locator) -> str:
    """Size and times of the file (the archive, for a member): equal stamps, equal content."""
    try:
        status = os.stat(locator.path)
    except (OSError, ValueError):  # ValueError: a NUL in the name
        return "missing"
    return f"{status.st_size}:{status.st_mtime_ns}:{status.st_ctime_ns}"


_DIGESTS: OrderedDict[Locator, tuple[str, str]] = OrderedDict()


def _remember(locator: Locator, seen: str, raw: bytes) -> str:
    value = hashlib.sha256(raw).hexdigest()
    _DIGESTS[locator] = (seen, value)
    if len(_DIGESTS) > 4096:
        _DIGESTS.popitem(last=False)
    return value


def read_raw(locator: Locator) -> bytes:
    """The content of a file as it lies, compressed if it is. Raises as :func:`load`."""
    try:
        status = os.stat(locator.path)
        if not stat.S_ISREG(status.st_mode):  # a pipe would be waited for, for ever
            raise StructureError("file_unreadable", f"{locator.path} is no regular file")
        if locator.member:
            return _read_member(locator)
        if status.st_size > MAX_BYTES:
            raise StructureError("too_large", f"{locator} has {status.st_size} bytes, more than {MAX_BYTES}")
        return locator.path.read_bytes()
    except (FileNotFoundError, NotADirectoryError) as error:
        raise StructureError("file_missing", f"there is no file {locator.path}") from error
    except (OSError, EOFError, ValueError, tarfile.TarError, zipfile.BadZipFile, zlib.error,
            struct.error) as error:  # fmt: skip
        raise StructureError("file_unreadable", f"{str(locator)[:200]!r} cannot be read: {error}") from error


def inflate(raw: bytes, name: str) -> bytes:
    """Undo gzip or Zstandard, told by the first bytes; other content comes back as it is."""
    try:
        if raw[:2] == GZIP:
            _check_unpacked(name, len(raw), _gzip_sizes(raw))
            return cast(bytes, igzip.decompress(raw))
        if raw[:4] == ZSTD:
            if most(raw) > MAX_BYTES:
                raise StructureError("too_large", f"{name} unpacks to more than {MAX_BYTES} bytes")
            return bytes(zstd.decompress(raw))
        return raw
    except (OSError, EOFError, ValueError, RuntimeError, zlib.error, IsalError) as error:
        raise StructureError("file_unreadable", f"{name} is cut short or broken: {error}") from error


def _check_unpacked(name: str, packed: int, sizes: Iterable[int]) -> None:
    """Refuse a file whose unpacked pieces, of these sizes, come to more than may be held.

    Most files are too small for that whatever they hold, and ``sizes`` is not asked for.
    """
    if packed * DEFLATE_RATIO <= MAX_BYTES:
        return
    total = 0
    for size in sizes:
        total += size
        if total > MAX_BYTES:
            raise StructureError("too_large", f"{name} unpacks to more than {MAX_BYTES} bytes")


def _gzip_sizes(raw: bytes) -> Iterator[int]:
    with igzip.IGzipFile(fileobj=io.BytesIO(raw)) as stream:
        while data := stream.read(1 << 20):
            yield len(data)


def _deflated_sizes(data: bytes) -> Iterator[int]:
    inflater = isal_zlib.decompressobj(-15)
    for at in range(0, len(data), PIECE):
        yield len(inflater.decompress(data[at : at + PIECE]))


def archive_kind(path: Path) -> Kind:
    """Which archive a file is, from its content; "" if it is none or cannot be read."""
    if not path.is_file():  # a pipe would be waited for, for ever
        return ""
    try:
        with path.open("rb") as file:
            head = file.read(512)
            if head[:4] in ZIP_HEADERS:
                return "zip"
            if head[257:262] == b"ustar":
                return "tar"
            if head[:2] != GZIP:
                return ""
            file.seek(0)
            with igzip.IGzipFile(fileobj=file) as stream:
                return "tar.gz" if stream.read(512)[257:262] == b"ustar" else ""
    except (OSError, EOFError, zlib.error, IsalError):
        return ""


def fault_of_name(name: str) -> str:
    """Why a name would leave its folder, "" if it stays inside."""
    path = PurePosixPath(name.replace("\\", "/"))
    if path.is_absolute() or (len(name) > 1 and name[1] == ":"):
        return "its name is absolute"
    if ".." in path.parts:
        return "its name leaves the folder"
    return "its name holds a null byte" if "\0" in name else ""


def members(path: Path) -> Iterator[Member]:
    """Everything in an archive that is not a folder, in order, faulty entries included.

    Raises StructureError(file_unreadable) if the archive is cut short or broken.
    """
    kind = archive_kind(path)
    try:
        if kind == "zip":
            with zipfile.ZipFile(path) as archive:
                for entry in archive.infolist():
                    if not entry.is_dir():
                        fault = _zip_fault(entry)
                        yield Member(entry.filename, entry.header_offset, entry.compress_size, fault)
        elif kind:
            with path.open("rb") as file:
                yield from _tar_members(igzip.IGzipFile(fileobj=file) if kind == "tar.gz" else file)
        else:
            raise StructureError("format_unknown", f"{path} is no tar, tar.gz or zip archive")
    except (OSError, EOFError, tarfile.TarError, zipfile.BadZipFile, zlib.error, IsalError) as error:
        raise StructureError("file_unreadable", f"{path} is cut short or broken: {error}") from error


def _zip_fault(entry: zipfile.ZipInfo) -> str:
    mode = entry.external_attr >> 16
    if mode and (mode & 0o170000) not in (0, 0o100000):
        return "it is a link or a device"
    return "it is encrypted" if entry.flag_bits & 1 else fault_of_name(entry.filename)


def _tar_members(stream: BinaryIO) -> Iterator[Member]:
    """Members of an open tar; the offset is into the unpacked tar."""
    with tarfile.open(fileobj=stream, mode="r:") as archive:
        for entry in archive:
            # tarfile keeps every entry; two million of them are gigabytes
            archive.members = []  # type: ignore[attr-defined]
            if entry.isdir():
                continue
            fault = fault_of_name(entry.name) if entry.isreg() else "it is a link or a device"
            yield Member(entry.name, entry.offset_data, entry.size, fault)


def _read_member(locator: Locator) -> bytes:
    fault = fault_of_name(locator.member)
    if fault:
        raise StructureError("unsafe_member", f"{locator} is refused: {fault}")
    archive = _archive(locator.path, stamp(locator))
    offset, size = locator.offset, locator.size
    if offset < 0:
        member = archive.index().get(locator.member)
        if member is None:
            raise StructureError("file_missing", f"{locator.path} has no member {locator.member}")
        if member.fault:
            raise StructureError("unsafe_member", f"{locator} is refused: {member.fault}")
        offset, size = member.offset, member.size
    if size > MAX_BYTES:
        raise StructureError("too_large", f"{locator} is larger than {MAX_BYTES} bytes")
    return archive.read(offset, size)


@lru_cache(maxsize=8)
def _archive(path: Path, _stamp: str) -> _Archive:
    return _Archive(path)


class _Archive:
    """An open archive; closed when it leaves the cache."""

    def __init__(self, path: Path) -> None:
        self.path, self.kind = path, archive_kind(path)
        if not self.kind:
            raise StructureError("file_unreadable", f"{path} is no tar, tar.gz or zip archive")
        self.file = path.open("rb")
        weakref.finalize(self, self.file.close)  # in a ring, __del__ may come after the file's own end
        self.stream: BinaryIO | None = None
        self.window, self.window_start = bytearray(), 0  # what the stream gave last, and where it began
        self._index: dict[str, Member] | None = None

    def index(self) -> dict[str, Member]:
        """Members by name, the last of a name as tar has it."""
        if self._index is None:
            self._index = {member.name: member for member in members(self.path)}
        return self._index

    def read(self, offset: int, size: int) -> bytes:
        if self.kind == "tar":
            return _exactly(os.pread(self.file.fileno(), size, offset), size)
        return self._read_zip(offset, size) if self.kind == "zip" else self._read_forward(offset, size)

    def _read_zip(self, offset: int, size: int) -> bytes:
        """Local header (30 bytes, name, extra; APPNOTE 4.3.7), then the data."""
        header = _exactly(os.pread(self.file.fileno(), 30, offset), 30)
        magic, _, _, method, *_, unpacked, name, extra = struct.unpack("<4s5H3I2H", header)
        if magic != ZIP_HEADERS[0]:
            raise zipfile.BadZipFile("no local header where the directory says")
        if MAX_BYTES < unpacked < 0xFFFFFFFF:  # which means that the extra fields tell it
            raise StructureError("too_large", f"a member of {self.path} unpacks to {unpacked} bytes")
        data = _exactly(os.pread(self.file.fileno(), size, offset + 30 + name + extra), size)
        if method == zipfile.ZIP_STORED:
            return data
        if method != zipfile.ZIP_DEFLATED:
            raise zipfile.BadZipFile(f"compression method {method}; stored and deflated are read")
        _check_unpacked(f"a member of {self.path}", size, _deflated_sizes(data))
        inflater = zlib.decompressobj(-15)
        plain = inflater.decompress(data)
        if not inflater.eof:
            raise EOFError("the compressed data is cut short")
        return plain

    def _read_forward(self, offset: int, size: int) -> bytes:
        """A compressed tar has no random access: read on from the last place, or start again."""
        end = self.window_start + len(self.window)
        if self.stream is None or offset < self.window_start:
            self.file.seek(0)
            self.stream = cast(BinaryIO, igzip.IGzipFile(fileobj=self.file))
            self.window, self.window_start, end = bytearray(), 0, 0
        while end < offset + size:
            data = self.stream.read(min(1 << 20, offset + size - end))
            if not data:
                raise EOFError("the archive is cut short")
            self.window += data
            end += len(data)
            surplus = min(len(self.window) - KEPT_BYTES, offset - self.window_start)
            if surplus > KEPT_BYTES:
                del self.window[:surplus]
                self.window_start += surplus
        start = offset - self.window_start
        return bytes(self.window[start : start + size])


def _exactly(data: bytes, size: int) -> bytes:
    if len(data) != size:
        raise EOFError(f"{len(data)} of {size} bytes are there")
    return data
