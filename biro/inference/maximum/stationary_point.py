"""The record of a point where a climb came to rest: value, gradient and curvature of the log-posterior."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class StationaryPoint:
    """A point whose gradient is zero, apart from parameters at an end of their prior: a maximum or a saddle.

    Attributes
    ----------
    theta : float64 (n_param,)
    value : float
        Log-posterior.
    gradient : float64 (n_param,)
        Of the log-posterior, per unit of theta.
    side : int64 (n_param,)
        -1 and +1 for a parameter at the low or high end of its prior, else 0.
    curvature : float64 (n_param, n_param)
        Minus the second derivatives of the log-posterior.
    """

    theta: Array
    value: float
    gradient: Array
    side: NDArray[np.int64]
    curvature: Array
