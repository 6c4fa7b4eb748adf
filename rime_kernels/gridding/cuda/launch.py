"""How kernels of gridders are launched."""

from __future__ import annotations

from rime_kernels import device
from rime_kernels.compile.types import DeviceKernel, Stream

_MOST_BLOCKS = 1 << 20


def launch(kernel: DeviceKernel, n: int, stream: Stream, *arguments: object) -> None:
    """Launch a kernel of n pieces of work; its threads go on with others where there are too few of them."""
    n_thread = device.threads_per_block()
    kernel[min(-(-n // n_thread), 2 if device.simulated() else _MOST_BLOCKS), n_thread, stream](*arguments)


def launch_plane(kernel: DeviceKernel, n: int, stream: Stream, *arguments: object) -> None:
    """Launch a kernel whose blocks go along the n rows of a square, their threads along its columns."""
    n_thread = device.threads_per_block()
    n_block = (1, 2) if device.simulated() else (-(-n // n_thread), min(n, device.MAX_GRID_Y))
    kernel[n_block, n_thread, stream](*arguments)
