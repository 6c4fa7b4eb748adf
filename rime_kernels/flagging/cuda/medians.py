"""Running medians on a GPU: each thread walks a part of a band, with the window's samples sorted."""

from __future__ import annotations

import functools

from numba import float32, int32

from rime_kernels import device
from rime_kernels.compile.types import Array, Compiled, Module, Scalar

cuda: Module = device.cuda


@functools.cache
def make_deviations(width: int) -> Compiled:
    """Kernel of deviations from running medians of `width` channels.

    Each thread walks a part of the band of one spectrum, and keeps the samples of the window sorted.
    Amplitudes and deviations are float32 (n_chan, n_spectrum), infinite and 0 where samples are left out.
    Blocks along x are of spectra, along y of parts of `n_part` channels.
    """
    half, infinity = width // 2, float("inf")
    n_kept = width + 1

    @device.inline
    def replace(window: Array, old: Scalar, new: Scalar) -> None:
        before = float32(-infinity)
        for k in range(width):
            here, above = window[k], window[k + 1]
            left = here if here < old else above
            low = new if new > before else before
            window[k] = low if low < left else left
            before = left

    @device.kernel(0)
    def deviations(amplitude: Array, n_part: Scalar, out: Array) -> None:
        s = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
        n_chan, first = amplitude.shape[0], cuda.blockIdx.y * n_part
        if s >= amplitude.shape[1]:
            return
        window = cuda.local.array(n_kept, float32)
        for k in range(n_kept):
            window[k] = float32(infinity)
        count = int32(0)
        for enters in range(max(0, first - half), min(first + n_part, n_chan) + half):
            centre = enters - half
            new = amplitude[enters, s] if enters < n_chan else float32(infinity)
            leaves = centre - half - 1
            is_inside = leaves >= 0 and leaves >= first - half
            old = amplitude[leaves, s] if is_inside else float32(infinity)
            replace(window, old, new)
            count += int32(new < infinity) - int32(old < infinity)
            if first <= centre:
                value = amplitude[centre, s]
                if value < infinity:
                    pair = window[(count - 1) // 2] + window[count // 2]
                    out[centre, s] = value - float32(0.5) * pair
                else:
                    out[centre, s] = float32(0.0)

    return deviations
