"""Typical scales of a source: how well the data tell its flux and its place."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from biro.source_finding.populations.likelihoods import SizedLikelihood
from biro.source_finding.populations.space import PopulationSpace

Array = NDArray[np.float64]


class Scales(NamedTuple):
    """What the data tell of a point.

    Attributes
    ----------
    information : float
        Minus the expected second derivative of ln L by its flux.
    whitening : float64 (2, 2)
        Matrix B from places (east, north) to coordinates in which the beam is a circle of size 1: the
        expected second derivatives by the place are -information I^2 B^T B.
    """

    information: float
    whitening: Array

    @classmethod
    def of(cls, one: SizedLikelihood, space: PopulationSpace) -> Scales:
        """The scales of a point with middling numbers, by the Fisher information.

        Parameters
        ----------
        one : SizedLikelihood
            Of one source, and without errors of gains.
        space : PopulationSpace
        """
        middle = np.array([p.prior.transform(np.array(0.5)) for p in one.likelihood.parameters], dtype=float)
        where = one.of_sources[0]
        middle[where[space.sizes]] = 0.0
        fisher = one.likelihood.fisher(middle)
        flux, place = where[space.flux], where[list(space.place)]
        spread = np.diff(space.quantities[space.flux].prior.quantile_range(0.25))[0]
        information = max(float(fisher[flux, flux]), 1e-6 / float(spread) ** 2)
        of_place = fisher[np.ix_(place, place)] / (information * middle[flux] ** 2)
        widths = [np.diff(space.quantities[i].prior.quantile_range(0.25))[0] for i in space.place]
        least = np.diag([1e-4 / float(width) ** 2 for width in widths])
        return cls(information, np.linalg.cholesky(of_place + least).T)
