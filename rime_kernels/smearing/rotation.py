"""How uvw turn with the Earth about the celestial pole."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

EARTH_RATE = 7.2921158553e-5
"""Rate of the hour angle of a fixed direction, rad/s."""

Array = NDArray[np.float64]


def turned(u: Array, v: Array, w: Array, angle: Array, declination: float) -> tuple[Array, Array, Array]:
    """Coordinates of a baseline after its hour angle has grown, the phase centre being tracked.

    With a = w cos d - v sin d, the pole's axis is b = v cos d + w sin d, which stays, and

        u' = u cos(angle) + a sin(angle),    a' = a cos(angle) - u sin(angle)
        v' = b cos d - a' sin d,             w' = b sin d + a' cos d

    (Thompson, Moran and Swenson, "Interferometry and Synthesis in Radio Astronomy", eq. 4.1, for two hour
    angles). This is linear in uvw: it holds for antennas and for baselines of either sign.

    Parameters
    ----------
    u, v, w : float64, m
        Arrays of one shape.
    angle : float64, rad
        Growth of the hour angle; of a shape that goes with theirs.
    declination : float, rad
        Of the phase centre.

    Returns
    -------
    u, v, w : float64, m
    """
    cos_d, sin_d = np.cos(declination), np.sin(declination)
    cos, sin = np.cos(angle), np.sin(angle)
    a, b = w * cos_d - v * sin_d, v * cos_d + w * sin_d
    later = a * cos - u * sin
    return u * cos + a * sin, b * cos_d - later * sin_d, b * sin_d + later * cos_d
