"""The posterior in coordinates in which it is about a standard normal distribution, for NUTS."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special

from biro.inference.block_arrowhead.space import ArrowheadPrecision
from biro.inference.maximum.laplace import Laplace
from biro.inference.maximum.objective import width_of_priors
from biro.inference.maximum.segments.laplace import SegmentLaplace
from biro.inference.maximum.segments.precision import many_segments, unconstrained_precision
from biro.inference.samplers.coordinates.open_angles import OF_TURN, open_angles
from biro.inference.samplers.coordinates.straight import Forms, Straight
from biro.inference.samplers.coordinates.walls import Walls, regression, walls_of
from biro.inference.target.protocol import (
    DifferentiableLikelihood,
    FisherLikelihood,
    SegmentedLikelihood,
    informed,
)

Array = NDArray[np.float64]
Index = NDArray[np.int64]
_AT_END = 0.25
"""Sigmas from an end of its prior within which a parameter counts as at that end."""
_SHARES: Array = np.append(0.5 ** np.arange(8), 0.0)
"""Sizes of a shift, tried one after the other."""
_FLOOR = 1e-4
"""Precision that coordinates have at least; it adds up in combinations of many, and must not count there."""
_WEAK = 1e-3
"""Eigenvalues of a curvature, in units of its diagonal, below which the Fisher information takes its place.

Differences of gradients leave 1e-6 in them; what gains leave open has 1e-4 and less.
"""
_STEP = 1e-3
"""Step of differences of the slopes of priors, in units of w."""
_CENTRED = 3
"""Steps of Newton's method from the maximum of the density of theta to that of w."""
_REFINED, _MOST_WIDER = 3, 3.0
"""Rounds in which a factor is worked out anew, and by how much it may change in each."""
_MOST_DENSE = 1500
"""Parameters up to which a precision by segments is looked at as a whole: some 5 s."""
_SOFT = 0.3
"""Radians over which a window about an angle that is open ends."""


class WhitenedFrame(NamedTuple):
    """The place, the axes and the forms of the coordinates of a run: `Whitened` has the formula.

    Attributes
    ----------
    middle : float64 (n_param,)
    factor : float64 (n_param, n_param)
        Of no size where the factor is that of the precision by segments, which is worked out anew.
    form, partner : int64 (n_param,)
        As `Straight` takes them.
    open : int64 (n_open,)
        Angles that turn freely, one of each combination that does.
    walls : Walls
        Parameters that reach limits of their priors, whose columns of the factor are the first.
    """

    middle: Array
    factor: Array
    form: Index
    partner: Index
    open: Index
    walls: Walls

    def arrays(self) -> dict[str, Any]:
        """All of it as arrays by name, for a file."""
        return {**self._asdict(), "walls": np.array(self.walls)}

    @classmethod
    def of(cls, arrays: Mapping[str, Any]) -> WhitenedFrame:
        """A frame of `arrays`.

        Raises
        ------
        ValueError, KeyError
            They are none of a frame.
        """
        index, *numbers = np.asarray(arrays["walls"], np.float64)
        walls = Walls(index.astype(np.int64), *numbers)
        middle, factor, form, partner, free = (np.asarray(arrays[name]) for name in cls._fields[:-1])
        return cls(middle, factor, form, partner, free, walls)


class Whitened:
    """The posterior in coordinates in which it is about a standard normal distribution.

    theta = change(middle + factor z), with coordinates w in which it has no bends (`straight`), the
    middle at the maximum of the density of w or near it (`about`), and factor factor^T the covariance
    there, as its curvature says, or the Fisher information where that is better known. What neither
    determines keeps the scale of its prior.

    Angles that turn together without an effect would do so for ever (`open_angles`). The density is
    multiplied by a window about one of them,

        g(w) = 1/(1 + exp(-(w + pi)/h)) - 1/(1 + exp(-(w - pi)/h)),

    whose sum over all w + 2 pi k is 1: what is drawn of angles modulo a turn has the density it had.

    Parameters
    ----------
    likelihood : Likelihood
    frame : WhitenedFrame
    """

    def __init__(self, likelihood: DifferentiableLikelihood, frame: WhitenedFrame) -> None:
        self._likelihood, self.frame = likelihood, frame
        self._change = Straight(likelihood, frame.form, frame.partner)
        low, high = likelihood.model.box
        bounded = frame.form == 0  # straight coordinates may leave the prior, and there is nothing there
        self._low, self._high = np.where(bounded, low, -np.inf), np.where(bounded, high, np.inf)
        self._root: _Dense | ArrowheadPrecision = _Dense(frame.factor)
        many = many_segments(likelihood)
        if not frame.factor.size and many is not None:
            self._root = _by_segments(many, frame, self._change)

    @classmethod
    def about(
        cls, likelihood: DifferentiableLikelihood, laplace: Laplace | SegmentLaplace, *, straight: bool = True
    ) -> Whitened:
        """About a maximum; parameters at an end of their prior, where y is infinite, one sigma within.

        Parameters
        ----------
        likelihood : DifferentiableLikelihood
        laplace : Laplace or SegmentLaplace
        straight : bool
            Without, all parameters keep the coordinates y: for places that are far from one another.
        """
        theta = _within(likelihood, laplace)
        forms = np.zeros(theta.size, np.int64), np.full(theta.size, -1)
        precision = _Precision(likelihood, laplace, theta) if isinstance(laplace, Laplace) else None
        if straight:
            of = Forms(likelihood, theta, _sigma_of(laplace, precision))
            forms = of.form, of.partner
        change = Straight(likelihood, *forms)
        frame = WhitenedFrame(
            change.of_theta(theta), np.empty((0, 0)), *forms, np.zeros(0, np.int64), Walls.none()
        )
        if precision is not None:
            frame = _with_axes(frame, precision.of(change), change, always=True)
        elif theta.size <= _MOST_DENSE:
            back = cls(likelihood, frame)._root.whiten(np.eye(theta.size))
            frame = _with_axes(frame, back.T @ back, change, always=False)
        found = cls(likelihood, frame)
        return found._centred() if straight else found

    def theta(self, z: Array) -> Array:
        """Parameters (n, n_param), periodic ones maybe outside their range."""
        return self._change.theta(self._w(z))

    def z(self, theta: Array) -> Array:
        """Coordinates (n, n_param) of parameters within their priors: the inverse of `theta`."""
        away = (
            np.array([self._change.of_theta(row) for row in theta]).reshape(theta.shape) - self.frame.middle
        )
        found = self._root.whiten(away.T).T
        walls = self.frame.walls
        found[:, : walls.which.size] = walls.back(away[:, walls.which], self.frame.middle)
        return found

    def value_and_gradient(self, z: Array) -> Array:
        """Log density of z and its derivatives, (n, 1 + n_param); -inf where there is none."""
        frame, walled = self.frame, slice(self.frame.walls.which.size)
        w = self._w(z)
        change = self._change.at(w)
        theta = np.clip(self._likelihood.model.wrap(change.theta), self._low, self._high)
        value, slope = self._likelihood.log_posterior_and_gradient(theta)
        window, of_window = _window(w[:, frame.open] - frame.middle[frame.open])
        slope = change.pull_back(slope) + change.log_jacobian_slope()
        slope[:, frame.open] += of_window
        slope = _by_row(self._root.draw_back, slope)
        moved = frame.walls.moved(z[:, walled], frame.middle)
        slope[:, walled] = np.exp(moved.log_slope) * slope[:, walled] + moved.bend
        value = value + change.log_jacobian() + window.sum(axis=1) + moved.log_slope.sum(axis=1)
        return np.column_stack([value, slope])

    def log_volume(self, z: Array) -> Array:
        """ln |d theta / d z| at z (n, n_param), without walls and with a factor that is a whole matrix."""
        log_det = np.linalg.slogdet(self.frame.factor)[1]
        return np.asarray(self._change.at(self._w(z)).log_jacobian() + log_det)

    def refined(self) -> Whitened:
        """About where the density of z is highest, with the curvature there in place of that at the maximum.

        The curvature is that of differences over one sigma to each side, and changes a factor by
        `_MOST_WIDER` at most.
        """
        here, n = self, self.frame.middle.size
        for _ in range(_REFINED):
            here = here._centred()
            slopes = here.value_and_gradient(np.concatenate([np.eye(n), -np.eye(n)]))[:, 1:]
            curvature = 0.25 * (slopes[n:] - slopes[:n] + (slopes[n:] - slopes[:n]).T)
            if not np.isfinite(curvature).all():
                break
            values, vectors = np.linalg.eigh(curvature)
            wider = np.clip(1.0 / np.maximum(values, 1e-300), _MOST_WIDER**-2, _MOST_WIDER**2)
            factor = here.frame.factor @ (vectors * np.sqrt(wider))
            here = here.with_factor(factor)
        return here

    def with_factor(self, factor: Array) -> Whitened:
        """Coordinates about the same place with another factor (n_param, n_param)."""
        return Whitened(self._likelihood, self.frame._replace(factor=factor))

    def _w(self, z: Array) -> Array:
        walls, away = self.frame.walls, z.copy()
        away[:, : walls.which.size] = walls.moved(z[:, : walls.which.size], self.frame.middle).away
        return self.frame.middle + _by_row(self._root.draw, away)

    def _centred(self) -> Whitened:
        """About where the density of z is highest, with the same factor."""
        here = self
        for _ in range(_CENTRED):
            step = here.value_and_gradient(np.zeros((1, here.frame.middle.size)))[0, 1:]
            if not np.isfinite(step).all():
                break
            tried = _SHARES[:, None] * step
            best = int(np.argmax(np.nan_to_num(here.value_and_gradient(tried)[:, 0], nan=-np.inf)))
            here = here._moved(here._w(tried[best : best + 1])[0])
        return here

    def _moved(self, middle: Array) -> Whitened:
        return Whitened(self._likelihood, self.frame._replace(middle=middle))


def _window(away: Array) -> tuple[Array, Array]:
    """ln of the window about open angles and its slope, both (n, n_open)."""
    left, right = (away + np.pi) / _SOFT, (np.pi - away) / _SOFT
    # 1/(1 + e^-a) - 1/(1 + e^b) = (1 - e^(-a-b)) / ((1 + e^-a)(1 + e^-b)), and a + b is constant.
    value = special.log_expit(left) + special.log_expit(right) + np.log1p(-np.exp(-2.0 * np.pi / _SOFT))
    return value, (special.expit(-left) - special.expit(-right)) / _SOFT


def _by_segments(
    likelihood: SegmentedLikelihood, frame: WhitenedFrame, change: Straight
) -> ArrowheadPrecision:
    """The precision of w about the middle of a frame."""
    least = change.least
    least[frame.open] = OF_TURN
    return unconstrained_precision(likelihood, frame.middle, width_of_priors(likelihood), change, least)


def _with_axes(frame: WhitenedFrame, precision: Array, change: Straight, *, always: bool) -> WhitenedFrame:
    """A frame with walls, open angles, and the factor of a precision of w (n_param, n_param).

    Unless `always`, with a factor only where there are such.
    """
    walls, middle = walls_of(precision, frame.middle, *change.limits)
    inner = np.ones(middle.size, bool)
    inner[walls.which] = False
    within = precision[np.ix_(inner, inner)].copy()
    values, vectors, scale = _modes(within)
    free = open_angles(values, vectors.T / scale, change.is_angle[inner])
    frame = frame._replace(middle=middle, open=np.flatnonzero(inner)[free], walls=walls)
    if not (always or walls.which.size or free.size):
        return frame
    if free.size:
        within[free, free] += OF_TURN
        values, vectors, scale = _modes(within)
    factor = np.zeros(precision.shape)
    factor[:, : walls.which.size] = regression(precision, walls.which)[0]
    factor[inner, walls.which.size :] = vectors / np.sqrt(values) / scale[:, None]
    return frame._replace(factor=factor)


class _Precision:
    """The precision of unconstrained parameters y about a maximum, and what follows from it.

    Parameters of theta at an end of their prior have the precision 1, and none with others.
    """

    def __init__(self, likelihood: DifferentiableLikelihood, laplace: Laplace, theta: Array) -> None:
        change, n = likelihood.model.unconstrained, theta.size
        self._y = change.of_theta(theta)
        here = change.at(self._y)
        self._slopes = here.pull_back(np.eye(n))  # d theta_k / d y
        ahead, behind = (change.at(self._y + sign * _STEP) for sign in (1.0, -1.0))
        bend = (behind.log_jacobian_slope() - ahead.log_jacobian_slope()) / (2.0 * _STEP)
        matrix = self._in_y(np.nan_to_num(laplace.precision_matrix)) + np.diag(np.maximum(bend, 0.0) + _FLOOR)
        with_information = informed(likelihood)
        if with_information is not None:
            slopes = [
                at.pull_back(with_information.model.log_prior_slope(at.theta[None])[0])
                + at.log_jacobian_slope()
                for at in (behind, ahead)
            ]
            of_prior = np.nan_to_num(np.subtract(*slopes) / (2.0 * _STEP))
            matrix = _with_information(
                matrix, with_information, theta, self._in_y, np.maximum(of_prior, 0.0) + _FLOOR
            )
        at_end = laplace.side != 0
        matrix[at_end], matrix[:, at_end] = 0.0, 0.0
        matrix[at_end, at_end] = 1.0
        self._matrix = 0.5 * (matrix + matrix.T)

    def _in_y(self, matrix: Array) -> Array:
        return np.asarray(self._slopes.T @ matrix @ self._slopes)

    def sigma(self, along: Array) -> float:
        """One standard deviation of theta along a direction (n_param,)."""
        values, vectors, scale = _modes(self._matrix)
        seen = vectors.T @ (self._slopes.T @ along / scale)
        return float(np.sqrt(np.sum(seen**2 / values)))

    def of(self, change: Straight) -> Array:
        """The precision of w, float64 (n_param, n_param)."""
        straight = np.flatnonzero(change.form)
        of_y = np.eye(self._y.size)  # d y / d w
        theta = change.unbounded.theta(self._y)
        slopes = change.at(change.of_theta(theta)).pull_back(np.eye(self._y.size))
        of_y[:, straight] = slopes[:, straight] / np.diag(self._slopes)[:, None]
        return np.asarray(of_y.T @ self._matrix @ of_y)


def _modes(matrix: Array) -> tuple[Array, Array, Array]:
    """Eigenvalues and vectors of a precision in units of its diagonal, and the roots of that.

    A curvature that is negative, as of a mode that is a saddle, counts as one that is hardly known.
    """
    scale = np.sqrt(np.maximum(np.abs(np.diag(matrix)), _FLOOR))
    values, vectors = np.linalg.eigh(matrix / np.outer(scale, scale))
    return np.clip(values, 1e-14, None), vectors, scale


def _with_information(
    matrix: Array, likelihood: FisherLikelihood, theta: Array, in_y: Callable[[Array], Array], of_prior: Array
) -> Array:
    """A curvature of y with the Fisher information in place of what differences say of weak directions."""
    values, vectors, scale = _modes(matrix)
    weak = vectors[:, values < _WEAK]
    if not weak.size:
        return matrix
    better = (in_y(likelihood.fisher(theta)) + np.diag(of_prior)) / np.outer(scale, scale)
    strong = vectors[:, values >= _WEAK]
    found = (strong * values[values >= _WEAK]) @ strong.T + weak @ (weak.T @ better @ weak) @ weak.T
    return np.asarray(found * np.outer(scale, scale))


def _sigma_of(laplace: Laplace | SegmentLaplace, precision: _Precision | None) -> Callable[[Array], float]:
    """One standard deviation of theta along a direction (n_param,)."""
    if precision is not None:
        return precision.sigma
    root = laplace.precision if isinstance(laplace, SegmentLaplace) else None
    assert root is not None, "Laplace has a `_Precision`"
    return lambda along: float(np.sqrt(along @ root.solve(along[:, None])[:, 0]))


class _Dense:
    """A factor as a whole matrix, with what is used of `ArrowheadPrecision`."""

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

    def variances(self) -> Array:
        """The diagonal of the factor times its transpose."""
        return np.asarray(np.sum(self._factor**2, axis=1))


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
