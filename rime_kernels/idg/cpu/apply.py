"""Multiply the pixels of a subgrid by taper, w phase and A-terms, by vectors.

This is the step between the transform of the subgrid and the sums over its pixels.

Before it, each plane is S x S complex numbers as the transform leaves them; after it, there are vectors of
pixels of all planes (`sums.py`).
"""

from __future__ import annotations

from typing import NamedTuple

from rime_kernels.compile.jit import inner_function, vector_function
from rime_kernels.compile.types import Pointer, Scalar, Vector
from rime_kernels.cpu.simd import ahead, constant, fma, load, size, spread, store
from rime_kernels.cpu.vector_math import cos_sin_turns
from rime_kernels.idg.cpu.shuffles import even, first_of_pairs, odd, second_of_pairs


class ItemTerms(NamedTuple):
    """Taper, w phase and A-terms of an item, as pointers; pixels have the order of `sums.Coordinates`.

    Attributes
    ----------
    n_pixel : int
        S^2.
    taper : (S^2,)
    curvature : float64 (S^2,)
    kind : int
        A-terms: 0 none, 1 scalar, 2 matrices.
    screens : (n_slot, n_antenna, 1 or 4, 2, S^2)
        Real and imaginary parts.
    n_plane, n_sum : int
        Planes before and behind.
    is_mixed : bool
        Whether planes are turned into correlations here.
    mix : (n_sum or 4, n_plane, 2)
        By this matrix; with A-terms of kind 2 it gives the four elements of the coherency.
    element : int64 (n_sum,)
        Which of these a correlation is.
    """

    n_pixel: int
    taper: Pointer
    curvature: Pointer
    kind: int
    screens: Pointer
    n_plane: int
    n_sum: int
    is_mixed: bool
    mix: Pointer
    element: Pointer


@vector_function
def _times(a_re: Vector, a_im: Vector, b_re: Vector, b_im: Vector) -> tuple[Vector, Vector]:
    """a b."""
    return fma(a_re, b_re, -(a_im * b_im)), fma(a_re, b_im, a_im * b_re)


@vector_function
def _plus_times(
    re: Vector, im: Vector, a_re: Vector, a_im: Vector, b_re: Vector, b_im: Vector
) -> tuple[Vector, Vector]:
    """(re, im) + a b."""
    return fma(-a_im, b_im, fma(a_re, b_re, re)), fma(a_im, b_re, fma(a_re, b_im, im))


@vector_function
def _complex(where: Pointer, offset: int, step: int, lanes_like: Vector) -> tuple[Vector, Vector]:
    """Real parts from `offset` on, and imaginary ones `step` further."""
    return load(where, offset, lanes_like), load(where, offset + step, lanes_like)


@vector_function
def _factor(
    terms: ItemTerms, w: float, p: Scalar, q: Scalar, offset: int, lanes_like: Vector
) -> tuple[Vector, Vector]:
    """Taper times exp(2 pi i w c), and scalar A-terms."""
    cos, sin = cos_sin_turns(spread(w, lanes_like) * load(terms.curvature, offset, lanes_like), lanes_like)
    taper = load(terms.taper, offset, lanes_like)
    re, im = taper * cos, taper * sin
    if terms.kind == 1:
        p_re, p_im = _complex(p, offset, terms.n_pixel, lanes_like)
        q_re, q_im = _complex(q, offset, terms.n_pixel, lanes_like)
        # E_p conj(E_q): the baseline's beam in the direction of each pixel.
        both_re, both_im = _times(p_re, p_im, q_re, -q_im)
        re, im = _times(re, im, both_re, both_im)
    return re, im


@inner_function
def _mixed(
    terms: ItemTerms, source: Pointer, k: int, offset: int, flip: int, lanes_like: Vector
) -> tuple[Vector, Vector]:
    """Combination k of the planes; the conjugate matrix where flipped and not of feeds."""
    n = size(lanes_like)
    re, im = constant(0.0, lanes_like), constant(0.0, lanes_like)
    for s in range(terms.n_plane):
        m_re, m_im = terms.mix[2 * (k * terms.n_plane + s)], terms.mix[2 * (k * terms.n_plane + s) + 1]
        # Elements that are 0 are passed over: XX and YY, for example, have no part of V.
        if m_re != 0.0 or m_im != 0.0:
            # A flipped row is predicted as its conjugate at (-u, -v, -w): the conjugate matrix undoes that.
            m_im = -m_im if flip and terms.kind < 2 else m_im
            where = 2 * (s * terms.n_pixel + offset)
            a, b = load(source, where, lanes_like), load(source, where + n, lanes_like)
            re, im = _plus_times(
                re, im, even(a, b), odd(a, b), spread(m_re, lanes_like), spread(m_im, lanes_like)
            )
    return re, im


@inner_function
def _jones(
    terms: ItemTerms,
    c: int,
    p: Scalar,
    q: Scalar,
    offset: int,
    flip: int,
    element: Pointer,
    lanes_like: Vector,
) -> tuple[Vector, Vector]:
    """Correlation c of E_p B E_q^H; B in `element` as (4, 2, lanes)."""
    n, step = size(lanes_like), 2 * terms.n_pixel
    row, column = terms.element[c] // 2, terms.element[c] % 2
    # With p and q exchanged correlation ij is the conjugate of ji.
    if flip:
        row, column = column, row
    re, im = constant(0.0, lanes_like), constant(0.0, lanes_like)
    for j in range(2):
        left_re, left_im = constant(0.0, lanes_like), constant(0.0, lanes_like)
        # (E_p B)_row,j first, then times conj(E_q)_column,j: 6 complex products instead of 8.
        for i in range(2):
            e_re, e_im = _complex(p, (2 * row + i) * step + offset, terms.n_pixel, lanes_like)
            b_re, b_im = _complex(element, 2 * n * (2 * i + j), n, lanes_like)
            left_re, left_im = _plus_times(left_re, left_im, e_re, e_im, b_re, b_im)
        f_re, f_im = _complex(q, (2 * column + j) * step + offset, terms.n_pixel, lanes_like)
        re, im = _plus_times(re, im, left_re, left_im, f_re, -f_im)
    return re, im


@inner_function
def apply(
    terms: ItemTerms,
    w: float,
    p: Scalar,
    q: Scalar,
    flip: int,
    source: Pointer,
    target: Pointer,
    scratch: Pointer,
    lanes_like: Vector,
) -> None:
    """From transformed planes to what is summed. p and q are the antennas' screens; `scratch` takes 8
    vectors."""
    n = size(lanes_like)
    for offset in range(0, terms.n_pixel, n):
        f_re, f_im = _factor(terms, w, p, q, offset, lanes_like)
        out = ahead(target, 2 * terms.n_sum * offset)
        if terms.kind == 2:
            # All four elements of B are made once for a pixel: each correlation needs all of them.
            for k in range(4):
                re, im = _mixed(terms, source, k, offset, flip, lanes_like)
                store(scratch, 2 * n * k, re)
                store(scratch, 2 * n * k + n, im)
        for c in range(terms.n_sum):
            if terms.kind == 2:
                re, im = _jones(terms, c, p, q, offset, flip, scratch, lanes_like)
            elif terms.is_mixed:
                re, im = _mixed(terms, source, c, offset, flip, lanes_like)
            else:
                where = 2 * (c * terms.n_pixel + offset)
                a, b = load(source, where, lanes_like), load(source, where + n, lanes_like)
                # Pixels come as re, im, re, im, ...: they are sorted into a vector of each.
                re, im = even(a, b), odd(a, b)
            re, im = _times(f_re, f_im, re, im)
            store(out, n * c, re)
            store(out, n * (terms.n_sum + c), im)


@inner_function
def _jones_adjoint(
    terms: ItemTerms,
    c: int,
    p: Scalar,
    q: Scalar,
    offset: int,
    flip: int,
    v_re: Vector,
    v_im: Vector,
    element: Pointer,
    lanes_like: Vector,
) -> None:
    """Add E_p^H v E_q, of a correlation's v, to the elements."""
    n, step = size(lanes_like), 2 * terms.n_pixel
    row, column = terms.element[c] // 2, terms.element[c] % 2
    if flip:
        row, column = column, row
    for j in range(2):
        f_re, f_im = _complex(q, (2 * column + j) * step + offset, terms.n_pixel, lanes_like)
        right_re, right_im = _times(v_re, v_im, f_re, f_im)
        for i in range(2):
            e_re, e_im = _complex(p, (2 * row + i) * step + offset, terms.n_pixel, lanes_like)
            where = 2 * n * (2 * i + j)
            b_re, b_im = _complex(element, where, n, lanes_like)
            b_re, b_im = _plus_times(b_re, b_im, e_re, -e_im, right_re, right_im)
            store(element, where, b_re)
            store(element, where + n, b_im)


@inner_function
def _unmixed(
    terms: ItemTerms, source: Pointer, s: int, n_mix: int, flip: int, lanes_like: Vector
) -> tuple[Vector, Vector]:
    """Plane s of n_mix combinations, (n_mix, 2, lanes)."""
    n = size(lanes_like)
    re, im = constant(0.0, lanes_like), constant(0.0, lanes_like)
    for k in range(n_mix):
        m_re, m_im = terms.mix[2 * (k * terms.n_plane + s)], terms.mix[2 * (k * terms.n_plane + s) + 1]
        if m_re != 0.0 or m_im != 0.0:
            m_im = -m_im if flip and terms.kind < 2 else m_im
            a_re, a_im = _complex(source, 2 * n * k, n, lanes_like)
            re, im = _plus_times(re, im, a_re, a_im, spread(m_re, lanes_like), spread(-m_im, lanes_like))
    return re, im


@inner_function
def apply_adjoint(
    terms: ItemTerms,
    w: float,
    p: Scalar,
    q: Scalar,
    flip: int,
    source: Pointer,
    target: Pointer,
    scratch: Pointer,
    lanes_like: Vector,
) -> None:
    """The adjoint of `apply`."""
    n = size(lanes_like)
    for offset in range(0, terms.n_pixel, n):
        f_re, f_im = _factor(terms, w, p, q, offset, lanes_like)
        given = ahead(source, 2 * terms.n_sum * offset)
        if terms.kind == 2:
            # Elements get contributions of all correlations: they begin with 0.
            for k in range(8):
                store(scratch, n * k, constant(0.0, lanes_like))
        for c in range(terms.n_sum):
            v_re, v_im = load(given, n * c, lanes_like), load(given, n * (terms.n_sum + c), lanes_like)
            # The adjoint of a product is the product with the conjugate.
            v_re, v_im = _times(v_re, v_im, f_re, -f_im)
            if terms.kind == 2:
                _jones_adjoint(terms, c, p, q, offset, flip, v_re, v_im, scratch, lanes_like)
            else:
                store(scratch, 2 * n * c, v_re)
                store(scratch, 2 * n * c + n, v_im)
        for s in range(terms.n_plane):
            if terms.kind == 2:
                re, im = _unmixed(terms, scratch, s, 4, flip, lanes_like)
            elif terms.is_mixed:
                re, im = _unmixed(terms, scratch, s, terms.n_sum, flip, lanes_like)
            else:
                re, im = load(scratch, 2 * n * s, lanes_like), load(scratch, 2 * n * s + n, lanes_like)
            where = 2 * (s * terms.n_pixel + offset)
            store(target, where, first_of_pairs(re, im))
            store(target, where + n, second_of_pairs(re, im))
