"""The only module that imports CUDA: the packages of it, each when it is first asked for."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from types import SimpleNamespace

from rime_kernels.compile.types import Compiled, Module
from rime_kernels.errors import BackendError


def simulated() -> bool:
    """Whether CUDA is Numba's simulator (NUMBA_ENABLE_CUDASIM=1)."""
    from numba import config

    return bool(config.ENABLE_CUDASIM)


def cuda() -> Module:
    """numba.cuda, without its warnings about kernels that are too small to fill the device.

    `NUMBA_CUDA_LOW_OCCUPANCY_WARNINGS=1` brings the warnings back.
    """
    from numba import config

    if "NUMBA_CUDA_LOW_OCCUPANCY_WARNINGS" not in os.environ:
        config.CUDA_LOW_OCCUPANCY_WARNINGS = 0
    return importlib.import_module("numba.cuda")


def local_arrays() -> Module:
    """What declares local arrays, in any module.

    In the simulator numba.cuda has them in the module of the kernel alone, while the kernel runs.
    """
    if not simulated():
        return cuda()
    return SimpleNamespace(local=importlib.import_module("numba.cuda.simulator.kernelapi").FakeCUDALocal())


def libdevice() -> Module:
    """The device's library of functions of scalars; the simulator has none."""
    return importlib.import_module("numba.cuda.libdevice")


def intrinsic(function: Callable[..., object]) -> Compiled:
    """Decorator of a function that generates its own instructions; the simulator knows none."""
    return importlib.import_module("numba.cuda.extending").intrinsic(function)


def cupy(name: str) -> Module:
    """The module cupy, or one inside it: `name` begins with a point, or is "x" for cupyx."""
    try:
        return importlib.import_module("cupy" + name)
    except ImportError as error:
        raise BackendError(
            "package cupy is not installed (in the checkout of biro: pip install '.[cuda12]')"
        ) from error


def driver() -> Module:
    """The CUDA driver's functions, from NVIDIA's package cuda.bindings, which cuda.core brings."""
    return importlib.import_module("cuda.bindings.driver")


def core() -> Module:
    """NVIDIA's package cuda.core, which numba-cuda brings; None where it is not installed."""
    try:
        return importlib.import_module("cuda.core")
    except ImportError:
        return None


def numba_driver() -> Module:
    """The driver's functions as Numba calls them."""
    return importlib.import_module("numba.cuda.cudadrv.driver")
