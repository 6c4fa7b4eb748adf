"""Student's t about single draws of a posterior: for what no normal distribution about a mode covers.

Each distribution has the covariance of the draws nearest to its centre (locally adapted kernels: Givens &
Raftery 1996, J. Am. Statist. Assoc. 91, 132).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import special

from biro.inference.maximum.objective import wrapped_difference

Array = NDArray[np.float64]
N_CLOUD = 32
"""Centres at most."""
_DOF = 4.0
_LEAST = 1e-6
"""Variance of a parameter about a centre, at least, in units of that of all draws."""


class Cloud:
    """Student's t with 4 degrees of freedom about one draw.

    Parameters
    ----------
    theta : float64 (n_param,)
        The centre.
    covariance : float64 (n_param, n_param)
    """

    def __init__(self, theta: Array, covariance: Array) -> None:
        self.theta, self._root = theta, np.linalg.cholesky(covariance)

    def draws(self, rng: np.random.Generator, n: int, dof: float = _DOF) -> Array:
        """theta (n, n_param)."""
        standard = rng.standard_normal((n, self.theta.size))
        wide = np.sqrt(dof / rng.chisquare(dof, n))[:, None]
        return np.asarray(self.theta + wide * standard @ self._root.T)

    def log_normalised(self, theta: Array, dof: float = _DOF) -> Array:
        """ln of the density at theta (n, n_param)."""
        n = self.theta.size
        squared = (np.linalg.solve(self._root, (theta - self.theta).T) ** 2).sum(axis=0)
        value = special.gammaln(0.5 * (dof + n)) - special.gammaln(0.5 * dof)
        value -= 0.5 * n * np.log(np.pi * dof) + np.log(np.diag(self._root)).sum()
        return np.asarray(value - 0.5 * (dof + n) * np.log1p(squared / dof))


def clouds_about(
    theta: Array, centres: NDArray[np.intp], period: Array, rng: np.random.Generator
) -> list[Cloud]:
    """Distributions about some draws of a posterior.

    Parameters
    ----------
    theta : float64 (n, n_param)
        The draws.
    centres : int (n_centre,)
        Which of them are to be covered. Their neighbours are found among them, where they are enough.
    period : float64 (n_param,)
        NaN where a parameter has none.
    rng : numpy.random.Generator
    """
    n_near = 2 * theta.shape[1] + 8
    among = theta[centres] if len(centres) >= n_near else theta
    scale = wrapped_difference(theta - theta[centres[0]], period).std(axis=0)
    scale = np.where(scale > 0.0, scale, 1e-12 * np.maximum(np.abs(theta[0]), 1.0))
    found = []
    for i in rng.choice(centres, min(N_CLOUD, len(centres)), replace=False):
        away = wrapped_difference(among - theta[i], period)
        near = np.argsort(((away / scale) ** 2).sum(axis=1))[:n_near]
        covariance = away[near].T @ away[near] / n_near
        found.append(Cloud(theta[i], covariance + _LEAST * np.diag(scale**2)))
    return found
