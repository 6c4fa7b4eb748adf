"""The posterior in coordinates in which it is about a standard normal distribution, for NUTS."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from biro.arrow.space import ArrowPrecision
from biro.maximum.ascent import width_of_priors
from biro.maximum.laplace import Laplace
from biro.maximum.segments.laplace import SegmentLaplace
from biro.maximum.segments.precision import many_segments, unconstrained_precision
from biro.models.bound.prior.unconstrained import Unconstrained
from biro.target.protocol import DifferentiableLikelihood

Array = NDArray[np.float64]
_AT_END = 0.25
"""Sigmas from an end of its prior within which a parameter counts as at that end."""
_SHARES: Array = np.append(0.5 ** np.arange(8), 0.0)
"""Of the shift inwards from an end, tried one after the other."""


class Whitened:
    """The posterior in coordinates in which it is about a standard normal distribution.

    theta = change(middle + factor z), with y unconstrained (`models.unconstrained`), the middle at the
    maximum or near it (`about`), and factor factor^T the covariance there, as its curvature says. What the
    curvature says nothing about keeps its scale in y.

    Parameters
    ----------
    likelihood : Likelihood
    middle : float64 (n_param,)
    factor : float64 (n_param, n_param)
        Of no size where the factor is that of the precision by segments, which is worked out here.
    """

    def __init__(self, likelihood: DifferentiableLikelihood, middle: Array, factor: Array) -> None:
        self._likelihood, self._change = likelihood, likelihood.model.unconstrained
        self._low, self._high = likelihood.model.box
        self.middle, self.factor = middle, factor
        self._root: _Dense | ArrowPrecision = _Dense(factor)
        many = many_segments(likelihood)
        if not factor.size and many is not None:
            self._root = unconstrained_precision(many, middle, width_of_priors(likelihood))

    @classmethod
    def about(cls, likelihood: DifferentiableLikelihood, laplace: Laplace | SegmentLaplace) -> Whitened:
        """About a maximum; parameters at an end of their prior, where y is infinite, one sigma within."""
        change = likelihood.model.unconstrained
        middle = change.of_theta(_within(likelihood, laplace))
        if isinstance(laplace, SegmentLaplace):
            return cls(likelihood, middle, np.empty((0, 0)))
        return cls(likelihood, middle, _factor(change, middle, laplace))

    def theta(self, z: Array) -> Array:
        """Parameters (n, n_param), periodic ones maybe outside their range."""
        return np.asarray(self._change.theta(self._y(z)))

    def z(self, theta: Array) -> Array:
        """Coordinates (n, n_param) of parameters within their priors: the inverse of `theta`."""
        away = np.array([self._change.of_theta(row) for row in theta]) - self.middle
        return self._root.whiten(away.T).T

    def value_and_gradient(self, z: Array) -> Array:
        """Log density of z and its derivatives, (n, 1 + n_param); -inf where there is none."""
        change = self._change.at(self._y(z))
        theta = np.clip(self._likelihood.model.wrap(change.theta), self._low, self._high)
        value, slope = self._likelihood.log_posterior_and_gradient(theta)
        slope = _by_row(self._root.draw_back, change.pull_back(slope) + change.log_jacobian_slope())
        return np.column_stack([value + change.log_jacobian(), slope])

    def _y(self, z: Array) -> Array:
        return self.middle + _by_row(self._root.draw, z)


class _Dense:
    """A factor as a whole matrix, with what is used of `ArrowPrecision`."""

    def __init__(self, factor: Array) -> None:
        self._factor = factor

    def draw(self, columns: Array) -> Array:
        """The factor times columns (n_param, n)."""
        return self._factor @ columns

    def draw_back(self, columns: Array) -> Array:
        """The transposed factor times columns."""
        return self._factor.T @ columns

    def whiten(self, columns: Array) -> Array:
        """The inverse of the factor times columns."""
        return np.asarray(np.linalg.solve(self._factor, columns))


def _by_row(product: Callable[[Array], Array], rows: Array) -> Array:
    """A product with each row by itself: roundings of a product of matrices depend on their sizes."""
    return np.array([product(row[:, None])[:, 0] for row in rows]).reshape(rows.shape)


def _within(likelihood: DifferentiableLikelihood, laplace: Laplace | SegmentLaplace) -> Array:
    """The maximum with parameters at an end of their prior moved in by one sigma, and the others following.

    A parameter counts as at an end within a quarter of a sigma of it: there y of the maximum says little
    about y around it. They are moved by less than one sigma where the density falls by too much.
    """
    change, sigma = likelihood.model.unconstrained, np.nan_to_num(laplace.error, posinf=0.0)
    start = laplace.theta
    near = np.abs(change.theta(change.of_theta(start, _AT_END * sigma)) - start) > 1e-3 * _AT_END * sigma
    near &= sigma > 0.0
    if not near.any():
        return start
    shift = change.theta(change.of_theta(start, np.where(near, sigma, 0.0))) - start
    shift = np.clip(start + laplace.following(near, shift), *likelihood.model.box) - start
    tried = likelihood.model.wrap(start + _SHARES[:, None] * shift)
    value = np.nan_to_num(likelihood.log_posterior_and_gradient(tried)[0], nan=-np.inf)
    enough = value >= value[-1] - 2.0 * (1.0 + near.sum())
    return np.asarray(tried[int(np.argmax(enough))])


def _factor(change: Unconstrained, middle: Array, laplace: Laplace) -> Array:
    """A square root of the covariance of y, float64 (n_param, n_param), where that is known; 1 elsewhere."""
    n, factor = middle.size, np.eye(middle.size)
    known = np.flatnonzero((laplace.side == 0) & np.isfinite(np.diag(laplace.covariance)))
    if not known.size:
        return factor
    slopes = change.at(middle).pull_back(np.eye(n))  # d theta_k / d y
    inverse = np.linalg.inv(slopes[np.ix_(known, known)])
    covariance = inverse @ laplace.covariance[np.ix_(known, known)] @ inverse.T
    values, vectors = np.linalg.eigh(0.5 * (covariance + covariance.T))
    values = np.clip(values, 1e-12 * values.max(), None)
    factor[np.ix_(known, known)] = vectors * np.sqrt(values)
    return factor
