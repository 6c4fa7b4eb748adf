"""Integrations that are flagged and added to averages on a GPU: nothing comes back until it is asked for."""

from __future__ import annotations

import functools
import math

import numpy as np
from numba import float32, float64, uint8
from numpy.typing import NDArray

from rime_kernels import device
from rime_kernels.compile.types import Array, DeviceArray, DeviceKernel, Module, Scalar
from rime_kernels.flagging.cuda import spectra
from rime_kernels.flagging.cuda.transposition import transpose_into
from rime_kernels.flagging.options import LEFT, SpectrumOptions

cuda: Module = device.cuda


@device.inline
def _weight_of(real: Scalar, imag: Scalar, weight: Scalar) -> Scalar:
    """The weight of a visibility; 0 where it does not count."""
    # Comparisons with NaN are false: neither NaN nor infinity counts.
    infinity = float32(float("inf"))
    counts = weight > float32(0.0) and weight < infinity and abs(real) < infinity and abs(imag) < infinity
    return weight if counts else float32(0.0)


@functools.cache
def make_amplitudes() -> DeviceKernel:
    """Kernel of amplitudes float32 (n_row, n_chan n_corr), infinite where they are flagged or do not count.

    There is a block for each row. Visibilities are float32 (n_row, n_chan n_corr, 2), weights float32 and
    flags uint8 (n_row, n_chan n_corr).
    """

    @device.kernel(0)
    def amplitudes(vis: Array, weight: Array, flag: Array, out: Array) -> None:
        # Neighbouring threads take neighbouring numbers, so that a warp reads whole lines.
        row = cuda.blockIdx.x
        for i in range(cuda.threadIdx.x, out.shape[1], cuda.blockDim.x):
            real, imag = vis[row, i, 0], vis[row, i, 1]
            # Infinity is above all numbers: medians leave these samples out.
            size = float32(float("inf"))
            if flag[row, i] == 0 and _weight_of(real, imag, weight[row, i]) > float32(0.0):
                size = float32(math.sqrt(real * real + imag * imag))
            out[row, i] = size

    return amplitudes


@functools.cache
def make_accumulate(finds: bool) -> DeviceKernel:
    """Kernel that adds an integration to the sums; blocks along x are of rows, whose threads walk the cells.

    Visibilities are float32 (n_row, n_chan, n_corr, 2), real and imaginary; weights float32 and flags uint8
    (n_row, n_chan, n_corr). `found` is uint8 (n_corr n_row, n_chan), where it counts (`finds`): flags are
    added where it is not 0. Sums are float64 (n_row, n_cell, n_corr, 3): real and imaginary parts, weights.
    `all_flagged` is uint8 (n_row, n_cell, n_corr).
    """

    @device.kernel(0)
    def accumulate(
        vis: Array,
        weight: Array,
        flag: Array,
        found: Array,
        channels: Scalar,
        sums: Array,
        all_flagged: Array,
    ) -> None:
        row, n_row, n_chan, n_corr = cuda.blockIdx.x, vis.shape[0], vis.shape[1], vis.shape[2]
        for i in range(cuda.threadIdx.x, sums.shape[1] * n_corr, cuda.blockDim.x):
            cell, corr = i // n_corr, i % n_corr
            # A thread has a cell to itself and adds its channels in order: the bits repeat.
            real, imag, total = float64(0.0), float64(0.0), float64(0.0)
            is_flagged = True
            for c in range(cell * channels, min(n_chan, cell * channels + channels)):
                x, y = vis[row, c, corr, 0], vis[row, c, corr, 1]
                kept = float64(_weight_of(x, y, weight[row, c, corr]))
                if kept > 0.0:
                    if finds and found[corr * n_row + row, c] != 0:
                        flag[row, c, corr] = uint8(1)
                    if flag[row, c, corr] != 0:
                        # A cell that is flagged whole still has a value, of its flagged samples.
                        kept *= LEFT
                    else:
                        is_flagged = False
                    real += kept * float64(x)
                    imag += kept * float64(y)
                    total += kept
            sums[row, cell, corr, 0] += real
            sums[row, cell, corr, 1] += imag
            sums[row, cell, corr, 2] += total
            if not is_flagged:
                all_flagged[row, cell, corr] = 0

    return accumulate


class DeviceSums:
    """`rime_kernels.flagging.averaging.AverageSums` on a GPU.

    Arrays that are on the device already are taken as they are, complex64, float32 and uint8, all
    (n_row, n_chan, n_corr); flags that are found are written into theirs.
    """

    def __init__(
        self, shape: tuple[int, int, int], channels: int, spectra: SpectrumOptions | None = None
    ) -> None:
        self._shape, self._channels, self._options = shape, channels, spectra
        self._work = device.Workspace()
        self._flag = device.upload(np.zeros(shape, np.uint8))
        self.clear()

    def add(self, vis: Array, weight: Array, flag: Array) -> None:
        there = (_on_device(each, kind) for each, kind in zip((vis, weight, flag), _KINDS, strict=True))
        values, weights, self._flag = there
        self.average(values, weights, self.find(values, weights))

    def amplitudes(self, vis: DeviceArray, weight: DeviceArray) -> DeviceArray:
        """Amplitudes by channel float32 (n_chan, n_corr n_row), infinite where they are left out."""
        n_row, n_chan, n_corr = self._shape
        n = n_chan * n_corr
        # Written as rows lie, then transposed: medians walk along channels of many rows side by side.
        by_row = self._work.array("amplitude", (n_row, n), np.float32)
        make_amplitudes()[n_row, _threads()](
            _parts(vis).reshape(n_row, n, 2), weight.reshape(n_row, n), self._flag.reshape(n_row, n), by_row
        )
        by_channel = self._work.array("by channel", (n, n_row), np.float32)
        transpose_into(by_row.reshape(1, n_row, n), by_channel.reshape(1, n, n_row), np.float32)
        return by_channel.reshape(n_chan, n_corr * n_row)

    def find(self, vis: DeviceArray, weight: DeviceArray) -> DeviceArray | None:
        """What is found in spectra, uint8 (n_corr n_row, n_chan), if they are looked at."""
        if self._options is None:
            return None
        return spectra.found_in(self.amplitudes(vis, weight), self._options, self._work)

    def average(self, vis: DeviceArray, weight: DeviceArray, found: DeviceArray | None) -> None:
        """Add visibilities to the sums, and flags of what was found to those of this integration."""
        # A kernel has all its arguments, also where it does not read one.
        nothing = self._work.array("nothing", (1, 1), np.uint8)
        make_accumulate(found is not None)[self._shape[0], _threads()](
            _parts(vis).reshape(*self._shape, 2), weight, self._flag, nothing if found is None else found,
            self._channels, self._sums, self._all_flagged,
        )  # fmt: skip

    def flags(self) -> NDArray[np.bool_]:
        return np.asarray(self._flag.copy_to_host()).astype(bool)

    def values(self) -> tuple[NDArray[np.complex128], NDArray[np.float64], NDArray[np.bool_]]:
        sums, flag = self._sums.copy_to_host(), self._all_flagged.copy_to_host()
        return sums[..., 0] + 1j * sums[..., 1], sums[..., 2].copy(), flag.astype(bool)

    def clear(self) -> None:
        n_row, n_chan, n_corr = self._shape
        cells = n_row, -(-n_chan // self._channels), n_corr
        self._sums = device.upload(np.zeros((*cells, 3)))
        self._all_flagged = device.upload(np.ones(cells, np.uint8))


_KINDS = np.complex64, np.float32, np.uint8


def _on_device(given: Array, kind: type) -> DeviceArray:
    """An array on the device, sent there if it is not."""
    return given if device.is_on_device(given) else device.upload(np.ascontiguousarray(given, kind))


def _parts(vis: DeviceArray) -> DeviceArray:
    """Complex numbers on the device as pairs of float32."""
    return vis.view(np.float32)


def _threads() -> int:
    return 4 if device.simulated() else 128
