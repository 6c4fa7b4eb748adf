"""Noise that differs among baselines as theta says, of all partitions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from biro.display.formatting import first_few
from biro.likelihood.noise.baseline_classes import only_products, row_classes
from biro.likelihood.noise.noise_of_baselines import NoiseOfBaselines
from biro.models import BoundModel
from biro.models.bound.antenna_terms.noise_terms import NoiseTerms
from biro.models.bound.theta_batch import ThetaBatch
from biro.observation.observation import Observation

Array = NDArray[np.float64]


class VariedNoise:
    """The noise of each partition, what it makes of weights, and derivatives with respect to theta.

    Parameters
    ----------
    observation : Observation
    model : BoundModel
        With noise terms.

    Attributes
    ----------
    terms : NoiseTerms
    each : list of NoiseOfBaselines
        Of each partition.

    Raises
    ------
    InputError
        A class of baseline length without data.
    """

    def __init__(self, observation: Observation, model: BoundModel) -> None:
        assert model.noise_terms is not None
        self._model, self._observation = model, observation
        self.terms: NoiseTerms = model.noise_terms
        parts = observation.partitions
        classes = row_classes(model.model.noise, parts)
        self.each = [
            NoiseOfBaselines(part, self.terms, i, of_rows)
            for i, (part, of_rows) in enumerate(zip(parts, classes, strict=True))
        ]

    def weights(self, batch: ThetaBatch, vis: Sequence[NDArray[np.complexfloating]] | None) -> list[Array]:
        """s^2 / v of each partition for a batch of one, with V from `vis`.

        These are visibilities (n_row, n_chan, n_corr), Jy, of each partition; they may be None where no
        variance follows them.
        """
        numbers, found = self.terms(batch.theta)[0], []
        for i, noise in enumerate(self.each):
            factor = batch.noise_factor[0, i]
            found.append(factor**2 * noise.weight(None if vis is None else vis[i], numbers, factor))
        return found

    def observed(self, batch: ThetaBatch, vis: Sequence[NDArray[np.complexfloating]] | None) -> Observation:
        """The data with the weights that they have for a batch of one, but for the noise factor."""
        pairs = zip(self._observation.partitions, self.weights(batch, vis), strict=True)
        parts = tuple(replace(part, weight=weight) for part, weight in pairs)
        return replace(self._observation, partitions=parts)

    def pull_back(self, by_number: Array, by_factor: Array, by_dof: Array | None = None) -> Array:
        """Derivatives by theta (n_batch, n_param), from those by numbers, factors, degrees of freedom."""
        return np.asarray(self.terms.pull_back(by_number) + self._model.pull_back_noise(by_factor, by_dof))

    def information(self, batch: ThetaBatch, vis: Sequence[NDArray[np.complexfloating]] | None) -> Array:
        """The information on the noise for a batch of one, float64 (n_param, n_param); `vis` as above."""
        numbers, found = self.terms(batch.theta)[0], np.zeros((self._model.n_param,) * 2)
        for i, (noise, slopes) in enumerate(zip(self.each, self.slopes(), strict=True)):
            model = None if vis is None else vis[i]
            found += slopes.T @ noise.information(model, numbers, batch.noise_factor[0, i]) @ slopes
        return found

    def slopes(self) -> list[Array]:
        """Derivatives of the numbers and, last, of s of each partition by theta, (n_number + 1, n_param)."""
        of_number = self.terms.pull_back(np.eye(self.terms.n_number))
        of_factor = self._model.pull_back_noise(np.eye(len(self.each)))
        return [np.concatenate([of_number, one[None]]) for one in of_factor]

    @property
    def is_parameter(self) -> NDArray[np.bool_]:
        """Whether each parameter of theta is one of the noise, (n_param,)."""
        return np.asarray((np.concatenate(self.slopes()) != 0.0).any(axis=0))

    @property
    def lines(self) -> list[str]:
        """Antennas whose factors the data do not tell apart."""
        if not self._model.model.noise.of_antennas:
            return []
        names = [name.removeprefix("noise.factor") for name in self.terms.names]
        pairs = only_products([noise.links for noise in self.each], self.terms.is_free)
        return [
            f"noise: baselines link {first_few([names[k] for k in first], ', ')} with "
            f"{first_few([names[k] for k in second], ', ')} only, so the data constrain the products of "
            "their noise factors, not the factors. Fix the factor of one antenna"
            for first, second in pairs
        ]


def weight_ratios(weights: Sequence[Array], stated: Sequence[NDArray[np.floating]]) -> list[Array]:
    """Weights over those that were stated, 0 where the latter are."""
    return [
        np.divide(weight, one, out=np.zeros_like(weight), where=one > 0)
        for weight, one in zip(weights, stated, strict=True)
    ]
