"""The moves of a tempered run of a population."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from biro.inference.samplers.tempering.problem import Advance
from biro.source_finding.populations.flux_proposal import FluxProposals
from biro.source_finding.populations.likelihoods import PopulationLikelihood
from biro.source_finding.populations.number_moves import BirthAndDeath, SplitAndMerge, Walkers
from biro.source_finding.populations.places import PlaceMixtures
from biro.source_finding.populations.scales import Scales
from biro.source_finding.populations.source_moves import Drift, Exchange

Array = NDArray[np.float64]
_BIRTHS, _EXCHANGES, _DRIFTS = 4, 1, 3
"""Attempts of each move in a sweep."""
_WIDTH = 0.7
"""Standard deviation of the distance of two parts of a split source, in beams."""
_ACCEPTED = 0.57
"""Acceptance that the drift is tuned to (Roberts & Rosenthal 1998, J. R. Statist. Soc. B 60, 255)."""
_LEAST, _MOST = 1e-3, 1.5
"""Steps of the drift, in local scales."""


class PopulationMoves:
    """Births and deaths, splits and mergers, exchanges and drifts on the rungs of a ladder.

    Parameters
    ----------
    likelihood : PopulationLikelihood
    scales : Scales
    places : PlaceMixtures
        Where sources are born on each rung but the prior.
    sd_of_shared : float64 (n_rung - 1, n_shared)
        Scatter of the shared parameters there.
    step : float64 (n_rung - 1,)
        Of the drift there, in local scales.
    """

    def __init__(
        self,
        likelihood: PopulationLikelihood,
        scales: Scales,
        places: PlaceMixtures,
        sd_of_shared: Array,
        step: Array,
    ) -> None:
        self._likelihood, self._places = likelihood, places
        self._sd_of_shared, self._step = sd_of_shared, step
        fluxes = FluxProposals(likelihood, scales.information)
        self._births = BirthAndDeath(likelihood, fluxes, places)
        self._splits = SplitAndMerge(likelihood, scales.whitening, _WIDTH)
        self._exchanges = Exchange(likelihood, fluxes, scales.whitening)
        self._drift = Drift(likelihood, scales, sd_of_shared, step)

    @property
    def n_rung(self) -> int:
        """Rungs of the ladder, the prior included."""
        return len(self._step) + 1

    def advance(self, rng: np.random.Generator, beta: Array, rows: Array, log_likelihood: Array) -> Advance:
        """Draw the prior afresh and move all other walkers, in place."""
        before = self._likelihood.n_call
        rows[0] = self._likelihood.space.draw(rng, rows.shape[1])
        log_likelihood[0] = self._likelihood.heights(rows[0])
        counts = self.sweep(rng, beta[1:], rows[1:], log_likelihood[1:])
        return Advance(counts[0] / counts[1], counts, self._likelihood.n_call - before)

    def sweep(self, rng: np.random.Generator, beta: Array, rows: Array, log_likelihood: Array) -> Array:
        """Move walkers by all kinds of moves, in place; accepted parts of the drift, and 1, of each rung.

        Parameters
        ----------
        rng : Generator
        beta : float64 (n_rung - 1,)
        rows : float64 (n_rung - 1, n_walker, n_row)
        log_likelihood : float64 (n_rung - 1, n_walker)
        """
        n_rung, n_walker, n_row = rows.shape
        walkers = Walkers(
            rows.reshape(-1, n_row).copy(),
            log_likelihood.reshape(-1).copy(),
            np.repeat(beta, n_walker),
            np.repeat(np.arange(n_rung), n_walker),
        )
        for _ in range(_BIRTHS):
            self._births(rng, walkers)
        self._splits(rng, walkers)
        for _ in range(_EXCHANGES):
            self._exchanges(rng, walkers)
        accepted = self._drift(rng, walkers, _DRIFTS)
        rows[...] = walkers.rows.reshape(rows.shape)
        log_likelihood[...] = walkers.height.reshape(log_likelihood.shape)
        part = accepted.reshape(n_rung, n_walker).mean(axis=1)
        return np.stack([part, np.ones(n_rung)])

    def tuned(self, counts: Array) -> Array:
        """Steps of the drift nearer to the acceptance that is best, float64 (n_rung - 1,)."""
        accepted = counts[0] / np.maximum(counts[1], 1.0)
        return np.asarray(np.clip(self._step * np.exp(accepted - _ACCEPTED), _LEAST, _MOST))

    def arrays(self) -> dict[str, Array]:
        """What the moves follow from, by name."""
        return {"places": self._places.arrays(), "sd_of_shared": self._sd_of_shared, "drift": self._step}
