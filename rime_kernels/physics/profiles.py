"""Sources with a shape of their own: complex envelopes of coordinates along and across, and their slopes.

For a source with the axes maj and min (rad) at the position angle pa, at the frequency nu,

    a = maj (u' sin pa + v' cos pa) nu/c,      b = min (u' cos pa - v' sin pa) nu/c

with (u', v') as the envelope of a Gaussian has them (physics: section 5), and rho = hypot(a, b). An envelope
depends on a, b and up to eight parameters p0 .. p7 of its kind (0 where a kind has fewer), and is 1 at
a = b = 0. Everything is float64.

    DISC    2 J1(z)/z, z = pi rho    uniform disc, maj and min its diameters
    RING    J0(z), z = pi rho        infinitely thin ring of these diameters

(Thompson, Moran, Swenson, Interferometry and Synthesis in Radio Astronomy, 3rd ed., chapter 10.)
"""

from __future__ import annotations

import math

from rime_kernels.compile.jit import scalar
from rime_kernels.compile.types import Scalar
from rime_kernels.physics.beam import airy, airy_slope

DISC, RING = range(2)
# Codes of shapes that are built in; those of a user's own come after `FIRST_REGISTERED`.
CODES = {"disc": DISC, "ring": RING}
FIRST_REGISTERED = 1000
# Parameters beside maj, min and pa.
N_PARAMETER = 8


@scalar
def _j0_series(x: float) -> Scalar:
    """J0(x) = sum_k (-x^2/4)^k / (k!)^2, nested; for 0 <= x < 8."""
    y = -0.25 * x * x
    total = 1.0
    for i in range(26):
        k = 26.0 - i
        total = 1.0 + total * (y / (k * k))
    return total


@scalar
def bessel_j0(x: float) -> Scalar:
    """J0(x) of x >= 0, to 1e-13: the series, or J0 = 2 J1/x - J2 from the beam's functions."""
    if x >= 8.0:
        return airy(x) + 0.5 * x * airy_slope(x)
    return _j0_series(x)


@scalar
def profile_visibility(
    kind: int, a: float, b: float, p0: float, p1: float, p2: float, p3: float, p4: float, p5: float,
    p6: float, p7: float,
) -> Scalar:  # fmt: skip
    """The envelope of this kind, real and imaginary part."""
    z = math.pi * math.sqrt(a * a + b * b)
    if kind == DISC:
        return airy(z), 0.0
    return bessel_j0(z), 0.0


@scalar
def profile_slopes(
    kind: int, a: float, b: float, p0: float, p1: float, p2: float, p3: float, p4: float, p5: float,
    p6: float, p7: float,
) -> Scalar:  # fmt: skip
    """The envelope and its derivatives: re, im, then both of d/da, d/db, d/dp0, ..., d/dp7; 22 numbers."""
    rho = math.sqrt(a * a + b * b)
    z = math.pi * rho
    value, slope = bessel_j0(z), -0.5 * z * airy(z)
    if kind == DISC:
        value, slope = airy(z), airy_slope(z)
    # Every envelope here is flat at the centre: the direction does not matter there.
    of_rho = math.pi * slope / rho if rho > 0.0 else 0.0
    return (
        value, 0.0, of_rho * a, 0.0, of_rho * b, 0.0,
        0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0,
    )  # fmt: skip
