"""The CUDA device: the choice of the backend, kernels, arrays, recorded calls; CUDA is imported late."""

from __future__ import annotations

from rime_kernels.choices import Backend
from rime_kernels.compile.types import Module
from rime_kernels.device import packages
from rime_kernels.device.devices import (
    MAX_GRID_Y,
    capability,
    device_name,
    has_slow_float64,
    leave_cleanup,
    names,
    resolve,
    select,
    shared_bytes,
    threads_per_block,
)
from rime_kernels.device.graph import Answer, CudaGraph, Launch, capture, forked, selected, streams
from rime_kernels.device.kernels import inline, kernel, launch_each, part
from rime_kernels.device.memory import (
    DeviceMemoryError,
    Workspace,
    empty,
    is_on_device,
    memory_budget,
    pinned_copy,
    upload,
)
from rime_kernels.device.packages import cupy, intrinsic, libdevice, local_arrays, simulated

__all__ = [
    "MAX_GRID_Y",
    "Answer",
    "Backend",
    "CudaGraph",
    "DeviceMemoryError",
    "Launch",
    "Workspace",
    "capability",
    "capture",
    "cupy",
    "device_name",
    "empty",
    "forked",
    "has_slow_float64",
    "inline",
    "intrinsic",
    "is_on_device",
    "kernel",
    "launch_each",
    "leave_cleanup",
    "libdevice",
    "local_arrays",
    "memory_budget",
    "names",
    "part",
    "pinned_copy",
    "resolve",
    "select",
    "selected",
    "shared_bytes",
    "simulated",
    "streams",
    "threads_per_block",
    "upload",
]


def __getattr__(name: str) -> Module:
    """`device.cuda` is numba.cuda, imported when it is first asked for."""
    if name != "cuda":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return packages.cuda()
