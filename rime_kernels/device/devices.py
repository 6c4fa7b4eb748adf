"""The choice of the backend, the devices that there are, and what the one of this thread can do."""

from __future__ import annotations

import importlib.metadata
from typing import Literal

import numpy as np

from rime_kernels import check
from rime_kernels.choices import Backend
from rime_kernels.device import packages
from rime_kernels.errors import BackendError

# Blocks of the second axis of a grid; CUDA allows 65535.
MAX_GRID_Y = 32768


def resolve(backend: Backend) -> tuple[Literal["cpu", "cuda"], str]:
    """The backend that will run, and why.

    Parameters
    ----------
    backend : "auto", "cpu" or "cuda"
        "auto" takes a CUDA device where there is one (the simulator is not one).

    Raises
    ------
    InputError
        Another word.
    BackendError
        "cuda" where the package or the device is missing; the message says which.
    """
    check.one_of("backend", backend, ("auto", "cpu", "cuda"))
    if backend == "cpu":
        return "cpu", "cpu: as asked"
    reason = _reason_against_cuda()
    if backend == "cuda":
        if reason:
            raise BackendError(f'backend="cuda" cannot be used: {reason}; use backend="cpu"')
        return "cuda", f"cuda: as asked, on {device_name()}"
    if reason:
        return "cpu", f"cpu: {reason}"
    if packages.simulated():
        return "cpu", "cpu: CUDA is simulated here"
    return "cuda", f"cuda: found {device_name()}"


def _reason_against_cuda() -> str | None:
    """The reason why CUDA cannot be used here; None where it can."""
    if packages.simulated():
        return None
    try:
        version = importlib.metadata.version("numba-cuda")
    except importlib.metadata.PackageNotFoundError:
        return "package numba-cuda is not installed (in the checkout of biro: pip install '.[cuda12]')"
    if _numpy_version() >= (2, 5):
        return f"numba-cuda {version} does not work with NumPy {np.__version__} (pip install 'numpy<2.5')"
    try:
        cuda = packages.cuda()
        has_device = cuda.is_available() and len(cuda.gpus) > 0
    except Exception as error:  # a broken driver raises its own kinds
        return f"the CUDA driver does not answer ({str(error).splitlines()[0] if str(error) else error!r})"
    return None if has_device else "no CUDA device (or no driver for it) was found"


def _numpy_version() -> tuple[int, int]:
    major, minor = np.__version__.split(".")[:2]
    return int(major), int(minor)


def device_name() -> str:
    """The name of the device."""
    if packages.simulated():
        return "Numba's CUDA simulator"
    cuda = packages.cuda()
    name = cuda.get_current_device().name
    return name.decode() if isinstance(name, bytes) else str(name)


def names() -> list[str]:
    """The names of all devices, by their numbers."""
    if packages.simulated():
        return ["Numba's CUDA simulator"]
    found = [gpu.name for gpu in packages.cuda().gpus]
    return [name.decode() if isinstance(name, bytes) else str(name) for name in found]


def select(number: int) -> None:
    """Let this thread use the device of this number from now on."""
    packages.cuda().select_device(number)


def leave_cleanup() -> None:
    """Leave what this thread's device holds to the operating system: the process ends.

    At the end Numba gives back modules of all devices in one thread, where only one device is current: the
    driver crashes (measured: numba-cuda 0.30.4, two devices).
    """
    if packages.simulated():
        return
    deferred = packages.cuda().defer_cleanup()
    deferred.__enter__()
    _deferred.append(deferred)  # it would end with the last that refers to it


_deferred: list[object] = []


def capability() -> tuple[int, int]:
    """Compute capability of the device; (0, 0) in the simulator."""
    if packages.simulated():
        return 0, 0
    major, minor = packages.cuda().get_current_device().compute_capability
    return int(major), int(minor)


def shared_bytes() -> int:
    """Shared memory that a block may ask for."""
    if packages.simulated():
        return 48 * 1024
    return int(packages.cuda().get_current_device().MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)


def has_slow_float64() -> bool:
    """Whether the device's float64 arithmetic is many times slower than its float32 (16 times or more)."""
    if packages.simulated():
        return False
    device = packages.cuda().get_current_device()
    return int(device.SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO) >= 16


def threads_per_block() -> int:
    """Threads of a block: a power of two; few in the simulator, whose threads are slow."""
    return 16 if packages.simulated() else 128
