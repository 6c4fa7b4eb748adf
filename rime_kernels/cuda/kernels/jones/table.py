"""The matrix E P of every antenna towards every source, at each time and channel, in the device's memory."""

from __future__ import annotations

import functools
from typing import NamedTuple

from numba import int32, int64

from rime_kernels import device
from rime_kernels.compile.types import (
    Array,
    DeviceKernel,
    Module,
    Scalar,
)
from rime_kernels.cuda.kernels.arguments import DeviceSky
from rime_kernels.cuda.kernels.jones.voltages import CudaBeams, frame_of, make_voltage, steps_of

# The simulator replaces a global of this name while a kernel runs.
cuda: Module = device.cuda


class Table(NamedTuple):
    """The matrices of some time slots.

    Neighbouring antennas lie side by side, as neighbouring threads read them.
    """

    values: Array  # flat (n_batch, n_time, n_chan, n_source, 8, n_antenna), in working precision
    first_time: int
    n_time: int
    n_chan: int
    n_antenna: int


@device.inline
def place_of(b: int, time: int, c: int, s: int, n_source: int, table: Table) -> Scalar:
    """Where the matrices of all antennas towards a source begin."""
    slot = int64(b) * table.n_time + (time - table.first_time)
    return ((slot * table.n_chan + c) * n_source + s) * int64(8) * table.n_antenna


@device.inline
def read_matrix(offset: int, antenna: int, table: Table) -> tuple[Scalar, ...]:
    """The matrix of an antenna, of those that begin at `offset`."""
    m, n, i = table.values, table.n_antenna, offset + antenna
    return (
        m[i], m[i + n], m[i + 2 * n], m[i + 3 * n], m[i + 4 * n], m[i + 5 * n], m[i + 6 * n], m[i + 7 * n]
    )  # fmt: skip


@functools.cache
def make_fill_table(single: bool, circular: bool) -> DeviceKernel:
    """Kernel that fills the table: a thread for each matrix."""
    voltage = make_voltage(single, circular)

    @device.kernel(0)
    def fill_table(sky: DeviceSky, beams: CudaBeams, table: Table) -> None:
        i = int64(cuda.blockIdx.x) * cuda.blockDim.x + cuda.threadIdx.x
        if i >= table.values.size // 8:
            return
        n_antenna, n_source = int64(table.n_antenna), int64(sky.direction.shape[1])
        a, rest = int32(i % n_antenna), i // n_antenna
        s, rest = int32(rest % n_source), rest // n_source
        c, rest = int32(rest % table.n_chan), rest // table.n_chan
        slot, b = int32(rest % table.n_time), int32(rest // table.n_time)
        time = int32(slot + table.first_time)
        frame, steps = frame_of(b, time, a, c, sky, beams), steps_of(sky.beam_scale[b], beams)
        applies = beams.applies[min(s, int32(beams.applies.size - 1))]
        found = voltage(frame, sky.direction[b, s, 0], sky.direction[b, s, 1], steps, applies, beams)
        offset = place_of(b, time, c, s, n_source, table) + a
        values = table.values
        values[offset], values[offset + n_antenna] = found[0], found[1]
        values[offset + 2 * n_antenna], values[offset + 3 * n_antenna] = found[2], found[3]
        values[offset + 4 * n_antenna], values[offset + 5 * n_antenna] = found[4], found[5]
        values[offset + 6 * n_antenna], values[offset + 7 * n_antenna] = found[6], found[7]

    return fill_table
