"""What a tempered run samples: a space of states, a prior that it draws, and moves at all temperatures.

A state is a row of numbers, whose meaning belongs to the problem: a point of the unit cube
(`biro.inference.samplers.tempering.cube`), or sources in any number
(`biro.source_finding.populations.problem`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from biro.inference.maximum.tempering.particles import Stage

Array = NDArray[np.float64]


class Advance(NamedTuple):
    """What was done to the walkers in one move.

    Attributes
    ----------
    accepted : float64 (n_rung - 1,)
        Part of the walkers that moved, on each rung but the prior.
    counts : float64 (n_count, n_rung - 1)
        What moves are tuned by, a sum over walkers.
    n_call : int
        Likelihoods that were computed.
    """

    accepted: Array
    counts: Array
    n_call: int


class Moves(Protocol):
    """Moves of walkers on the rungs of a ladder; they do not change while draws are taken."""

    @property
    def n_rung(self) -> int:
        """Rungs of the ladder, the prior included."""

    def advance(self, rng: np.random.Generator, beta: Array, rows: Array, log_likelihood: Array) -> Advance:
        """Draw the walkers at the prior afresh, and move all others; arrays are changed in place.

        Parameters
        ----------
        rng : Generator
        beta : float64 (n_rung,)
        rows : float64 (n_rung, n_walker, n_row)
        log_likelihood : float64 (n_rung, n_walker)
        """

    def tuned(self, counts: Array) -> Array:
        """What better moves are made with, after the `Advance.counts` of a round, float64 (n_rung - 1,)."""

    def arrays(self) -> dict[str, Array]:
        """What the moves follow from, by name, for a file."""


class Problem(Protocol):
    """What tempering asks of a problem."""

    @property
    def n_row(self) -> int:
        """Numbers in the row of a state."""

    @property
    def n_particle(self) -> int:
        """Particles of the warm-up, and states in an archive."""

    @property
    def first_tuning(self) -> float:
        """What the first moves are made with."""

    @property
    def moves_per_step(self) -> int:
        """Moves and swaps of a step: draws after fewer are hardly any different from those before."""

    def draw(self, rng: np.random.Generator, n: int) -> Array:
        """Draws of the prior, float64 (n, n_row)."""

    def heights(self, rows: Array) -> Array:
        """ln L of states, float64 (n,); -inf where they are impossible."""

    def stages(self, rng: np.random.Generator, rows: Array, log_likelihood: Array) -> Iterator[Stage]:
        """Particles that go from these draws of the prior to the posterior."""

    def moves(self, beta: Array, archive: Array, tuning: Array) -> Moves:
        """Moves for a ladder.

        Parameters
        ----------
        beta : float64 (n_rung,)
        archive : float64 (n_rung - 1, n_particle, n_row)
            Draws of each rung but the prior.
        tuning : float64 (n_rung - 1,)
            `first_tuning`, or of `Moves.tuned`.
        """

    def moves_of(self, file: Mapping[str, Array]) -> Moves:
        """The moves whose `Moves.arrays` are in a file."""

    def followed(self, rows: Array) -> Array:
        """Numbers of states that have to converge, continuous: float64 (n_step, n_walker, n_followed).

        Parameters
        ----------
        rows : float64 (n_step, n_walker, n_row)
        """
