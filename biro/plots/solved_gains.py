"""Gains that a solver found, with their errors, against time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure

from biro.plots.gains import GainTrack, draw_gains, feed_names

if TYPE_CHECKING:
    from biro.calibration.solved_gains import SolvedGains


def solved_gains(solved: SolvedGains, i_window: int = 0, *, block: int = 0) -> Figure:
    """Draw amplitudes and phases of the gains of all antennas against time, with errors of noise.

    Each feed has a colour. Flagged gains are left out, and antennas that have no others.

    Parameters
    ----------
    solved : SolvedGains
    i_window, block : int
        Which spectral window, and which of its blocks of channels.
    """
    window = solved.windows[i_window]
    usable = window.usable[:, block]
    hours = (solved.segments.middle - solved.segments.middle[0]) / 3600.0
    names = feed_names(solved.observation.partitions[0])
    tracks: dict[str, dict[str, GainTrack]] = {}
    for antenna, name in enumerate(solved.observation.antenna_names):
        of_feeds = {}
        for feed in window.feeds:
            there = usable[:, antenna, feed]
            gain = window.gain[there, block, antenna, feed]
            spread = np.abs(gain) * window.log_amplitude_error[there, block, antenna, feed]
            turn = np.degrees(window.phase_error[there, block, antenna, feed])
            phase = np.degrees(np.angle(gain))
            if there.any():
                of_feeds[names[feed]] = GainTrack(hours[there], np.abs(gain), spread, phase, turn)
        if of_feeds:
            tracks[name] = of_feeds
    return draw_gains(tracks)
