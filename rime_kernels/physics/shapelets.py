"""Visibilities of Cartesian shapelets (Refregier 2003), five neighbouring orders along one axis; float64."""

from __future__ import annotations

import math

from rime_kernels.compile.jit import physics_function, scalar
from rime_kernels.physics.rings import turned

_TWO_PI = 2.0 * math.pi
# Coefficients in one call.
N_TERM = 5


@scalar
def _step(n: float, x: float, before: float, last: float) -> float:
    """The next of the normalised Hermite functions after that of order n."""
    return math.sqrt(2.0 / (n + 1.0)) * x * last - math.sqrt(n / (n + 1.0)) * before


@physics_function
def hermite(order: int, x: float) -> tuple[float, float]:
    """psi_(n-1)(x) and psi_n(x), n = order: psi_n = H_n(x) e^(-x^2/2) / sqrt(2^n n!), psi_0(0) = 1."""
    before, last = 0.0, math.exp(-0.5 * x * x)
    for n in range(order):
        before, last = last, _step(float(n), x, before, last)
    return before, last


@scalar
def hermite_slope(n: float, before: float, after: float) -> float:
    """d psi_n / dx = sqrt(n/2) psi_(n-1) - sqrt((n+1)/2) psi_(n+1)."""
    return math.sqrt(0.5 * n) * before - math.sqrt(0.5 * (n + 1.0)) * after


@physics_function
def along(first: float, a: float) -> tuple[float, ...]:
    """psi_m(2 pi a) for m = first - 1 .. first + 5."""
    x = _TWO_PI * a
    p, q0 = hermite(int(first), x)
    q1 = _step(first, x, p, q0)
    q2 = _step(first + 1.0, x, q0, q1)
    q3 = _step(first + 2.0, x, q1, q2)
    q4 = _step(first + 3.0, x, q2, q3)
    return p, q0, q1, q2, q3, q4, _step(first + 4.0, x, q3, q4)


@physics_function
def shapelets(
    a: float,
    b: float,
    first: float,
    n: float,
    c0: float,
    c1: float,
    c2: float,
    c3: float,
    c4: float,
) -> float:
    """sum_j c_j i^(m+n) psi_m(2 pi a) psi_n(2 pi b), m = first + j: re, im (Refregier 2003).

    a and b are the coordinates of the baseline along and across, times the scale beta in radians.
    """
    _, q0, q1, q2, q3, q4, _ = along(first, a)
    _, psi = hermite(int(n), _TWO_PI * b)
    return turned(first + n, psi * (c0 * q0 - c2 * q2 + c4 * q4), psi * (c1 * q1 - c3 * q3))


@physics_function
def shapelet_slopes(
    a: float,
    b: float,
    first: float,
    n: float,
    c0: float,
    c1: float,
    c2: float,
    c3: float,
    c4: float,
) -> tuple[float, ...]:
    """re, im, and their derivatives: re_a, im_a, re_b, im_b, re_c0, im_c0, ..., re_c4, im_c4."""
    p, q0, q1, q2, q3, q4, after = along(first, a)
    x = _TWO_PI * b
    before, psi = hermite(int(n), x)
    psi_b = _TWO_PI * hermite_slope(n, before, _step(n, x, before, psi))
    even, odd = c0 * q0 - c2 * q2 + c4 * q4, c1 * q1 - c3 * q3
    even_a = (
        c0 * hermite_slope(first, p, q1)
        - c2 * hermite_slope(first + 2.0, q1, q3)
        + c4 * hermite_slope(first + 4.0, q3, after)
    )
    odd_a = c1 * hermite_slope(first + 1.0, q0, q2) - c3 * hermite_slope(first + 3.0, q2, q4)
    k = first + n
    along_slope = _TWO_PI * psi
    return (
        *turned(k, psi * even, psi * odd),
        *turned(k, along_slope * even_a, along_slope * odd_a),
        *turned(k, psi_b * even, psi_b * odd),
        *turned(k, psi * q0, 0.0), *turned(k, 0.0, psi * q1), *turned(k, -psi * q2, 0.0),
        *turned(k, 0.0, -psi * q3), *turned(k, psi * q4, 0.0),
    )  # fmt: skip
