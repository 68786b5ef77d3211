"""Sources that are no mounted file system: ranges over HTTP, and of object stores.

What may pass (a busy or restarting server, a broken connection) is an OSError that
:class:`~holoshard.cache.source.Patient` tries again; what will not pass (no such object, no permission)
says so at once.
"""

from __future__ import annotations

import errno
import http.client
import threading
import urllib.error
import urllib.request
from typing import Any, Final

from .errors import SettingError
from .source import Source
from .tier import Data

TIMEOUT_S: Final = 60.0
BEYOND: Final = 416  # the range begins behind the end of the file
# Statuses that say "later" (RFC 9110 and RFC 6585), besides all from 500 on but "not implemented".
LATER: Final = frozenset({408, 425, 429})
CODES: Final = {401: errno.EACCES, 403: errno.EACCES, 404: errno.ENOENT, 410: errno.ENOENT, 501: errno.ENOSYS}
STORES: Final = ("s3", "s3a", "gs", "az", "abfs", "abfss")  # what obstore knows


class LaterError(ConnectionError):
    """The server asks to come again, after ``retry_after`` seconds if it says so."""

    def __init__(self, what: str, retry_after: float = 0.0) -> None:
        super().__init__(errno.EAGAIN, what)
        self.retry_after = retry_after


class HttpSource:
    """Files of a web server that answers ``Range``. Proxies come from the environment. See Source."""

    def __call__(self, path: str, offset: int, length: int) -> bytes:
        """See Source."""
        if length <= 0:
            return b""
        request = urllib.request.Request(path, headers={"Range": f"bytes={offset}-{offset + length - 1}"})
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
                if answer.status != http.client.PARTIAL_CONTENT and offset:
                    raise SettingError(f"{path}: its server sends whole files only; copy the data set here")
                data = bytes(answer.read(length))
                expected = min(length, int(answer.headers.get("Content-Length") or 0))
                if len(data) < expected:
                    raise LaterError(f"the answer broke off after {len(data)} of {expected} bytes")
                return data
        except urllib.error.HTTPError as error:
            with error:
                if error.code == BEYOND:
                    return b""
                raise _refusal(error) from error
        except urllib.error.URLError as error:  # no errno of its own: the cause inside has
            raise error.reason if isinstance(error.reason, OSError) else error from error
        except http.client.HTTPException as error:  # the answer broke off
            raise LaterError(f"{type(error).__name__}: {error}") from error


def _refusal(error: urllib.error.HTTPError) -> OSError:
    what = f"HTTP {error.code} {error.reason}"
    if error.code in LATER or (error.code >= 500 and error.code not in CODES):
        wait = error.headers.get("Retry-After", "")
        return LaterError(what, float(wait) if wait.isdigit() else 0.0)
    return OSError(CODES.get(error.code, errno.EINVAL), what)


class ObjectSource:
    """Objects of S3, Google or Azure by obstore; keys and regions come from the environment. See Source."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stores: dict[str, Any] = {}

    def __call__(self, path: str, offset: int, length: int) -> Data:
        """See Source."""
        import obstore

        scheme, _, rest = path.partition("://")
        bucket, _, name = rest.partition("/")
        try:
            return memoryview(obstore.get_range(self._store(f"{scheme}://{bucket}"), name, start=offset,
                                                length=length))  # fmt: skip
        except FileNotFoundError as error:
            raise FileNotFoundError(errno.ENOENT, f"no such object: {_first_line(error)}") from error
        except PermissionError as error:
            raise PermissionError(errno.EACCES, _first_line(error)) from error
        except obstore.exceptions.GenericError as error:  # a server or connection that failed
            raise LaterError(_first_line(error)) from error

    def _store(self, address: str) -> Any:
        from obstore.store import from_url

        with self._lock:
            if address not in self._stores:
                # We try again ourselves, and say what was tried.
                self._stores[address] = from_url(address, retry_config={"max_retries": 0})
            return self._stores[address]

    def __getstate__(self) -> dict[str, Any]:
        return {}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__()  # type: ignore[misc]


class FsspecSource:
    """Whatever fsspec knows, with the package of that store. See Source."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._systems: dict[str, Any] = {}

    def __call__(self, path: str, offset: int, length: int) -> bytes:
        """See Source."""
        scheme = path.partition("://")[0]
        with self._lock:
            if scheme not in self._systems:
                self._systems[scheme] = _file_system(scheme)
        return bytes(self._systems[scheme].cat_file(path, start=offset, end=offset + length))

    def __getstate__(self) -> dict[str, Any]:
        return {}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__()  # type: ignore[misc]


def source_for(address: str) -> Source:
    """How to read an address: the standard library for HTTP, obstore for object stores where it is
    installed, fsspec for all else.

    Raises
    ------
    SettingError : nothing here reads it; the message says what to install
    """
    scheme = address.partition("://")[0]
    if scheme in ("http", "https"):
        return HttpSource()
    if scheme in STORES:
        try:
            import obstore  # noqa: F401
        except ModuleNotFoundError:
            pass
        else:
            return ObjectSource()
    _file_system(scheme)
    return FsspecSource()


def _file_system(scheme: str) -> Any:
    try:
        import fsspec  # type: ignore[import-untyped,unused-ignore]

        return fsspec.filesystem(scheme)
    except (ImportError, ValueError) as error:
        what = "holoshard[objects]" if scheme in STORES else f"the fsspec package for {scheme}://"
        raise SettingError(f"{scheme}:// cannot be read here ({error}); pip install {what}") from error


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
