"""How a tile of antennas ends: against its data, in chi2 and, before an adjoint, in the residuals."""

from __future__ import annotations

import functools
import math
from typing import Any

from numba import float32, float64, uint32, uint64

from rime_kernels import device
from rime_kernels.cuda.kernels import scalars
from rime_kernels.cuda.kernels.adjoint_parts import make_back, make_gather_templates
from rime_kernels.cuda.kernels.misfit import make_measure
from rime_kernels.cuda.kernels.tile_parts import TileKernel, make_correlation
from rime_kernels.physics import phase

_turns = phase.turns


def rooms(kernel: TileKernel) -> tuple[int, int, int, int]:
    """Sizes of arrays of chi2: a row's data, factors of its templates, its residuals; a sample's model."""
    width = _width(kernel)
    n_back = 2 * kernel.variant.n_stokes * width if kernel.has_adjoint else 1
    n_corr = len(kernel.matrix) // 4
    return width * n_corr, max(1, kernel.n_template * width), n_back, n_corr


def _width(kernel: TileKernel) -> int:
    """Baselines whose data are at hand together: a row of the tile; one before an adjoint or a logarithm."""
    return 1 if kernel.has_adjoint or kernel.variant.log else kernel.shape.side


@functools.cache
def make_chi2(kernel: TileKernel) -> Any:
    """Function that gives the chi2 of a thread's tile, or its sum of logarithms; spends the sums.

    Before an adjoint they become the weighted residuals in Stokes parameters, and `of_template` what the
    templates of the tile gather: four sums each, halved derivatives of `Inputs.template`; and one sum of
    `make_measure`.

    Data and weights of the tile begin at `first`, a tile's neighbour beside it. A weight below 0
    says that antenna2 is on the tile's first side. Templates lie like the data, `stride` apart;
    `factors` are theirs (`Inputs.template`). Coordinates of the antennas are in wavelengths, and those of the
    tile from `p` and `q` on; the last antenna stands for those that are not there. `room`: `rooms`.
    """
    single, n_stokes, side = kernel.variant.single, kernel.variant.n_stokes, kernel.shape.side
    real, width = float32 if single else float64, _width(kernel)
    n_corr, n_baseline = len(kernel.matrix) // 4, side * side
    n_datum, n_template, shifted = width * n_corr, kernel.n_template, kernel.variant.shifted
    has_adjoint, n_back = kernel.has_adjoint, rooms(kernel)[2]
    add_back = make_back(kernel.matrix, single, n_stokes)
    nearest = (scalars.nearest_function(kind, phase.nearest) for kind in (False, single))
    cos_sin = scalars.cos_sin_function(single, phase.make_cos_sin(single, *nearest))
    correlation = make_correlation(kernel.matrix, single)
    gather_templates = make_gather_templates(single, n_template, shifted)
    log = kernel.variant.log
    measure = make_measure(log, single, n_template, has_adjoint)
    square_of, exact, one_over, nothing, more, factor_of, total_of, is_large = measure

    @device.inline
    def ends(i: Any, j: Any, p: Any, q: Any, last: Any) -> Any:
        """Where the antennas of baseline j of step i are."""
        n = uint32(uint32(i) * uint32(width) + uint32(j))
        row = uint32(n // uint32(side))
        return min(uint32(p + row), last), min(uint32(q + (n - row * uint32(side))), last)

    @device.inline
    def chi2(
        first: Any, n_tile: Any, vis: Any, weight: Any, template: Any, stride: Any, factors: Any, sums: Any,
        p: Any, q: Any, last: Any, u: Any, v: Any, w: Any, of_template: Any, room: Any,
    ) -> Any:  # fmt: skip
        re, im, weights, factor_re, factor_im, back, model_re, model_im = room
        total, tail = 0.0, one_over(factors)
        at = uint64(first)
        for i in range(n_baseline // width):
            for t in range(n_template):
                for j in range(width):
                    factor_re[t * width + j], factor_im[t * width + j] = real(factors[t, 0]), real(0)
                    if shifted:
                        x, y = ends(i, j, p, q, last)
                        turns = _turns(
                            u[x] - u[y], v[x] - v[y], w[x] - w[y], factors[t, 1], factors[t, 2], factors[t, 3]
                        )
                        cos, sin = cos_sin(turns)
                        factor_re[t * width + j] = real(factors[t, 0]) * cos
                        factor_im[t * width + j] = real(factors[t, 0]) * sin
            # Many loads at once, then the arithmetic.
            for k in range(n_datum):
                z = vis[at]
                re[k], im[k], weights[k] = z.real, z.imag, weight[at]
                for t in range(n_template):
                    z = template[at + uint64(t) * uint64(stride)]
                    factor = factor_re[t * width + k // n_corr]
                    re[k] -= factor * z.real
                    im[k] -= factor * z.imag
                    if shifted:
                        factor = math.copysign(real(1), weights[k]) * factor_im[t * width + k // n_corr]
                        re[k] += factor * z.imag
                        im[k] -= factor * z.real
                at += uint64(n_tile)
            if has_adjoint:
                for k in range(n_back):
                    back[k] = real(0)
            for j in range(width):
                square = nothing()
                for k in range(n_corr):
                    d = j * n_corr + k
                    sign, each = math.copysign(real(1), weights[d]), abs(weights[d])
                    x, y = correlation(k, n_stokes, n_baseline, j, sign, sums)
                    square += more(square, square_of(x, y, re[d], im[d], each), tail, of_template)
                    model_re[k], model_im[k] = x, y
                if is_large(square):
                    for k in range(n_corr):
                        d = j * n_corr + k
                        total += exact(model_re[k], model_im[k], re[d], im[d], abs(weights[d]))
                else:
                    total += total_of(square)
                if has_adjoint:
                    for k in range(n_corr):
                        d = j * n_corr + k
                        sign, each = math.copysign(real(1), weights[d]), abs(weights[d])
                        x, y = model_re[k], model_im[k]
                        each = each * factor_of(square_of(x, y, re[d], im[d], each), tail)
                        re[d], im[d] = each * (x - re[d]), each * (y - im[d])
                        add_back(k, re[d], im[d], sign, back, j, width)
            for j in range(2 * n_stokes):
                for k in range(n_baseline - width):
                    sums[j * n_baseline + k] = sums[j * n_baseline + k + width]
            if has_adjoint:
                for j in range(2 * n_stokes):
                    for k in range(width):
                        sums[j * n_baseline + n_baseline - width + k] = back[j * width + k]
            if has_adjoint and n_template:
                for k in range(n_datum):
                    x, y = ends(i, k // n_corr, p, q, last)
                    gather_templates(
                        at - uint64(n_datum - k) * uint64(n_tile), re[k], im[k], weights[k], template, stride,
                        factors, u[x] - u[y], v[x] - v[y], w[x] - w[y], of_template,
                    )  # fmt: skip
        return total

    return chi2
