"""Visibilities of all source shapes other than points and Gaussians, with their derivatives; float64.

A shape is a complex function of the coordinates of a baseline along and across the source's axes,

    a = emaj (u' sin pa + v' cos pa) nu/c,   b = emin (u' cos pa - v' sin pa) nu/c     (physics: section 5)

where emaj and emin are the source's size as the shape counts it (a diameter, an effective radius, ...), of
eight parameters and, of the last kind alone, of the frequency nu. Every shape may be convolved with a
Gaussian, circular before the source is stretched: p7 is its full width at half maximum divided by emaj, and
the visibility is multiplied by

    exp(-pi^2 / (4 ln 2) p7^2 (a^2 + b^2))

| code | size | p0 ... |
| --- | --- | --- |
| `DISC` | diameter | |
| `RING` | diameter | |
| `LIMB_DARKENED` | diameter | linear coefficient |
| `ANNULUS` | outer diameter | inner diameter / outer diameter |
| `SPHERE` | diameter | |
| `MRING` | diameter | Re, Im of beta_1, beta_2, beta_3; p6 is beta_0 |
| `CRESCENT` | outer diameter | inner / outer diameter, offset, floor, angle of the hole from the major axis |
| `EXPONENTIAL` | scale length | |
| `SERSIC` | effective radius | n, 0.3 .. 8 |
| `BETA_MODEL` | core radius | beta > 1/2 |
| `SHAPELETS` | scale | order m0 along, order n across, then coefficients of m0 .. m0 + 4 along |
| `HIGH_MRING` | diameter | Re, Im of beta_k, beta_k+1, beta_k+2, what they add to an m-ring; p6 is k >= 4 |
| `GRADIENT_GAUSSIAN` | FWHM | change of the spectral index over emaj along, over emin across; nu0, Hz |

Unused parameters are 0. V(0, 0) = 1, but beta_0 for an m-ring, 0 for what is added to one, what its
coefficients make of shapelets, and what is integrated of a Gaussian whose spectral index changes.
"""

from __future__ import annotations

import math

from rime_kernels.compile.jit import physics_function, scalar
from rime_kernels.physics import beta_model, discs, rings, sersic, shapelets

DISC, RING, LIMB_DARKENED, ANNULUS, SPHERE, MRING, CRESCENT, EXPONENTIAL = range(8)
SERSIC, BETA_MODEL, SHAPELETS, HIGH_MRING, GRADIENT_GAUSSIAN = range(8, 13)
N_KIND = 13
# Codes of shapes that are built in; those of a user's own come after `FIRST_REGISTERED`.
CODES = {
    "disc": DISC,
    "ring": RING,
    "limb-darkened": LIMB_DARKENED,
    "annulus": ANNULUS,
    "sphere": SPHERE,
    "m-ring": MRING,
    "crescent": CRESCENT,
    "exponential": EXPONENTIAL,
    "sersic": SERSIC,
    "beta-model": BETA_MODEL,
    "shapelets": SHAPELETS,
    "high m-ring": HIGH_MRING,
    "gradient-gaussian": GRADIENT_GAUSSIAN,
}
FIRST_REGISTERED = 1000
# Parameters beside emaj, emin and pa.
N_PARAMETER = 8

# pi^2 / (4 ln 2)
_BLUR = math.pi * math.pi / (4.0 * 0.6931471805599453)
_FOUR_PI2 = 4.0 * math.pi * math.pi
# Variance of a Gaussian of unit full width at half maximum.
_VARIANCE = 1.0 / (8.0 * 0.6931471805599453)
_TWO_PI = 2.0 * math.pi

disc, ring, sphere = discs.disc, discs.ring, discs.sphere
limb_darkened, annulus = discs.limb_darkened, discs.annulus
of_sersic, of_beta_model = sersic.sersic, beta_model.beta_model
mring, mring_slopes = rings.mring, rings.mring_slopes
high_mring, high_mring_slopes = rings.high_mring, rings.high_mring_slopes
crescent, crescent_slopes = rings.crescent, rings.crescent_slopes
of_shapelets, shapelet_slopes = shapelets.shapelets, shapelets.shapelet_slopes


@scalar
def exponential(s: float) -> tuple[float, float]:
    """(1 + 4 pi^2 s)^(-3/2): a disc of brightness exp(-r/h), s = (q h)^2; V, dV/ds."""
    over = 1.0 / (1.0 + _FOUR_PI2 * s)
    value = over * math.sqrt(over)
    return value, -1.5 * _FOUR_PI2 * value * over


@scalar
def gradient_gaussian(a: float, b: float, p0: float, p1: float, p2: float, nu: float) -> tuple[float, float]:
    """A Gaussian whose spectral index changes linearly across it, by p0 over emaj and p1 over emin: re, im.

    Its brightness is G(x) e^(L (p0 x / emaj + p1 y / emin)), L = ln(nu/p2), x along and y across; with the
    variance c = 1 / (8 ln 2) of a full width of 1 its integral with e^(2 pi i (a x / emaj + b y / emin)) is

        V = exp(c/2 ((L p0 + 2 pi i a)^2 + (L p1 + 2 pi i b)^2))

    by completing the square: a flux that grows as exp(c/2 L^2 (p0^2 + p1^2)), and a centre that moves by
    c L (p0 emaj, p1 emin).
    """
    growth = math.log(nu / p2)
    power = 0.5 * _VARIANCE * growth * growth * (p0 * p0 + p1 * p1)
    value = math.exp(power - _BLUR * (a * a + b * b))
    phase = _TWO_PI * _VARIANCE * growth * (a * p0 + b * p1)
    return value * math.cos(phase), value * math.sin(phase)


@scalar
def gradient_gaussian_slopes(
    a: float, b: float, p0: float, p1: float, p2: float, nu: float
) -> tuple[float, ...]:
    """The envelope of a Gaussian with a gradient, and its derivatives by a, b, p0, p1, p2: re, im, re_a,
    im_a, ...
    """
    re, im = gradient_gaussian(a, b, p0, p1, p2, nu)
    growth = math.log(nu / p2)
    # Of ln V: c (L p0 + 2 pi i a) times the change of what is in brackets.
    x, y = _VARIANCE * growth * p0, _VARIANCE * growth * p1
    u, v = _VARIANCE * _TWO_PI * a, _VARIANCE * _TWO_PI * b
    by_re, by_im = x * p0 + y * p1, u * p0 + v * p1
    over = -1.0 / p2
    return (
        re, im,
        -_TWO_PI * (u * re + x * im), _TWO_PI * (x * re - u * im),
        -_TWO_PI * (v * re + y * im), _TWO_PI * (y * re - v * im),
        growth * (x * re - u * im), growth * (u * re + x * im),
        growth * (y * re - v * im), growth * (v * re + y * im),
        over * (by_re * re - by_im * im), over * (by_im * re + by_re * im),
    )  # fmt: skip


@scalar
def radial(kind: int, s: float, p0: float) -> tuple[float, float, float]:
    """V, dV/ds, dV/dp0 of a shape that is a function of s = a^2 + b^2 alone."""
    by_p0 = 0.0
    if kind == DISC:
        value, slope = disc(s)
    elif kind == RING:
        value, slope = ring(s)
    elif kind == LIMB_DARKENED:
        value, slope, by_p0 = limb_darkened(s, p0)
    elif kind == ANNULUS:
        value, slope, by_p0 = annulus(s, p0)
    elif kind == SPHERE:
        value, slope = sphere(s)
    elif kind == SERSIC:
        value, slope, by_p0 = of_sersic(s, p0)
    elif kind == BETA_MODEL:
        value, slope, by_p0 = of_beta_model(s, p0)
    else:
        value, slope = exponential(s)
    return value, slope, by_p0


@physics_function
def profile_visibility(
    kind: int, a: float, b: float, p0: float, p1: float, p2: float, p3: float, p4: float, p5: float,
    p6: float, p7: float, nu: float,
) -> tuple[float, float]:  # fmt: skip
    """The visibility of the shape with this code at frequency nu, Hz: re, im."""
    s = a * a + b * b
    blur = math.exp(-_BLUR * p7 * p7 * s) if p7 != 0.0 else 1.0
    if kind == SHAPELETS:
        re, im = of_shapelets(a, b, p0, p1, p2, p3, p4, p5, p6)
        return blur * re, blur * im
    if kind == MRING:
        re, im = mring(a, b, p0, p1, p2, p3, p4, p5, p6)
        return blur * re, blur * im
    if kind == HIGH_MRING:
        re, im = high_mring(a, b, p0, p1, p2, p3, p4, p5, p6)
        return blur * re, blur * im
    if kind == CRESCENT:
        re, im = crescent(a, b, p0, p1, p2, p3)
        return blur * re, blur * im
    if kind == GRADIENT_GAUSSIAN:
        re, im = gradient_gaussian(a, b, p0, p1, p2, nu)
        return blur * re, blur * im
    value, _, _ = radial(kind, s, p0)
    return blur * value, 0.0


@scalar
def _blurred_slopes(
    blur: float, width: float, s: float, re: float, im: float
) -> tuple[float, float, float, float]:
    """What the blur adds to the derivatives of re, im by a (times 1/a) and b, and those by its width."""
    radial_slope = -2.0 * _BLUR * width * width * blur
    by_width = -2.0 * _BLUR * width * s * blur
    return radial_slope * re, radial_slope * im, by_width * re, by_width * im


@physics_function
def profile_slopes(
    kind: int, a: float, b: float, p0: float, p1: float, p2: float, p3: float, p4: float, p5: float,
    p6: float, p7: float, nu: float,
) -> tuple[float, ...]:  # fmt: skip
    """The visibility and its derivatives: re, im, re_a, im_a, re_b, im_b, re_p0, im_p0, ..., re_p7, im_p7."""
    s = a * a + b * b
    g = math.exp(-_BLUR * p7 * p7 * s) if p7 != 0.0 else 1.0
    if kind == MRING:
        re, im, re_a, im_a, re_b, im_b, d0, d1, d2, d3, d4, d5, d6 = mring_slopes(
            a, b, p0, p1, p2, p3, p4, p5, p6
        )
        x, y, re_7, im_7 = _blurred_slopes(g, p7, s, re, im)
        return (
            g * re, g * im,
            g * re_a + a * x, g * im_a + a * y, g * re_b + b * x, g * im_b + b * y,
            0.0, g * d0, 0.0, g * d1, g * d2, 0.0, g * d3, 0.0, 0.0, g * d4, 0.0, g * d5, g * d6, 0.0,
            re_7, im_7,
        )  # fmt: skip
    if kind == HIGH_MRING:
        re, im, re_a, im_a, re_b, im_b, d0, e0, d1, e1, d2, e2, d3, e3, d4, e4, d5, e5 = high_mring_slopes(
            a, b, p0, p1, p2, p3, p4, p5, p6
        )
        x, y, re_7, im_7 = _blurred_slopes(g, p7, s, re, im)
        return (
            g * re, g * im,
            g * re_a + a * x, g * im_a + a * y, g * re_b + b * x, g * im_b + b * y,
            g * d0, g * e0, g * d1, g * e1, g * d2, g * e2, g * d3, g * e3, g * d4, g * e4, g * d5, g * e5,
            0.0, 0.0, re_7, im_7,
        )  # fmt: skip
    if kind == SHAPELETS:
        re, im, re_a, im_a, re_b, im_b, d0, e0, d1, e1, d2, e2, d3, e3, d4, e4 = shapelet_slopes(
            a, b, p0, p1, p2, p3, p4, p5, p6
        )
        x, y, re_7, im_7 = _blurred_slopes(g, p7, s, re, im)
        return (
            g * re, g * im,
            g * re_a + a * x, g * im_a + a * y, g * re_b + b * x, g * im_b + b * y,
            0.0, 0.0, 0.0, 0.0,
            g * d0, g * e0, g * d1, g * e1, g * d2, g * e2, g * d3, g * e3, g * d4, g * e4, re_7, im_7,
        )  # fmt: skip
    if kind == CRESCENT:
        re, im, re_a, im_a, re_b, im_b, re_0, im_0, re_1, im_1, re_2, im_2, re_3, im_3 = crescent_slopes(
            a, b, p0, p1, p2, p3
        )
        x, y, re_7, im_7 = _blurred_slopes(g, p7, s, re, im)
        return (
            g * re, g * im,
            g * re_a + a * x, g * im_a + a * y, g * re_b + b * x, g * im_b + b * y,
            g * re_0, g * im_0, g * re_1, g * im_1, g * re_2, g * im_2, g * re_3, g * im_3,
            0.0, 0.0, 0.0, 0.0, 0.0, 0.0, re_7, im_7,
        )  # fmt: skip
    if kind == GRADIENT_GAUSSIAN:
        re, im, re_a, im_a, re_b, im_b, re_0, im_0, re_1, im_1, re_2, im_2 = gradient_gaussian_slopes(
            a, b, p0, p1, p2, nu
        )
        x, y, re_7, im_7 = _blurred_slopes(g, p7, s, re, im)
        return (
            g * re, g * im,
            g * re_a + a * x, g * im_a + a * y, g * re_b + b * x, g * im_b + b * y,
            g * re_0, g * im_0, g * re_1, g * im_1, g * re_2, g * im_2,
            0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, re_7, im_7,
        )  # fmt: skip
    re, slope, re_0 = radial(kind, s, p0)
    x, _, re_7, _ = _blurred_slopes(g, p7, s, re, 0.0)
    slope = 2.0 * g * slope + x
    return (
        g * re, 0.0, a * slope, 0.0, b * slope, 0.0, g * re_0, 0.0,
        0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, re_7, 0.0,
    )  # fmt: skip
