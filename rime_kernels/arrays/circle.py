"""Whether directions are clear of the horizon, asked of every batch."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

# So few numbers that BLAS adds up their squares in one thread, and sooner than two passes are made.
_FEW = 8192


def within_circle(lm: NDArray[np.float64]) -> bool:
    """Whether l^2 + m^2 < 1 is certain of all directions (..., 2), at the least expense; False for NaN.

    Where all |l| and |m| are below 0.7, or even the squares of all of them together are below 1, as those of
    a few sources of a small field are.
    """
    if lm.size <= _FEW and np.vdot(lm, lm) < 1.0:
        return True
    return bool(np.maximum.reduce(lm, axis=None) < 0.7 and np.minimum.reduce(lm, axis=None) > -0.7)
