"""P of the measurement equation: the matrix by which feeds that are turned see the sky."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from biro.models.components.antenna_terms.feeds import Basis


def rotation(angle: ArrayLike, basis: Basis) -> NDArray[np.complex128]:
    """The rotation of feeds by angles (...), rad, complex128 (..., 2, 2) (physics: section 6).

    diag(e^-i phi, e^+i phi) of circular feeds, [[cos phi, sin phi], [-sin phi, cos phi]] of linear ones.
    """
    phi = np.asarray(angle, dtype=np.float64)
    found = np.zeros((*phi.shape, 2, 2), np.complex128)
    if basis == "circular":
        found[..., 0, 0], found[..., 1, 1] = np.exp(-1j * phi), np.exp(1j * phi)
    else:
        found[..., 0, 0] = found[..., 1, 1] = np.cos(phi)
        found[..., 0, 1], found[..., 1, 0] = np.sin(phi), -np.sin(phi)
    return found
