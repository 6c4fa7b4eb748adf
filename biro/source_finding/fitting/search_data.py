"""Averages of the data that sources are looked for in: as few visibilities as a field of some size needs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from biro.observation.averaging import average_channels, average_time
from biro.observation.noise import neighbours
from biro.observation.observation import Observation
from biro.observation.partition import Partition
from rime_kernels.physics.phase import SPEED_OF_LIGHT

TURNS = 0.15
"""By how much the phase of a source at the edge of the field may turn within an average; 4 % are lost."""
LONGEST = 120.0
"""Time that is averaged at most, s: gains may change."""
WIDEST = 0.01
"""Fraction of the frequency that is averaged at most: sources have spectra."""
ENOUGH = 4000
"""Rows times channels that averages leave at least: to average more saves little, and tells less apart."""


def averaged(observation: Observation, radius: float) -> Observation:
    """Averages in time and frequency within which sources up to a distance turn by `TURNS` at most.

    Parameters
    ----------
    observation : Observation
    radius : float
        Distance from the phase centre, as a direction cosine.

    Returns
    -------
    Observation
        The same object where nothing can be averaged.
    """
    size = sum(int(np.count_nonzero(part.row_weight)) * part.n_chan for part in observation.partitions)
    most = size / ENOUGH
    if most < 1.5:
        return observation
    parts = tuple(_averaged(part, radius, most) for part in observation.partitions)
    if all(new is old for new, old in zip(parts, observation.partitions, strict=True)):
        return observation
    return replace(observation, partitions=parts)


def _averaged(part: Partition, radius: float, most: float) -> Partition:
    """A partition with at most so many times fewer visibilities."""
    spacing = part.spacing
    number = min(_channels_together(part, radius), max(1, int(most)))
    if number > 1:
        part, most = average_channels(part, number), most / number
    seconds = min(TURNS / max(_turns_per_second(part, radius), 1e-300), LONGEST, most * spacing)
    return average_time(part, seconds)[0] if seconds >= 1.9 * spacing else part


def _turns_per_second(part: Partition, radius: float) -> float:
    """How fast the phase of a source at a radius turns on the fastest baseline.

    Of the differences of uvw between neighbouring times of the data themselves: uvw of other origin than the
    rotation of the Earth are not averaged.
    """
    before, after = neighbours(part, np.flatnonzero(part.row_weight > 0))
    if not before.size:
        return np.inf
    change = np.hypot(*(part.uvw[after] - part.uvw[before])[:, :2].T) / (part.time[after] - part.time[before])
    return float(change.max()) * radius * float(part.chan_freq.max()) / SPEED_OF_LIGHT


def _channels_together(part: Partition, radius: float) -> int:
    """Number of adjacent channels that may be averaged; 1 where channels are not adjacent."""
    width, spacing = float(part.chan_width.max(initial=0.0)), np.abs(np.diff(part.chan_freq))
    if not spacing.size or not width > 0.0 or (spacing > 1.01 * width).any():
        return 1
    length = float(np.hypot(part.uvw[:, 0], part.uvw[:, 1]).max()) / SPEED_OF_LIGHT
    widest = min(TURNS / max(length * radius, 1e-300), WIDEST * float(part.chan_freq.min()))
    return int(np.clip(widest / width, 1, part.n_chan))
