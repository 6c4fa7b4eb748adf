"""The sum over sources for a tile of antennas whose sums a thread keeps in registers."""

from __future__ import annotations

import functools
from typing import Any

from numba import uint32

from rime_kernels import device
from rime_kernels.cuda.kernels import scalars
from rime_kernels.cuda.kernels.tile_parts import TileKernel


@functools.cache
def make_accumulate(kernel: TileKernel, gaussian: bool, wide: bool = False) -> Any:
    """Function that adds `n_source` sources to the sums of a thread's tile.

    Sources are points or Gaussians; coordinates of `wide` ones come in a high and a low part.

    `p`, `q`, `b` are where the terms of the tile's antennas and its brightness begin. Sums are n_stokes
    real and n_stokes imaginary parts, each for all baselines of the tile. `of_q` is room for 6 numbers
    for each of its second antennas.
    """
    variant, shape = kernel.variant, kernel.shape
    single, n_stokes, side = variant.single, variant.n_stokes, shape.side
    n_baseline = side * side
    exp2 = scalars.exp2_function(single)
    n_step = 2 if n_stokes == 4 else 1

    @device.inline
    def accumulate(
        n_source: int, term: Any, high: Any, low: Any, bright: Any, p: Any, q: Any, b: Any, sums: Any,
        of_q: Any,
    ) -> None:  # fmt: skip
        end = uint32(p + uint32(n_source) * uint32(side))
        while p != end:
            for j in range(side):
                z = term[q + uint32(j)]
                of_q[j], of_q[side + j] = z.real, z.imag
                if gaussian:
                    z = high[q + uint32(j)]
                    of_q[2 * side + j], of_q[3 * side + j] = z.real, z.imag
                    if wide:
                        z = low[q + uint32(j)]
                        of_q[4 * side + j], of_q[5 * side + j] = z.real, z.imag
            if n_stokes == 4:
                z = bright[b]
                stokes_i, stokes_q = z.real, z.imag
                z = bright[b + uint32(1)]
                stokes_u, stokes_v = z.real, z.imag
            else:
                stokes_i = bright[b].real
            for i in range(side):
                z = term[p + uint32(i)]
                p_re, p_im = z.real, z.imag
                if n_stokes == 1:
                    p_re, p_im = stokes_i * p_re, stokes_i * p_im
                if gaussian:
                    z = high[p + uint32(i)]
                    p_along, p_across = z.real, z.imag
                    if wide:
                        z = low[p + uint32(i)]
                        p_along_low, p_across_low = z.real, z.imag
                for j in range(side):
                    n = i * side + j
                    if n_stokes == 1 and not gaussian:
                        # Straight into the sums: four multiply-adds.
                        sums[n] += p_re * of_q[j]
                        sums[n] += p_im * of_q[side + j]
                        sums[n + n_baseline] += p_im * of_q[j]
                        sums[n + n_baseline] -= p_re * of_q[side + j]
                        continue
                    re = p_re * of_q[j] + p_im * of_q[side + j]
                    im = p_im * of_q[j] - p_re * of_q[side + j]
                    if gaussian:
                        along, across = p_along - of_q[2 * side + j], p_across - of_q[3 * side + j]
                        if wide:
                            along += p_along_low - of_q[4 * side + j]
                            across += p_across_low - of_q[5 * side + j]
                        e = exp2(along * along + across * across)
                        re *= e
                        im *= e
                    if n_stokes == 4:
                        sums[n] += stokes_i * re
                        sums[n + n_baseline] += stokes_q * re
                        sums[n + 2 * n_baseline] += stokes_u * re
                        sums[n + 3 * n_baseline] += stokes_v * re
                        sums[n + 4 * n_baseline] += stokes_i * im
                        sums[n + 5 * n_baseline] += stokes_q * im
                        sums[n + 6 * n_baseline] += stokes_u * im
                        sums[n + 7 * n_baseline] += stokes_v * im
                    else:
                        sums[n] += re
                        sums[n + n_baseline] += im
            p, q, b = uint32(p + uint32(side)), uint32(q + uint32(side)), uint32(b + uint32(n_step))

    return accumulate
