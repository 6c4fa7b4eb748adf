"""Draws of the flux of a source that is added to a state, near its density given all else.

ln L is a parabola of one flux while the rest of a state stays: three values determine it. L^beta is then a
normal distribution of the flux, which is cut off where the prior ends. A tenth of the draws are of the prior
itself, so that no flux is out of reach where ln L is no parabola (where gains are integrated over).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special

from biro.source_finding.populations.likelihoods import PopulationLikelihood

Array = NDArray[np.float64]
Index = NDArray[np.int64]
_OF_PRIOR = 0.1
"""Part of the draws that are of the prior."""
_STEP = 3.0
"""Flux at which ln L is tried, in typical standard deviations of a flux."""
_LOG_ROOT = 0.5 * np.log(2.0 * np.pi)


class FluxProposal(NamedTuple):
    """Distributions of the flux of one new source of each state.

    Attributes
    ----------
    mean, sd : float64 (n,)
        Of the normal distributions before they are cut off.
    low, high : float
        Ends of the prior.
    """

    mean: Array
    sd: Array
    low: float
    high: float

    def draw(self, rng: np.random.Generator, of_prior: Array) -> Array:
        """A flux for each state, float64 (n,); `of_prior` are draws of the prior, (n,)."""
        is_prior = rng.random(len(self.mean)) < _OF_PRIOR
        return np.where(is_prior, of_prior, self._cut(rng))

    def log_density(self, flux: Array, log_prior: Array) -> Array:
        """ln of the density of fluxes (n,), whose prior density has these logarithms."""
        z = (flux - self.mean) / self.sd
        normal = -0.5 * z**2 - _LOG_ROOT - np.log(self.sd) - self._log_mass
        normal = np.where((flux >= self.low) & (flux <= self.high), normal, -np.inf)
        return np.asarray(np.logaddexp(np.log(_OF_PRIOR) + log_prior, np.log1p(-_OF_PRIOR) + normal))

    @property
    def _ends(self) -> tuple[Array, Array, NDArray[np.bool_]]:
        """Ends in standard deviations, mirrored where both are above 0, so that tails are far from 1."""
        low, high = (self.low - self.mean) / self.sd, (self.high - self.mean) / self.sd
        mirrored = low > 0.0
        return np.where(mirrored, -high, low), np.where(mirrored, -low, high), mirrored

    @property
    def _log_mass(self) -> Array:
        low, high, _ = self._ends
        below, above = special.log_ndtr(low), special.log_ndtr(high)
        return np.asarray(above + np.log(-np.expm1(np.minimum(below - above, -1e-300))))

    def _cut(self, rng: np.random.Generator) -> Array:
        low, high, mirrored = self._ends
        below, above = special.log_ndtr(low), special.log_ndtr(high)
        u = rng.random(len(low))
        with np.errstate(divide="ignore"):
            z = special.ndtri_exp(np.logaddexp(below + np.log1p(-u), above + np.log(u)))
        z = np.where(mirrored, -z, z)
        return np.clip(self.mean + self.sd * z, self.low, self.high)


class FluxProposals:
    """Finds the distribution of the flux of a source that is added to states.

    Parameters
    ----------
    likelihood : PopulationLikelihood
    information : float
        Typical minus second derivative of ln L by a flux.
    """

    def __init__(self, likelihood: PopulationLikelihood, information: float) -> None:
        self._likelihood, self.information = likelihood, information

    def __call__(self, rows: Array, height: Array, kind: Index, values: Array, beta: Array) -> FluxProposal:
        """The flux of a source of this kind with these other quantities, in each state.

        Parameters
        ----------
        rows : float64 (n, n_row)
            States without the source.
        height : float64 (n,)
            Their ln L.
        kind : int64 (n,)
        values : float64 (n, n_quantity)
            The flux among them is not used.
        beta : float64 (n,)
        """
        space = self._likelihood.space
        step = _STEP / np.sqrt(self.information)
        tried = []
        for factor in (1.0, 2.0):
            values = values.copy()
            values[:, space.flux] = factor * step
            tried.append(space.with_source(rows, kind, values))
        first, second = np.split(self._likelihood.heights(np.concatenate(tried)), 2)
        with np.errstate(invalid="ignore"):
            # h(F) - h(0) = slope F - curvature F^2 / 2
            rise, twice = first - height, second - height
            curvature = (2.0 * rise - twice) / step**2
            slope = (2.0 * rise - 0.5 * twice) / step
        usable = np.isfinite(curvature) & np.isfinite(slope) & (curvature > 1e-6 * self.information)
        curvature = np.where(usable, curvature, self.information)
        mean = np.where(usable, slope, 0.0) / curvature
        low, high = space.quantities[space.flux].prior.support
        return FluxProposal(mean, 1.0 / np.sqrt(beta * curvature), low, high)
