"""Gains that a solver found, with their errors, against time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure

from biro.plots.gains import MOST_ANTENNAS, antenna_panels
from biro.style import colour

if TYPE_CHECKING:
    from biro.calibration.solved_gains import SolvedGains


def solved_gains(solved: SolvedGains, i_window: int = 0, *, block: int = 0) -> Figure:
    """Amplitudes and phases of the gains of each antenna against time, with the errors that noise leaves.

    Of the antennas with the largest signal-to-noise ratios, and of each feed. Flagged ones are left out.

    Parameters
    ----------
    solved : SolvedGains
    i_window, block : int
        Which spectral window, and which of its blocks of channels.
    """
    window = solved.windows[i_window]
    usable = window.usable[:, block]
    strength = np.where(usable, window.snr[:, block], 0.0).sum(axis=(0, 2))
    order = np.argsort(-strength, kind="stable")[:MOST_ANTENNAS]
    shown = np.sort(order[strength[order] > 0.0]) if strength.any() else order[:1]
    middle = solved.segments.middle
    hours = (middle - middle[0]) / 3600.0
    with antenna_panels([solved.observation.antenna_names[i] for i in shown]) as (figure, panels):
        for (amplitude, phase), antenna in zip(panels, shown, strict=True):
            for k, feed in enumerate(window.feeds):
                there = usable[:, antenna, feed]
                gain = window.gain[there, block, antenna, feed]
                spread = np.abs(gain) * window.log_amplitude_error[there, block, antenna, feed]
                turn = np.degrees(window.phase_error[there, block, antenna, feed])
                drawn = ((amplitude, np.abs(gain), spread), (phase, np.degrees(np.angle(gain)), turn))
                for ax, values, error in drawn:
                    ax.errorbar(hours[there], values, error, fmt=".", ms=3, lw=0.8, color=colour(k))
    return figure
