"""Fourier transforms of device arrays: cuFFT through CuPy, or SciPy in the simulator."""

from __future__ import annotations

from typing import Any

from scipy import fft

from rime_kernels import device
from rime_kernels.compile.types import DeviceArray, Stream

_AXES = (-2, -1)


def transform(array: DeviceArray, stream: Stream, *, inverse: bool) -> None:
    """Transform a device array along its last two axes, in place and without factors.

    Raises
    ------
    BackendError
        CuPy is not installed.
    """
    norm = "forward" if inverse else "backward"
    if device.simulated():
        transform: Any = fft.ifftn if inverse else fft.fftn
        array.copy_to_device(transform(array.copy_to_host(), axes=_AXES, norm=norm))
        return
    cupy, cupy_fft = device.cupy(""), device.cupy("x.scipy.fft")
    with cupy.cuda.ExternalStream(int(stream.handle)):
        values = cupy.asarray(array)
        function = cupy_fft.ifftn if inverse else cupy_fft.fftn
        found = function(values, axes=_AXES, norm=norm, overwrite_x=True)
        if found.data.ptr != values.data.ptr:
            values[...] = found
