"""A process in which HDF5 knows a Blosc filter, and one in which it does not, must write the same file.

HDF5 writes a filter's name beside its number if, and only if, that filter is registered when the file is
closed (H5O__pline_encode). Whether it is depends on what else the process imported: hdf5plugin registers it.
So while a shard is written the name stands in for the filter where the filter is missing; chunks are
written as they are, and no filter ever runs.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

import h5py

from ..errors import WriteError

BLOSC_FILTER: Final = 32001

_FUNCTION = ctypes.CFUNCTYPE(ctypes.c_size_t)


class _FilterClass(ctypes.Structure):
    """H5Z_class2_t of H5Zpublic.h."""

    _fields_ = [
        ("version", ctypes.c_int), ("id", ctypes.c_int), ("encoder_present", ctypes.c_uint),
        ("decoder_present", ctypes.c_uint), ("name", ctypes.c_char_p), ("can_apply", ctypes.c_void_p),
        ("set_local", ctypes.c_void_p), ("filter", _FUNCTION),
    ]  # fmt: skip


# HDF5 keeps the pointers of name and function, so they live as long as the process.
_NAME: Final = _FilterClass(1, BLOSC_FILTER, 1, 1, b"blosc", None, None, _FUNCTION(lambda: 0))
_lock = threading.Lock()
_users = 0


@contextmanager
def blosc_named() -> Iterator[None]:
    """HDF5 knows the name of filter 32001 within; afterwards it has what it had before."""
    global _users
    with _lock:
        if not _users and h5py.h5z.filter_avail(BLOSC_FILTER):
            lent = False
        else:
            lent = True
            _users += 1
            if _users == 1:
                h5py.h5z.register_filter(ctypes.addressof(_NAME))
    closed = True
    try:
        yield
    except WriteError:
        closed = False
        raise
    finally:
        with _lock:
            if lent:
                _users -= 1
            # To unregister a filter HDF5 flushes its open files, and crashes on one that it could not write.
            if lent and not _users and closed:
                with suppress(RuntimeError):  # another thread has a file open that uses the name
                    h5py.h5z.unregister_filter(BLOSC_FILTER)
