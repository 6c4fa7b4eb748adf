"""The project's first kernels, reduced to points and Gaussians in the factored form, ending in chi2.

Later versions are compared with them in every run. Kept as they were: one prange loop over (batch, time,
channel) with the sources innermost here, one CUDA thread per visibility in `plain_cuda`. Checks, beams and
other spectra are gone, which makes small problems a little faster than they were. Nothing is shared with
`rime_kernels`, so that they stay what they are.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import numpy as np
from common.types import Value
from numba import njit, prange

from chi2.cases import Field
from rime_kernels import Sources

SPEED_OF_LIGHT = 299792458.0
_TWO_PI = 2.0 * math.pi
_SQRT_K = math.pi / (2.0 * math.sqrt(math.log(2.0)) * SPEED_OF_LIGHT)
_S = tuple((-1.0) ** k / math.factorial(2 * k + 1) for k in range(8))
_C = tuple((-1.0) ** k / math.factorial(2 * k) for k in range(9))

scalar = njit(inline="always", error_model="numpy")


@scalar
def turns(u: float, v: float, w: float, l: float, m: float, n_minus_1: float) -> float:
    return u * l + v * m + w * n_minus_1


@scalar
def cos_sin(turns: float, real: Value) -> Value:
    """Quarter turns come off in float64, Taylor's series does the rest."""
    quarter = math.floor(4.0 * turns + 0.5)
    y = real(_TWO_PI * (turns - 0.25 * quarter))
    z = y * y
    sine = z * (real(_S[5]) + z * (real(_S[6]) + z * real(_S[7])))
    sine = z * (real(_S[2]) + z * (real(_S[3]) + z * (real(_S[4]) + sine)))
    sine = y + y * z * (real(_S[1]) + sine)
    cosine = z * (real(_C[6]) + z * (real(_C[7]) + z * real(_C[8])))
    cosine = z * (real(_C[3]) + z * (real(_C[4]) + z * (real(_C[5]) + cosine)))
    cosine = real(1) + z * (real(_C[1]) + z * (real(_C[2]) + cosine))
    quadrant = quarter - 4.0 * math.floor(0.25 * quarter)
    is_odd = (quadrant == 1.0) | (quadrant == 3.0)
    cos, sin = (sine, cosine) if is_odd else (cosine, sine)
    cos = -cos if (quadrant == 1.0) | (quadrant == 2.0) else cos
    sin = -sin if quadrant >= 2.0 else sin
    return cos, sin


@scalar
def exponent(along: float, across: float, nu: float) -> Value:
    return -(along * along + across * across) * (nu * nu)


def parameters(sources: Sources, n_stokes: int) -> tuple[np.ndarray, ...]:
    """Direction (n_batch, n_source, 3), projection (n_batch, n_gaussian, 2, 3), Stokes, index, ref_freq.

    The batch axis leads; spectra are power laws.
    """
    r2 = np.sum(sources.lm * sources.lm, axis=-1, keepdims=True)
    direction = np.concatenate([sources.lm, -r2 / (1.0 + np.sqrt(1.0 - r2))], axis=-1)
    emaj, emin, pa = np.moveaxis(sources.shape, -1, 0)
    l, m, n_minus_1 = np.moveaxis(direction[:, sources.n_point :], -1, 0)
    tilt_l, tilt_m = l / (1.0 + n_minus_1), m / (1.0 + n_minus_1)
    sin, cos = np.sin(pa), np.cos(pa)
    along = emaj[..., None] * np.stack([sin, cos, -(sin * tilt_l + cos * tilt_m)], axis=-1)
    across = emin[..., None] * np.stack([cos, -sin, -(cos * tilt_l - sin * tilt_m)], axis=-1)
    projection = _SQRT_K * np.stack([along, across], axis=-2)
    stokes, index = sources.stokes[:, 0, :, :n_stokes], sources.spectral_terms[:, :, 0, 0]
    found = direction, projection, stokes, index, sources.ref_freq
    return tuple(np.require(value, requirements=["C", "W"]) for value in found)


class Plain:
    """chi2 of a batch of skies on the CPU."""

    def __init__(self, field: Field, single: bool) -> None:
        self._loop = _make_loop(single)
        real, cplx = (np.float32, np.complex64) if single else (np.float64, np.complex128)
        rows = field.rows
        self._n_stokes = 4 if np.any(rows.stokes_to_corr[:, 1:]) else 1
        self._start = np.searchsorted(rows.time_index, np.arange(rows.n_time + 1))
        self._fixed = (
            *(
                np.array(x)
                for x in (rows.uvw, rows.antenna1, rows.antenna2, field.antenna_uvw, rows.chan_freq)
            ),
            rows.stokes_to_corr.astype(cplx),
            field.vis.astype(cplx),
            field.weight.astype(real),
        )

    def chi2(self, sources: Sources) -> np.ndarray:
        given = parameters(sources, self._n_stokes)
        n_time, n_chan = len(self._start) - 1, self._fixed[4].size
        partial = np.zeros((sources.n_batch, n_time, n_chan))
        self._loop(self._start, self._fixed, given, partial)
        return partial.sum(axis=(1, 2))


@functools.cache
def _make_loop(single: bool) -> Callable[..., None]:
    real = np.float32 if single else np.float64

    @njit(parallel=True, error_model="numpy", fastmath={"contract", "reassoc", "nsz", "arcp"})
    def loop(start: Value, fixed: Value, given: Value, partial: Value) -> None:
        uvw, antenna1, antenna2, antenna_uvw, chan_freq, matrix, vis, weight = fixed
        direction, projection, stokes, index, ref_freq = given
        n_time, n_chan = partial.shape[1], partial.shape[2]
        n_source, n_stokes, n_antenna = stokes.shape[1], stokes.shape[2], antenna_uvw.shape[1]
        for item in prange(partial.size):
            b, t, c = item // (n_time * n_chan), item // n_chan % n_time, item % n_chan
            nu = chan_freq[c]
            bright = np.empty((n_stokes, n_source), real)
            terms = np.empty((2, n_antenna, n_source), real)
            re, im = np.empty(n_source, real), np.empty(n_source, real)
            for s in range(n_source):
                factor = math.exp(math.log(nu / ref_freq[s]) * index[b, s])
                for k in range(n_stokes):
                    bright[k, s] = real(stokes[b, s, k] * factor)
            for a in range(n_antenna):
                u, v, w = antenna_uvw[t, a, 0], antenna_uvw[t, a, 1], antenna_uvw[t, a, 2]
                for s in range(n_source):
                    l, m, n_minus_1 = direction[b, s, 0], direction[b, s, 1], direction[b, s, 2]
                    phase = turns(u, v, w, l, m, n_minus_1) * (nu / SPEED_OF_LIGHT)
                    terms[0, a, s], terms[1, a, s] = cos_sin(phase, real)
            total = 0.0
            for row in range(start[t], start[t + 1]):
                _product(terms, antenna1[row], antenna2[row], re, im)
                _envelopes(real, uvw[row], nu, projection[b], re, im)
                i, q, u, v = _sums(real, bright, re, im)
                for k in range(matrix.shape[0]):
                    value = matrix[k, 0] * i + matrix[k, 1] * q + matrix[k, 2] * u + matrix[k, 3] * v
                    value -= vis[row, c, k]
                    total += weight[row, c, k] * (value.real * value.real + value.imag * value.imag)
            partial[b, t, c] = total

    return loop


@scalar
def _product(terms: Value, p: Value, q: Value, re: Value, im: Value) -> None:
    p_re, p_im, q_re, q_im = terms[0, p], terms[1, p], terms[0, q], terms[1, q]
    for s in range(re.size):
        re[s] = p_re[s] * q_re[s] + p_im[s] * q_im[s]
        im[s] = p_im[s] * q_re[s] - p_re[s] * q_im[s]


@scalar
def _envelopes(real: Value, uvw: Value, nu: Value, projection: Value, re: Value, im: Value) -> None:
    first = re.size - projection.shape[0]
    for g in range(projection.shape[0]):
        x, y = projection[g, 0], projection[g, 1]
        along = turns(uvw[0], uvw[1], uvw[2], x[0], x[1], x[2])
        across = turns(uvw[0], uvw[1], uvw[2], y[0], y[1], y[2])
        e = math.exp(real(exponent(along, across, nu)))
        re[first + g] *= e
        im[first + g] *= e


@scalar
def _sums(real: Value, bright: Value, re: Value, im: Value) -> Value:
    i_re, q_re, u_re, v_re = real(0), real(0), real(0), real(0)
    i_im, q_im, u_im, v_im = real(0), real(0), real(0), real(0)
    if bright.shape[0] == 4:
        for s in range(re.size):
            i_re += bright[0, s] * re[s]
            i_im += bright[0, s] * im[s]
            q_re += bright[1, s] * re[s]
            q_im += bright[1, s] * im[s]
            u_re += bright[2, s] * re[s]
            u_im += bright[2, s] * im[s]
            v_re += bright[3, s] * re[s]
            v_im += bright[3, s] * im[s]
    else:
        for s in range(re.size):
            i_re += bright[0, s] * re[s]
            i_im += bright[0, s] * im[s]
    return complex(i_re, i_im), complex(q_re, q_im), complex(u_re, u_im), complex(v_re, v_im)
