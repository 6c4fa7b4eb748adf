"""Correlations from sums over cells or pixels, and the sums' share of a visibility."""

from __future__ import annotations

from typing import NamedTuple

from rime_kernels.compile.jit import inner_function
from rime_kernels.compile.types import Array, Pointer, Record, Scalar, Vector
from rime_kernels.cpu.simd import pointer


class CorrelationEpilogue(NamedTuple):
    """How correlations come from sums over pixels."""

    n_corr: int
    n_in: int  # sums used
    n_sum: int
    is_direct: bool
    to_corr: Pointer  # (n_corr, n_in, 2)


@inner_function
def make_epilogue(to_corr: Array, n_sum: int, is_direct: bool) -> Record:
    """The ending of sums of `n_sum` planes, with a matrix (n_corr, n_in, 2)."""
    return CorrelationEpilogue(to_corr.shape[0], to_corr.shape[1], n_sum, is_direct, pointer(to_corr))


@inner_function
def write(
    sums: Pointer, epilogue: CorrelationEpilogue, sign: Scalar, cos: Vector, sin: Vector, vis: Pointer
) -> None:
    """One visibility from its sums, (2, n_sum) numbers; `sign` that of imaginary parts, (cos, sin) phase."""
    if epilogue.is_direct:
        for c in range(epilogue.n_corr):
            re, im = sums[c], sign * sums[epilogue.n_sum + c]
            vis[2 * c], vis[2 * c + 1] = cos * re - sin * im, sin * re + cos * im
        return
    for s in range(epilogue.n_in):
        a, b = sums[s], sign * sums[epilogue.n_sum + s]
        re, im = cos * a - sin * b, sin * a + cos * b
        for c in range(epilogue.n_corr):
            offset = 2 * (c * epilogue.n_in + s)
            m_re, m_im = epilogue.to_corr[offset], epilogue.to_corr[offset + 1]
            v_re, v_im = m_re * re - m_im * im, m_re * im + m_im * re
            if s > 0:
                v_re, v_im = v_re + vis[2 * c], v_im + vis[2 * c + 1]
            vis[2 * c], vis[2 * c + 1] = v_re, v_im


@inner_function
def read(
    vis: Pointer,
    weight: Pointer,
    has_weight: bool,
    epilogue: CorrelationEpilogue,
    sign: Scalar,
    cos: Vector,
    sin: Vector,
    out: Pointer,
) -> None:
    """The sums' share of one weighted visibility, (2, n_sum) numbers: the adjoint of `write`."""
    for s in range(2 * epilogue.n_sum):
        out[s] = 0.0
    for c in range(epilogue.n_corr):
        w = weight[c] if has_weight else 1.0
        if w > 0.0:
            a, b = w * vis[2 * c], w * vis[2 * c + 1]
            re, im = cos * a + sin * b, cos * b - sin * a
            if epilogue.is_direct:
                out[c], out[epilogue.n_sum + c] = re, sign * im
            else:
                for s in range(epilogue.n_in):
                    offset = 2 * (c * epilogue.n_in + s)
                    m_re, m_im = epilogue.to_corr[offset], epilogue.to_corr[offset + 1]
                    out[s] += m_re * re + m_im * im
                    out[epilogue.n_sum + s] += sign * (m_re * im - m_im * re)
