"""Mixtures of normal distributions that follow the draws of each rung, from which moves are proposed."""

from __future__ import annotations

from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
_COMPONENTS = (1, 2, 4)
"""Numbers of components that are tried."""
_N_EM = 12
"""Iterations of expectation and maximisation."""
_LEAST = 1e-6
"""Variance of a component, at least, in units of that of all points."""
_WIDER = 1.1
"""Covariance that is proposed from, over that of the draws: tails are better covered than not."""


class Mixtures(NamedTuple):
    """A mixture of normal distributions for each rung, components that a rung lacks with weight 0.

    Attributes
    ----------
    weight : float64 (n_rung, n_part)
    mean : float64 (n_rung, n_part, n_param)
    root, inverse_root : float64 (n_rung, n_part, n_param, n_param)
        Lower triangular roots of the covariances, and their inverses.
    """

    weight: Array
    mean: Array
    root: Array
    inverse_root: Array

    @classmethod
    def fitted(cls, points: Array) -> Self:
        """The mixtures that are likely for points (n_rung, n_point, n_param); the same for the same points.

        The number of components is the one with the least BIC = -2 ln L + n_free ln n_point.
        """
        n_rung, n_point, n_param = points.shape
        most, rng = max(_COMPONENTS), np.random.default_rng(0)
        weight = np.zeros((n_rung, most))
        mean = np.zeros((n_rung, most, n_param))
        root = np.tile(np.eye(n_param), (n_rung, most, 1, 1))
        free = n_param + n_param * (n_param + 1) // 2 + 1
        for k, of_rung in enumerate(points):
            tried = [_fit(of_rung, n, rng) for n in _COMPONENTS if n == 1 or n * free < n_point]
            bic = [-2.0 * found[0] + len(found[1]) * free * np.log(n_point) for found in tried]
            _, part, middle, covariance = tried[int(np.argmin(bic))]
            n = len(part)
            weight[k, :n], mean[k, :n], root[k, :n] = part, middle, np.linalg.cholesky(covariance * _WIDER)
        used = int((weight > 0.0).sum(axis=1).max())
        root = root[:, :used]
        return cls(weight[:, :used], mean[:, :used], root, np.asarray(np.linalg.inv(root), np.float64))

    def draws(self, rng: np.random.Generator, n: int) -> Array:
        """Draws of each, float64 (n_rung, n, n_param)."""
        n_rung, _, n_param = self.mean.shape
        edges = np.cumsum(self.weight, axis=1)
        part = (rng.random((n_rung, n))[..., None] >= edges[:, None, :-1]).sum(axis=2)
        rung = np.arange(n_rung)[:, None]
        xi = rng.standard_normal((n_rung, n, n_param))
        return np.asarray(self.mean[rung, part] + np.einsum("rwij,rwj->rwi", self.root[rung, part], xi))

    def log_density(self, x: Array) -> Array:
        """ln of the density at x (n_rung, n, n_param), float64 (n_rung, n)."""
        away = (x[:, None] - self.mean[:, :, None]) @ np.swapaxes(self.inverse_root, 2, 3)
        squared = (away**2).sum(axis=3)
        scale = np.log(np.diagonal(self.root, axis1=2, axis2=3)).sum(axis=2)
        with np.errstate(divide="ignore"):
            height = np.log(self.weight)[..., None] - 0.5 * squared - scale[..., None]
        return np.asarray(np.logaddexp.reduce(height, axis=1) - 0.5 * x.shape[2] * np.log(2.0 * np.pi))


def _fit(points: Array, n: int, rng: np.random.Generator) -> tuple[float, Array, Array, Array]:
    """ln L, weights, means and covariances of a mixture of n normals, by expectation and maximisation."""
    n_point, n_param = points.shape
    variance = points.var(axis=0)
    floor = _LEAST * np.diag(np.where(variance > 0.0, variance, 1e-24))
    scaled = points / np.sqrt(np.diag(floor))
    chosen = [int(rng.integers(n_point))]
    while len(chosen) < n:  # far from each other, as k-means++ begins
        away = np.min([((scaled - scaled[i]) ** 2).sum(axis=1) for i in chosen], axis=0)
        is_apart = away.sum() > 0.0  # else there are fewer different points than components
        chosen.append(int(rng.choice(n_point, p=away / away.sum() if is_apart else None)))
    away = np.stack([((scaled - scaled[i]) ** 2).sum(axis=1) for i in chosen])
    part = np.eye(n)[away.argmin(axis=0)]
    for _ in range(_N_EM if n > 1 else 1):
        number = part.sum(axis=0) + 1e-9
        mean = part.T @ points / number[:, None]
        off = points - mean[:, None]
        covariance = np.swapaxes(part.T[..., None] * off, 1, 2) @ off / number[:, None, None] + floor
        inverse_root = np.linalg.inv(np.linalg.cholesky(covariance))
        squared = ((off @ np.swapaxes(inverse_root, 1, 2)) ** 2).sum(axis=2)
        scale = np.log(np.diagonal(inverse_root, axis1=1, axis2=2)).sum(axis=1)
        height = np.log(number / n_point)[:, None] + scale[:, None] - 0.5 * squared
        total = np.logaddexp.reduce(height, axis=0)
        part = np.exp(height - total).T
    log_likelihood = float(total.sum() - 0.5 * n_point * n_param * np.log(2.0 * np.pi))
    return log_likelihood, number / number.sum(), mean, covariance
