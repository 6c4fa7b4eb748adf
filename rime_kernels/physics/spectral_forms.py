"""Spectra that are more than a polynomial: absorption, lines, tables; each factor S(nu)/S0 with its slopes.

With x = nu/nu0 and p = b0 + b1 ln x + ... of the terms after the first four,

    FREE_FREE         x^p exp(-tau), tau = (nu/nu_ff)^-2.1        terms: nu_ff, -, -, -, b0, b1, ...
    SELF_ABSORBED     y^k (1 - exp(-t y^(a - k))) / (1 - exp(-t)), y = nu/nu_m
                      with e^t = 1 + t (1 - a/k)                  terms: nu_m, a, k
    GAUSSIAN_LINE     h exp(-4 ln2 d^2) + g x^p, d = (nu - c)/w   terms: c, w, h, g, b0, b1, ...
    LORENTZIAN_LINE   h / (1 + 4 d^2) + g x^p                     the same
    LINEAR_TABLE      value, linear in nu between knots           terms: nu, value of each knot in turn
    LOG_TABLE         ln(value), linear in ln(nu)                 the same

FREE_FREE is a power law behind ionised gas: S0 is what would be seen at nu0 without the gas (Mezger and
Henderson 1967, ApJ 147, 471; Condon 1992, ARA&A 30, 575). SELF_ABSORBED is a homogeneous synchrotron source
(Tuerler, Courvoisier and Paltani 1999, A&A 349, 45): a < 0 its thin and k = 5/2 its thick index, S0 its flux
at nu_m, which is exactly the peak: t is the root of dS/dnu = 0 there, of which they take the first terms of a
series. c, w, h are centre, full width at half maximum and height of
a line in units of S0, g that of the power law it stands on. A table ends with its terms or with a frequency
of 0; its first and last pieces go on beyond its ends.
"""

from __future__ import annotations

import math

from rime_kernels.compile.jit import inner_function, scalar
from rime_kernels.compile.types import Array, Scalar
from rime_kernels.physics.form_codes import (
    FREE_FREE,
    GAUSSIAN_LINE,
    LINEAR_TABLE,
    LORENTZIAN_LINE,
    N_OWN,
    SELF_ABSORBED,
)

_4_LN2 = 2.772588722239781


@scalar
def peak_depth(thin: float, thick: float) -> float:
    """The optical depth t at the peak: the positive root of e^t = 1 + t (1 - a/k)."""
    slope = 1.0 - thin / thick
    # The root of the first terms of the series, which is above: Newton's steps go down to the root.
    depth = 1.5 * (math.sqrt(1.0 - 8.0 * thin / (3.0 * thick)) - 1.0)
    for _ in range(6):
        depth -= (math.expm1(depth) - slope * depth) / (math.exp(depth) - slope)
    return depth


@scalar
def _self_absorbed(log_y: float, thin: float, thick: float) -> tuple[float, float, float, float]:
    """S(nu)/S(nu_m) at ln(nu/nu_m), and its derivatives by ln(nu), a and k."""
    depth, slope = peak_depth(thin, thick), 1.0 - thin / thick
    ratio = math.exp((thin - thick) * log_y)
    here, peak = -math.expm1(-depth * ratio), -math.expm1(-depth)
    factor = math.exp(thick * log_y) * here / peak
    # d ln(here) / d ln(optical depth)
    share = depth * ratio * math.exp(-depth * ratio) / here
    by_depth = factor * (share / depth - math.exp(-depth) / peak) * depth / (math.exp(depth) - slope)
    by_log = factor * (thick + (thin - thick) * share)
    by_thin = factor * share * log_y - by_depth / thick
    by_thick = factor * (1.0 - share) * log_y + by_depth * thin / (thick * thick)
    return factor, by_log, by_thin, by_thick


@scalar
def _line(form: int, d: float) -> tuple[float, float]:
    """The profile of a line, and its derivative by d = (nu - c)/w."""
    gaussian = math.exp(-_4_LN2 * d * d)
    lorentzian = 1.0 / (1.0 + 4.0 * d * d)
    profile = gaussian if form == GAUSSIAN_LINE else lorentzian
    slope = -2.0 * _4_LN2 * d * gaussian if form == GAUSSIAN_LINE else -8.0 * d * lorentzian * lorentzian
    return profile, slope


@scalar
def _piece(form: int, nu: float, nu0: float, v0: float, nu1: float, v1: float) -> tuple[float, ...]:
    """A table between two knots; its derivatives by nu0, v0, nu1, v1."""
    if form == LINEAR_TABLE:
        width, rise, offset = nu1 - nu0, v1 - v0, nu - nu0
        share = offset / width
        value = v0 + share * rise
        by_nu0, by_nu1 = rise * (share - 1.0) / width, -rise * share / width
        by_v0, by_v1 = 1.0 - share, share
    else:
        width, rise, offset = math.log(nu1 / nu0), math.log(v1 / v0), math.log(nu / nu0)
        share = offset / width
        value = v0 * math.exp(share * rise)
        by_nu0, by_nu1 = value * rise * (share - 1.0) / (width * nu0), -value * rise * share / (width * nu1)
        by_v0, by_v1 = value * (1.0 - share) / v0, value * share / v1
    return value, by_nu0, by_v0, by_nu1, by_v1


@scalar
def form_slopes(
    form: int, nu: float, power: float, p0: float, p1: float, p2: float, p3: float
) -> tuple[float, ...]:
    """S(nu)/S0, with its derivatives by ln(power) and by the four terms of the form's own.

    Parameters
    ----------
    form : int
    nu : float, Hz
    power : float
        x^p.
    p0, p1, p2, p3 : float
        The first four terms; of a table those of the two knots about nu.

    Returns
    -------
    six floats
    """
    factor, by_power, by_0, by_1, by_2, by_3 = power, power, 0.0, 0.0, 0.0, 0.0
    if form == FREE_FREE:
        depth = math.pow(p0 / nu, 2.1)
        factor = power * math.exp(-depth)
        by_power, by_0 = factor, -2.1 * factor * math.pow(p0 / nu, 1.1) / nu
    elif form == SELF_ABSORBED:
        factor, by_log, by_1, by_2 = _self_absorbed(math.log(nu / p0), p1, p2)
        by_power, by_0 = 0.0, -by_log / p0
    elif form in (GAUSSIAN_LINE, LORENTZIAN_LINE):
        d = (nu - p0) / p1
        profile, slope = _line(form, d)
        factor, by_power = p2 * profile + p3 * power, p3 * power
        by_0, by_1, by_2, by_3 = -p2 * slope / p1, -p2 * slope * d / p1, profile, power
    elif form >= LINEAR_TABLE:
        factor, by_0, by_1, by_2, by_3 = _piece(form, nu, p0, p1, p2, p3)
        by_power = 0.0
    return factor, by_power, by_0, by_1, by_2, by_3


@scalar
def form_factor(form: int, nu: float, power: float, p0: float, p1: float, p2: float, p3: float) -> float:
    """S(nu)/S0; parameters as those of `form_slopes`."""
    factor, _, _, _, _, _ = form_slopes(form, nu, power, p0, p1, p2, p3)
    return factor


@scalar
def is_table(form: int) -> Scalar:
    """Whether the terms are knots."""
    return form >= LINEAR_TABLE


# ---- on the CPU, where terms may be an array


@inner_function
def first_term(form: int, nu: float, terms: Array) -> int:
    """Where the four terms of the form's own begin; those of a table are the two knots about nu."""
    first = 0
    if is_table(form):
        while first + 5 < terms.size and terms[first + 4] > 0.0 and nu >= terms[first + 2]:
            first += 2
    return first


@inner_function
def log_power(form: int, x: float, terms: Array) -> float:
    """ln of x^p, from x = ln(nu/nu0); 0 for a table."""
    total = 0.0
    if not is_table(form):
        for j in range(terms.size - 1, N_OWN - 1, -1):
            total = total * x + terms[j]
    return x * total
