"""Sums of visibilities over cells of channels on a GPU, which integrations are added to."""

from __future__ import annotations

import functools

import numpy as np
from numba import float64
from numpy.typing import NDArray

from rime_kernels import device
from rime_kernels.compile.types import Array, Compiled, Module, Scalar
from rime_kernels.flagging.options import LEFT

cuda: Module = device.cuda


@functools.cache
def make_accumulate() -> Compiled:
    """Kernel that adds an integration to the sums; blocks along x are of rows, whose threads walk the cells.

    Visibilities are float32 (n_row, n_chan, n_corr, 2), real and imaginary; weights float32 and flags uint8
    (n_row, n_chan, n_corr). Sums are float64 (n_row, n_cell, n_corr, 3): real and imaginary parts, weights.
    `all_flagged` is uint8 (n_row, n_cell, n_corr).
    """

    @device.kernel(0)
    def accumulate(
        vis: Array, weight: Array, flag: Array, channels: Scalar, sums: Array, all_flagged: Array
    ) -> None:
        row, n_chan, n_corr = cuda.blockIdx.x, vis.shape[1], vis.shape[2]
        for i in range(cuda.threadIdx.x, sums.shape[1] * n_corr, cuda.blockDim.x):
            cell, corr = i // n_corr, i % n_corr
            real, imag, total = float64(0.0), float64(0.0), float64(0.0)
            is_flagged = True
            for c in range(cell * channels, min(n_chan, cell * channels + channels)):
                kept = float64(weight[row, c, corr])
                if flag[row, c, corr]:
                    kept *= LEFT
                elif kept > 0.0:
                    is_flagged = False
                real += kept * float64(vis[row, c, corr, 0])
                imag += kept * float64(vis[row, c, corr, 1])
                total += kept
            sums[row, cell, corr, 0] += real
            sums[row, cell, corr, 1] += imag
            sums[row, cell, corr, 2] += total
            if not is_flagged:
                all_flagged[row, cell, corr] = 0

    return accumulate


class DeviceSums:
    """`rime_kernels.flagging.averaging.Sums` on a GPU: an integration goes there, and nothing comes back."""

    def __init__(self, shape: tuple[int, int, int], channels: int) -> None:
        self._shape, self._channels = shape, channels
        self.clear()

    def add(self, vis: NDArray[np.complex64], weight: NDArray[np.float32], flag: NDArray[np.bool_]) -> None:
        parts = np.ascontiguousarray(vis).view(np.float32).reshape(*self._shape, 2)
        there = [device.upload(each) for each in (parts, weight, flag.view(np.uint8))]
        n_thread = 4 if device.simulated() else 128
        make_accumulate()[self._shape[0], n_thread](*there, self._channels, self._sums, self._flag)

    def values(self) -> tuple[NDArray[np.complex128], NDArray[np.float64], NDArray[np.bool_]]:
        sums, flag = self._sums.copy_to_host(), self._flag.copy_to_host()
        return sums[..., 0] + 1j * sums[..., 1], sums[..., 2].copy(), flag.astype(bool)

    def clear(self) -> None:
        n_row, n_chan, n_corr = self._shape
        cells = n_row, -(-n_chan // self._channels), n_corr
        self._sums = device.upload(np.zeros((*cells, 3)))
        self._flag = device.upload(np.ones(cells, np.uint8))
