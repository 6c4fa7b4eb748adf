"""Gains of the antennas against time, with the ranges that a posterior leaves to them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from biro.errors import InputError
from biro.posterior.posterior import Posterior
from biro.style import WIDTH, colour, new_figure

if TYPE_CHECKING:
    from biro.likelihood.likelihood import Likelihood

Array = NDArray[np.float64]
MOST_ANTENNAS = 16
"""Antennas in one picture, those with the largest sums of weights."""
_DRAWS = 200
_SEED = 0
_LEVELS = (15.865525393145708, 50.0, 84.13447460685429)


def gains(posterior: Posterior, likelihood: Likelihood, i_partition: int = 0, *, chan: int = 0) -> Figure:
    """Amplitudes and phases of the gains of each antenna against time, medians and 68 % ranges.

    Of each feed where the feeds differ. Phases are relative to the model's reference antenna.

    Parameters
    ----------
    posterior : Posterior
    likelihood : Likelihood
    i_partition, chan : int
        Which partition, and which of its channels.

    Raises
    ------
    InputError
        The model has no gains that are fitted.
    """
    if not likelihood.model.has_fitted_gains:
        raise InputError("the model has no gains that are fitted: there is nothing to draw")
    view = likelihood.model.partitions[i_partition]
    weight = view.antenna_weight
    rng = np.random.default_rng(_SEED)
    chosen = rng.choice(len(posterior.samples), _DRAWS, p=posterior.weight)
    found = likelihood.model.gains(posterior.samples[chosen], i_partition, chan)
    n_feed = 1 if np.array_equal(found[..., 0], found[..., 1]) else 2
    order = np.argsort(-weight.sum(axis=0), kind="stable")[:MOST_ANTENNAS]
    shown = np.sort(order[weight.sum(axis=0)[order] > 0.0])
    hours = (view.time - view.time[0]) / 3600.0
    with antenna_panels([view.antenna_names[i] for i in shown]) as (figure, panels):
        for (amplitude, phase), antenna in zip(panels, shown, strict=True):
            there = weight[:, antenna] > 0.0
            for feed in range(n_feed):
                _draw(amplitude, phase, hours[there], found[:, there, antenna, feed], colour(feed))
    return figure


@contextmanager
def antenna_panels(names: Sequence[str]) -> Iterator[tuple[Figure, list[tuple[Axes, Axes]]]]:
    """A figure with a panel of amplitudes and one of phases (deg) for each antenna, against hours.

    Parameters
    ----------
    names : sequence of str
        Of the antennas.
    """
    n_column = 2 if len(names) > 4 else 1
    n_row = math.ceil(len(names) / n_column)
    with new_figure((WIDTH, 0.6 + 0.95 * n_row)) as figure:
        grid = figure.subplots(n_row, 2 * n_column, sharex=True, squeeze=False)
        for ax in grid.reshape(-1)[2 * len(names) :]:
            ax.set_visible(False)
        panels: list[tuple[Axes, Axes]] = []
        for k, name in enumerate(names):
            amplitude, phase = grid[k // n_column, 2 * (k % n_column) : 2 * (k % n_column) + 2]
            amplitude.set_title(name, loc="left", fontsize="small")
            phase.set_ylim(-200, 200)
            phase.set_yticks([-180, 0, 180])
            panels.append((amplitude, phase))
        yield figure, panels
        for k in range(max(0, len(names) - n_column), len(names)):  # the last ones of each column
            for ax in panels[k]:
                ax.set_xlabel("hours")
                ax.tick_params(labelbottom=True)
        grid[0, 0].set_ylabel("amplitude")
        grid[0, 1].set_ylabel("phase [deg]")


def _draw(amplitude: Axes, phase: Axes, hours: Array, gain: NDArray[np.complex128], shade: str) -> None:
    """Medians and ranges of one feed: gain (n_draw, n_time)."""
    middle = np.angle(np.mean(gain / np.abs(gain), axis=0))
    turned = np.degrees(np.angle(gain * np.exp(-1j * middle)))
    for ax, values, offset in ((amplitude, np.abs(gain), 0.0), (phase, turned, np.degrees(middle))):
        low, median, high = np.percentile(values, _LEVELS, axis=0)
        ax.errorbar(hours, median + offset, [median - low, high - median], fmt=".", ms=3, lw=0.8, color=shade)
