"""A chunk of sources in a block's shared memory: T and T B of the antennas, and Gaussian coordinates."""

from __future__ import annotations

import functools
from typing import NamedTuple

from numba import float32, float64, int32, int64, uint32, uint64

from rime_kernels import device
from rime_kernels.compile.types import Array, Compiled, Scalar
from rime_kernels.cuda.kernels import scalars
from rime_kernels.cuda.kernels.arguments import DeviceSky
from rime_kernels.cuda.kernels.jones.pairs import pairs_of
from rime_kernels.cuda.kernels.jones.voltages import (
    AntennaFrame,
    CudaBeams,
    Steps,
    frame_of,
    is_circular,
    make_times_brightness,
    make_voltage,
)
from rime_kernels.cuda.kernels.tiles.parts import (
    TileBlock,
    TileKernel,
    TileSharedMemory,
    TileTables,
    TileWork,
    sizes_of,
)
from rime_kernels.jones_beam import matrices
from rime_kernels.physics import phase

_C, _turns = phase.SPEED_OF_LIGHT, phase.turns


class FirstStaged(NamedTuple):
    """What a thread stages first of each chunk."""

    source: Scalar  # of the chunk, uint32
    slot: int


class BlockFrames(NamedTuple):
    """`AntennaFrame` of each slot of a block, (n_slot,) in shared memory; float64, the last two uint64."""

    dl: Array
    dm: Array
    cos: Array
    sin: Array
    feed_cos: Array
    feed_sin: Array
    first: Array
    bright: Array  # where the brightness begins that its sources have


@functools.cache
def make_place_frames(kernel: TileKernel) -> Compiled:
    """Function that fills `BlockFrames` for the block's antennas; `bright_at` is that of
    `TileSharedMemory`.
    """
    n_thread = kernel.shape.n_thread

    @device.part
    def place_frames(
        block: TileBlock, work: TileWork, tables: TileTables, sky: DeviceSky, beams: CudaBeams,
        frames: BlockFrames,
        bright_at: Array,
    ) -> None:  # fmt: skip
        n_chan = uint32(tables.chan_freq.size)
        x = uint32(block.thread)
        # One thread for each antenna slot of each item of the block, in steps of the block's size.
        while x < block.n_x:
            j = uint32(x // block.n_used)
            slot, item = uint32(x - j * block.n_used), uint32(block.first_item + j)
            layer = uint32(item // n_chan)
            t = tables.layer_time[uint32(work.first_layer) + layer]
            a = tables.antenna[block.split, slot]
            frame = frame_of(block.b, t, a, uint32(item - layer * n_chan), sky, beams)
            frames.dl[x], frames.dm[x] = frame.dl, frame.dm
            frames.cos[x], frames.sin[x] = frame.cos, frame.sin
            frames.feed_cos[x], frames.feed_sin[x] = frame.feed_cos, frame.feed_sin
            frames.first[x] = frame.first
            frames.bright[x] = uint64(bright_at[j])
            x = uint32(x + uint32(n_thread))

    return place_frames


@functools.cache
def make_clear(kernel: TileKernel) -> Compiled:
    """Function that puts 0 into a block's terms.

    Where no antenna is they stay: sums from there meet weights of 0, which would not make 0 of NaN.
    """
    sizes, n_thread = sizes_of(kernel), kernel.shape.n_thread
    n_term, n_high, n_low = 16 * sizes.n_term, sizes.n_high, sizes.n_low

    @device.inline
    def clear(block: TileBlock, shared: TileSharedMemory) -> None:
        x = uint32(block.thread)
        while x < n_term:
            shared.staged.term[x] = 0.0
            if x < n_high:
                shared.staged.high[x] = 0.0
            if x < n_low:
                shared.staged.low[x] = 0.0
            x = uint32(x + uint32(n_thread))

    return clear


@functools.cache
def make_coordinates(kernel: TileKernel) -> Compiled:
    """Function that puts an antenna's coordinates along and across Gaussian g at `into`."""
    single, scale = kernel.variant.single, scalars.EXPONENT_SCALE * _C
    real = float32 if single else float64

    @device.part
    def put_coordinates(
        b: int,
        g: Scalar,
        u: Scalar,
        v: Scalar,
        w: Scalar,
        into: Scalar,
        sky: DeviceSky,
        shared: TileSharedMemory,
    ) -> None:
        axes = sky.projection
        along = scale * _turns(u, v, w, axes[b, g, 0, 0], axes[b, g, 0, 1], axes[b, g, 0, 2])
        across = scale * _turns(u, v, w, axes[b, g, 1, 0], axes[b, g, 1, 1], axes[b, g, 1, 2])
        shared.staged.high[into] = complex(real(along), real(across))
        if single:
            # Differences of antennas' coordinates are much smaller than the coordinates: what float32 rounds
            # away is kept as a second float32.
            rest, other = along - float64(real(along)), across - float64(real(across))
            shared.staged.low[into] = complex(real(rest), real(other))

    return put_coordinates


@functools.cache
def make_stage(kernel: TileKernel) -> Compiled:
    """Function that stages the sources from `start` on, as many as make a chunk, in one of the two buffers.

    Points or Gaussians, not both. Gives their number. Neighbouring threads have neighbouring antennas and the
    same source, so that they read the same coefficients.
    """
    sizes, shape, single = sizes_of(kernel), kernel.shape, kernel.variant.single
    n_term, chunk, side, n_thread = sizes.n_term, shape.chunk, shape.side, shape.n_thread
    circular, has_gaussian = is_circular(kernel.matrix), kernel.has_gaussian
    voltage, times_brightness = make_voltage(single, circular), make_times_brightness(circular)
    cos_sin, put_coordinates = scalars.make_cos_sin(single), make_coordinates(kernel)
    pack, times_number = pairs_of(single).pack, device.inline(matrices.times_number.py_func)

    @device.part
    def stage(
        start: int, buffer: Scalar, block: TileBlock, steps: Steps, sky: DeviceSky, beams: CudaBeams,
        shared: TileSharedMemory,
        frames: BlockFrames, mine: FirstStaged,
    ) -> Scalar:  # fmt: skip
        n_source, slots, staged = int32(sky.direction.shape[1]), shared.slots, shared.staged
        gaussian, b = start - (n_source - sky.n_gaussian), block.b
        n_now = min(int32(chunk), (n_source if gaussian >= 0 else n_source - sky.n_gaussian) - start)
        n_x, k, i = block.n_x, mine.source, mine.slot
        while k < uint32(n_now):
            s = start + int32(k)
            l, m, n_minus_1 = sky.direction[b, s, 0], sky.direction[b, s, 1], sky.direction[b, s, 2]
            u, v, w = slots.u[i], slots.v[i], slots.w[i]
            frame = AntennaFrame(
                frames.dl[i], frames.dm[i], frames.cos[i], frames.sin[i], frames.feed_cos[i],
                frames.feed_sin[i], frames.first[i],
            )  # fmt: skip
            # T = E P exp(i phase): the phase of an antenna is in its matrix, so a baseline needs no sine.
            cos, sin = cos_sin(_turns(u, v, w, l, m, n_minus_1))
            e = voltage(frame, l, m, steps, beams.applies[min(s, beams.applies.size - 1)], beams)
            t = times_number(e, cos, sin)
            offset = int64(frames.bright[i]) + int64(2) * int64(s)
            g = times_brightness(t, sky.bright[offset], sky.bright[offset + 1])
            # Eight planes of complex numbers: T, then T B (`times_brightness`), each with both buffers.
            into = uint32(uint32(buffer * n_term) + slots.term_offset[i] + k * uint32(side))
            staged.term[into] = pack(t[0], t[1])
            staged.term[into + uint32(2 * n_term)] = pack(t[2], t[3])
            staged.term[into + uint32(4 * n_term)] = pack(t[4], t[5])
            staged.term[into + uint32(6 * n_term)] = pack(t[6], t[7])
            staged.term[into + uint32(8 * n_term)] = pack(g[0], g[1])
            staged.term[into + uint32(10 * n_term)] = pack(g[2], g[3])
            staged.term[into + uint32(12 * n_term)] = pack(g[4], g[5])
            staged.term[into + uint32(14 * n_term)] = pack(g[6], g[7])
            # The envelope belongs to a baseline: its antennas' coordinates are staged instead.
            if has_gaussian and gaussian >= 0:
                put_coordinates(b, gaussian + int32(k), u, v, w, into, sky, shared)
            i = uint32(i + uint32(n_thread))
            # The next slot of this thread: past the last slot it goes on with the next source.
            while i >= n_x:
                i = uint32(i - n_x)
                k = uint32(k + uint32(1))
        return n_now

    return stage
