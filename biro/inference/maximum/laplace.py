"""The normal approximation of a posterior about its maximum: curvature, errors, evidence, draws.

With P = -d2 ln p / d theta2 at the maximum theta_0, and C the inverse of P,

    p(theta) ~ p(theta_0) exp(-(theta - theta_0)^T P (theta - theta_0) / 2)
    ln Z     ~ ln p(theta_0) + (d/2) ln(2 pi) + (1/2) ln det C

for the d parameters that lie inside the limits of their priors. The limits cut off a part of the normal
distribution: ln of the fraction inside is added to ln Z (Genz 1992, as computed by SciPy).

A parameter may have its maximum at a limit of its prior, with the density falling from there. At the
distance x from that limit its density is proportional to exp(-g x - h x^2 / 2), up to the other limit: g is
the slope of ln p, and h the curvature that remains when the other parameters follow it. With F, how far these
follow per unit, the mean products of distances from the maximum are

    S = C + F M F^T        M_ii = <x_i^2>, M_ij = <x_i> <x_j>

of the one-sided densities: the errors of all parameters contain what a parameter at a limit leaves open.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy import special

from biro.display.formatting import MOST_LISTED
from biro.errors import InputError
from biro.inference.maximum.stationary_point import StationaryPoint
from biro.inference.target.degeneracy_text import degeneracy
from rime_kernels.choices import Precision

Array = NDArray[np.float64]
ONE_SIGMA = 0.682689492137086
WIDER = 2.0
"""How much wider Student's t is than the normal distribution whose place it takes."""
_NOISE = {"double": 1e-11, "single": 1e-3}
"""Eigenvalues below this, of the curvature in units of its diagonal, are errors of the differences.

In double precision those that are weak are measured by themselves (`differences.with_weak_modes`). What is
left of one decides by its error: where that is longer than the prior is wide, data do not determine it.
"""
_SMALL = 0.05
"""A combination does not name parameters whose share is less than this fraction of the largest share."""
_FLAT = 0.025
"""If ln p falls by less than this across the prior, the data say nothing about a parameter at a limit.

Its density is then flat: 68 % of the probability takes 0.68 of the width of the prior.
"""
_CUT, _MOST_CUT = 1e-6, 50
"""Parameters that lose more than `_CUT` to their limits are integrated together, at most `_MOST_CUT`."""
_NODES = 64
"""Of Gauss' rule over quantiles: mean squares are right to 2e-3."""
_STRAIGHT = 1e-8
"""A curvature that changes ln p by less counts as none: rounding changes the formulas by as much."""


@dataclass(frozen=True, eq=False)
class Laplace:
    """The normal approximation about a maximum.

    Attributes
    ----------
    theta : float64 (n_param,)
    precision_matrix : float64 (n_param, n_param)
        P.
    covariance : float64 (n_param, n_param)
        C, while parameters at a limit of their prior stay there: their rows and columns are 0. Those of
        parameters about which the data say nothing are NaN. `spread` is that of all parameters.
    side : int (n_param,)
        -1 for a parameter at the low limit of its prior, +1 for one at the high limit, else 0.
    slope : float64 (n_param,)
        By how much ln p falls per unit, into the prior, from a parameter at a limit (g above 0); else 0.
    null : float64 (n_null, n_param)
        Directions in which theta can change within the prior while the data say nothing about it.
    width : float64 (n_param,)
        Widths of the priors.
    room : float64 (2, n_param)
        Distances from theta to the low and to the high limit of its prior.
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

        Where a parameter is at a limit of its prior, and the density hardly falls towards the other limit,
        it is treated as a parameter inside its limits about which the data say nothing.

        Parameters
        ----------
        point : StationaryPoint
        width : float64 (n_param,)
            Widths of the priors.
        room : float64 (2, n_param)
            Distances from theta to the low and to the high limit of its prior.
        precision : "double" or "single"
            Precision of the gradients from which the curvature was computed.
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
        """Whether the data say nothing about some combination of parameters."""
        return len(self.null) > 0

    @property
    def error(self) -> Array:
        """Error of each parameter, float64 (n_param,), in the units of theta.

        It is one sigma, the root of the diagonal of `spread`; for a parameter at a limit it is the distance
        from there within which 68.3 % of the probability lies; NaN where the data say nothing.
        """
        error = np.sqrt(np.maximum(np.diag(self.spread), 0.0))
        for i in np.flatnonzero(self.side):
            error[i] = self.distance(np.array(ONE_SIGMA), i)
        return error

    @cached_property
    def spread(self) -> Array:
        """S, mean products of the distances from the maximum, float64 (n_param, n_param).

        It is the covariance where no parameter is at a limit of its prior.
        """
        ends = np.flatnonzero(self.side)
        if not ends.size:
            return self.covariance
        follow = np.zeros((ends.size, self.theta.size))
        follow[np.arange(ends.size), ends] = -self.side[ends]
        follow[:, self.side == 0] = -self._pull(follow[:, ends])
        return self.covariance + follow.T @ one_sided_moments(map(self._one_sided, ends)) @ follow

    def log_evidence(self, log_posterior: float) -> float | None:
        """ln Z by Laplace's formula; None where P is singular."""
        whole = self.log_mass(log_posterior)
        return None if whole is None else whole + self._log_inside

    def log_mass(self, log_posterior: float) -> float | None:
        """ln of the integral of the distribution from which `draws` draws; None where P is singular.

        The normal distribution of the parameters inside their limits is integrated as a whole, with the part
        beyond those limits.
        """
        if self.is_singular:
            return None
        free = self.side == 0
        log_det = np.linalg.slogdet(self.covariance[np.ix_(free, free)])[1]
        value = log_posterior + 0.5 * free.sum() * np.log(2.0 * np.pi) + 0.5 * log_det
        for i in np.flatnonzero(~free):
            value += self.log_one_sided(i)
        return float(value)

    @cached_property
    def _log_inside(self) -> float:
        """ln of the fraction of the normal distribution that lies inside the limits of the priors.

        It is about parameters that are not at a limit.
        """
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

    def draws(self, rng: np.random.Generator, n: int, dof: float = np.inf) -> Array:
        """theta of the approximation, float64 (n, n_param).

        Parameters at a limit of their prior stay inside its limits; the others may lie beyond theirs. With
        finite degrees of freedom `dof`, Student's t takes the place of the normal distribution, and
        everything is `WIDER` times as wide.
        """
        free, ends = np.flatnonzero(self.side == 0), np.flatnonzero(self.side)
        theta = np.repeat(self.theta[None], n, axis=0)
        for i in ends:
            theta[:, i] -= self.side[i] * self.distance(rng.random(n), i, _widening(dof))
        values, vectors = np.linalg.eigh(np.nan_to_num(self.covariance[np.ix_(free, free)]))
        root = vectors * np.sqrt(np.maximum(values, 0.0))
        pulled = self._pull(theta[:, ends] - self.theta[ends])
        standard = rng.standard_normal((n, free.size))
        if np.isfinite(dof):
            standard *= WIDER / np.sqrt(rng.chisquare(dof, n) / dof)[:, None]
        theta[:, free] += standard @ root.T - pulled
        return theta

    def _pull(self, away: Array) -> Array:
        """How far the other parameters follow those that move away from a limit, with the opposite sign.

        `away` is how far these have moved, float64 (..., n_end).
        """
        free, ends = np.flatnonzero(self.side == 0), np.flatnonzero(self.side)
        coupling = self.precision_matrix[np.ix_(ends, free)]
        return np.asarray(away @ coupling @ np.nan_to_num(self.covariance[np.ix_(free, free)]))

    def following(self, moved: NDArray[np.bool_], shift: Array) -> Array:
        """The shift (n_param,) that keeps `shift` of the parameters `moved`, and moves the others along.

        The others move to where the density is highest, given the parameters that were moved.
        """
        free, ends = np.flatnonzero(self.side == 0), np.flatnonzero(self.side)
        moves = shift.copy()
        moves[free] = -self._pull(shift[ends])
        inner, rest, covariance = free[moved[free]], free[~moved[free]], np.nan_to_num(self.covariance)
        back = np.linalg.solve(covariance[np.ix_(inner, inner)], shift[inner] - moves[inner])
        moves[rest] += covariance[np.ix_(rest, inner)] @ back
        moves[inner] = shift[inner]
        return moves

    def log_density(self, theta: Array) -> Array:
        """ln p of the approximation at theta (n, n_param) minus ln p at the maximum, float64 (n,)."""
        away = theta - self.theta
        value = -0.5 * self._squared(away)
        for i in np.flatnonzero(self.side):
            value += -self.slope[i] * np.abs(away[:, i]) - 0.5 * self._left_to(i) * away[:, i] ** 2
        return value

    def log_normalised(self, theta: Array, dof: float = np.inf) -> Array:
        """ln of the density from which `draws` draws, at theta (n, n_param) within the prior, float64 (n,).

        Raises
        ------
        InputError
            P is singular.
        """
        if self.is_singular:
            raise InputError("a singular approximation has no normalised density")
        away, squared = theta - self.theta, self._squared(theta - self.theta)
        free, wider = self.side == 0, _widening(dof)
        n_free = int(free.sum())
        log_det = np.linalg.slogdet(self.covariance[np.ix_(free, free)])[1]
        if np.isfinite(dof):
            value = -0.5 * (dof + n_free) * np.log1p(squared / wider**2 / dof)
            value -= 0.5 * n_free * np.log(np.pi * dof * wider**2)
            value += special.gammaln(0.5 * (dof + n_free)) - special.gammaln(0.5 * dof) - 0.5 * log_det
        else:
            value = -0.5 * (squared + n_free * np.log(2.0 * np.pi) + log_det)
        for i in np.flatnonzero(~free):
            slope, bend = self.slope[i] / wider, self._left_to(i) / wider**2
            value += -slope * np.abs(away[:, i]) - 0.5 * bend * away[:, i] ** 2
            value -= log_integral(slope, bend, self._across(i))
        return np.asarray(value)

    def fall(self, difference: Array) -> float:
        """How much lower ln p of the approximation is at a `difference` (n_param,) from the maximum."""
        return -float(self.log_density((self.theta + difference)[None])[0])

    def permuted(self, order: NDArray[np.int64]) -> Laplace:
        """The approximation whose parameter i is parameter `order[i]` of this one."""
        square = np.ix_(order, order)
        return Laplace(
            theta=self.theta[order],
            precision_matrix=self.precision_matrix[square],
            covariance=self.covariance[square],
            side=self.side[order],
            slope=self.slope[order],
            null=self.null[:, order],
            width=self.width[order],
            room=self.room[:, order],
        )

    def _squared(self, away: Array) -> Array:
        """x^T P x of the parameters inside their limits, x measured from where those at a limit pull them."""
        free, ends = np.flatnonzero(self.side == 0), np.flatnonzero(self.side)
        inner = away[:, free] + self._pull(away[:, ends])
        matrix = self.precision_matrix[np.ix_(free, free)]
        return np.asarray(np.einsum("ni,ij,nj->n", inner, matrix, inner))

    def combinations(self, names: Sequence[str]) -> list[str]:
        """Each direction of `null` as a text: "a.I - 0.98 b.I", or what unknown gains leave open so."""
        return list(self.open_directions(names))

    def open_directions(self, names: Sequence[str]) -> dict[str, list[str]]:
        """The parameters of each direction of `null`, or of several that have one text in `combinations`."""
        found: dict[str, list[str]] = {}
        for direction in self.null:
            share = np.abs(direction / self.width)
            members = [names[int(i)] for i in np.flatnonzero(share > _SMALL * share.max())]
            text = degeneracy(members) or _in_words(direction, self.width, names)
            found[text] = list(dict.fromkeys([*found.get(text, []), *members]))
        return found

    def _left_to(self, i: int | np.intp) -> float:
        """Curvature along a parameter at a limit, while the parameters inside their limits follow it."""
        free = self.side == 0
        coupling, inner = self.precision_matrix[i, free], np.nan_to_num(self.covariance[np.ix_(free, free)])
        return float(max(self.precision_matrix[i, i] - coupling @ inner @ coupling, 0.0))

    def _fall(self, i: int | np.intp) -> float:
        """By how much ln p falls from the limit at which a parameter is to the other limit."""
        return float(self._across(i) * (self.slope[i] + 0.5 * self._left_to(i) * self._across(i)))

    def _across(self, i: int | np.intp) -> float:
        """Distance from the limit at which a parameter is to the other limit."""
        return float(self.room[0 if self.side[i] > 0 else 1, i])

    def log_one_sided(self, i: int | np.intp) -> float:
        """ln of the integral of the density of a parameter at a limit, which is 1 at the maximum."""
        return log_integral(*self._one_sided(i))

    def _one_sided(self, i: int | np.intp) -> tuple[float, float, float]:
        """Slope, curvature and width of the density of a parameter at a limit."""
        return float(self.slope[i]), self._left_to(i), self._across(i)

    def distance(self, part: Array, i: int | np.intp, wider: float = 1.0) -> Array:
        """Quantiles at the probabilities `part`: of the distance of a parameter from its limit."""
        return distance_from_limit(part, self.slope[i] / wider, self._left_to(i) / wider**2, self._across(i))


def _widening(dof: float) -> float:
    return WIDER if np.isfinite(dof) else 1.0


def _inverse(matrix: Array, width: Array, noise: float) -> tuple[Array, Array]:
    """Directions about which a curvature matrix says nothing, and the inverse of the matrix in the others.

    In such a direction the curvature is no larger than the error of the differences, or one sigma is longer
    than the prior is wide.
    """
    if not matrix.size:
        return np.zeros((0, 0)), matrix
    # In units of each parameter's own sigma, but of no more than the width of its prior.
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


def distance_from_limit(part: Array, slope: float, bend: float, width: float) -> Array:
    """Quantiles of the density proportional to exp(-g x - h x^2 / 2) for 0 <= x <= width."""
    if _is_straight(slope, bend, width):
        return np.asarray(-np.log1p(part * np.expm1(-slope * width)) / slope)
    root = np.sqrt(bend)
    near, far = slope / root, slope / root + root * width
    with np.errstate(divide="ignore"):
        shares = np.log1p(-part), np.log(part)
    beyond = np.logaddexp(shares[0] + special.log_ndtr(-near), shares[1] + special.log_ndtr(-far))
    quantile: Array = np.clip((-special.ndtri_exp(beyond) - near) / root, 0.0, width)
    return quantile


def one_sided_moments(densities: Iterable[tuple[float, float, float]]) -> Array:
    """Mean products of the distances of parameters from their limits, float64 (n_end, n_end).

    `densities` has slope, curvature and width of each, as `distance_from_limit` takes them. The distances are
    independent of each other. Means are integrals of quantiles, by Gauss' rule.
    """
    nodes, weight = np.polynomial.legendre.leggauss(_NODES)
    part, weight = 0.5 * (nodes + 1.0), 0.5 * weight
    distances = np.array([distance_from_limit(part, *density) for density in densities])
    mean = distances @ weight
    moments: Array = np.outer(mean, mean)
    np.fill_diagonal(moments, distances**2 @ weight)
    return moments


def log_integral(slope: float, bend: float, width: float) -> float:
    """ln of the integral of exp(-g x - h x^2 / 2) over 0 <= x <= width."""
    if _is_straight(slope, bend, width):
        return float(np.log(-np.expm1(-slope * width) / slope))
    near, far = slope / np.sqrt(2.0 * bend), (slope + bend * width) / np.sqrt(2.0 * bend)
    rest = np.exp(-width * (slope + 0.5 * bend * width)) * special.erfcx(far)
    return float(0.5 * np.log(0.5 * np.pi / bend) + np.log(special.erfcx(near) - rest))


def _is_straight(slope: float, bend: float, width: float) -> bool:
    """Whether the curvature changes the density so little that it is taken as exp(-g x)."""
    return slope > 0.0 and bend * min(width, 1.0 / slope) ** 2 < _STRAIGHT


def _in_words(direction: Array, width: Array, names: Sequence[str]) -> str:
    share = np.abs(direction / width)
    order = [i for i in np.argsort(-share, kind="stable") if share[i] > _SMALL * share.max()]
    parts = direction / direction[order[0]]
    text: str = names[order[0]]
    for i in order[1:MOST_LISTED]:
        text += f" {'-' if parts[i] < 0 else '+'} {abs(parts[i]):.3g} {names[i]}"
    return text if len(order) <= MOST_LISTED else f"{text} and {len(order) - MOST_LISTED} more"
