"""Gains that a simulation draws: what is scattered, and how often anew."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from biro.display.formatting import in_unit
from biro.errors import InputError
from biro.models.bound.antenna_terms.segments import blocks_of
from biro.models.components.antenna_terms.gain_solutions import GainSolutions
from biro.observation.observation import Observation

STREAM = 1
"""Set beside the seed, so that the noise of a seed is the same with gains and without."""
MOST = 3.0
"""Largest scatter of the logarithm of amplitudes."""


@dataclass(frozen=True)
class GainScatter:
    """g = exp(a x + i p y), x and y normal with standard deviation 1, for each antenna and feed.

    Attributes
    ----------
    amplitude : float
        a, the scatter of amplitudes relative to 1.
    phase : float, rad, or text as "20 deg"
        p; of 180 deg and more phases are anything.
    interval : float, s, or text as "5 min", or None
        Gains stay as they are so long, from the first time on; None: for the whole observation.

    Raises
    ------
    InputError
        A scatter below 0 or far too large, or an interval that is not positive.
    """

    amplitude: float = 0.0
    phase: float = 0.0
    interval: float | None = None

    def __init__(
        self, amplitude: float = 0.0, phase: float | str = 0.0, interval: float | str | None = None
    ) -> None:
        object.__setattr__(self, "amplitude", amplitude)
        object.__setattr__(self, "phase", in_unit(phase, "rad", "phase"))
        object.__setattr__(self, "interval", None if interval is None else in_unit(interval, "s", "interval"))
        if not (0.0 <= self.amplitude <= MOST and 0.0 <= self.phase < np.inf):
            raise InputError(
                f"the scatter of gains must be 0 to {MOST:g} in amplitude, and 0 or more in phase, got "
                f"{self.amplitude} and {self.phase} rad"
            )
        if self.interval is not None and not 0.0 < self.interval < np.inf:
            raise InputError(f"the interval of gains must be above 0 s, got {self.interval}")

    def draw(self, observation: Observation, seed: int | None = None) -> GainSolutions:
        """Gains at all times of an observation; the same for the same seed, times and antennas."""
        rng = np.random.default_rng(None if seed is None else [seed, STREAM])
        times = np.unique(np.concatenate([part.times for part in observation.partitions]))
        block = np.zeros(times.size, np.int64)
        if self.interval is not None:
            block = blocks_of(times, self.interval, observation.partition_views)
        _, block = np.unique(block, return_inverse=True)
        shape = (int(block.max()) + 1, observation.n_antenna, 1, 2)
        gain = np.exp(
            self.amplitude * rng.standard_normal(shape) + 1j * self.phase * rng.standard_normal(shape)
        )
        freq = np.concatenate([part.chan_freq for part in observation.partitions])
        return GainSolutions(
            source="",
            time=times,
            freq=np.array([freq.mean()]),
            antenna_names=observation.antenna_names,
            gain=gain[block],
            usable=np.ones((times.size, *shape[1:]), bool),
        )
