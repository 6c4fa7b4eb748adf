"""Visibilities of discs, spheres and rings about a centre; float64.

Each is a function of s = a^2 + b^2 = (q d)^2, q the length of the baseline in wavelengths and d the outer
diameter, and gives V with V(0) = 1, dV/ds, and the derivative with respect to its parameter, if it has one.
"""

from __future__ import annotations

import math

from rime_kernels.compile.jit import physics_function, scalar
from rime_kernels.physics.bessel import ratios

_PI2 = math.pi * math.pi
# Annuli thinner than this are an average over Gauss-Legendre nodes instead of a difference of discs.
_THIN = 1e-3
_NODE = 0.3872983346207417  # sqrt(3/5) / 2
_OUTER, _MIDDLE = 5.0 / 18.0, 8.0 / 18.0


@physics_function
def disc(s: float) -> tuple[float, float]:
    """2 J1(z) / z, z = pi sqrt(s): a uniform disc (Thompson, Moran & Swenson 2017, section 2.4); V, dV/ds."""
    _, r1, r2, _, _ = ratios(math.pi * math.sqrt(s))
    return 2.0 * r1, -_PI2 * r2


@physics_function
def ring(s: float) -> tuple[float, float]:
    """J0(z), z = pi sqrt(s): an infinitely thin ring; V, dV/ds."""
    r0, r1, _, _, _ = ratios(math.pi * math.sqrt(s))
    return r0, -0.5 * _PI2 * r1


@scalar
def _nested(y: float, odd: float) -> float:
    """sum_k y^k / (k! (2k + odd)!!) times odd!!, for |y| < 5: 16 terms suffice for 1e-16."""
    total = 1.0
    for i in range(16):
        k = 16.0 - i
        total = 1.0 + total * (y / (k * (2.0 * k + odd)))
    return total


@physics_function
def sphere(s: float) -> tuple[float, float]:
    """3 (sin z - z cos z) / z^3, z = pi sqrt(s): an optically thin sphere; V, dV/ds.

    3 j1(z) / z with the spherical Bessel function j1, and d/d(z^2) of it is -(3/2) j2(z) / z^2.
    """
    z2 = _PI2 * s
    if z2 < 9.0:
        return _nested(-0.5 * z2, 3.0), -0.1 * _PI2 * _nested(-0.5 * z2, 5.0)
    z = math.sqrt(z2)
    j0 = math.sin(z) / z
    j1 = (j0 - math.cos(z)) / z
    return 3.0 * j1 / z, -1.5 * _PI2 * (3.0 * j1 / z - j0) / z2


@physics_function
def limb_darkened(s: float, u: float) -> tuple[float, float, float]:
    """A disc with I(mu) = 1 - u (1 - mu), mu = sqrt(1 - r^2) (Hanbury Brown et al. 1974): V, dV/ds, dV/du.

    mu is the brightness of a thin sphere, so V = (3 (1 - u) V_disc + 2 u V_sphere) / (3 - u).
    """
    of_disc, disc_slope = disc(s)
    of_sphere, sphere_slope = sphere(s)
    over = 1.0 / (3.0 - u)
    first, second = 3.0 * (1.0 - u) * over, 2.0 * u * over
    by_u = 6.0 * (of_sphere - of_disc) * over * over
    return first * of_disc + second * of_sphere, first * disc_slope + second * sphere_slope, by_u


@physics_function
def _thin_annulus(s: float, h: float) -> tuple[float, float, float]:
    """The mean of J0(pi sqrt(s t)) over t from 1 - h to 1 by three nodes: V, dV/ds, dV/dh."""
    total, slope, by_h = 0.0, 0.0, 0.0
    for i in range(3):
        x = 0.5 + _NODE * (i - 1.0)
        t = 1.0 - h * x
        value, of_st = ring(s * t)
        weight = _MIDDLE if i == 1 else _OUTER
        total += weight * value
        slope += weight * of_st * t
        by_h -= weight * of_st * s * x
    return total, slope, by_h


@physics_function
def annulus(s: float, f: float) -> tuple[float, float, float]:
    """(V_disc(s) - f^2 V_disc(f^2 s)) / (1 - f^2), f the inner over the outer diameter; V, dV/ds, dV/df.

    A ring at f = 1: V is the mean of J0(pi sqrt(s t)) over t = f^2 .. 1.
    """
    f2 = f * f
    h = 1.0 - f2
    if h < _THIN and h * math.sqrt(s) < 0.05:
        total, slope, by_h = _thin_annulus(s, h)
        return total, slope, -2.0 * f * by_h
    outer, outer_slope = disc(s)
    inner, inner_slope = disc(f2 * s)
    total = (outer - f2 * inner) / h
    by_f2 = (total - inner - f2 * s * inner_slope) / h
    return total, (outer_slope - f2 * f2 * inner_slope) / h, 2.0 * f * by_f2
