"""The ensemble of a tempered run: walkers on all rungs, and what is counted while they move."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from biro.inference.samplers.tempering.ladder import HEATED, NEW, count_trips, log_acceptance, swap
from biro.inference.samplers.tempering.problem import Moves

Array = NDArray[np.float64]


@dataclass
class Ensemble:
    """Walkers on all rungs of a ladder. Its arrays are its whole state, but for the random numbers.

    Attributes
    ----------
    beta : float64 (n_rung,)
        Ascending, from 0 to 1.
    rows : float64 (n_rung, n_walker, n_row)
        States.
    log_likelihood : float64 (n_rung, n_walker)
    visited : int8 (n_rung, n_walker)
        Which end of the ladder each state has met last (`ladder.count_trips`).
    rejected : float64 (n_rung - 1,)
        Sum over moves of the mean probability that a swap of these rungs is rejected.
    accepted : float64 (n_rung - 1,)
        Sum over moves of the part of the walkers that moved; the prior is drawn afresh.
    counts : float64 (n_count, n_rung - 1)
        Sum over moves of what these are tuned by.
    possible : float64 ()
        Sum over moves of the part of the draws of the prior whose likelihood is above 0.
    n_move, n_trip, n_call : int64 ()
        Moves of all walkers, round trips, and likelihoods that were computed.
    """

    beta: Array
    rows: Array
    log_likelihood: Array
    visited: NDArray[np.int8]
    rejected: Array
    accepted: Array
    counts: Array
    possible: Array
    n_move: NDArray[np.int64]
    n_trip: NDArray[np.int64]
    n_call: NDArray[np.int64]

    @classmethod
    def begin(cls, beta: Array, rows: Array, log_likelihood: Array, n_call: int) -> Ensemble:
        """Walkers that have not moved."""
        visited = np.full(log_likelihood.shape, NEW, np.int8)
        visited[0] = HEATED
        zero, none = np.zeros(len(beta) - 1), np.array(0)
        sums = zero, zero.copy(), np.zeros(len(zero)), np.array(0.0)
        return cls(beta, rows, log_likelihood, visited, *sums, none, none.copy(), np.array(n_call))

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """The names of its arrays."""
        return tuple(item.name for item in fields(cls))

    def count_anew(self) -> None:
        """Forget what was counted of moves and swaps; likelihoods and round trips count on."""
        for of in (self.rejected, self.accepted, self.counts, self.possible, self.n_move):
            of[...] = 0

    @property
    def rejection(self) -> Array:
        """Mean rejection of swaps of each two neighbouring rungs, float64 (n_rung - 1,).

        Draws of the prior that are impossible are left out, because no ladder makes their swaps likelier.
        """
        n_swap = np.full(len(self.rejected), max(1.0, float(self.n_move)))
        accepted = n_swap - self.rejected
        n_swap[0] = max(float(self.possible), np.finfo(float).tiny)
        return np.asarray(np.clip(1.0 - accepted / n_swap, 0.0, 1.0))

    @property
    def acceptance(self) -> Array:
        """Part of the moves that were accepted on each rung but the prior, float64 (n_rung - 1,)."""
        return np.asarray(self.accepted / max(1, int(self.n_move)))

    def move(self, moves: Moves, rng: np.random.Generator) -> None:
        """Draw the prior afresh and move all other walkers; then swap neighbours."""
        done = moves.advance(rng, self.beta, self.rows, self.log_likelihood)
        self.n_call += done.n_call
        self.accepted += done.accepted
        self.counts = self.counts + done.counts
        self._swap(rng)

    def _swap(self, rng: np.random.Generator) -> None:
        log_alpha = log_acceptance(self.beta, self.log_likelihood)
        possible = np.isfinite(self.log_likelihood[0]).mean()
        states = (self.rows, self.log_likelihood, self.visited)
        swap(rng, log_alpha, bool(self.n_move % 2), states)
        self.rejected += 1.0 - np.exp(log_alpha).mean(axis=1)
        self.possible += possible
        self.n_trip += count_trips(self.visited)
        self.n_move += 1
