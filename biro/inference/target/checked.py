"""The target of a sampler: a likelihood whose values are checked, and whose periodic parameters are known."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from biro.display.formatting import first_few
from biro.errors import InputError, LikelihoodError
from biro.inference.target.protocol import SampledLikelihood, gives_both, integrates
from biro.models.quantities.parameter import Column

log = logging.getLogger(__name__)
Array = NDArray[np.float64]
_FROM_ZERO = ("noise.rho", "noise.smoothing", "noise.systematic", "noise.additive")


class Target:
    """A likelihood as the samplers use it: in batches, with checked values.

    Parameters
    ----------
    likelihood : Likelihood
        Or anything else that is a `SampledLikelihood` (`biro.inference.target.protocol`).

    Attributes
    ----------
    n_param : int
    wraps : bool (n_param,)
        Parameters whose prior spans exactly one period, so that its two ends are one point.
    lower, period : float64 (n_param,)
        Lower end of the prior and length of the period where a parameter wraps (0 and 1 elsewhere).
    log_prior_and_likelihood : function of theta
        Log prior density and log-likelihood, (n_batch,) each; both are -inf outside the prior.

    Raises
    ------
    InputError
        A likelihood without free parameters.
    """

    def __init__(self, likelihood: SampledLikelihood) -> None:
        self.likelihood = likelihood
        # A likelihood that gives both in one call checks them itself.
        self.log_prior_and_likelihood: Callable[[Array], tuple[Array, Array]] = (
            likelihood.log_prior_and_likelihood if gives_both(likelihood) else self._one_after_the_other
        )
        self.n_param = len(likelihood.parameters)
        if self.n_param == 0:
            if integrates(likelihood):
                raise InputError(
                    "nothing to sample, because all parameters are marginalised; biro.sample gives their "
                    "posterior"
                )
            raise InputError(
                "nothing to sample, because the model has no prior; give at least one quantity a prior"
            )
        period = np.array([p.period if p.period else np.nan for p in likelihood.parameters], dtype=float)
        with np.errstate(all="ignore"):
            ends = likelihood.prior_transform(np.array([np.zeros(self.n_param), np.ones(self.n_param)]))
            span = ends[1] - ends[0]
            self.wraps: NDArray[np.bool_] = np.abs(span - period) <= 1e-9 * period
        self._any_wraps = bool(self.wraps.any())
        known = np.isfinite(ends) & ~self.wraps
        # Noise that is not there: no prior cuts off what cannot be below 0.
        known[0] &= ~((ends[0] == 0.0) & [p.name.startswith(_FROM_ZERO) for p in likelihood.parameters])
        self._ends = [
            [float(x) if k else None for x, k in zip(*of, strict=True)]
            for of in zip(ends, known, strict=True)
        ]
        self.lower = np.where(self.wraps, ends[0], 0.0)
        self.period = np.where(self.wraps, period, 1.0)

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        """Names, units and priors of the parameters, for the posterior."""
        return tuple(
            Column(p.name, p.unit or "", p.latex or "", str(p.prior), p.period, low, high)
            for p, low, high in zip(self.likelihood.parameters, *self._ends, strict=True)
        )

    def log_likelihood(self, theta: Array) -> Array:
        """Log-likelihood (n_batch,) of theta (n_batch, n_param); finite or -inf.

        Raises
        ------
        LikelihoodError
            Another shape, NaN or +inf came back.
        """
        return self._checked("log_likelihood", self.likelihood.log_likelihood(theta), theta)

    def log_prior(self, theta: Array) -> Array:
        """Log prior density (n_batch,), -inf outside the prior; checked as the log-likelihood is."""
        return self._checked("log_prior", self.likelihood.log_prior(theta), theta)

    def log_posterior(self, theta: Array) -> Array:
        """Log prior density plus log-likelihood (n_batch,), -inf outside the prior; checked alike."""
        log_prior, log_likelihood = self.log_prior_and_likelihood(theta)
        return log_prior + log_likelihood

    def _one_after_the_other(self, theta: Array) -> tuple[Array, Array]:
        log_prior, log_likelihood = self.log_prior(theta), np.full(len(theta), -np.inf)
        inside = np.flatnonzero(np.isfinite(log_prior))
        if inside.size:
            log_likelihood[inside] = self.log_likelihood(theta[inside])
        return log_prior, log_likelihood

    def log_likelihood_of_unit(self, unit: Array) -> Array:
        """Log-likelihood at points of the unit cube (n_batch, n_param); -inf where a constraint fails."""
        theta = self.theta(unit)
        value = np.full(len(theta), -np.inf)
        inside = np.flatnonzero(np.isfinite(theta).all(axis=1))
        inside = inside[np.asarray(self.likelihood.allowed(theta[inside]), dtype=bool)]
        if inside.size:
            value[inside] = self.log_likelihood(theta[inside])
        return value

    def theta(self, unit: Array) -> Array:
        """Parameters of points of the unit cube, (n_batch, n_param)."""
        return np.asarray(self.likelihood.prior_transform(unit), dtype=np.float64)

    def wrapped(self, theta: Array) -> Array:
        """Theta with the parameters that wrap moved into the range of their prior."""
        if not self._any_wraps:
            return theta
        moved = self.lower + np.mod(theta - self.lower, self.period)
        # np.mod of a tiny negative number is the period itself
        moved = np.where(moved >= self.lower + self.period, self.lower, moved)
        return np.where(self.wraps, moved, theta)

    def outside(self, theta: Array) -> str:
        """Why the prior does not allow a point (n_param,): the first parameter beyond its limits, as a text.

        It is "" where none is, so that a constraint forbids the point. Parameters that wrap have no limits.
        """
        for column, value in zip(self.columns, theta, strict=True):
            low = -np.inf if column.low is None else column.low
            high = np.inf if column.high is None else column.high
            turned = low + np.mod(value - low, column.period) if column.period and np.isfinite(low) else value
            if not low <= turned <= high:
                unit = f" {column.unit}" if column.unit else ""
                return f"{column.name} = {value:g}, which must be within {low:g} .. {high:g}{unit}"
        return ""

    def warn_of_nan(self) -> None:
        """Log how many likelihood values were not a number, where a likelihood counts them (`nan_count`)."""
        n_nan = getattr(self.likelihood, "nan_count", 0)
        if n_nan:
            log.warning(
                "%d likelihood values were NaN and counted as impossible; narrow the prior to exclude "
                "unphysical values",
                n_nan,
            )

    def _checked(self, name: str, value: Array, theta: Array) -> Array:
        value = np.asarray(value)
        if value.shape != (len(theta),):
            raise LikelihoodError(
                f"{name} of theta {theta.shape} must have shape ({len(theta)},), got {value.shape}"
            )
        bad = ~(value < np.inf)
        if bad.any():
            i = int(np.flatnonzero(bad)[0])
            names = (p.name for p in self.likelihood.parameters)
            words = first_few(f"{n} = {v:.6g}" for n, v in zip(names, theta[i], strict=True))
            raise LikelihoodError(f"{name} is {value[i]} at {words}; it must be finite or -inf")
        return value.astype(np.float64, copy=False)
