"""The posterior about its maximum as a normal distribution: curvature, errors, evidence, draws.

With P = -d2 ln p / d theta2 at the maximum theta_0 and C its inverse,

    p(theta) ~ p(theta_0) exp(-(theta - theta_0)^T P (theta - theta_0) / 2)
    ln Z     ~ ln p(theta_0) + (d/2) ln(2 pi) + (1/2) ln det C

for the d parameters that lie within their prior, plus ln of the part of their bell that lies there (Genz
1992, as SciPy has it). A parameter at an end of it, from where the density falls with the slope g and the
curvature h that the others leave it, has exp(-g x - h x^2 / 2) at the distance x, up to the other end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy import special

from biro.maximum.stationary_point import StationaryPoint
from rime_kernels.geometry import Precision

Array = NDArray[np.float64]
Gradient = Callable[[Array], Array]
"""theta (n_batch, n_param) to derivatives of the log-posterior, NaN where it is -inf."""
ONE_SIGMA = 0.682689492137086
_ROUNDS = 5
_NOISE = {"double": 1e-6, "single": 1e-3}
"""Part of a curvature below which another is the error of differences."""
_STEP = {"double": 0.02, "single": 0.3}
"""Of differences, in standard deviations of a parameter whose others are held."""
_SMALL = 0.05
"""Part of the largest below which a parameter is not named in a combination."""
_FLAT = 0.025
"""Fall of ln p across the prior below which a parameter at an end is not known: 0.68 of it holds 68 %."""
_CUT, _MOST_CUT = 1e-6, 50
"""Part of a bell beyond its prior that is looked at together with those of others, of so many parameters."""
_STRAIGHT = 1e-8
"""What a curvature changes of ln p below which it is none: roundings of the closed form are as large."""


def step_lengths(
    gradient: Gradient, theta: Array, low: Array, high: Array, first: Array, precision: Precision
) -> Array:
    """Steps for differences, (n_param,): a part of one sigma of each parameter, the others held.

    Parameters
    ----------
    gradient : function
    theta : float64 (n_param,)
    low, high : float64 (n_param,)
        Steps stay within half of what lies between.
    first : float64 (n_param,)
        A guess, of any size above 0.
    precision : "double" or "single"
    """
    longest = np.minimum(0.25 * (high - low), 1e3 * first)
    step, axes = np.minimum(first, longest), np.eye(theta.size)
    unsettled = np.arange(theta.size)
    for _ in range(_ROUNDS):
        along = (np.where(theta + step <= high, 1.0, -1.0) * step)[unsettled]
        rise = gradient(np.concatenate([theta[None], theta + along[:, None] * axes[unsettled]]))
        bend = -(rise[1 + np.arange(unsettled.size), unsettled] - rise[0, unsettled]) / along
        with np.errstate(invalid="ignore", divide="ignore"):
            wanted = np.where(bend > 0.0, _STEP[precision] / np.sqrt(bend), 10.0 * step[unsettled])
        wanted = np.minimum(np.where(np.isfinite(bend), wanted, 0.1 * step[unsettled]), longest[unsettled])
        far = np.abs(np.log(wanted / step[unsettled])) >= np.log(3.0)
        step[unsettled] = wanted
        unsettled = unsettled[far]
        if not unsettled.size:
            break
    return step


def sigmas(step: Array, precision: Precision) -> Array:
    """What `step_lengths` took for one sigma of each parameter."""
    return step / _STEP[precision]


def curvature(gradient: Gradient, theta: Array, low: Array, high: Array, step: Array) -> Array:
    """P, float64 (n_param, n_param), by central differences of the gradient; one-sided beside an end."""
    axes = np.diag(step)
    up, down = np.minimum(theta + axes, high), np.maximum(theta - axes, low)
    gradients = gradient(np.concatenate([up, down, theta[None]]))
    rise, fall, middle = gradients[: theta.size], gradients[theta.size : -1], gradients[-1]
    above, below = np.diag(up) - theta, theta - np.diag(down)
    # Where a constraint forbids one side, the other has to do.
    above, rise = np.where(np.isnan(rise).any(axis=1), 0.0, above), np.where(np.isnan(rise), middle, rise)
    below, fall = np.where(np.isnan(fall).any(axis=1), 0.0, below), np.where(np.isnan(fall), middle, fall)
    with np.errstate(invalid="ignore", divide="ignore"):
        matrix = -(rise - fall) / (above + below)[:, None]
    return 0.5 * (matrix + matrix.T)


@dataclass(frozen=True, eq=False)
class Laplace:
    """The normal approximation about a maximum.

    Attributes
    ----------
    theta : float64 (n_param,)
    precision_matrix : float64 (n_param, n_param)
        P.
    covariance : float64 (n_param, n_param)
        Rows of parameters at an end are 0; NaN where the data say nothing.
    side : int (n_param,)
        -1 and +1 for a parameter at the low or high end of its prior, else 0.
    slope : float64 (n_param,)
        Of the log-posterior, inwards, above 0 (g), for parameters at an end; else 0.
    null : float64 (n_null, n_param)
        Changes of theta that the data say nothing about within the prior.
    width : float64 (n_param,)
        Of the priors.
    room : float64 (2, n_param)
        From theta to the low and the high end of its prior.
    """

    theta: Array
    precision_matrix: Array
    covariance: Array
    side: NDArray[np.int64]
    slope: Array
    null: Array
    width: Array
    room: Array

    @classmethod
    def about(cls, point: StationaryPoint, width: Array, room: Array, precision: Precision) -> Laplace:
        """The normal approximation from gradient and curvature at the maximum.

        A parameter at an end of its prior, from where the density hardly falls to the other end, counts as
        one within its prior that the data say nothing about.

        Parameters
        ----------
        point : StationaryPoint
        width : float64 (n_param,)
            Of the priors.
        room : float64 (2, n_param)
            From theta to the low and the high end of its prior.
        precision : "double" or "single"
            Of the gradients that the curvature was worked out from.
        """
        free = np.flatnonzero(point.side == 0)
        null, inner = _inverse(point.curvature[np.ix_(free, free)], width[free], _NOISE[precision])
        covariance = np.zeros(point.curvature.shape)
        covariance[np.ix_(free, free)] = inner
        lifted = np.zeros((len(null), point.theta.size))
        lifted[:, free] = null
        slope = np.where(point.side != 0, np.abs(point.gradient), 0.0)
        laplace = cls(point.theta, point.curvature, covariance, point.side, slope, lifted, width, room)
        flat = [i for i in np.flatnonzero(point.side) if not laplace._fall(i) > _FLAT]
        if not flat:
            return laplace
        side = point.side.copy()
        side[flat] = 0
        return cls.about(replace(point, side=side), width, room, precision)

    @property
    def is_singular(self) -> bool:
        """Whether there is a combination of parameters that the data say nothing about."""
        return len(self.null) > 0

    @property
    def error(self) -> Array:
        """One sigma; for a parameter at an end, the distance from it that holds 68.3 %."""
        error = np.sqrt(np.maximum(np.diag(self.covariance), 0.0))
        for i in np.flatnonzero(self.side):
            error[i] = self._distance(np.array(ONE_SIGMA), i)
        return error

    def log_evidence(self, log_posterior: float) -> float | None:
        """ln Z; None where P is singular."""
        whole = self.log_mass(log_posterior)
        return None if whole is None else whole + self._log_inside

    def log_mass(self, log_posterior: float) -> float | None:
        """ln of the integral of what `draws` draws from: of whole bells, also beyond the priors."""
        if self.is_singular:
            return None
        free = self.side == 0
        log_det = np.linalg.slogdet(self.covariance[np.ix_(free, free)])[1]
        value = log_posterior + 0.5 * free.sum() * np.log(2.0 * np.pi) + 0.5 * log_det
        for i in np.flatnonzero(~free):
            value += _log_integral(self.slope[i], self._left_to(i), self._across(i))
        return float(value)

    @cached_property
    def _log_inside(self) -> float:
        """ln of the part of the bell, of parameters within their priors, that lies there."""
        free = np.flatnonzero(self.side == 0)
        sigma = np.sqrt(np.diag(self.covariance)[free])
        low, high = self.room[:, free] / sigma
        cut_off = special.ndtr(-low) + special.ndtr(-high)
        several = np.argsort(-cut_off)[:_MOST_CUT]
        several = several[cut_off[several] > _CUT]
        if several.size < 2:
            return float(np.log1p(-cut_off).sum())
        from scipy import stats

        correlation = self.covariance[np.ix_(free, free)] / np.outer(sigma, sigma)
        part = stats.multivariate_normal.cdf(
            high[several],
            cov=correlation[np.ix_(several, several)],
            allow_singular=True,
            maxpts=20_000 * several.size,
            releps=1e-4,
            lower_limit=-low[several],
            rng=np.random.default_rng(0),
        )
        return float(np.log(max(part, 1e-300)) + np.log1p(-np.delete(cut_off, several)).sum())

    def draws(self, rng: np.random.Generator, n: int) -> Array:
        """theta of the approximation, float64 (n, n_param).

        Parameters at an end of their prior stay within it, the others are not held back.
        """
        free, ends = np.flatnonzero(self.side == 0), np.flatnonzero(self.side)
        theta = np.repeat(self.theta[None], n, axis=0)
        for i in ends:
            theta[:, i] -= self.side[i] * self._distance(rng.random(n), i)
        values, vectors = np.linalg.eigh(np.nan_to_num(self.covariance[np.ix_(free, free)]))
        root = vectors * np.sqrt(np.maximum(values, 0.0))
        pulled = self._pull(theta[:, ends] - self.theta[ends])
        theta[:, free] += rng.standard_normal((n, free.size)) @ root.T - pulled
        return theta

    def _pull(self, away: Array) -> Array:
        """How far parameters within their priors follow those that leave an end, the other way."""
        free, ends = np.flatnonzero(self.side == 0), np.flatnonzero(self.side)
        coupling = self.precision_matrix[np.ix_(ends, free)]
        return np.asarray(away @ coupling @ np.nan_to_num(self.covariance[np.ix_(free, free)]))

    def following(self, moved: NDArray[np.bool_], shift: Array) -> Array:
        """The shift (n_param,) in which the others go with those `moved`, to where the density is highest."""
        free, ends = np.flatnonzero(self.side == 0), np.flatnonzero(self.side)
        moves = shift.copy()
        moves[free] = -self._pull(shift[ends])
        inner, rest, covariance = free[moved[free]], free[~moved[free]], np.nan_to_num(self.covariance)
        back = np.linalg.solve(covariance[np.ix_(inner, inner)], shift[inner] - moves[inner])
        moves[rest] += covariance[np.ix_(rest, inner)] @ back
        moves[inner] = shift[inner]
        return moves

    def log_density(self, theta: Array) -> Array:
        """ln of the approximation at theta (n, n_param) within the prior, less that at the maximum."""
        free, ends = np.flatnonzero(self.side == 0), np.flatnonzero(self.side)
        away = theta - self.theta
        inner = away[:, free] + self._pull(away[:, ends])
        matrix = self.precision_matrix[np.ix_(free, free)]
        value = -0.5 * np.einsum("ni,ij,nj->n", inner, matrix, inner)
        for i in ends:
            value += -self.slope[i] * np.abs(away[:, i]) - 0.5 * self._left_to(i) * away[:, i] ** 2
        return np.asarray(value)

    def combinations(self, names: Sequence[str]) -> list[str]:
        """Each direction of `null` in words: "1 a.I - 0.98 b.I"."""
        return [_in_words(direction, self.width, names) for direction in self.null]

    def _left_to(self, i: int | np.intp) -> float:
        """Curvature along a parameter at an end when those within their priors follow."""
        free = self.side == 0
        coupling, inner = self.precision_matrix[i, free], np.nan_to_num(self.covariance[np.ix_(free, free)])
        return float(max(self.precision_matrix[i, i] - coupling @ inner @ coupling, 0.0))

    def _fall(self, i: int | np.intp) -> float:
        """Of ln p from the end that a parameter is at to the other."""
        return float(self._across(i) * (self.slope[i] + 0.5 * self._left_to(i) * self._across(i)))

    def _across(self, i: int | np.intp) -> float:
        """From the end that a parameter is at to the other."""
        return float(self.room[0 if self.side[i] > 0 else 1, i])

    def _distance(self, part: Array, i: int | np.intp) -> Array:
        """Quantiles of the distance of a parameter from the end that it is at."""
        return _distance(part, self.slope[i], self._left_to(i), self._across(i))


def _inverse(matrix: Array, width: Array, noise: float) -> tuple[Array, Array]:
    """Directions in which a matrix is 0 as far as can be told, or flat over the prior; and its inverse."""
    if not matrix.size:
        return np.zeros((0, 0)), matrix
    # Alone, a parameter is known better than the prior knows it, or not at all.
    scale = np.sqrt(np.maximum(np.nan_to_num(np.diag(matrix)), 1.0 / width**2))
    values, vectors = np.linalg.eigh(np.nan_to_num(matrix) / np.outer(scale, scale))
    directions = vectors.T / scale[:, None].T
    reach = np.linalg.norm(directions / width, axis=1) / np.sqrt(np.maximum(values, 1e-300))
    lost = (values < noise) | (reach > 1.0)
    known = directions[~lost]
    inverse = (known.T / values[~lost]) @ known
    null = directions[lost]
    touched = (np.abs(null * scale) > _SMALL * np.abs(null * scale).max(axis=1, keepdims=True)).any(axis=0)
    inverse[touched], inverse[:, touched] = np.nan, np.nan
    return null, inverse


def _distance(part: Array, slope: float, bend: float, width: float) -> Array:
    """Quantile of the density exp(-g x - h x^2 / 2) of 0 <= x <= width."""
    if _is_straight(slope, bend, width):
        return np.asarray(-np.log1p(part * np.expm1(-slope * width)) / slope)
    root = np.sqrt(bend)
    near, far = slope / root, slope / root + root * width
    with np.errstate(divide="ignore"):
        shares = np.log1p(-part), np.log(part)
    beyond = np.logaddexp(shares[0] + special.log_ndtr(-near), shares[1] + special.log_ndtr(-far))
    quantile: Array = np.clip((-special.ndtri_exp(beyond) - near) / root, 0.0, width)
    return quantile


def _log_integral(slope: float, bend: float, width: float) -> float:
    """ln of the integral of exp(-g x - h x^2 / 2) over 0 <= x <= width."""
    if _is_straight(slope, bend, width):
        return float(np.log(-np.expm1(-slope * width) / slope))
    near, far = slope / np.sqrt(2.0 * bend), (slope + bend * width) / np.sqrt(2.0 * bend)
    rest = np.exp(-width * (slope + 0.5 * bend * width)) * special.erfcx(far)
    return float(0.5 * np.log(0.5 * np.pi / bend) + np.log(special.erfcx(near) - rest))


def _is_straight(slope: float, bend: float, width: float) -> bool:
    """Whether the density is exp(-g x) as far as it reaches."""
    return slope > 0.0 and bend * min(width, 1.0 / slope) ** 2 < _STRAIGHT


def _in_words(direction: Array, width: Array, names: Sequence[str]) -> str:
    share = np.abs(direction / width)
    order = [i for i in np.argsort(-share, kind="stable") if share[i] > _SMALL * share.max()]
    parts = direction / direction[order[0]]
    text: str = names[order[0]]
    for i in order[1:]:
        text += f" {'-' if parts[i] < 0 else '+'} {abs(parts[i]):.3g} {names[i]}"
    return text
