"""How functions are compiled: scalars for every target, loops for the CPU."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from numba import njit, vectorize

from rime_kernels.compile.cache import keep

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


def elementwise(function: Any) -> Any:
    """A scalar function as a NumPy function of arrays that broadcast; kept on disk like loops."""
    compiled = vectorize()(function.py_func)
    keep(compiled._dispatcher)
    return compiled


def loop(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a parallel CPU loop; kept on disk where some folder can be written."""
    return _kept(function, parallel=True)


def serial_loop(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same for a loop that needs no threads."""
    return _kept(function, parallel=False)


def _kept(function: Callable[..., Any], *, parallel: bool) -> Callable[..., Any]:
    compiled: Any = njit(parallel=parallel, error_model="numpy", fastmath=FASTMATH)(function)
    keep(compiled)
    return compiled
