"""Data sets on a server or an object store: manifest and index are copied here, blocks come by range."""

from __future__ import annotations

import importlib.util
import tempfile
import threading
import urllib.error
import urllib.request
import weakref
from pathlib import Path
from typing import Any, Final

from ..errors import FormatError, MissingExtraError, UsageError
from ..format.manifest import MANIFEST, MAX_MANIFEST_BYTES, parse_manifest
from .fetch import Fetch
from .source import Source

TIMEOUT_S: Final = 60.0
RETRIES: Final = 3
OBSTORE: Final = ("s3://", "gs://", "az://", "abfs://", "abfss://", "file://")


def is_remote(path: str | Path) -> bool:
    """True for an address such as ``https://...``, ``s3://...``, ``gs://...``."""
    return isinstance(path, str) and "://" in path


def fetch_for(address: str) -> Fetch:
    """How to read ranges of an address: the standard library for HTTP, obstore or fsspec for stores."""
    if address.startswith(("http://", "https://")):
        return HttpFetch()
    if address.startswith(OBSTORE) and importlib.util.find_spec("obstore"):
        return ObstoreFetch()
    return FsspecFetch()


def open_remote(address: str, fetch: Fetch) -> Source:
    """A data set folder at an address. Manifest and index lie in a temporary folder as long as it is used."""
    address = address.rstrip("/")
    folder = tempfile.mkdtemp(prefix="holoshard-")
    text = bytes(fetch(f"{address}/{MANIFEST}", 0, MAX_MANIFEST_BYTES))
    manifest = parse_manifest(text, f"{address}/{MANIFEST}")
    name = manifest.index_name
    index = bytes(fetch(f"{address}/{name}", 0, manifest.index_bytes))
    if len(index) != manifest.index_bytes:
        raise FormatError(
            f"{address}/{name} has {len(index)} bytes, the manifest says {manifest.index_bytes}"
        )
    (Path(folder) / name).write_bytes(index)
    source = Source(Path(folder), manifest, address=address)
    weakref.finalize(source, _remove, folder)
    return source


class HttpFetch:
    """Byte ranges over HTTP; the server must answer ``Range``."""

    def __call__(self, path: str, offset: int, length: int) -> bytes:
        """See Fetch."""
        request = urllib.request.Request(path, headers={"Range": f"bytes={offset}-{offset + length - 1}"})
        for attempt in range(RETRIES):
            try:
                with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
                    if answer.status != 206 and offset:
                        raise UsageError(f"{path}: the server sends whole files only; copy the data set here")
                    return bytes(answer.read(length))
            except urllib.error.HTTPError as error:
                if error.code < 500 or attempt == RETRIES - 1:
                    raise FormatError(f"{path} cannot be read: HTTP {error.code} {error.reason}") from error
            except (urllib.error.URLError, TimeoutError, ConnectionError) as error:
                if attempt == RETRIES - 1:
                    raise FormatError(f"{path} cannot be read: {error}") from error
        raise AssertionError("unreachable")


class ObstoreFetch:
    """Byte ranges of an object store by obstore; keys and regions come from the environment."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stores: dict[str, Any] = {}

    def __call__(self, path: str, offset: int, length: int) -> memoryview:
        """See Fetch."""
        import obstore
        from obstore.exceptions import BaseError

        folder, _, name = path.rpartition("/")
        try:
            with self._lock:
                if folder not in self._stores:
                    self._stores[folder] = obstore.store.from_url(folder)
            return memoryview(obstore.get_range(self._stores[folder], name, start=offset, length=length))
        except FileNotFoundError as error:
            raise FormatError(f"{path} is missing") from error
        except (BaseError, OSError, ValueError) as error:
            raise FormatError(f"{path} cannot be read: {str(error).splitlines()[0]}") from error

    def __getstate__(self) -> dict[str, Any]:
        return {}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__()  # type: ignore[misc]


class FsspecFetch:
    """Byte ranges of whatever fsspec knows: s3, gs, abfs, memory, ... (needs the package of that store)."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._systems: dict[str, Any] = {}

    def __call__(self, path: str, offset: int, length: int) -> bytes:
        """See Fetch."""
        protocol = path.partition("://")[0]
        with self._lock:
            if protocol not in self._systems:
                self._systems[protocol] = _file_system(protocol)
        system = self._systems[protocol]
        try:
            return bytes(system.cat_file(path, start=offset, end=offset + length))
        except FileNotFoundError as error:
            raise FormatError(f"{path} is missing") from error
        except OSError as error:
            raise FormatError(f"{path} cannot be read: {error}") from error

    def __getstate__(self) -> dict[str, Any]:
        return {}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__()  # type: ignore[misc]


def _file_system(protocol: str) -> Any:
    try:
        import fsspec  # type: ignore[import-untyped,unused-ignore]
    except ModuleNotFoundError as error:
        raise MissingExtraError("fsspec", "ingest") from error
    try:
        return fsspec.filesystem(protocol)
    except (ImportError, ValueError) as error:
        raise UsageError(f"{protocol}:// cannot be read here: {error}") from error


def _remove(folder: str) -> None:
    import shutil

    shutil.rmtree(folder, ignore_errors=True)
