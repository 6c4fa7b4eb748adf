"""A chunk of sources put into a block's shared memory: the antennas' terms, and the brightness."""

from __future__ import annotations

import functools
from typing import NamedTuple

from numba import complex64, complex128, float32, float64, int32, int64, uint32

from rime_kernels import device
from rime_kernels.compile.types import Compiled, Scalar
from rime_kernels.cuda.kernels import scalars
from rime_kernels.cuda.kernels.arguments import DeviceSky
from rime_kernels.cuda.kernels.baseline import Staged
from rime_kernels.cuda.kernels.tiles.parts import Slots, TileBlock, TileKernel, TileSharedMemory, sizes_of
from rime_kernels.physics import beam, phase

_C = phase.SPEED_OF_LIGHT
_turns = phase.turns
_voltage, _argument, _NO_BEAM = beam.voltage, beam.argument, beam.NO_BEAM
# Up to this coordinate of any antenna, in units in which a Gaussian is 2^-(a^2 + b^2), differences of
# coordinates rounded to float32 leave it right to 4.3e-8 times as much: 3.4e-7, as good as the sines are.
_MAX_NARROW = 8.0


class Chunk(NamedTuple):
    """Some sources, points or Gaussians, that are staged together."""

    start: int  # the first of them
    n_source: int
    gaussian: Scalar  # its number among the Gaussians, negative for a point
    first: int  # where their terms begin in `Staged`


class Stager(NamedTuple):
    """Which element of each chunk's brightness a thread brings into shared memory, the first time round."""

    n_stage: Scalar  # elements of all items
    is_one: Scalar  # whether the thread has one
    k: int  # which of its item
    into: Scalar
    offset: int  # where it comes from, that of the first source


@functools.cache
def make_terms(kernel: TileKernel) -> Compiled:
    """Function that puts the terms of one chunk of sources into shared memory.

    Says whether the thread's source is a Gaussian whose coordinates need their low parts. `reach` is how far
    any antenna is at any time, so that it does not depend on which rows are worked out together.
    """
    variant, shape, has_gaussian = kernel.variant, kernel.shape, kernel.has_gaussian
    single, code, chunk, side = variant.single, variant.beam, shape.chunk, shape.side
    has_profile = variant.profiles is not None
    real, n_step, cos_sin = (
        float32 if single else float64,
        shape.n_thread // chunk,
        scalars.make_cos_sin(single),
    )
    scale_exponent = scalars.EXPONENT_SCALE * _C
    max_narrow = (_MAX_NARROW / scale_exponent) ** 2
    # Two antennas at a time, where a thread has two: the arithmetic of one fills the waits of the other.
    n_together = 1 if n_step >= shape.n_slot else 2

    @device.part
    def fill_terms(
        block: TileBlock, sources: Chunk, reach: Scalar, slots: Slots, sky: DeviceSky, staged: Staged
    ) -> Scalar:
        b, gaussian, direction, projection = block.b, sources.gaussian, sky.direction, sky.projection
        thread, n_x, u, v, w, scale = (
            block.thread,
            block.n_x,
            slots.u,
            slots.v,
            slots.w,
            sky.beam_scale[block.b],
        )
        s = uint32(uint32(thread) % uint32(chunk))
        wide = False
        # Threads that are left over, where a chunk does not divide their number, have no antenna to place.
        if s >= sources.n_source or thread >= chunk * n_step:
            return wide
        k = sources.start + int32(s)
        l, m, n_minus_1 = direction[b, k, 0], direction[b, k, 1], direction[b, k, 2]
        first = uint32(sources.first + s * uint32(side))
        a0, a1, a2, c0, c1, c2 = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
        if has_gaussian and gaussian >= 0:
            g = gaussian + int32(s)
            a0, a1, a2 = projection[b, g, 0, 0], projection[b, g, 0, 1], projection[b, g, 0, 2]
            c0, c1, c2 = projection[b, g, 1, 0], projection[b, g, 1, 1], projection[b, g, 1, 2]
            if single:
                # No antenna within `reach` has a coordinate above the longer axis times `reach`.
                most = max(a0 * a0 + a1 * a1 + a2 * a2, c0 * c0 + c1 * c1 + c2 * c2)
                wide = most * reach * reach > max_narrow
                if has_profile and k >= int32(direction.shape[1]) - sky.n_profile:
                    # Profiles may be much steeper than Gaussians, and are computed in float64.
                    wide = True
        x = uint32(uint32(thread) // uint32(chunk))
        while x < n_x:
            # Without a second one the first is computed twice, which costs no branch.
            y = uint32(x + uint32(n_step))
            for h in range(n_together):
                i = x if h == 0 or y >= n_x else y
                cos, sin = cos_sin(_turns(u[i], v[i], w[i], l, m, n_minus_1))
                if code != _NO_BEAM:
                    e = real(_voltage(code, _argument(scale, slots.nu[i], l - slots.dl[i], m - slots.dm[i])))
                    cos, sin = e * cos, e * sin
                into = uint32(first + slots.term_offset[i])
                staged.term[into] = complex(cos, sin)
                if has_gaussian and gaussian >= 0:
                    along = scale_exponent * _turns(u[i], v[i], w[i], a0, a1, a2)
                    across = scale_exponent * _turns(u[i], v[i], w[i], c0, c1, c2)
                    staged.high[into] = complex(real(along), real(across))
                    if single:
                        # Also of narrow sources: one wide source makes the whole block read these.
                        rest, other = real(0), real(0)
                        if wide:
                            rest, other = along - float64(real(along)), across - float64(real(across))
                        staged.low[into] = complex(real(rest), real(other))
            x = uint32(y + uint32(n_step))
        return wide

    return fill_terms


@functools.cache
def make_stager(kernel: TileKernel) -> Compiled:
    """Function that says what of the brightness a thread stages."""
    sizes = sizes_of(kernel)
    per_item, bright_step = kernel.shape.chunk * sizes.per_source, sizes.bright_step

    @device.inline
    def stager_of(block: TileBlock, shared: TileSharedMemory) -> Stager:
        n_stage = uint32(block.n_here * int32(per_item))
        is_one = uint32(block.thread) < n_stage
        j = uint32(uint32(block.thread) // uint32(per_item))
        k = uint32(uint32(block.thread) - j * uint32(per_item))
        into = uint32(j * uint32(bright_step) + k)
        return Stager(n_stage, is_one, k, into, shared.bright_at[j] + int64(k) if is_one else int64(0))

    return stager_of


@functools.cache
def make_stage(kernel: TileKernel) -> Compiled:
    """Function that stages the sources from `start` on, as many as make a chunk, in one of the two buffers.

    Points, Gaussians or profiles, not several kinds. Gives their number, and whether the thread has met
    one whose coordinates are wide (`make_terms`).
    """
    sizes, shape = sizes_of(kernel), kernel.shape
    chunk, n_thread, per_source = shape.chunk, shape.n_thread, sizes.per_source
    per_item, bright_step = chunk * per_source, sizes.bright_step
    n_term, n_bright, fill_terms = sizes.n_term, sizes.n_bright, make_terms(kernel)
    cplx, real = (complex64, float32) if kernel.variant.single else (complex128, float64)
    bright_type, has_profile = cplx if per_source == 2 else real, kernel.variant.profiles is not None

    @device.part
    def stage(
        start: int,
        buffer: Scalar,
        block: TileBlock,
        stager: Stager,
        reach: Scalar,
        sky: DeviceSky,
        shared: TileSharedMemory,
    ) -> tuple[Scalar, Scalar]:
        n_source, staged = int32(sky.direction.shape[1]), shared.staged
        n_point = n_source - sky.n_gaussian
        gaussian = start - n_point
        n_now = min(int32(chunk), (n_source if gaussian >= 0 else n_point) - start)
        if has_profile and gaussian >= 0 and start < n_source - sky.n_profile:
            n_now = min(n_now, n_source - sky.n_profile - start)
        # Read from memory before the terms are computed and written after them: the wait passes meanwhile.
        early = bright_type(0)
        if stager.is_one and stager.k < uint32(n_now * per_source):
            early = sky.bright[stager.offset + int64(start * per_source)]
        sources = Chunk(start, n_now, gaussian, uint32(buffer * n_term))
        wide = fill_terms(block, sources, reach, shared.slots, sky, staged)
        if stager.is_one:
            staged.bright[uint32(uint32(buffer * n_bright) + stager.into)] = early
        # What is more than one element for each thread, where a block has many items.
        e = uint32(block.thread + n_thread)
        while e < stager.n_stage:
            j = uint32(e // uint32(per_item))
            k = uint32(e - j * uint32(per_item))
            if k < n_now * per_source:
                into = uint32(uint32(buffer * n_bright) + j * uint32(bright_step) + k)
                staged.bright[into] = sky.bright[shared.bright_at[j] + int64(k) + int64(start * per_source)]
            e = uint32(e + uint32(n_thread))
        return n_now, wide

    return stage
