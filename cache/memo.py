"""Remember what a slow transform gave for each complex, over epochs, processes and runs.

This is joblib.Memory with a store of its own: results are plain arrays instead of pickles, so nothing in
the folder can run code, and the key is the content of the argument instead of its pickle.
"""

from __future__ import annotations

import functools
import logging
import os
import types
from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, TypeVar

from joblib import Memory, register_store_backend
from joblib._store_backends import FileSystemStoreBackend

from . import plain

log = logging.getLogger("holoshard")
T = TypeVar("T")
BACKEND: Final = "holoshard"
RESULT: Final = "result.npz"


class PlainStore(FileSystemStoreBackend):  # type: ignore[misc]
    """joblib's folder of results, each a file of plain arrays."""

    types: Sequence[type] = ()

    def configure(self, location: str, verbose: int = 0, backend_options: Any = None) -> None:
        """Called by joblib; ``backend_options`` may hold ``types``."""
        options = dict(backend_options or {})
        self.types = options.pop("types", ())
        super().configure(location, verbose=verbose, backend_options=options)

    def contains_item(self, call_id: Sequence[str]) -> bool:
        """Whether there is a result."""
        return os.path.exists(os.path.join(self.location, *call_id, RESULT))

    def load_item(self, call_id: Sequence[str], verbose: int = 0, timestamp: Any = None, metadata: Any = None
                  ) -> Any:  # fmt: skip
        """Read a result; what joblib catches makes it compute anew."""
        with open(os.path.join(self.location, *call_id, RESULT), "rb") as file:
            return plain.load(file.read(), self.types)

    def dump_item(self, call_id: Sequence[str], item: Any, verbose: int = 0) -> None:
        """Keep a result: written beside, then renamed."""
        data = plain.dump(item)
        folder = os.path.join(self.location, *call_id)
        try:
            os.makedirs(folder, exist_ok=True)
            self._concurrency_safe_write(data, os.path.join(folder, RESULT), _write)
        except OSError as error:  # a full disk costs the memory, not the run
            _warn_once(str(self.location), str(error))


def memoize(
    transform: Callable[[Any], T],
    folder: str | Path,
    *,
    version: str = "",
    types: Sequence[type] = (),
) -> Callable[[Any], T]:
    """A transform that remembers its results in ``folder``; safe for many processes at once.

    A result is found again if the content of the argument, the transform's own code (with its constants,
    defaults and what it closes over) and ``version`` are the same. What the transform calls is not looked
    at: change ``version`` when that changes.

    Parameters
    ----------
    transform : of one argument, a complex or any plain value, to a plain value: numbers, text, arrays,
        lists, tuples, dictionaries and dataclasses of these
    version : any text
    types : dataclasses and enumerations that results hold, such as Complex, Affinity and Flag

    Raises
    ------
    TypeError : (when called) the argument or the result is not plain

    Examples
    --------
    >>> features = memoize(slow_features, "/local/nvme/features", version="2")  # doctest: +SKIP
    >>> features(dataset[0])  # doctest: +SKIP
    """
    register_store_backend(BACKEND, PlainStore)
    memory = Memory(str(folder), backend=BACKEND, verbose=0, backend_options={"types": tuple(types)})
    identity = f"{code_digest(transform)} {version}"

    def remembered(identity: str, content: str, item: Any) -> T:
        return transform(item)

    cached = memory.cache(remembered, ignore=["item"])

    @functools.wraps(transform)
    def call(item: Any) -> T:
        result: T = cached(identity, plain.digest(item), item)
        return result

    return call


def code_digest(function: Callable[..., Any]) -> str:
    """64 hexadecimal digits of what a function does, as far as its own code says."""
    if isinstance(function, functools.partial):
        parts = [code_digest(function.func), *map(_value_digest, function.args),
                 *(f"{k}={_value_digest(v)}" for k, v in sorted(function.keywords.items()))]  # fmt: skip
        return sha256("\0".join(parts).encode()).hexdigest()
    plain_function = getattr(function, "__func__", function)
    code = getattr(plain_function, "__code__", None)
    if code is None:  # an object with __call__: its class's code and its own state
        call: Any = type(function).__call__
        if not hasattr(call, "__code__"):
            raise TypeError(f"{function!r} has no Python code to tell it by; wrap it in a function")
        return sha256(f"{code_digest(call)}{_value_digest(vars(function))}".encode()).hexdigest()
    parts = [*_code_parts(code), *map(_value_digest, plain_function.__defaults__ or ()),
             _value_digest(dict(plain_function.__kwdefaults__ or {}))]  # fmt: skip
    parts += [_value_digest(cell.cell_contents) for cell in plain_function.__closure__ or ()]
    if hasattr(function, "__self__"):
        parts.append(_value_digest(getattr(function.__self__, "__dict__", None)))
    return sha256("\0".join(parts).encode()).hexdigest()


def _code_parts(code: types.CodeType) -> list[str]:
    parts = [code.co_code.hex(), repr(code.co_names), repr(code.co_varnames)]
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            parts += _code_parts(constant)
        elif isinstance(constant, frozenset):  # its order differs from process to process
            parts.append(repr(sorted(map(repr, constant))))
        else:
            parts.append(repr(constant))
    return parts


def _value_digest(value: Any) -> str:
    return code_digest(value) if callable(value) and not isinstance(value, type) else plain.digest(
        f"{value.__module__}.{value.__qualname__}" if isinstance(value, type) else value
    )  # fmt: skip


def _write(data: bytes, path: str) -> None:
    with open(path, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


@functools.lru_cache
def _warn_once(folder: str, error: str) -> None:
    import logging

    logging.getLogger("holoshard").warning(
        "results cannot be kept in %s (%s); going on without", folder, error
    )
