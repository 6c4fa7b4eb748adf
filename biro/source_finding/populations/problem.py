"""Tempering of states with any number of sources."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from biro.inference.maximum.tempering.particles import Stage, stages
from biro.inference.samplers.chains import unwound
from biro.models.components.direction import Centre
from biro.source_finding.populations.likelihoods import PopulationLikelihood
from biro.source_finding.populations.moves import PopulationMoves
from biro.source_finding.populations.places import Mixture, PlaceMixtures
from biro.source_finding.populations.residual_score import ResidualScore
from biro.source_finding.populations.scales import Scales
from biro.source_finding.populations.space import NO_SOURCE

Array = NDArray[np.float64]
_SWEEPS = 4
"""Sweeps of all particles between two temperatures."""
_NEIGHBOURS = 1
"""Rungs on either side whose archives tell where sources may be born."""
_OF_SCORE = 0.3
"""Part of the births at places that the residuals of the best state suggest."""
_MOST_GAIN = 20.0
"""Gain of ln L above which places are equally likely."""
_MOST_CENTRES = 512
"""Sources of archives that births of a rung are proposed near."""
_WIDER, _NARROWEST = 1.2, 1e-4
"""Width of births over the error of a place, and least width in beams; the largest is a beam."""


class PopulationProblem:
    """The `Problem` of one population beside shared parameters; states are rows of a `PopulationSpace`.

    Parameters
    ----------
    likelihood : PopulationLikelihood
    scales : Scales
    origin : (float, float), rad
        Right ascension and declination from which east and north are offsets.
    """

    n_particle = 128
    first_tuning = 0.5
    """Step of the drift, in local scales."""
    moves_per_step = 1

    def __init__(self, likelihood: PopulationLikelihood, scales: Scales, origin: Centre) -> None:
        self.likelihood, self._space = likelihood, likelihood.space
        self._scales = scales
        self._score = ResidualScore(likelihood, self._scales, origin)
        self._tuning = self.first_tuning

    @property
    def n_row(self) -> int:
        """Numbers in the row of a state."""
        return self._space.n_row

    def draw(self, rng: np.random.Generator, n: int) -> Array:
        """Draws of the prior, float64 (n, n_row)."""
        return self._space.draw(rng, n)

    def heights(self, rows: Array) -> Array:
        """ln L of rows, float64 (n,)."""
        return self.likelihood.heights(rows)

    def stages(self, rng: np.random.Generator, rows: Array, log_likelihood: Array) -> Iterator[Stage]:
        """Particles that go from these draws of the prior to the posterior."""
        self._tuning = self.first_tuning
        return stages(self._moved, rng, rows, log_likelihood, self.n_particle)

    def _moved(
        self, rng: np.random.Generator, rows: Array, height: Array, beta: float
    ) -> tuple[Array, Array, int]:
        """Particles after some sweeps at one temperature, and likelihoods computed."""
        before = self.likelihood.n_call
        ladder, tuning = np.array([0.0, beta]), np.array([self._tuning])
        moves = self.moves(ladder, rows[None], tuning)
        everyone = np.stack([rows, rows]), np.stack([height, height])
        for _ in range(_SWEEPS):
            counts = moves.sweep(rng, ladder[1:], everyone[0][1:], everyone[1][1:])
            self._tuning = float(moves.tuned(counts)[0])
        return everyone[0][1], everyone[1][1], self.likelihood.n_call - before

    def moves(self, beta: Array, archive: Array, tuning: Array) -> PopulationMoves:
        """Moves for a ladder: births where the archives have sources, or residuals suggest them."""
        space = self._space
        slots = space.slots_of(archive.reshape(-1, self.n_row)).reshape(*archive.shape[:2], space.n_slot, -1)
        exists = slots[..., 0] != NO_SOURCE
        # The best state of the coldest rung leaves what no state has yet.
        heights = self.likelihood.heights(archive[-1])
        suggested, peak = self._score(archive[-1][int(heights.argmax())])
        mixtures = []
        for k in range(len(archive)):
            near = slice(max(0, k - _NEIGHBOURS), k + _NEIGHBOURS + 1)
            found = slots[near][exists[near]][:, 1:]
            found = found[np.linspace(0, len(found) - 1, min(len(found), _MOST_CENTRES)).astype(np.int64)]
            gain = 0.5 * beta[k + 1] * self._scales.information * peak**2
            of_archive = self._mixture(found[:, space.place], found[:, space.flux], beta[k + 1])
            of_score = self._mixture(suggested, peak, beta[k + 1])
            of_score = of_score._replace(weight=np.expm1(np.minimum(gain, _MOST_GAIN)))
            mixtures.append(Mixture.mixed((1.0 - _OF_SCORE, of_archive), (_OF_SCORE, of_score)))
        sd = np.array([space.shared_of(of_rung).std(axis=0) for of_rung in archive])
        least = 1e-12 * np.array([np.diff(p.prior.quantile_range(0.25))[0] for p in space.shared])
        places = PlaceMixtures(space, self._scales.whitening, mixtures)
        return self._made(places, np.maximum(sd, least.reshape(1, -1)), tuning)

    def _mixture(self, places: Array, flux: Array, beta: float) -> Mixture:
        """Births near these places, as near as sources of these fluxes are known there."""
        signal = np.abs(flux) * np.sqrt(beta * self._scales.information)
        width = np.clip(_WIDER / np.maximum(signal, _NARROWEST), _NARROWEST, 1.0)
        return Mixture(places @ self._scales.whitening.T, width, np.ones(len(flux)))

    def moves_of(self, file: Mapping[str, Array]) -> PopulationMoves:
        """The moves whose arrays are in a file."""
        places = PlaceMixtures.of(self._space, self._scales.whitening, file["places"])
        return self._made(places, file["sd_of_shared"], file["drift"])

    def _made(self, places: PlaceMixtures, sd_of_shared: Array, tuning: Array) -> PopulationMoves:
        return PopulationMoves(self.likelihood, self._scales, places, sd_of_shared, tuning)

    def followed(self, rows: Array) -> Array:
        """Shared parameters, number of sources, their flux, that of the brightest, and the moments of flux.

        The moments, sums of I east and of I north, change where one source stands in place of another.

        Parameters
        ----------
        rows : float64 (n_step, n_walker, n_row)

        Returns
        -------
        float64 (n_step, n_walker, n_shared + 5)
        """
        space, flat = self._space, rows.reshape(-1, self.n_row)
        slots = space.slots_of(flat)
        flux = np.where(slots[..., 0] != NO_SOURCE, slots[..., 1 + space.flux], 0.0)
        number = space.number(flat).astype(np.float64)
        moments = [(flux * slots[..., 1 + i]).sum(axis=1) for i in space.place]
        of_sources = np.stack([number, flux.sum(axis=1), flux.max(axis=1), *moments], axis=1)
        whole = np.concatenate([space.shared_of(flat), of_sources], axis=1).reshape(*rows.shape[:2], -1)
        period = np.append(space.period_of_shared, np.full(5, np.inf))
        return unwound(whole, np.isfinite(period), np.where(np.isfinite(period), period, 1.0))
