"""Arrays to chunk bytes and back, and fixed-point numbers.

The bytes of a chunk are the same in both containers. ``blosc-*`` is one Blosc 1 frame (HDF5 filter 32001,
Zarr codec ``blosc``); ``gzip`` is byte shuffle, where a number has more than one byte, and then a zlib
stream (HDF5 filters shuffle and deflate, Zarr codecs ``numcodecs.shuffle`` and ``numcodecs.zlib``);
``none`` is the array itself. Everything is little-endian.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
from numcodecs import blosc
from numpy.typing import NDArray

from ..complex import Field
from ..errors import FormatError, UsageError

# Blosc's own threads share one global pool behind a lock: readers here bring their own threads.
blosc.use_threads = False

Kind = Literal["blosc", "gzip", "none"]
BLOSC_OVERHEAD: Final = 16  # bytes of a frame's header


@dataclass(frozen=True, slots=True)
class Codec:
    """How the chunks of one column are packed.

    Parameters
    ----------
    kind : family
    cname : Blosc's inner compressor: lz4 or zstd
    level : 1 (fast) to 9 (small)
    """

    kind: Kind = "none"
    cname: str = ""
    level: int = 0

    @property
    def name(self) -> str:
        """As in the manifest: ``blosc-lz4-5``, ``gzip-6``, ``none``."""
        parts = [self.kind, self.cname, str(self.level) if self.level else ""]
        return "-".join(p for p in parts if p)

    def encode(self, array: NDArray[Any]) -> bytes:
        """Pack a C-contiguous little-endian array."""
        if self.kind == "blosc":
            blosc.use_threads = False  # others may have set it since; with threads frames differ each time
            return bytes(blosc.compress(array, self.cname.encode(), self.level, blosc.SHUFFLE, 0))
        data = array.tobytes()
        if self.kind == "gzip":
            return zlib.compress(_shuffle(data, array.itemsize), self.level)
        return data

    def decode(self, data: bytes | memoryview, out: NDArray[Any]) -> None:
        """Unpack one chunk into ``out``, which has exactly the chunk's shape and dtype.

        Raises FormatError if the bytes are not a chunk of that size.
        """
        try:
            if self.kind == "blosc":
                _check_frame(data, out.nbytes)
                blosc.decompress(data, out)
            elif self.kind == "gzip":
                raw = _inflate(data, out.nbytes)
                out.reshape(-1).view(np.uint8)[:] = _unshuffle(raw, out.itemsize)
            else:
                out.reshape(-1).view(np.uint8)[:] = np.frombuffer(data, np.uint8)
        except (RuntimeError, ValueError, zlib.error) as error:
            raise FormatError(
                f"a chunk of {len(data)} bytes does not unpack to {out.nbytes} bytes with {self.name} "
                f"({error}); run holoshard verify on the data set"
            ) from error


def parse_codec(name: str) -> Codec:
    """Undo :attr:`Codec.name`; FormatError for a codec this version does not know."""
    kind, *rest = name.split("-")
    try:
        if kind == "blosc" and len(rest) == 2 and rest[0] in ("lz4", "zstd", "lz4hc", "zlib"):
            return Codec("blosc", rest[0], int(rest[1]))
        if kind == "gzip" and len(rest) == 1:
            return Codec("gzip", level=int(rest[0]))
    except ValueError:
        pass
    if name == "none":
        return Codec()
    raise FormatError(f"unknown codec {name!r}; known: blosc-lz4-N, blosc-zstd-N, gzip-N, none")


@dataclass(frozen=True, slots=True)
class Codecs:
    """Which codec packs which columns.

    Parameters
    ----------
    positions : for coordinates, which hardly pack
    hot : for other columns that a trainer reads. LZ4 at its most patient packs them as small as zstd and
        unpacks five to eight times faster
    cold : for all others
    """

    positions: Codec = Codec("blosc", "lz4", 5)
    hot: Codec = Codec("blosc", "lz4hc", 9)
    cold: Codec = Codec("blosc", "zstd", 5)

    def of(self, field: Field, hot: bool) -> Codec:
        """Codec of a field."""
        if field.codec == "positions":
            return self.positions
        return self.hot if hot else self.cold


CODECS: Final = {
    "blosc": Codecs(),
    "blosc-lz4": Codecs(hot=Codec("blosc", "lz4", 5), cold=Codec("blosc", "lz4", 5)),
    "blosc-zstd": Codecs(Codec("blosc", "zstd", 5), Codec("blosc", "zstd", 5)),
    "gzip": Codecs(Codec("gzip", level=6), Codec("gzip", level=6), Codec("gzip", level=6)),
    "none": Codecs(Codec(), Codec(), Codec()),
}


def codecs_named(name: str) -> Codecs:
    """Codecs for the option ``--codec``."""
    if name not in CODECS:
        raise UsageError(f"unknown codec {name!r}; one of: {', '.join(CODECS)}")
    return CODECS[name]


def to_fixed(values: NDArray[Any], field: Field) -> NDArray[Any]:
    """Stored integers of a fixed-point field: int32, or the field's own dtype if all of them fit.

    Raises FormatError for a value that is not finite or beyond int32.
    """
    scaled = np.rint(np.asarray(values, np.float64) * field.per_unit)
    largest = float(np.abs(scaled).max(initial=0.0))
    if not largest <= np.iinfo(np.int32).max:  # also catches NaN
        found = f"{largest / field.per_unit} {field.unit}"
        raise FormatError(f"{field.path}: {found} cannot be stored as int32/{field.per_unit}")
    fits = largest <= np.iinfo(np.dtype(field.dtype)).max
    return scaled.astype(field.dtype if fits else "<i4")


def from_fixed(
    stored: NDArray[Any], per_unit: int, out: NDArray[np.float32] | None = None
) -> NDArray[np.float32]:
    """Values of stored integers; division is exact to the last digit where a reciprocal is not."""
    values: NDArray[np.float32] = np.divide(stored, np.float32(per_unit), out=out, dtype=np.float32)
    return values


def _check_frame(data: bytes | memoryview, n_bytes: int) -> None:
    if len(data) < BLOSC_OVERHEAD:
        raise ValueError("shorter than a Blosc header")
    found, _, packed = struct.unpack_from("<3I", data, 4)
    if found != n_bytes or packed != len(data):
        raise ValueError(f"its Blosc header says {packed} bytes packed, {found} unpacked")


def _inflate(data: bytes | memoryview, n_bytes: int) -> bytes:
    engine = zlib.decompressobj()
    raw = engine.decompress(data, n_bytes + 1)  # bounded, whatever the stream would expand to
    if len(raw) != n_bytes or not engine.eof or engine.unused_data:
        raise ValueError(f"found {len(raw)} bytes or more")
    return raw


def _shuffle(data: bytes, width: int) -> bytes:
    if width == 1:
        return data
    return np.frombuffer(data, np.uint8).reshape(-1, width).T.tobytes()


def _unshuffle(data: bytes, width: int) -> NDArray[np.uint8]:
    codes = np.frombuffer(data, np.uint8)
    return codes if width == 1 else np.ascontiguousarray(codes.reshape(width, -1).T).reshape(-1)
