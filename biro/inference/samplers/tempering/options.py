"""The options of the sampler "tempering"."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

from biro.errors import InputError
from biro.inference.samplers.option_base import MOST_FOR_ENSEMBLE, SamplerOptions, check_positive

FIRST_LOOK = 100.0
"""Steps after which convergence is looked at for the first time."""
RUNGS_OFTEN = 32
"""Temperatures of a tempered run of an ordinary model, before the warm-up tells how many there are."""


@dataclass(frozen=True)
class TemperingOptions(SamplerOptions):
    """Options of "tempering".

    A step has n_param / 2 moves of all walkers of all temperatures, each of which is one likelihood call.
    The number of temperatures follows from the posterior, in the warm-up.

    Attributes
    ----------
    n_walker : int
        On each temperature.
    n_effective : int
        Effective draws of every parameter, of ln L and for the evidence to stop at; may be raised when a run
        is resumed.
    max_steps : int
        Steps at most; may be raised when a run is resumed.
    """

    n_walker: int = 16
    n_effective: int = 2000
    max_steps: int = 20_000

    may_change: ClassVar[tuple[str, ...]] = ("n_effective", "max_steps")

    @property
    def n_together(self) -> int:
        return self.n_walker * RUNGS_OFTEN

    def resolved(self, n_param: int) -> Self:
        if n_param > MOST_FOR_ENSEMBLE:
            raise InputError(
                f"tempering does not converge with {n_param} parameters (a few dozen at most); use --sampler "
                "nuts, or none for the maximum with errors"
            )
        check_positive(self, ("n_effective", "max_steps"))
        if self.n_walker < 4:
            raise InputError(f"n_walker must be at least 4 (R-hat compares walkers), got {self.n_walker}")
        return self

    def numbers(self, n_param: int) -> float:
        return self.n_walker * (self._least_steps + RUNGS_OFTEN) * (n_param + 3.0)

    def evaluations(self, n_param: int) -> float:
        return 3.0 * self.n_walker * self._least_steps

    @property
    def _least_steps(self) -> float:
        return min(float(self.max_steps), max(FIRST_LOOK, self.n_effective / self.n_walker))
