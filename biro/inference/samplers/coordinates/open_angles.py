"""Angles that turn together without an effect on the posterior, or nearly so.

Phases of all antennas of a segment are such, and the phase between the feeds beside Q + iU and leakages. The
combination of angles is a direction s of whole numbers, and w + 2 pi s has the density of w.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Index = NDArray[np.int64]
OPEN = 2.0
"""Radians of sigma from which on a combination of angles is open."""
OF_TURN = 3.0 / np.pi**2
"""The inverse of the variance of an angle that may be anywhere in a turn, in rad^-2."""
_ANGLES_ALONE, _WHOLE = 1e-2, 5e-2
"""How far the parts of a direction may be from 0 where they are no angles, and from whole numbers."""


def open_angles(values: Array, directions: Array, is_angle: NDArray[np.bool_]) -> Index:
    """One angle of each combination that is open, int64 (n_open,): the combinations differ in these.

    Parameters
    ----------
    values : float64 (n,)
        Precisions along the directions.
    directions : float64 (n, n_param)
        Principal axes of the precision, not normalised.
    is_angle : bool (n_param,)
        The coordinates that are angles, in radians.
    """
    none = np.zeros(0, np.int64)
    if not is_angle.any():
        return none
    size = np.abs(directions[:, is_angle]).max(axis=1)
    found = directions[size > OPEN * np.sqrt(values)]
    if not len(found):
        return none
    from scipy.linalg import qr

    found = found / np.abs(found[:, is_angle]).max(axis=1, keepdims=True)
    left, singular, _ = np.linalg.svd(found[:, ~is_angle], full_matrices=True)
    singular = np.append(singular, np.zeros(len(found) - singular.size))
    found = left.T[singular < _ANGLES_ALONE] @ found
    if not len(found):
        return none
    angles = np.flatnonzero(is_angle)
    order = qr(found[:, angles], mode="r", pivoting=True)[1]
    first = angles[order[: len(found)]]
    by_turn = np.linalg.solve(found[:, first], found)
    whole = (np.abs(by_turn - np.rint(by_turn)) < _WHOLE).all(axis=1)
    return np.sort(first[whole])
