"""The decorators that compile functions with Numba: of numbers, of vectors, and loops on the CPU."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from numba import config, njit, vectorize

from rime_kernels.compile.cache import enable
from rime_kernels.compile.late import options
from rime_kernels.compile.types import Compiled

P = ParamSpec("P")
R = TypeVar("R")

# OpenMP threads that wait for the next loop must sleep, not spin: where other programs use the cores too, a
# loop of 1 ms takes 50 ms otherwise (measured). Read when the OpenMP library is loaded, at the first loop.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

# NaN must survive (it marks a bad parameter vector), so neither "nnan" nor "ninf".
FASTMATH = {"contract", "reassoc", "nsz", "arcp"}

# Functions of numbers, for the CPU and CUDA. Division follows IEEE 754: no ZeroDivisionError.
scalar = njit(inline="always", error_model="numpy")

# What compiled functions call, and Python does not: no machine code of its own is made for Python.
_INNER = {"error_model": "numpy", "no_cpython_wrapper": True, "no_cfunc_wrapper": True}

# Long functions of numbers, for the CPU and CUDA, that stay functions, so that loops compile fast; and those
# of them that Python calls, too.
python_function = njit(error_model="numpy")
physics_function = python_function if config.ENABLE_CUDASIM else njit(**_INNER)  # kernels are Python there

# Functions of vectors (`rime_kernels.cpu.simd`): LLVM inlines them into their caller, which compiles fast.
vector_function = njit(forceinline=True, **_INNER)
# Functions that stay functions in the machine code, and are called from other compiled functions only.
inner_function = njit(**_INNER)

# The same where sums may be taken in any order: loops inside become vectors.
summing_function = njit(fastmath=FASTMATH, **_INNER)
# Short ones of these, called for each element: arrays in tuples are dear arguments.
inlined_summing_function = njit(fastmath=FASTMATH, forceinline=True, **_INNER)

# Loops hold all that they call: its machine code is made once.
_LATE = options()


def elementwise(function: Any) -> Compiled:
    """A scalar function as a NumPy function of arrays that broadcast; cached on disk as loops are."""
    compiled = vectorize()(
        getattr(function, "py_func", function)
    )  # NUMBA_DISABLE_JIT leaves functions as they are
    enable(compiled._dispatcher)
    return compiled


def loop(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a parallel CPU loop; its machine code is cached on disk where a folder can be written."""
    return _cached(function, parallel=True)


def loop_over_parts(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a loop over long functions as `loop` does, but optimise each by itself, not where it is called.

    What flags interference takes half of the time so (measured), and twice as long to compile.
    """
    compiled: Callable[P, R] = njit(parallel=True, error_model="numpy", fastmath=FASTMATH)(function)
    enable(compiled)
    return compiled


def serial_loop(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a CPU loop without threads, as `loop` otherwise."""
    return _cached(function, parallel=False)


def _cached(function: Callable[P, R], *, parallel: bool) -> Callable[P, R]:
    compiled: Callable[P, R] = njit(parallel=parallel, error_model="numpy", fastmath=FASTMATH, **_LATE)(
        function
    )
    enable(compiled)
    return compiled
