"""LMDB: arrays as numpy's archive under ``NAME``, the text under ``NAME.json``, how many under ``__len__``.

``np.load(io.BytesIO(txn.get(b"00000000")))`` reads a complex.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from ..errors import MissingExtraError
from .records import Record

COMMIT: Final = 1024  # complexes a transaction: what is held in memory
FIRST_MAP: Final = 1 << 26


def write_lmdb(folder: Path, records: Iterable[Record]) -> None:
    """Write ``data.mdb``; the map grows with the data, so that the file is no larger than it must be."""
    try:
        import lmdb
    except ModuleNotFoundError as error:
        raise MissingExtraError("lmdb", "export") from error
    n, held = 0, list[tuple[bytes, bytes]]()
    with lmdb.open(str(folder), map_size=FIRST_MAP, lock=False) as store:
        for record in records:
            held += [(record.name.encode(), record.npz()), (f"{record.name}.json".encode(), record.json())]
            n += 1
            if n % COMMIT == 0:
                _put(store, held)
                held = []
        _put(store, [*held, (b"__len__", str(n).encode())])


def _put(store: Any, pairs: list[tuple[bytes, bytes]]) -> None:
    import lmdb

    while True:
        try:
            with store.begin(write=True) as transaction:
                for key, value in pairs:
                    transaction.put(key, value, append=key != b"__len__")
            return
        except lmdb.MapFullError:
            store.set_mapsize(2 * store.info()["map_size"])
