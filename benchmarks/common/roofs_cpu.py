"""Measure the highest speeds of a CPU: fused multiply-adds, matrix products, memory."""

from __future__ import annotations

from collections.abc import Callable

import numba
import numpy as np
from numba import njit, prange

from common.timing import measure
from common.types import Line, Value

# Numbers that stay in the first cache, and how often each is multiplied and added to between load and store:
# of the sizes tried (64 to 1024, 4 to 64) these come closest to two full vectors a cycle.
_WIDTH, _DEPTH = 128, 8


def _make_fma(real: type) -> Callable[..., None]:
    scale, shift = real(0.999), real(0.001)

    @njit(parallel=True, fastmath={"contract"})
    def fma(n: int, values: Value) -> None:
        for item in prange(values.shape[0]):
            row = values[item]
            for _ in range(n):
                for j in range(_WIDTH):
                    x = row[j]
                    for _ in range(_DEPTH):
                        x = x * scale + shift
                    row[j] = x

    return fma


@njit(parallel=True)
def _triad(a: Value, b: Value, c: Value) -> None:
    for i in prange(a.size):
        a[i] = b[i] + 1.5 * c[i]


def measure_roofs(*, quick: bool, repeat: int) -> Line:
    """FMA/s of a Numba loop on all threads, flop/s of NumPy's matrix product, bytes/s of a + x b.

    The best of some calls: a roof is what can be done.
    """
    found: Line = {"fma_per_s": {}, "gemm_flop_per_s": {}}
    n_thread = numba.get_num_threads()
    n_loop, n_matrix, n_stream = (20_000, 1024, 1 << 20) if quick else (400_000, 2048, 1 << 26)
    for real, name in ((np.float32, "single"), (np.float64, "double")):
        values, fma = np.ones((n_thread, _WIDTH), real), _make_fma(real)
        timing = measure(lambda fma=fma, values=values: fma(n_loop, values), repeat)
        found["fma_per_s"][name] = n_loop * values.size * _DEPTH / timing.least
        a = np.random.default_rng(0).normal(size=(n_matrix, n_matrix)).astype(real)
        out = np.empty_like(a)
        timing = measure(lambda a=a, out=out: np.matmul(a, a, out=out), repeat)
        found["gemm_flop_per_s"][name] = 2.0 * n_matrix**3 / timing.least
    a, b, c = np.zeros(n_stream), np.ones(n_stream), np.ones(n_stream)
    found["copy_byte_per_s"] = 3.0 * a.nbytes / measure(lambda: _triad(a, b, c), repeat).least
    return found
