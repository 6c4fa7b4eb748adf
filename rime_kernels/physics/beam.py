"""Scalar antenna beams E(x), x = scale nu r; voltage patterns with E(0) = 1 (physics: section 6)."""

from __future__ import annotations

import math

from rime_kernels.compile.jit import scalar
from rime_kernels.physics.bessel import j2_hankel, j2_series, jinc_hankel, jinc_series

# Where cos^3 = 0.1: the WSRT beam is held there.
COS3_LIMIT = 1.0881

NO_BEAM, COS3, GAUSSIAN, AIRY = range(4)
CODES = {"cos3": COS3, "gaussian": GAUSSIAN, "airy": AIRY}


@scalar
def cos3(x: float) -> float:
    """cos^3(min(x, 1.0881)); NaN stays NaN."""
    c = math.cos(COS3_LIMIT if x > COS3_LIMIT else x)
    return c * c * c


@scalar
def gaussian(x: float) -> float:
    """exp(-2 ln2 x^2): the power pattern E^2 falls to 1/2 at x = 1/2."""
    return math.exp(-2.0 * 0.6931471805599453 * x * x)


@scalar
def airy(x: float) -> float:
    """2 J1(x) / x of a uniformly lit aperture, to 1e-14; float64."""
    if x >= 8.0:
        return jinc_hankel(x)
    return jinc_series(x)


@scalar
def airy_slope(x: float) -> float:
    """The derivative of `airy`: -2 J2(x) / x; 0 at 0."""
    if x == 0.0:
        return 0.0
    j2 = j2_hankel(x) if x >= 8.0 else j2_series(x)
    return -2.0 * j2 / x


@scalar
def cos3_slope(x: float) -> float:
    """The derivative of `cos3`: -3 cos^2(x) sin(x), and 0 where the beam is held."""
    c = math.cos(x)
    return 0.0 if x > COS3_LIMIT else -3.0 * c * c * math.sin(x)


@scalar
def gaussian_slope(x: float) -> float:
    """The derivative of `gaussian`."""
    return -4.0 * 0.6931471805599453 * x * gaussian(x)


@scalar
def voltage(code: int, x: float) -> float:
    """E(x) of the beam with this code; 1 for `NO_BEAM`."""
    if code == COS3:
        return cos3(x)
    if code == GAUSSIAN:
        return gaussian(x)
    if code == AIRY:
        return airy(x)
    return 1.0


@scalar
def voltage_slope(code: int, x: float) -> float:
    """dE/dx of the beam with this code."""
    if code == COS3:
        return cos3_slope(x)
    if code == GAUSSIAN:
        return gaussian_slope(x)
    if code == AIRY:
        return airy_slope(x)
    return 0.0


@scalar
def argument(scale: float, nu: float, dl: float, dm: float) -> float:
    """x = scale nu r, r = |(dl, dm)| in radians."""
    return scale * nu * math.sqrt(dl * dl + dm * dm)


@scalar
def argument_slopes(scale: float, nu: float, dl: float, dm: float) -> tuple[float, float, float]:
    """The derivatives of `argument` with respect to scale, dl and dm.

    0 at the centre, where dx/dl has no value: every beam is flat there.
    """
    r = math.sqrt(dl * dl + dm * dm)
    if r == 0.0:
        return 0.0, 0.0, 0.0
    return nu * r, scale * nu * dl / r, scale * nu * dm / r
