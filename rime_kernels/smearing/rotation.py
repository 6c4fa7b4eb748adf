"""How uvw turn with the Earth about the celestial pole."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

EARTH_RATE = 7.2921158553e-5
"""Rate of the hour angle of a fixed direction, rad/s."""

Array = NDArray[np.float64]


def turned(
    u: Array, v: Array, w: Array, angle: Array, declination: float, pole_angle: float = 0.0
) -> tuple[Array, Array, Array]:
    """Coordinates of a baseline after its hour angle has grown, the phase centre being tracked.

    With u and v along the pole of date, whose position angle is chi,

        u1 = u cos chi - v sin chi,          v1 = u sin chi + v cos chi

    and a = w cos d - v1 sin d, the pole's axis is b = v1 cos d + w sin d, which stays, and

        u1' = u1 cos(angle) + a sin(angle),  a' = a cos(angle) - u1 sin(angle)
        v1' = b cos d - a' sin d,            w' = b sin d + a' cos d

    (Thompson, Moran and Swenson, "Interferometry and Synthesis in Radio Astronomy", eq. 4.1, for two hour
    angles); u' and v' follow from u1' and v1' as these from u and v, by -chi. This is linear in uvw: it holds
    for antennas and for baselines of either sign.

    Parameters
    ----------
    u, v, w : float64, m
        Arrays of one shape.
    angle : float64, rad
        Growth of the hour angle; of a shape that goes with theirs.
    declination : float, rad
        Of the phase centre, of date.
    pole_angle : float, rad
        chi: position angle of the pole of date, from v through u; 0 where v points to it.

    Returns
    -------
    u, v, w : float64, m
    """
    pole = np.cos(declination), np.sin(declination), np.cos(pole_angle), np.sin(pole_angle)
    return turned_by(u, v, w, np.cos(angle), np.sin(angle), *pole)


def turned_by(
    u: Any, v: Any, w: Any, cos: Any, sin: Any, cos_d: float, sin_d: float, cos_x: float, sin_x: float
) -> tuple[Any, Any, Any]:
    """Coordinates turned as by `turned`, from cosines and sines of the angle, the declination and chi; of
    arrays or of scalars.
    """
    u1, v1 = u * cos_x - v * sin_x, u * sin_x + v * cos_x
    a, b = w * cos_d - v1 * sin_d, v1 * cos_d + w * sin_d
    later = a * cos - u1 * sin
    u1, v1, w = u1 * cos + a * sin, b * cos_d - later * sin_d, b * sin_d + later * cos_d
    return u1 * cos_x + v1 * sin_x, v1 * cos_x - u1 * sin_x, w


def turn_about_pole(
    u: Array, v: Array, w: Array, declination: float, pole_angle: float = 0.0
) -> tuple[Array, Array]:
    """The angle of a baseline about the pole of date, rad, and its length across the pole, m.

    With u1 and a as in `turned`, u1 = R sin(angle) and a = R cos(angle); the angle grows as the hour angle.

    Parameters
    ----------
    u, v, w, declination, pole_angle
        As those of `turned`.
    """
    cos_x, sin_x = np.cos(pole_angle), np.sin(pole_angle)
    u1, v1 = u * cos_x - v * sin_x, u * sin_x + v * cos_x
    a = w * np.cos(declination) - v1 * np.sin(declination)
    return np.arctan2(u1, a), np.hypot(u1, a)


def rates(
    u: Array, v: Array, w: Array, declination: float, pole_angle: float = 0.0
) -> tuple[Array, Array, Array]:
    """How fast the coordinates of a baseline change, du/dt, dv/dt and dw/dt, m/s: `turned` for small angles.

        du1/dt = Omega (w cos d - v1 sin d),    dv1/dt = Omega u1 sin d,    dw/dt = -Omega u1 cos d

    Parameters
    ----------
    u, v, w, declination, pole_angle
        As those of `turned`.
    """
    cos_x, sin_x = np.cos(pole_angle), np.sin(pole_angle)
    u, v = u * cos_x - v * sin_x, u * sin_x + v * cos_x
    cos_d, sin_d = EARTH_RATE * np.cos(declination), EARTH_RATE * np.sin(declination)
    du, dv, dw = w * cos_d - v * sin_d, u * sin_d, -u * cos_d
    return du * cos_x + dv * sin_x, dv * cos_x - du * sin_x, dw
