"""How far baselines have turned about the pole: on another day, they are where they were."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from biro.likelihood.cells.compress import baselines
from biro.observation.partition import Partition
from rime_kernels.smearing.rotation import EARTH_RATE, turn_about_pole
from rime_kernels.smearing.smearing import Smearing

Array = NDArray[np.float64]
Index = NDArray[np.int64]
TURN = 2.0 * np.pi / EARTH_RATE
"""Of the earth, s."""
AT_POLE = 0.01
"""A baseline that is shorter across the pole, in units of its length, has no angle to go by."""


def turns_of(times: Array) -> Index:
    """How often the earth has turned at each of some ascending times, int64 (n_time,), from 0.

    A turn begins where none of the times are for longest, so that no run of times is cut.
    """
    phase = (times - times[0]) % TURN
    order = np.sort(phase)
    gap = np.diff(order, append=order[0] + TURN)
    begin = order[(int(np.argmax(gap)) + 1) % len(order)] - 0.5 * gap.max()
    turns = np.floor((times - times[0] - begin) / TURN).astype(np.int64)
    return np.asarray(turns - turns[0])


def turned(part: Partition, smearing: Smearing) -> Array:
    """How far each row's baseline has turned since the first time, float64 (n_row,), rad, by its uvw.

    By its time where the baseline is along the pole.
    """
    u, v, w = part.uvw.T
    angle, across = turn_about_pole(u, v, w, smearing.declination, smearing.pole_angle)
    by_time = EARTH_RATE * (part.time - part.times[0])
    _, first, baseline = np.unique(baselines(part), return_index=True, return_inverse=True)
    offset = angle - by_time
    offset -= offset[first][baseline]
    has_angle = across > AT_POLE * np.linalg.norm(part.uvw, axis=1)
    return np.asarray(by_time + np.where(has_angle, np.arctan2(np.sin(offset), np.cos(offset)), 0.0))
