"""Visibilities of rings and discs that are brighter on one side: m-ring and crescent; float64, complex.

a and b are the coordinates of the baseline along and across the axis of position angle pa, times the
diameter.
"""

from __future__ import annotations

import math

from rime_kernels.compile.jit import physics_function, scalar
from rime_kernels.physics.bessel import high_ratios, ratios
from rime_kernels.physics.discs import disc

_PI = math.pi
_PI2, _PI3 = _PI * _PI, _PI * _PI * _PI


@physics_function
def mring(
    a: float, b: float, re1: float, im1: float, re2: float, im2: float, re3: float, im3: float, beta0: float
) -> tuple[float, float]:
    """sum_m beta_m i^m Jm(z) e^(i m phi), m = -3 .. 3, beta_-m = conj(beta_m): re, im (Johnson et al. 2020).

    z = pi hypot(a, b), phi = atan2(b, a); the brightness is beta0 + 2 Re sum beta_m e^(i m psi), psi the
    angle from the axis, north through east. With w = a + i b, Jm(z) e^(i m phi) = pi^m (Jm(z) / z^m) w^m.
    """
    r0, r1, r2, r3, _ = ratios(_PI * math.sqrt(a * a + b * b))
    c2, s2 = a * a - b * b, 2.0 * a * b
    c3, s3 = a * c2 - b * s2, a * s2 + b * c2
    re = beta0 * r0 - 2.0 * _PI2 * r2 * (re2 * c2 - im2 * s2)
    return re, 2.0 * _PI * r1 * (re1 * a - im1 * b) - 2.0 * _PI3 * r3 * (re3 * c3 - im3 * s3)


@physics_function
def mring_slopes(
    a: float, b: float, re1: float, im1: float, re2: float, im2: float, re3: float, im3: float, beta0: float
) -> tuple[float, ...]:
    """re, im, re_a, im_a, re_b, im_b, im_re1, im_im1, re_re2, re_im2, im_re3, im_im3, re_beta0.

    The derivatives of re with respect to beta_1 and beta_3, and of im with respect to beta_2, are 0.
    """
    r0, r1, r2, r3, r4 = ratios(_PI * math.sqrt(a * a + b * b))
    c2, s2 = a * a - b * b, 2.0 * a * b
    c3, s3 = a * c2 - b * s2, a * s2 + b * c2
    first, second, third = 2.0 * _PI, -2.0 * _PI2, -2.0 * _PI3
    w1, w2, w3 = re1 * a - im1 * b, re2 * c2 - im2 * s2, re3 * c3 - im3 * s3
    re, im = beta0 * r0 + second * r2 * w2, first * r1 * w1 + third * r3 * w3
    # d(Jm / z^m) = -pi^2 (J(m+1) / z^(m+1)) (a da + b db)
    re_radial = -_PI2 * (beta0 * r1 + second * r3 * w2)
    im_radial = -_PI2 * (first * r2 * w1 + third * r4 * w3)
    re_a = a * re_radial + second * r2 * 2.0 * (re2 * a - im2 * b)
    re_b = b * re_radial - second * r2 * 2.0 * (re2 * b + im2 * a)
    im_a = a * im_radial + first * r1 * re1 + third * r3 * 3.0 * (re3 * c2 - im3 * s2)
    im_b = b * im_radial - first * r1 * im1 - third * r3 * 3.0 * (re3 * s2 + im3 * c2)
    return (
        re, im, re_a, im_a, re_b, im_b,
        first * r1 * a, -first * r1 * b,
        second * r2 * c2, -second * r2 * s2,
        third * r3 * c3, -third * r3 * s3,
        r0,
    )  # fmt: skip


@scalar
def turned(order: float, even: float, odd: float) -> tuple[float, float]:
    """re, im of i^order (even + i odd)."""
    quarter = int(order) % 4
    if quarter == 0:
        return even, odd
    if quarter == 1:
        return -odd, even
    if quarter == 2:
        return -even, -odd
    return odd, -even


@scalar
def _powers(first: float, a: float, b: float) -> tuple[float, float, float]:
    """2 pi^first, and re, im of (a + i b)^(first - 1)."""
    size, c, s = 2.0 * _PI, 1.0, 0.0
    for _ in range(int(first) - 1):
        size, c, s = size * _PI, a * c - b * s, a * s + b * c
    return size, c, s


@physics_function
def high_mring(
    a: float, b: float, re0: float, im0: float, re1: float, im1: float, re2: float, im2: float, first: float
) -> float:
    """The terms of `mring` for m = first, first + 1, first + 2 and their conjugates: re, im, what they add to
    it.
    """
    r0, r1, r2, _ = high_ratios(first, _PI * math.sqrt(a * a + b * b))
    size, c, s = _powers(first, a, b)
    c0, s0 = a * c - b * s, a * s + b * c
    c1, s1 = a * c0 - b * s0, a * s0 + b * c0
    c2, s2 = a * c1 - b * s1, a * s1 + b * c1
    even = size * (r0 * (re0 * c0 - im0 * s0) - _PI2 * r2 * (re2 * c2 - im2 * s2))
    return turned(first, even, size * _PI * r1 * (re1 * c1 - im1 * s1))


@physics_function
def high_mring_slopes(
    a: float, b: float, re0: float, im0: float, re1: float, im1: float, re2: float, im2: float, first: float
) -> tuple[float, ...]:
    """re, im, and their derivatives: re_a, im_a, re_b, im_b, re_re0, im_re0, re_im0, ..., im_im2."""
    r0, r1, r2, r3 = high_ratios(first, _PI * math.sqrt(a * a + b * b))
    size, c, s = _powers(first, a, b)
    c0, s0 = a * c - b * s, a * s + b * c
    c1, s1 = a * c0 - b * s0, a * s0 + b * c0
    c2, s2 = a * c1 - b * s1, a * s1 + b * c1
    k0, k1, k2 = size * r0, size * _PI * r1, -size * _PI2 * r2
    w0, w1, w2 = re0 * c0 - im0 * s0, re1 * c1 - im1 * s1, re2 * c2 - im2 * s2
    # d(Jm / z^m) = -pi^2 (J(m+1) / z^(m+1)) (a da + b db)
    even_radial = -_PI2 * size * (r1 * w0 - _PI2 * r3 * w2)
    odd_radial = -_PI2 * size * _PI * r2 * w1
    m0, m1, m2 = first * k0, (first + 1.0) * k1, (first + 2.0) * k2
    even_a = a * even_radial + m0 * (re0 * c - im0 * s) + m2 * (re2 * c1 - im2 * s1)
    even_b = b * even_radial - m0 * (re0 * s + im0 * c) - m2 * (re2 * s1 + im2 * c1)
    odd_a = a * odd_radial + m1 * (re1 * c0 - im1 * s0)
    odd_b = b * odd_radial - m1 * (re1 * s0 + im1 * c0)
    return (
        *turned(first, k0 * w0 + k2 * w2, k1 * w1), *turned(first, even_a, odd_a),
        *turned(first, even_b, odd_b), *turned(first, k0 * c0, 0.0), *turned(first, -k0 * s0, 0.0),
        *turned(first, 0.0, k1 * c1), *turned(first, 0.0, -k1 * s1),
        *turned(first, k2 * c2, 0.0), *turned(first, -k2 * s2, 0.0),
    )  # fmt: skip


@physics_function
def crescent(
    a: float, b: float, ratio: float, offset: float, floor: float, angle: float
) -> tuple[float, float]:
    """(D(s) - k D(ratio^2 s) e^(i x)) / (1 - k), k = (1 - floor) ratio^2, D a uniform disc: re, im.

    x = pi (1 - ratio) offset (a cos(angle) + b sin(angle)): a disc in which a smaller one of `ratio`
    times its diameter has `floor` times its brightness, and touches its edge where offset = 1 (Kamruddin &
    Dexter 2013).
    """
    s = a * a + b * b
    outer, _ = disc(s)
    inner, _ = disc(ratio * ratio * s)
    k = (1.0 - floor) * ratio * ratio
    x = _PI * (1.0 - ratio) * offset * (a * math.cos(angle) + b * math.sin(angle))
    return (outer - k * inner * math.cos(x)) / (1.0 - k), -k * inner * math.sin(x) / (1.0 - k)


@physics_function
def crescent_slopes(
    a: float, b: float, ratio: float, offset: float, floor: float, angle: float
) -> tuple[float, ...]:
    """re, im, and their derivatives: re_a, im_a, re_b, im_b, re_ratio, im_ratio, ..., re_angle, im_angle."""
    s, f2 = a * a + b * b, ratio * ratio
    outer, outer_slope = disc(s)
    inner, inner_slope = disc(f2 * s)
    k = (1.0 - floor) * f2
    over = 1.0 / (1.0 - k)
    ca, sa = math.cos(angle), math.sin(angle)
    along, across = a * ca + b * sa, b * ca - a * sa
    shift = _PI * (1.0 - ratio) * offset
    cx, sx = math.cos(shift * along), math.sin(shift * along)
    re, im = (outer - k * inner * cx) * over, -k * inner * sx * over
    # By k; by the inner disc's visibility; by the phase x.
    re_k, im_k = (re - inner * cx) * over, (im - inner * sx) * over
    re_d, im_d = -k * cx * over, -k * sx * over
    re_x, im_x = k * inner * sx * over, -k * inner * cx * over
    radial_re, radial_im = 2.0 * (outer_slope * over + f2 * inner_slope * re_d), 2.0 * f2 * inner_slope * im_d
    by_f = 2.0 * ratio * s * inner_slope
    k_f, x_f = 2.0 * ratio * (1.0 - floor), -_PI * offset * along
    x_offset = _PI * (1.0 - ratio) * along
    return (
        re, im,
        a * radial_re + re_x * shift * ca, a * radial_im + im_x * shift * ca,
        b * radial_re + re_x * shift * sa, b * radial_im + im_x * shift * sa,
        re_k * k_f + re_d * by_f + re_x * x_f, im_k * k_f + im_d * by_f + im_x * x_f,
        re_x * x_offset, im_x * x_offset,
        -f2 * re_k, -f2 * im_k,
        re_x * shift * across, im_x * shift * across,
    )  # fmt: skip
