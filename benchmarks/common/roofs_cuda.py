"""Measure the highest speeds of a CUDA device: arithmetic, matrix products, memory, transfers, launches."""

from __future__ import annotations

import importlib
from collections.abc import Callable

import numpy as np

from common.timing import measure
from common.types import Line, OnDevice, Value
from rime_kernels import device

# The simulator replaces a global of this name while a kernel runs.
cuda: OnDevice = device.cuda
# Multiply-adds between two looks at the loop counter, in each of eight independent chains.
_UNROLL = 16


def _make_fma(real: type) -> Value:
    scale, shift = real(0.999), real(0.001)

    @cuda.jit
    def fma(n: int, out: Value) -> None:
        i = cuda.grid(1)
        a, b, c, d = real(i), real(i + 1), real(i + 2), real(i + 3)
        e, f, g, h = real(i + 4), real(i + 5), real(i + 6), real(i + 7)
        for _ in range(n):
            for _ in range(_UNROLL):
                a, b, c, d = a * scale + shift, b * scale + shift, c * scale + shift, d * scale + shift
                e, f, g, h = e * scale + shift, f * scale + shift, g * scale + shift, h * scale + shift
        out[i] = a + b + c + d + e + f + g + h

    return fma


@cuda.jit
def _nothing() -> None:
    return


def measure_roofs(*, quick: bool, repeat: int) -> Line:
    """The best of calls that end in a synchronisation: a roof is what can be done.

    FMA/s of a kernel with eight chains a thread, flop/s of CuPy's matrix product (where it is installed),
    bytes/s of a copy on the device (read and written) and from pinned host memory, seconds of an empty
    launch that is waited for.
    """
    tiny = device.simulated()
    found: Line = {"fma_per_s": {}, "copy_byte_per_s": _copy(tiny, quick, repeat)}
    for real, name in ((np.float32, "single"), (np.float64, "double")):
        found["fma_per_s"][name] = _fma(real, tiny, quick, repeat)
    found["host_to_device_byte_per_s"] = _host_to_device(tiny, quick, repeat)
    launch = _nothing[1, 1]
    found["launch_s"] = measure(lambda: _synchronised(launch), 3 if tiny else max(repeat, 200)).least
    found["gemm_flop_per_s"] = {} if tiny else _gemm(quick, repeat)
    return found


def _synchronised(call: Callable[..., Value], *arguments: Value) -> None:
    call(*arguments)
    cuda.synchronize()


def _fma(real: type, tiny: bool, quick: bool, repeat: int) -> float:
    n_block = 1 if tiny else 32 * cuda.get_current_device().MULTIPROCESSOR_COUNT
    n_thread, n_loop = (4, 2) if tiny else (256, 100 if quick else 1000)
    out, kernel = cuda.device_array(n_block * n_thread, real), _make_fma(real)[n_block, n_thread]
    timing = measure(lambda: _synchronised(kernel, n_loop, out), repeat)
    return 8.0 * _UNROLL * n_loop * n_block * n_thread / timing.least


def _copy(tiny: bool, quick: bool, repeat: int) -> float:
    n = 64 if tiny else 1 << (24 if quick else 28)
    a, b = cuda.to_device(np.ones(n, np.float32)), cuda.device_array(n, np.float32)
    return 2.0 * 4 * n / measure(lambda: _synchronised(b.copy_to_device, a), repeat).least


def _host_to_device(tiny: bool, quick: bool, repeat: int) -> float:
    n = 64 if tiny else 1 << (22 if quick else 27)
    host, there = cuda.pinned_array(n, np.float32), cuda.device_array(n, np.float32)
    host[:] = 1.0
    return 4.0 * n / measure(lambda: _synchronised(there.copy_to_device, host), repeat).least


def _gemm(quick: bool, repeat: int) -> dict[str, float]:
    """Nothing where CuPy is missing."""
    try:
        cupy = importlib.import_module("cupy")
    except ImportError as error:
        print(f"matrix product not measured: {error}")
        return {}
    n, found = (1024 if quick else 8192), {}
    for real, name in ((np.float32, "single"), (np.float64, "double")):
        a = cupy.ones((n, n), real)

        def multiply(a: Value = a, out: Value = cupy.empty_like(a)) -> None:  # noqa: B008
            cupy.matmul(a, a, out=out)
            cupy.cuda.Device().synchronize()

        found[name] = 2.0 * n**3 / measure(multiply, repeat).least
    cupy.get_default_memory_pool().free_all_blocks()
    return found
