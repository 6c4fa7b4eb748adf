"""What the kernel over tiles of antennas is made of, but for its loops: shape, terms, correlations, data."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

from numba import float32, float64, int32, uint32

from rime_kernels import device
from rime_kernels.cuda.kernels import scalars
from rime_kernels.inputs import Variant
from rime_kernels.physics import beam, phase

# The simulator replaces a global of this name while a kernel runs.
cuda: Any = device.cuda

_C = phase.SPEED_OF_LIGHT
_turns = phase.turns
_voltage, _argument, _NO_BEAM = beam.voltage, beam.argument, beam.NO_BEAM
# In the table of places: no row is there.
NO_ROW = 0
# Up to this coordinate of any antenna, in units in which a Gaussian is 2^-(a^2 + b^2), differences of
# coordinates rounded to float32 leave it right to 4.3e-8 times as much: 3.4e-7, as good as the sines are.
_MAX_NARROW = 8.0


@dataclass(frozen=True)
class TileShape:
    """How a kernel is cut: chosen per device, never needed for a right answer.

    Attributes
    ----------
    side : int
        Antennas on each side of a tile.
    n_thread : int
        Threads of a block; `chunk` at least.
    chunk : int
        Sources whose terms lie in shared memory together.
    n_slot : int
        The most antenna terms of one source in a block; a multiple of `side`.
    n_item : int
        The most items of a block.
    max_register : int
        Registers that a thread may have; 0 leaves it to the compiler.
    """

    side: int
    n_thread: int
    chunk: int
    n_slot: int
    n_item: int
    max_register: int = 0


@dataclass(frozen=True)
class TileKernel:
    """All that a kernel is compiled for: the model's variant, its end, the shape of the work."""

    variant: Variant
    is_chi2: bool
    matrix: tuple[complex, ...]  # (n_corr, 4), flat
    has_gaussian: bool
    n_template: int
    shape: TileShape
    has_adjoint: bool = False  # after chi2
    n_lane: int = 32  # neighbouring threads whose sums are joined at once, of one item; for the adjoint


@functools.cache
def make_correlation(matrix: tuple[complex, ...], single: bool) -> Any:
    """Function that makes correlation k of the Stokes sums at `at`, each n behind the one before.

    Real and imaginary part of (the matrix times the sums); with sign -1 of the sums' conjugates, which are
    those of the baseline turned round.
    """
    real = float32 if single else float64
    re_part = tuple(real(z.real) for z in matrix)
    im_part = tuple(real(z.imag) for z in matrix)

    @device.inline
    def correlation(k: int, n_stokes: int, n: int, at: int, sign: Any, sums: Any) -> Any:
        re, im = real(0), real(0)
        for j in range(n_stokes):
            a, b = re_part[4 * k + j], im_part[4 * k + j]
            x, y = sums[n * j + at], sign * sums[n * (n_stokes + j) + at]
            if a != real(0):
                re += a * x
                im += a * y
            if b != real(0):
                re -= b * y
                im += b * x
        return re, im

    return correlation


@functools.cache
def make_terms(kernel: TileKernel) -> Any:
    """Function that puts the terms of one chunk of sources into shared memory, from `first` on.

    Says whether the thread's source is a Gaussian whose coordinates need their low parts. `reach` is how far
    any antenna is at any time, so that it does not depend on which rows are worked out together.
    """
    variant, shape, has_gaussian = kernel.variant, kernel.shape, kernel.has_gaussian
    single, code, chunk, side = variant.single, variant.beam, shape.chunk, shape.side
    real = float32 if single else float64
    n_step = shape.n_thread // chunk
    nearest = (scalars.nearest_function(kind, phase.nearest) for kind in (False, single))
    cos_sin = scalars.cos_sin_function(single, phase.make_cos_sin(single, *nearest))
    scale_exponent = scalars.EXPONENT_SCALE * _C
    max_narrow = (_MAX_NARROW / scale_exponent) ** 2

    @device.inline
    def fill_terms(
        thread: Any, n_x: Any, b: Any, start: Any, n_now: Any, gaussian: Any, first: Any, reach: Any, u: Any,
        v: Any, w: Any, at: Any, nu_of: Any, dl: Any, dm: Any, direction: Any, projection: Any, scale: Any,
        term: Any, high: Any, low: Any,
    ) -> Any:  # fmt: skip
        s = uint32(uint32(thread) % uint32(chunk))
        wide = False
        if s >= n_now or thread >= chunk * n_step:
            return wide
        k = start + int32(s)
        l, m, n_minus_1 = direction[b, k, 0], direction[b, k, 1], direction[b, k, 2]
        first = uint32(first + s * uint32(side))
        a0, a1, a2, c0, c1, c2 = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
        if has_gaussian and gaussian >= 0:
            g = gaussian + int32(s)
            a0, a1, a2 = projection[b, g, 0, 0], projection[b, g, 0, 1], projection[b, g, 0, 2]
            c0, c1, c2 = projection[b, g, 1, 0], projection[b, g, 1, 1], projection[b, g, 1, 2]
            if single:
                most = max(a0 * a0 + a1 * a1 + a2 * a2, c0 * c0 + c1 * c1 + c2 * c2)
                wide = most * reach * reach > max_narrow
        x = uint32(uint32(thread) // uint32(chunk))
        while x < n_x:
            # Two at a time: one's arithmetic fills the other's waits. The last may do the same twice.
            y = uint32(x + uint32(n_step))
            for h in range(2):
                i = x if h == 0 or y >= n_x else y
                cos, sin = cos_sin(_turns(u[i], v[i], w[i], l, m, n_minus_1))
                if code != _NO_BEAM:
                    e = real(_voltage(code, _argument(scale, nu_of[i], l - dl[i], m - dm[i])))
                    cos, sin = e * cos, e * sin
                into = uint32(first + at[i])
                term[into] = complex(cos, sin)
                if has_gaussian and gaussian >= 0:
                    along = scale_exponent * _turns(u[i], v[i], w[i], a0, a1, a2)
                    across = scale_exponent * _turns(u[i], v[i], w[i], c0, c1, c2)
                    high[into] = complex(real(along), real(across))
                    if single:
                        rest, other = real(0), real(0)
                        if wide:
                            rest, other = along - float64(real(along)), across - float64(real(across))
                        low[into] = complex(real(rest), real(other))
            x = uint32(y + uint32(n_step))
        return wide

    return fill_terms


@functools.cache
def make_arrange() -> Any:
    """Kernel that lays values of some rows (data, weights, templates) out as the chi2 reads them.

    They become (n_layer, n_chan, n_split, side^2, n_corr, n_tile), flat: neighbouring threads read
    neighbouring tiles; 0 where no row is, times `turned` where antenna2 is on the first side.
    """

    @device.kernel(0)
    def arrange(
        first_layer: int, first_place: int, n_chan: int, n_corr: int, turned: float, place: Any, values: Any,
        out: Any,
    ) -> None:  # fmt: skip
        n_split, n_baseline, n_tile = place.shape[1], place.shape[2], place.shape[3]
        i = cuda.grid(1)
        if i >= out.size:
            return
        tile, k = i % n_tile, i // n_tile % n_corr
        n, split = i // (n_tile * n_corr) % n_baseline, i // (n_tile * n_corr * n_baseline) % n_split
        item = i // (n_tile * n_corr * n_baseline * n_split)
        found = place[first_layer + item // n_chan, split, n, tile]
        row, c = abs(found) - 1 - first_place, item % n_chan
        if found == NO_ROW:
            out[i] = 0.0
        else:
            out[i] = values[row, c, k] if found > 0 else turned * values[row, c, k]

    return arrange
