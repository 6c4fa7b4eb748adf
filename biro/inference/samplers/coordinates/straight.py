"""Coordinates in which the posterior of a sky beside gains of antennas has no bends.

Gains multiply what they are unknown beside: twice all flux densities are gains smaller by sqrt(2); a phase
between the feeds turns Q + iU and all leakages together (physics: section 6). Such combinations are known
thousands of times less well than what they leave alone, and in flux densities or in parameters between
bounds they are arcs, which no linear change of coordinates makes round. Here they are straight lines:

    LINE    x = scale w                            a parameter far from the limits of its prior
    LOG     x = exp(w)                             an amplitude of a gain, a flux density beside amplitudes
    POLAR   a + ib = exp(w_a + i w_b)              Q + iU, U + iV of linear feeds; a leakage
    HANDS   a + b = exp(w_a), a - b = exp(w_b)     I + V and I - V, what feeds receive; or I +- Q

All other parameters keep the coordinates y of `biro.models.bound.prior.unconstrained`.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from biro.inference.maximum.objective import width_of_priors
from biro.inference.samplers.coordinates.walls import ROOM
from biro.inference.target.protocol import DifferentiableLikelihood, treatment_of_gains
from biro.models.components.antenna_terms.feeds import basis_of
from biro.models.components.antenna_terms.gain import is_gain
from biro.models.quantities.power_law_prior import PowerLaw
from biro.models.quantities.prior import LogNormal, LogUniform

Array = NDArray[np.float64]
Index = NDArray[np.int64]
Sigma = Callable[[Array], float]
UNBOUNDED, LINE, LOG, POLAR, HANDS = range(5)
CLEAR = 5.0
"""Sigmas from 0 to what is taken the logarithm of."""
_REAL = re.compile(r"\.real\[")


class StraightAt:
    """The change of parameters theta <-> w at some w, float64 (..., n_param): `Straight.at`.

    Attributes
    ----------
    theta : float64 (..., n_param)
    """

    def __init__(self, of: Straight, w: Array) -> None:
        self._of = of
        self._below = of.unbounded.at(np.where(of.form == UNBOUNDED, w, 0.0))
        self.theta = theta = self._below.theta.copy()
        for form, first, second in of.groups:
            if form == LINE:
                theta[..., first] = of.scale[first] * w[..., first]
            elif form == LOG:
                theta[..., first] = np.exp(w[..., first])
            elif form == POLAR:
                size, angle = np.exp(w[..., first]), w[..., second]
                theta[..., first], theta[..., second] = size * np.cos(angle), size * np.sin(angle)
            else:
                plus, minus = np.exp(w[..., first]), np.exp(w[..., second])
                theta[..., first], theta[..., second] = 0.5 * (plus + minus), 0.5 * (plus - minus)
        self._w = w

    def log_jacobian(self) -> Array:
        """ln |d theta / d w| but for a constant, float64 (...)."""
        total = self._below.log_jacobian()
        for form, first, second in self._of.groups:
            if form == LOG:
                total = total + self._w[..., first].sum(axis=-1)
            elif form == POLAR:
                total = total + 2.0 * self._w[..., first].sum(axis=-1)
            elif form == HANDS:
                total = total + (self._w[..., first] + self._w[..., second]).sum(axis=-1)
        return np.asarray(total)

    def log_jacobian_slope(self) -> Array:
        """Derivatives of `log_jacobian` with respect to w, float64 (..., n_param)."""
        slope = np.where(self._of.form == UNBOUNDED, self._below.log_jacobian_slope(), 0.0)
        for form, first, second in self._of.groups:
            if form == LOG:
                slope[..., first] = 1.0
            elif form == POLAR:
                slope[..., first] = 2.0
            elif form == HANDS:
                slope[..., first] = slope[..., second] = 1.0
        return slope

    def pull_back(self, slopes: Array) -> Array:
        """Derivatives with respect to w from those with respect to theta, both float64 (..., n_param).

        Of one w, slopes may have more dimensions.
        """
        found = self._below.pull_back(slopes)
        for form, first, second in self._of.groups:
            of_first, x = slopes[..., first], self.theta[..., first]
            if form == LINE:
                found[..., first] = self._of.scale[first] * of_first
            elif form == LOG:
                found[..., first] = x * of_first
            elif form == POLAR:
                of_second, y = slopes[..., second], self.theta[..., second]
                found[..., first] = x * of_first + y * of_second
                found[..., second] = x * of_second - y * of_first
            else:
                of_second, y = slopes[..., second], self.theta[..., second]
                found[..., first] = 0.5 * (x + y) * (of_first + of_second)
                found[..., second] = 0.5 * (x - y) * (of_first - of_second)
        return found


class Straight:
    """The change of parameters theta <-> w.

    Parameters
    ----------
    likelihood : DifferentiableLikelihood
    form, partner : int64 (n_param,)
        The form of each parameter, and of the first of a pair the second one; -1 elsewhere.
    """

    def __init__(self, likelihood: DifferentiableLikelihood, form: Index, partner: Index) -> None:
        self.form, self.partner = form, partner
        self.unbounded = likelihood.model.unconstrained
        self.scale: Array = 0.25 * width_of_priors(likelihood)
        self.groups: list[tuple[int, Index, Index]] = []
        for kind in (LINE, LOG, POLAR, HANDS):
            first = np.flatnonzero((form == kind) & ((partner >= 0) | (kind in (LINE, LOG))))
            if first.size:
                self.groups.append((kind, first, partner[first]))
        period = np.array([parameter.period or np.nan for parameter in likelihood.parameters], float)
        self._box = low, high = likelihood.model.box
        turns = np.isfinite(period) & ~np.isfinite(high - low) & (form == UNBOUNDED)
        self.is_angle: NDArray[np.bool_] = turns | ((form == POLAR) & (partner < 0))

    @property
    def limits(self) -> tuple[Array, Array]:
        """The limits of w where a parameter has two and is a line or a logarithm, else infinite."""
        low, high = (np.array(end, np.float64) for end in self._box)
        with np.errstate(divide="ignore", invalid="ignore"):
            ends = [np.where(self.form == LOG, np.log(end), end / self.scale) for end in (low, high)]
        there = np.isin(self.form, (LINE, LOG)) & np.isfinite(ends).all(axis=0)
        return np.where(there, ends[0], -np.inf), np.where(there, ends[1], np.inf)

    @property
    def least(self) -> Array:
        """Precision of each w that stands for what its prior says: of a uniform one between limits."""
        low, high = self.limits
        return np.where(np.isfinite(low), 12.0 / (high - low) ** 2, np.where(self.is_angle, 1e-4, 0.05))

    def at(self, w: Array) -> StraightAt:
        """The change at w, float64 (..., n_param)."""
        return StraightAt(self, w)

    def theta(self, w: Array) -> Array:
        """theta of w, both float64 (..., n_param); periodic parameters may lie outside their range."""
        return self.at(w).theta

    def of_theta(self, theta: Array, spread: Array | None = None) -> Array:
        """w of theta, both float64 (..., n_param), as `Unconstrained.of_theta`."""
        w = self.unbounded.of_theta(theta, spread)
        for form, first, second in self.groups:
            x = theta[..., first]
            if form == LINE:
                w[..., first] = x / self.scale[first]
            elif form == LOG:
                w[..., first] = np.log(x)
            elif form == POLAR:
                y = theta[..., second]
                w[..., first], w[..., second] = np.log(np.hypot(x, y)), np.arctan2(y, x)
            else:
                y = theta[..., second]
                w[..., first], w[..., second] = np.log(x + y), np.log(x - y)
        return w


class Forms:
    """The forms and partners of `Straight` for a posterior about some theta.

    Parameters
    ----------
    likelihood : DifferentiableLikelihood
    theta : float64 (n_param,)
    sigma : function of a direction
        One standard deviation of theta along a direction (n_param,) of length 1.
    """

    def __init__(self, likelihood: DifferentiableLikelihood, theta: Array, sigma: Sigma) -> None:
        self._theta, self._sigma, n = theta, sigma, theta.size
        self._names = {name: i for i, name in enumerate(likelihood.parameter_names)}
        self._units = [parameter.unit for parameter in likelihood.parameters]
        self.form, self.partner = np.full(n, UNBOUNDED), np.full(n, -1)
        self._box = likelihood.model.box
        self._ordered = np.zeros(n, bool)
        self._ordered[likelihood.model.unconstrained.ordered] = True
        self._free = self._far_from_limits()
        beside_gains = treatment_of_gains(likelihood) != "sample" or any(map(is_gain, self._names))
        self._straighten(likelihood, walled=beside_gains)
        if beside_gains:
            self._take_logarithms(likelihood)

    def _far_from_limits(self) -> NDArray[np.bool_]:
        """Parameters whose draws come nowhere near a limit of their prior, nor belong to an order."""
        low, high = self._box
        room = np.minimum(self._theta - low, high - self._theta)
        spread = np.array([self._sigma(one) for one in np.eye(room.size)])
        return np.asarray((room > ROOM * spread) & ~self._ordered)

    def _straighten(self, likelihood: DifferentiableLikelihood, *, walled: bool) -> None:
        """Parameters between limits are lines, or amplitudes their logarithms, if the limits are far away.

        If they may be `walled`, near limits do as well, as long as there are two.
        """
        low, high = self._box
        for name, i in self._names.items():
            prior, ends = likelihood.parameters[i].prior, np.isfinite([low[i], high[i]])
            if not (self._free[i] or (walled and ends.all() and not self._ordered[i])):
                continue
            if not ends.any() or isinstance(prior, LogNormal):
                continue
            is_log = isinstance(prior, LogUniform | PowerLaw) or (is_gain(name) and "amplitude" in name)
            self.form[i] = LOG if is_log and low[i] >= 0.0 and (low[i] > 0.0 or self._free[i]) else LINE

    def _take_logarithms(self, likelihood: DifferentiableLikelihood) -> None:
        """Forms of what gains multiply, where it is clearly not 0."""
        hands, cross = _stokes(likelihood)
        for name in [name for name in self._names if name.endswith(".I")]:
            source = name.removesuffix("I")
            if not self._pair(HANDS, name, source + hands):
                i = self._names[name]
                if self._free[i] and self._theta[i] > CLEAR * self._sigma(np.eye(self._theta.size)[i]):
                    self.form[i] = LOG
            self._pair(POLAR, source + cross[0], source + cross[1])
        for name in list(self._names):
            if _REAL.search(name):
                self._pair(POLAR, name, _REAL.sub(".imag[", name))

    def _pair(self, form: int, first: str, second: str) -> bool:
        """Whether two parameters are a pair of that form; if so, they are noted."""
        i, j = self._names.get(first, -1), self._names.get(second, -1)
        if min(i, j) < 0 or self._units[i] != self._units[j] or self._ordered[[i, j]].any():
            return False
        one, x = np.eye(self._theta.size), self._theta
        if form == POLAR:
            size = np.hypot(x[i], x[j])
            seen = [(size, (x[i] * one[i] + x[j] * one[j]) / max(size, 1e-300))]
        else:
            seen = [(x[i] + sign * x[j], one[i] + sign * one[j]) for sign in (1.0, -1.0)]
        sizes, sigmas = np.array([(size, self._sigma(along)) for size, along in seen]).T
        if (sizes <= CLEAR * sigmas).any():
            return False
        if not self._free[[i, j]].all() and not (form == POLAR and self._turns_within(i, j, sizes, sigmas)):
            return False
        self.form[[i, j]], self.partner[i] = form, j
        return True

    def _turns_within(self, i: int, j: int, size: Array, sigma: Array) -> bool:
        """Whether a pair may have any angle within its priors, which bound what is open."""
        most = float(size[0] + ROOM * sigma[0])
        low, high = self._box
        return bool((low[[i, j]] < -most).all() and (high[[i, j]] > most).all())


def _stokes(likelihood: DifferentiableLikelihood) -> tuple[str, str]:
    """The Stokes parameter in which the two feeds differ, and the two that cross hands measure."""
    partitions = getattr(likelihood.observation, "partitions", ())
    linear = bool(partitions) and all(basis_of(part.corr_type) == "linear" for part in partitions)
    return ("Q", "UV") if linear else ("V", "QU")
