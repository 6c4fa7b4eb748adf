"""The envelope of an elliptical Gaussian source (physics: section 5)."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from rime_kernels.choices import GaussianFrame
from rime_kernels.compile.jit import scalar
from rime_kernels.physics.phase import SPEED_OF_LIGHT

_SQRT_K = math.pi / (2.0 * math.sqrt(math.log(2.0)) * SPEED_OF_LIGHT)
# Products of `projections` with (u, v, w) in wavelengths, times this, are those of profiles: maj a, min b.
AXIS_SCALE = 1.0 / _SQRT_K


def projections(
    shape: NDArray[np.float64], direction: NDArray[np.float64], frame: GaussianFrame
) -> NDArray[np.float64]:
    """Two vectors whose products with (u, v, w) are the scaled coordinates along the axes.

    With k = pi^2 / (4 ln 2 c^2):

        x . (u, v, w) = sqrt(k) emaj a,   y . (u, v, w) = sqrt(k) emin b
        a = u' sin(pa) + v' cos(pa),      b = u' cos(pa) - v' sin(pa)

    and (u', v') = (u - w l/n, v - w m/n) in the "tangent" frame, (u, v) in the "uv" frame.

    Parameters
    ----------
    shape : float64 (..., 3), rad
        emaj, emin, pa.
    direction : float64 (..., 3)
        l, m, n - 1.
    frame : "tangent" or "uv"

    Returns
    -------
    float64 (..., 2, 3), s / m
    """
    if not shape.size:
        return np.zeros((*shape.shape[:-1], 2, 3))
    pa, n = shape[..., 2], 1.0 + direction[..., 2]
    tilt = 1.0 if frame == "tangent" else 0.0
    with np.errstate(divide="ignore", invalid="ignore"):
        slope_l, slope_m = tilt * direction[..., 0] / n, tilt * direction[..., 1] / n
    sin, cos = np.sin(pa), np.cos(pa)
    found = np.empty((*pa.shape, 2, 3))
    x, y = found[..., 0, :], found[..., 1, :]
    x[..., 0], x[..., 1], x[..., 2] = sin, cos, -(sin * slope_l + cos * slope_m)
    y[..., 0], y[..., 1], y[..., 2] = cos, -sin, -(cos * slope_l - sin * slope_m)
    found *= shape[..., :2, None]
    found *= _SQRT_K
    return found


def unit_axes(
    shape: NDArray[np.float64], direction: NDArray[np.float64], frame: GaussianFrame
) -> NDArray[np.float64]:
    """`projections` of Gaussians of unit axes with the position angles of `shape`, float64 (..., 2, 3)."""
    unit = np.ones_like(shape)
    unit[..., 2] = shape[..., 2]
    return projections(unit, direction, frame)


def pull_projections(
    shape: NDArray[np.float64],
    direction: NDArray[np.float64],
    frame: GaussianFrame,
    gradient: NDArray[np.float64],
    axes: NDArray[np.float64] | None = None,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The derivatives with respect to shape and l, m of what has this one with respect to `projections`.

    With x = sqrt(k) emaj e and y = sqrt(k) emin f: de/d(pa) = f, df/d(pa) = -e, and their third elements
    are those of (u', v') with slopes l/n, m/n, whose derivatives are 1/n + l^2/n^3, l m/n^3, ...

    Parameters
    ----------
    shape, direction, frame
        As for `projections`.
    gradient : float64 (..., 2, 3)
    axes : float64 (..., 2, 3), optional
        `unit_axes` of shape and direction, where they are known.

    Returns
    -------
    float64 (..., 3)
        With respect to emaj, emin, pa.
    float64 (..., 2)
        With respect to l, m: 0 in the "uv" frame.
    """
    if not shape.size:
        return np.zeros_like(shape), np.zeros_like(direction[..., :2])
    emaj, emin, pa = shape[..., 0], shape[..., 1], shape[..., 2]
    axes = unit_axes(shape, direction, frame) if axes is None else axes
    of_shape, products = np.empty_like(shape), gradient * axes
    of_shape[..., :2] = products.sum(axis=-1)
    crossed = np.sum(gradient * axes[..., ::-1, :], axis=-1)
    of_shape[..., 2] = emaj * crossed[..., 0] - emin * crossed[..., 1]
    if frame == "uv":
        return of_shape, np.zeros_like(direction[..., :2])
    l, m, n = direction[..., 0], direction[..., 1], 1.0 + direction[..., 2]
    a, b, sin, cos = emaj * gradient[..., 0, 2], emin * gradient[..., 1, 2], np.sin(pa), np.cos(pa)
    slope_l, slope_m = -_SQRT_K * (sin * a + cos * b), -_SQRT_K * (cos * a - sin * b)
    radial = (l * slope_l + m * slope_m) / n**3
    return of_shape, np.stack([slope_l / n + l * radial, slope_m / n + m * radial], axis=-1)


def projection_slopes(
    shape: NDArray[np.float64], direction: NDArray[np.float64], frame: GaussianFrame
) -> NDArray[np.float64]:
    """The derivatives of `projections` by emaj, emin, pa, l, m: what `pull_projections` makes of units.

    Parameters
    ----------
    shape, direction, frame
        As for `projections`.

    Returns
    -------
    float64 (..., 2, 3, 5)
    """
    units = np.eye(6).reshape(6, *[1] * (shape.ndim - 1), 2, 3)
    slopes = pull_projections(
        np.broadcast_to(shape, (6, *shape.shape)), np.broadcast_to(direction, (6, *shape.shape)), frame, units
    )
    return np.moveaxis(np.concatenate(slopes, axis=-1), 0, -2).reshape(*shape.shape[:-1], 2, 3, 5)


@scalar
def projection(
    axis: float, first: float, second: float, slope_l: float, slope_m: float
) -> tuple[float, float, float]:
    """One of these vectors: `axis` is the FWHM, (first, second) the axis' direction in (u', v')."""
    scale = _SQRT_K * axis
    return scale * first, scale * second, -scale * (first * slope_l + second * slope_m)


@scalar
def squared(along: float, across: float) -> float:
    """The sum of the squares of the scaled coordinates of a baseline, in their precision.

    The exponent of an envelope is this times a number of its unit and the square of the frequency.
    """
    return along * along + across * across


@scalar
def exponent(along: float, across: float, nu: float) -> float:
    """-pi^2/(4 ln 2) ((emaj a)^2 + (emin b)^2) (nu/c)^2 from the scaled coordinates; float64."""
    return -squared(along, across) * (nu * nu)
