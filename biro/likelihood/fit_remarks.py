"""What makes the errors of a fit doubtful: `FitRemarks` of a likelihood, for the lines above its table."""

from __future__ import annotations

from abc import abstractmethod
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from biro.choices import Gains
from biro.inference.target.degeneracy_text import FLUX_SCALE
from biro.likelihood.degeneracies import undetermined
from biro.likelihood.densities.gain_treatment import INNER_GAINS
from biro.likelihood.parallel_hands import N_RESIDUALS, residual_remarks
from biro.likelihood.residuals import Residuals
from biro.likelihood.single_baseline_gains import lone_gains
from biro.models import LogNormal, ModelError
from biro.models.bound.model import BoundModel

_BIAS = 0.3
"""Bias of the flux scale of a maximum, in its errors, from which on a line states it."""


class FitRemarks(Residuals):
    """Lines about a fit: from its residuals, from what the data leave open, from the bias of a maximum.

    Attributes
    ----------
    gains : str
        How gains are treated.
    full_model : BoundModel
        The model as it was written.
    """

    gains: Gains
    full_model: BoundModel

    @property
    @abstractmethod
    def full(self) -> FitRemarks:
        """The likelihood with parameters in place of marginalised quantities."""

    @abstractmethod
    def of_few(self) -> FitRemarks:
        """The likelihood of some times and channels."""

    def remarks(self, theta: ArrayLike) -> list[str]:
        """What makes the errors of a fit doubtful, from its residuals, for one vector theta (the best fit).

        Residuals of the two parallel hands that are correlated or scatter unequally, where the sky has Stokes
        I alone (`biro.likelihood.parallel_hands`); noise that differs among correlations, antennas or lengths
        of baselines beyond what weights and model say (`biro.observation.unequal_noise`). Of large data some
        times and channels are looked at.
        """
        size = sum(part.vis.size for part in self.observation.partitions)
        # Gains belong to all times, noise to all antennas or lengths of baselines, or to neighbours in time.
        noise = self.model.model.noise
        of_noise = noise.of_antennas or bool(noise.edges) or self.model.noise_correlation is not None
        belongs = self.full_model.has_fitted_gains or of_noise
        if (size > 2 * N_RESIDUALS or self.observation.is_distributed) and not belongs:
            of_few = self.of_few()
            return (of_few if self._inner else of_few.full).remarks(theta)
        models = self.predict(theta)
        data = self.independent(theta, models).partitions
        of_data = residual_remarks(data, self.observation.antenna_names, models, self.noise_factor(theta))
        of_noise = self.doubts(theta) if self.model.noise_correlation is not None else []
        return [text for text in (*of_noise, self.undetermined, self.lone_gains, *of_data) if text]

    @cached_property
    def undetermined(self) -> str:
        """A line about combinations of gains and other parameters that the data do not determine, or "".

        Where gains are integrated over or solved for, combinations of gains alone are left out: that is done.
        Closures leave open what gains would make up for.
        """
        if self.gains in INNER_GAINS:
            marginal = [p.name for p in self.full.parameters if p.prior.marginalise]
            return undetermined(self.full, beside=[*self.parameter_names, *marginal])
        is_open = self.model.has_fitted_gains or self.gains == "closures"
        return undetermined(self, closures=self.gains == "closures") if is_open else ""

    def doubts_of_maximum(self) -> list[str]:
        """What the maximum of the posterior is biased in, though samples of it are not.

        The density per unit of a log-normal amplitude has its maximum at exp(-sd^2), that per unit of its
        logarithm, at 1. Where data leave the flux scale to n such amplitudes, they are all low together, and
        fluxes high by sd sqrt(n) of their errors.
        """
        priors = [p.prior for p in self.parameters if p.name.startswith("gain") and ".amplitude" in p.name]
        sd = np.array([prior.sd for prior in priors if isinstance(prior, LogNormal)])
        if not sd.size or FLUX_SCALE not in self.undetermined:
            return []
        information = float(np.sum(sd**-2.0))
        sigma, part = sd.size / np.sqrt(information), 2.0 * sd.size / information
        if sigma < _BIAS:
            return []
        return [
            f"FLUXES ARE BIASED: at this maximum they are {np.expm1(part):.1%} too high, {sigma:.1f} times "
            f"the error, because {sd.size} log-normal gain amplitudes have their mode below their median. "
            'Use the mean of samples, or gains="marginalise"'
        ]

    @cached_property
    def lone_gains(self) -> str:
        """A line about gains, or antennas of closures, that a single baseline sees, or ""."""
        if self.gains == "closures":
            return lone_gains(self.observation, None)
        if not self.full_model.has_fitted_gains:
            return ""
        try:
            gains = self.full_model.log_gains
        except ModelError:  # priors that no integral takes: segments are not looked at
            gains = None
        return lone_gains(self.observation, gains)
