"""Products of 2x2 Jones matrices, for numbers and for vectors of them.

A matrix is eight of them: real and imaginary part of 00, 01, 10, 11, in this order. CUDA kernels compile the
functions' Python text.
"""

from __future__ import annotations

from rime_kernels.compile.jit import vector_function
from rime_kernels.compile.types import Matrix, Vector


@vector_function
def times_number(m: Matrix, re: Vector, im: Vector) -> Matrix:
    """m times re + i im."""
    return (
        m[0] * re - m[1] * im, m[0] * im + m[1] * re, m[2] * re - m[3] * im, m[2] * im + m[3] * re,
        m[4] * re - m[5] * im, m[4] * im + m[5] * re, m[6] * re - m[7] * im, m[6] * im + m[7] * re,
    )  # fmt: skip


@vector_function
def add_times_adjoint(c: Matrix, a: Matrix, b: Matrix) -> Matrix:
    """c + a b^H."""
    return (
        c[0] + a[0] * b[0] + a[1] * b[1] + a[2] * b[2] + a[3] * b[3],
        c[1] + a[1] * b[0] - a[0] * b[1] + a[3] * b[2] - a[2] * b[3],
        c[2] + a[0] * b[4] + a[1] * b[5] + a[2] * b[6] + a[3] * b[7],
        c[3] + a[1] * b[4] - a[0] * b[5] + a[3] * b[6] - a[2] * b[7],
        c[4] + a[4] * b[0] + a[5] * b[1] + a[6] * b[2] + a[7] * b[3],
        c[5] + a[5] * b[0] - a[4] * b[1] + a[7] * b[2] - a[6] * b[3],
        c[6] + a[4] * b[4] + a[5] * b[5] + a[6] * b[6] + a[7] * b[7],
        c[7] + a[5] * b[4] - a[4] * b[5] + a[7] * b[6] - a[6] * b[7],
    )


@vector_function
def times_hermitian(t: Matrix, a: Vector, b: Vector, c: Vector, d: Vector) -> Matrix:
    """t B, B = [[a + b, c + i d], [c - i d, a - b]].

    It is the brightness where (a, b, c, d) is (I, Q, U, V) for linear feeds, or (I, V, Q, U) for circular.
    """
    plus, minus = a + b, a - b
    return (
        t[0] * plus + t[2] * c + t[3] * d, t[1] * plus + t[3] * c - t[2] * d,
        t[0] * c - t[1] * d + t[2] * minus, t[1] * c + t[0] * d + t[3] * minus,
        t[4] * plus + t[6] * c + t[7] * d, t[5] * plus + t[7] * c - t[6] * d,
        t[4] * c - t[5] * d + t[6] * minus, t[5] * c + t[4] * d + t[7] * minus,
    )  # fmt: skip


@vector_function
def rotated_circular(e: Matrix, cos: Vector, sin: Vector) -> Matrix:
    """e P, P of circular feeds at an angle: e^-i phi and e^+i phi on the diagonal (physics: section 6)."""
    return (
        e[0] * cos + e[1] * sin, e[1] * cos - e[0] * sin, e[2] * cos - e[3] * sin,
        e[3] * cos + e[2] * sin, e[4] * cos + e[5] * sin, e[5] * cos - e[4] * sin,
        e[6] * cos - e[7] * sin, e[7] * cos + e[6] * sin,
    )  # fmt: skip


@vector_function
def rotated_linear(e: Matrix, cos: Vector, sin: Vector) -> Matrix:
    """e P, P of linear feeds at an angle: [[cos, sin], [-sin, cos]] (physics: section 6)."""
    return (
        e[0] * cos - e[2] * sin, e[1] * cos - e[3] * sin, e[0] * sin + e[2] * cos,
        e[1] * sin + e[3] * cos, e[4] * cos - e[6] * sin, e[5] * cos - e[7] * sin,
        e[4] * sin + e[6] * cos, e[5] * sin + e[7] * cos,
    )  # fmt: skip


@vector_function
def turned_circular(t: Matrix) -> Matrix:
    """The derivative of t = E P with respect to the angle of P of circular feeds, t diag(-i, i)."""
    return t[1], -t[0], -t[3], t[2], t[5], -t[4], -t[7], t[6]


@vector_function
def turned_linear(t: Matrix) -> Matrix:
    """The derivative of t = E P with respect to the angle of P of linear feeds, t [[0, 1], [-1, 0]]."""
    return -t[2], -t[3], t[0], t[1], -t[6], -t[7], t[4], t[5]


@vector_function
def scaled(m: Matrix, f: Vector) -> Matrix:
    """f m of a real f."""
    return f * m[0], f * m[1], f * m[2], f * m[3], f * m[4], f * m[5], f * m[6], f * m[7]


@vector_function
def times(a: Matrix, b: Matrix) -> Matrix:
    """a b."""
    return (
        a[0] * b[0] - a[1] * b[1] + a[2] * b[4] - a[3] * b[5],
        a[0] * b[1] + a[1] * b[0] + a[2] * b[5] + a[3] * b[4],
        a[0] * b[2] - a[1] * b[3] + a[2] * b[6] - a[3] * b[7],
        a[0] * b[3] + a[1] * b[2] + a[2] * b[7] + a[3] * b[6],
        a[4] * b[0] - a[5] * b[1] + a[6] * b[4] - a[7] * b[5],
        a[4] * b[1] + a[5] * b[0] + a[6] * b[5] + a[7] * b[4],
        a[4] * b[2] - a[5] * b[3] + a[6] * b[6] - a[7] * b[7],
        a[4] * b[3] + a[5] * b[2] + a[6] * b[7] + a[7] * b[6],
    )


@vector_function
def adjoint(a: Matrix) -> Matrix:
    """a^H."""
    return a[0], -a[1], a[4], -a[5], a[2], -a[3], a[6], -a[7]


@vector_function
def dot(a: Matrix, b: Matrix) -> tuple[Vector, Vector]:
    """tr(a^H b): real and imaginary part."""
    re = a[0] * b[0] + a[1] * b[1] + a[2] * b[2] + a[3] * b[3]
    re = re + a[4] * b[4] + a[5] * b[5] + a[6] * b[6] + a[7] * b[7]
    im = a[0] * b[1] - a[1] * b[0] + a[2] * b[3] - a[3] * b[2]
    return re, im + a[4] * b[5] - a[5] * b[4] + a[6] * b[7] - a[7] * b[6]
