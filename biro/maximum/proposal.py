"""The mixture from which draws of the sampler "none" come: normal distributions about all modes, with tails.

q(theta) = sum_k pi_k [(1 - a) N_k(theta) + a T_k(theta)], with pi_k the part of the evidence of mode k by
Laplace's method, N_k its normal approximation, and T_k Student's t with `DOF` degrees of freedom about the
same place, twice as wide. Without tails a skewed posterior would get weights without bound (Owen & Zhou 2000,
defensive importance sampling).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from biro.maximum.ascent import wrapped_difference
from biro.maximum.modes import Mode, shares

Array = NDArray[np.float64]
DOF = 4.0
TAILS = 0.3
"""a: part of the draws that come from Student's t."""


class Proposal:
    """The mixture.

    Parameters
    ----------
    modes : sequence of Mode
        None of them singular.
    period : float64 (n_param,)
        NaN where a parameter has none.
    tails : float
        a.
    """

    def __init__(self, modes: Sequence[Mode], period: Array, tails: float = TAILS) -> None:
        self._period = period
        self._part = np.ravel(shares(modes)[:, None] * np.array([1.0 - tails, tails]))
        self._components = [(mode.laplace, dof) for mode in modes for dof in (np.inf, DOF)]

    def draws(self, rng: np.random.Generator, n: int) -> Array:
        """theta, float64 (<= n, n_param), in no order; some of it may lie outside the prior.

        A draw that is more than half a period away from its mode is left out: a parameter that is hardly
        known counts within half a turn alone, as in `log_density`.
        """
        counts, drawn = rng.multinomial(n, self._part), []
        for (laplace, dof), count in zip(self._components, counts, strict=True):
            theta = laplace.draws(rng, int(count), dof)
            with np.errstate(invalid="ignore"):
                beyond = np.abs(theta - laplace.theta) > 0.5 * self._period
            drawn.append(theta[~beyond.any(axis=1)])
        return rng.permutation(np.concatenate(drawn))

    def log_density(self, theta: Array) -> Array:
        """ln q (n,), normalised over all that can be drawn."""
        each = [
            laplace.log_normalised(
                laplace.theta + wrapped_difference(theta - laplace.theta, self._period), dof
            )
            for laplace, dof in self._components
        ]
        with np.errstate(divide="ignore"):
            value: Array = np.logaddexp.reduce(np.array(each) + np.log(self._part)[:, None], axis=0)
        return value
