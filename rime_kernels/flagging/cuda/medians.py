"""Running medians on a GPU: each thread walks a part of a band, with the window's samples sorted."""

from __future__ import annotations

import functools

from numba import float32, int32, uint32

from rime_kernels import device
from rime_kernels.compile.types import Array, DeviceKernel, Module, Scalar

cuda: Module = device.cuda


@functools.cache
def make_deviations(width: int) -> DeviceKernel:
    """Kernel of deviations from running medians of `width` channels.

    Each thread walks a part of the band of one spectrum, and keeps the samples of the window sorted.
    Amplitudes and deviations are float32 (n_chan, n_spectrum), infinite and 0 where samples are left out.
    Blocks along x are of spectra, along y of parts of `n_part` channels.
    """
    half, infinity = width // 2, float("inf")
    n_kept = width + 1

    @device.inline
    def replace(window: Array, old: Scalar, new: Scalar) -> None:
        # One pass takes `old` out and puts `new` in: elements from `old` on come from one place higher, then
        # each becomes the median of (`new`, the element before it, itself), which inserts `new` in order.
        before = float32(-infinity)
        for k in range(width):
            here, above = window[k], window[k + 1]
            left = here if here < old else above
            window[k] = min(max(new, before), left)
            before = left

    @device.kernel(0)
    def deviations(amplitude: Array, n_part: Scalar, out: Array) -> None:
        s = uint32(cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x)
        n_chan, first = int32(amplitude.shape[0]), int32(cuda.blockIdx.y * n_part)
        # One thread a spectrum and part: neighbouring threads read neighbouring spectra of a channel.
        if s >= uint32(amplitude.shape[1]):
            return
        begin, end = int32(max(0, first - half)), int32(min(first + n_part, n_chan) + half)
        window = cuda.local.array(n_kept, float32)
        for k in range(n_kept):
            # Missing samples are infinite, so that they sort to the end and shorten the window at edges.
            window[k] = float32(infinity)
        count = int32(0)
        for enters in range(begin, end):
            centre, leaves = int32(enters - half), int32(enters - 2 * half - 1)
            # Replacing infinity by infinity is how the window grows and shrinks at the ends of the band.
            new, old = float32(infinity), float32(infinity)
            if enters < n_chan:
                new = amplitude[uint32(enters), s]
            if leaves >= begin:
                old = amplitude[uint32(leaves), s]
            replace(window, old, new)
            count = int32(count + int32(new < infinity) - int32(old < infinity))
            if first <= centre:
                value, deviation = amplitude[uint32(centre), s], float32(0.0)
                if value < infinity:
                    # A full window has an odd number: constant index, so that the window can stay in
                    # registers.
                    if count == width:
                        pair = window[half] + window[half]
                    else:
                        pair = window[(count - 1) // 2] + window[count // 2]
                    deviation = value - float32(0.5) * pair
                out[uint32(centre), s] = deviation

    return deviations
