"""Tempering in the unit cube of the parameters of an ordinary model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from biro.inference.maximum.tempering.particles import N_PARTICLE, Stage, mover_of, stages
from biro.inference.samplers.chains import unwound
from biro.inference.samplers.tempering.mixture import Mixtures
from biro.inference.samplers.tempering.moves import CubeMoves
from biro.inference.target.checked import Target

Array = NDArray[np.float64]


class CubeProblem:
    """The `Problem` of a likelihood of so many parameters; its states are points of the unit cube.

    Parameters
    ----------
    target : Target
    """

    n_particle = N_PARTICLE
    first_tuning = 0.5
    """Part of the moves that are draws of a mixture."""

    def __init__(self, target: Target) -> None:
        self._target = target

    @property
    def n_row(self) -> int:
        """The number of parameters."""
        return self._target.n_param

    @property
    def moves_per_step(self) -> int:
        """Moves and swaps of a step."""
        return max(1, self._target.n_param // 2)

    def draw(self, rng: np.random.Generator, n: int) -> Array:
        """Draws of the prior, float64 (n, n_param)."""
        return rng.random((n, self.n_row))

    def heights(self, rows: Array) -> Array:
        """ln L of points of the unit cube, float64 (n,); -inf where a constraint fails."""
        return self._target.log_likelihood_of_unit(rows)

    def stages(self, rng: np.random.Generator, rows: Array, log_likelihood: Array) -> Iterator[Stage]:
        """Particles that go from these draws of the prior to the posterior."""
        return stages(mover_of(self._target), rng, rows, log_likelihood, self.n_particle)

    def moves(self, beta: Array, archive: Array, tuning: Array) -> CubeMoves:
        """Moves for a ladder, by an archive and the part of them that are draws of a mixture."""
        return CubeMoves(self._target, archive, tuning)

    def moves_of(self, file: Mapping[str, Array]) -> CubeMoves:
        """The moves whose arrays are in a file."""
        mixtures = Mixtures(*(file[name] for name in Mixtures._fields))
        return CubeMoves(self._target, file["archive"], file["share"], mixtures)

    def followed(self, rows: Array) -> Array:
        """Parameters, continuous where they wrap, float64 (n_step, n_walker, n_param)."""
        target = self._target
        theta = target.theta(rows.reshape(-1, target.n_param)).reshape(rows.shape)
        return unwound(theta, target.wraps, target.period)
