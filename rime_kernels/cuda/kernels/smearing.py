"""Kernels for means over time and frequency: coordinates at a node, the mean, and chi2 made of it."""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

from numba import complex128, float64, int64

from rime_kernels import device
from rime_kernels.compile.types import Array, DeviceKernel, Module, Scalar
from rime_kernels.cuda.kernels.reductions import make_block_reduce
from rime_kernels.physics.phase import SPEED_OF_LIGHT
from rime_kernels.smearing.rotation import EARTH_RATE, turned_by

# The simulator replaces a global of this name while a kernel runs: what declares arrays stands here.
cuda: Module = device.cuda
_turned_by = device.inline(turned_by)


class Pole(NamedTuple):
    """Cosines and sines of the declination of the phase centre, and of the angle of the pole: `turned`."""

    cos_d: float
    sin_d: float
    cos_x: float
    sin_x: float


@device.inline
def _at(u: Scalar, v: Scalar, w: Scalar, angle: Scalar, pole: Pole) -> tuple[Scalar, Scalar, Scalar]:
    """Coordinates after their hour angle has grown."""
    return _turned_by(
        u, v, w, math.cos(angle), math.sin(angle), pole.cos_d, pole.sin_d, pole.cos_x, pole.sin_x
    )


@functools.cache
def make_turn() -> DeviceKernel:
    """Kernel that turns coordinates (n, 3) by `offset` of the interval of each, into `out`.

    `seconds` has an interval for each n / seconds.size of them.
    """

    @device.kernel(0)
    def turn(base: Array, seconds: Array, offset: float, pole: Pole, out: Array) -> None:
        i = cuda.grid(1)
        if i < base.shape[0]:
            angle = EARTH_RATE * offset * seconds[i // (base.shape[0] // seconds.size)]
            u, v, w = _at(base[i, 0], base[i, 1], base[i, 2], angle, pole)
            out[i, 0], out[i, 1], out[i, 2] = u, v, w

    return turn


@functools.cache
def make_add_scaled() -> DeviceKernel:
    """Kernel that adds `factor` times values to a total, or begins it with them; some rows of each entry.

    `values` (n_batch, .) flat; into `total`, as wide as `width`, from `first` on.
    """

    @device.kernel(0)
    def add_scaled(
        values: Array, n_each: int, factor: Scalar, begins: int, width: int, first: int, total: Array
    ) -> None:
        i = int64(cuda.grid(1))
        if i < values.size:
            offset = i // n_each * width + first + i % n_each
            # In the type of the total: a float64 factor would make a product of complex64 complex128.
            value = values[i] * factor
            total[offset] = value if begins else total[offset] + value

    return add_scaled


@functools.cache
def make_residuals(log: bool) -> DeviceKernel:
    """Kernel that puts V - D in the place of means V, and adds up what they do to chi2.

    Blocks of the first axis of the grid share the samples of an entry of the batch, which the second counts.
    With w |V - D|^2 = c, `sums` (2 n_batch, n_block) get the sum of c; for Student's t (`log`), where
    y = tail c, that of ln(1 + y), then that of y / (1 + y), and residuals are divided by 1 + y.
    """
    n_thread = device.threads_per_block()
    block_reduce = make_block_reduce(n_thread)

    @device.kernel(0)
    def residuals(mean: Array, vis: Array, weight: Array, tail: Array, sums: Array) -> None:
        partial = cuda.shared.array(n_thread, float64)
        b, block, thread, n_block = cuda.blockIdx.y, cuda.blockIdx.x, cuda.threadIdx.x, cuda.gridDim.x
        n, total, of_tail = vis.size, 0.0, 0.0
        for i in range(block * n_thread + thread, n, n_block * n_thread):
            offset = int64(b) * n + i
            model, datum = mean[offset], vis[i]
            re, im = float64(model.real) - float64(datum.real), float64(model.imag) - float64(datum.imag)
            square = float64(weight[i]) * (re * re + im * im)
            if log:
                y = tail[b] * square
                total += math.log1p(y)
                of_tail += y / (1.0 + y)
                re, im = re / (1.0 + y), im / (1.0 + y)
            else:
                total += square
            mean[offset] = complex(re, im)
        total = block_reduce(thread, total, partial)
        if thread == 0:
            sums[2 * b, block] = total
        cuda.syncthreads()
        of_tail = block_reduce(thread, of_tail, partial)
        if thread == 0:
            sums[2 * b + 1, block] = of_tail

    return residuals


class Seen(NamedTuple):
    """Rows of templates, and what their antennas see them through."""

    time_index: Array
    antenna1: Array
    antenna2: Array
    uvw: Array  # (n_row, 3), m, in the middle of the integration
    seconds: Array  # (n_row,)
    chan_freq: Array  # (n_chan,), in the middle of the channel
    chan_width: Array
    jones: Array  # float64 (n_batch or 1, .): `inputs.Parameters.jones`
    n_jones_time: int
    n_jones_antenna: int
    n_jones_chan: int


@functools.cache
def make_add_templates(n_template: int, place: tuple[int, ...], shifted: bool, seen: bool) -> DeviceKernel:
    """Kernel that adds all templates at a node of time and frequency, times its weight, to means of V.

    `template` (n_template, n_row, n_chan, n_corr), `factor` (n_batch, n_template, 4) as `Inputs.template`;
    `place` says which of the correlations of the feeds there are, `seen` whether there are matrices.
    """
    n_corr, two_pi = len(place), 2.0 * math.pi
    first, second = tuple(k // 2 for k in place), tuple(k % 2 for k in place)

    @device.inline
    def matrix_at(rows: Seen, b: int, time: int, c: int, antenna: int) -> Scalar:
        """Where the matrix of an antenna lies."""
        n_time, n_block = int64(rows.n_jones_time), int64(rows.n_jones_chan)
        block, of_chan = int64(rows.jones[b, time]), int64(rows.jones[b, n_time + c])
        number = (block * int64(rows.n_jones_antenna) + int64(antenna)) * n_block + of_chan
        return n_time + int64(rows.chan_freq.size) + int64(8) * number

    @device.kernel(0)
    def add_templates(
        weight: float, by_time: float, by_freq: float, pole: Pole, rows: Seen,
        template: Array, factor: Array, mean: Array,
    ) -> None:  # fmt: skip
        total = cuda.local.array(4, complex128)
        i, n_row, n_chan = int64(cuda.grid(1)), int64(template.shape[1]), int64(template.shape[2])
        if i >= mean.shape[0] * n_row * n_chan:
            return
        c, row, b = i % n_chan, i // n_chan % n_row, i // (n_chan * n_row)
        for k in range(4):
            total[k] = complex(0.0, 0.0)
        for t in range(n_template):
            re, im = weight * factor[b, t, 0], 0.0
            if shifted:
                angle = EARTH_RATE * by_time * rows.seconds[row]
                uvw = rows.uvw
                u, v, w = _at(uvw[row, 0], uvw[row, 1], uvw[row, 2], angle, pole)
                nu = rows.chan_freq[c] + by_freq * rows.chan_width[c]
                turns = u * factor[b, t, 1] + v * factor[b, t, 2] + w * factor[b, t, 3]
                phase = two_pi * (turns * (nu / SPEED_OF_LIGHT) % 1.0)
                re, im = re * math.cos(phase), re * math.sin(phase)
            for k in range(n_corr):
                z = template[t, row, c, k]
                total[place[k]] += complex(re * z.real - im * z.imag, re * z.imag + im * z.real)
        if not seen:
            for k in range(n_corr):
                mean[b, row, c, k] += total[place[k]]
            return
        entry = min(b, int64(rows.jones.shape[0] - 1))
        p = matrix_at(rows, entry, rows.time_index[row], c, rows.antenna1[row])
        q = matrix_at(rows, entry, rows.time_index[row], c, rows.antenna2[row])
        jones = rows.jones[entry]
        for k in range(n_corr):
            x, y = p + 4 * first[k], q + 4 * second[k]
            left0, left1 = complex(jones[x], jones[x + 1]), complex(jones[x + 2], jones[x + 3])
            right0, right1 = complex(jones[y], -jones[y + 1]), complex(jones[y + 2], -jones[y + 3])
            above = total[0] * right0 + total[1] * right1
            below = total[2] * right0 + total[3] * right1
            mean[b, row, c, k] += left0 * above + left1 * below

    return add_templates
