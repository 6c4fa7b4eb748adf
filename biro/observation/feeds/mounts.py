"""Mounts of antennas: which angle each turns its feeds by on the sky."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from biro.observation.feeds.parallactic import ApparentPlace

Array = NDArray[np.float64]
ANGLES: Mapping[str, Callable[[ApparentPlace], Array]] = {
    "alt-az": lambda place: place.parallactic_angle,
    "equatorial": lambda place: place.pole_angle + np.zeros_like(place.hour_angle),
    "nasmyth-right": lambda place: place.parallactic_angle + place.elevation,
    "nasmyth-left": lambda place: place.parallactic_angle - place.elevation,
    "x-y": lambda place: place.east_west_angle,
}
"""Angle (n_time, n_antenna), rad, by which each of `MOUNTS` turns feeds (physics: section 6)."""
UVFITS_MOUNTS = (
    "alt-az",
    "equatorial",
    "orbiting",
    "x-y",
    "alt-az+nasmyth-r",
    "alt-az+nasmyth-l",
    "phased",
)
"""Mounts by the number MNTSTA of a UVFITS file (AIPS Memo 117)."""


def mount_angles(place: ApparentPlace, kinds: Sequence[str]) -> Array:
    """Angle by which the mount of each antenna turns its feeds, float64 (n_time, n_antenna), rad.

    Parameters
    ----------
    place : ApparentPlace
    kinds : sequence of str (n_antenna,)
        Each one of `ANGLES`.
    """
    found = np.zeros_like(place.hour_angle)
    for kind in set(kinds):
        own = np.array([each == kind for each in kinds])
        found[:, own] = ANGLES[kind](place)[:, own]
    return found
