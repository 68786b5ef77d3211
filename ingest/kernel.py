"""Loops over the atoms of whole proteins, compiled by Numba when they are first called.

An array operation passes over all atoms for each thing that it does, and half of a small pocket's time goes
into starting such operations; one loop does all of it at once. The machine code is kept beside the
source, or in the user's cache, so a process waits for a third of a second, and the first one ever for
some more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar, cast

import numba

_P = ParamSpec("_P")
_R = TypeVar("_R")


def kernel(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """The function, compiled on its first call. It takes arrays and numbers, checks no bounds, and must be
    given its tables as arguments: what it finds in the module is frozen into the kept machine code. The
    same holds for other kernels that it calls, which therefore stand in its own file.
    """
    try:
        compiled = numba.njit(cache=True, error_model="numpy")(function)
    except RuntimeError:  # nowhere to keep it: a read-only installation, a user without a home
        compiled = numba.njit(error_model="numpy")(function)
    return cast("Callable[_P, _R]", compiled)
