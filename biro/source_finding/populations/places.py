"""Where sources may be born: mixtures of normal distributions of places."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from biro.source_finding.populations.space import PopulationSpace

Array = NDArray[np.float64]
Index = NDArray[np.int64]
_OF_PRIOR = 0.2
"""Part of the places that are drawn from the prior."""


class Mixture(NamedTuple):
    """A density of places, as round normal distributions in coordinates of the beam.

    Attributes
    ----------
    place : float64 (n, 2)
        Centres in beams, `Scales.whitening` applied.
    width : float64 (n,)
        Standard deviations, in beams.
    weight : float64 (n,)
        Up to a factor; without any above 0 the density is that of the prior.
    """

    place: Array
    width: Array
    weight: Array

    @classmethod
    def mixed(cls, *parts: tuple[float, Mixture]) -> Mixture:
        """Mixtures together, each with its part of the density; those without weight are left out."""
        used = [(part, each) for part, each in parts if each.weight.sum() > 0.0]
        if not used:
            return cls(np.zeros((0, 2)), np.zeros(0), np.zeros(0))
        weight = [part * each.weight / each.weight.sum() for part, each in used]
        return cls(
            np.concatenate([each.place for _, each in used]),
            np.concatenate([each.width for _, each in used]),
            np.concatenate(weight),
        )


class PlaceMixtures:
    """Densities of the places of births, one for each of several temperatures, each with a part of the prior.

    Parameters
    ----------
    space : PopulationSpace
    whitening : float64 (2, 2)
        Matrix from places (east, north) to coordinates in which the beam is a circle of size 1.
    mixtures : list of Mixture
    """

    def __init__(self, space: PopulationSpace, whitening: Array, mixtures: list[Mixture]) -> None:
        self._space, self._whitening = space, whitening
        self._back = np.linalg.inv(whitening)
        self._log_area = float(np.log(np.abs(np.linalg.det(whitening))))
        n, most = len(mixtures), max(1, *(len(each.weight) for each in mixtures))
        self._place, self._width = np.zeros((n, most, 2)), np.ones((n, most))
        self._weight = np.zeros((n, most))
        for i, each in enumerate(mixtures):
            m = len(each.weight)
            self._place[i, :m], self._width[i, :m], self._weight[i, :m] = each
        self._given = (
            self._weight
        )  # a sum that is 1 may be off by a rounding error, and arrays must not change
        total = self._weight.sum(axis=1, keepdims=True)
        self._weight = self._weight / np.where(total > 0.0, total, 1.0)
        self._of_prior = np.where(total[:, 0] > 0.0, _OF_PRIOR, 1.0)

    @classmethod
    def of(cls, space: PopulationSpace, whitening: Array, arrays: Array) -> PlaceMixtures:
        """The mixtures whose `arrays` these are."""
        mixtures = [Mixture(each[:, :2], each[:, 2], each[:, 3]) for each in arrays]
        return cls(space, whitening, mixtures)

    def arrays(self) -> Array:
        """Places, widths and weights, float64 (n_mixture, n, 4)."""
        return np.concatenate([self._place, self._width[..., None], self._given[..., None]], axis=2)

    def draw(self, rng: np.random.Generator, which: Index) -> Array:
        """A place from each of these mixtures (n,), float64 (n, 2)."""
        n = len(which)
        of_prior = [self._space.quantities[i].prior.transform(rng.random(n)) for i in self._space.place]
        cumulative = np.cumsum(self._weight[which], axis=1)
        part = (cumulative < rng.random((n, 1)) * cumulative[:, -1:]).sum(axis=1)
        part = np.minimum(part, self._weight.shape[1] - 1)
        white = self._place[which, part] + self._width[which, part, None] * rng.standard_normal((n, 2))
        is_prior = rng.random(n) < self._of_prior[which]
        return np.where(is_prior[:, None], np.stack(of_prior, axis=1), white @ self._back.T)

    def log_density(self, places: Array, which: Index) -> Array:
        """ln of the density of these places (n, 2) from these mixtures (n,), float64 (n,)."""
        log_prior = np.zeros(len(places))
        for i, where in enumerate(self._space.place):
            log_prior += self._space.quantities[where].prior.log_density(places[:, i])
        width, weight = self._width[which], self._weight[which]
        away = ((self._place[which] - (places @ self._whitening.T)[:, None]) ** 2).sum(axis=2)
        density = (weight * np.exp(-0.5 * away / width**2) / (2.0 * np.pi * width**2)).sum(axis=1)
        part = self._of_prior[which]
        with np.errstate(divide="ignore"):
            log_mixture = np.log((1.0 - part) * density) + self._log_area
        return np.asarray(np.logaddexp(np.log(part) + log_prior, log_mixture))
