"""How functions are compiled: scalars for every target, loops for the CPU with a cache on disk."""

from __future__ import annotations

import functools
import hashlib
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from numba import njit, vectorize

from rime_kernels._identity import identity, short

log = logging.getLogger(__name__)

# OpenMP threads that wait for the next loop must sleep, not spin: where other programs use the cores too, a
# loop of 1 ms takes 50 ms otherwise (measured). Read when the OpenMP library is loaded, at the first loop.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

# NaN must survive (it marks a bad parameter vector), so neither "nnan" nor "ninf".
FASTMATH = {"contract", "reassoc", "nsz", "arcp"}

# IEEE division instead of Python's ZeroDivisionError: kernels do not raise.
scalar = njit(inline="always", error_model="numpy")

# Functions of vectors (`_simd`): they join their caller in the machine code alone, which compiles fast.
_INNER = {"error_model": "numpy", "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
vector_function = njit(forceinline=True, **_INNER)
# The same as functions of their own in the machine code: called from other compiled functions only.
inner_function = njit(**_INNER)


def source_digest(*names: str) -> int:
    """A number that changes with the source text of the named modules of this package.

    Numba's cache on disk looks at the file of the compiled function alone; a loop that closes over
    this number is compiled anew when the scalar physics that it inlines has changed.
    """
    text = b"".join((Path(__file__).parent / f"{name}.py").read_bytes() for name in names)
    return int.from_bytes(hashlib.sha256(text).digest()[:6], "big")


def elementwise(function: Any) -> Any:
    """A scalar function as a NumPy function of arrays that broadcast; cached on disk like loops."""
    try:
        return vectorize(cache=True)(function.py_func)
    except RuntimeError:  # no folder for the cache can be written
        return vectorize()(function.py_func)


def loop(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a parallel CPU loop; cached on disk where some folder can be written.

    Numba has one index on disk for all loops of a name, in which processes that write at once can put the
    machine code of one in place of another's. So each loop has a name, and an index, of its own.
    """
    function.__qualname__ += "_" + short(identity(function))
    options: dict[str, Any] = {"parallel": True, "error_model": "numpy", "fastmath": FASTMATH}
    try:
        compiled = njit(cache=True, **options)(function)
    except RuntimeError:  # no folder for the cache can be written
        return njit(**options)(function)
    forgive(compiled._cache)
    return compiled


def forgive(cache: Any) -> None:
    """Make a function's cache on disk one that costs time where the disk fails, and nothing else.

    Numba hands a full disk, or a file that was cut off, to whoever calls the function.
    """
    for name in ("load_overload", "save_overload"):
        setattr(cache, name, functools.partial(_forgiving, getattr(cache, name)))


def _forgiving(step: Callable[..., Any], *given: Any) -> Any:
    try:
        return step(*given)
    except Exception as error:  # of the disk, or of whatever a damaged file holds
        log.info("machine code on disk: %s", error)
        return None
