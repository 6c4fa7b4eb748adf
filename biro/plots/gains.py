"""Gains of the antennas against time: with the ranges that a posterior leaves, or as they were solved."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, ScalarFormatter
from numpy.typing import NDArray

from biro.display.arguments import LIKELIHOOD, POSTERIOR, SOLVED, takes
from biro.display.formatting import FREQUENCIES, range_text
from biro.display.style import COLUMN, WIDTH, colour, inner_ticks, new_figure
from biro.errors import InputError
from biro.inference.posterior.posterior import Posterior
from biro.observation.partition import Partition
from biro.plots.time_axis import TimeAxis

if TYPE_CHECKING:
    from biro.calibration.solved_gains import SolvedGains
    from biro.likelihood.likelihood import Likelihood

Array = NDArray[np.float64]
MOST_IN_COLUMN = 14
"""Antennas of a figure that is one column of a journal wide; more antennas take two columns."""
_ROW = 0.62
"""Height of the panels of an antenna, inches."""
_LEAST_SPAN = (0.02, 2.0)
"""Least ranges of the axes of amplitudes and of phases (deg), so that rounding is not drawn large."""
_APART = 0.012
"""Distance between the marks of two feeds, of the whole axis of time."""
_DRAWS = 200
_SEED = 0
_LEVELS = (15.865525393145708, 50.0, 84.13447460685429)


class GainTrack(NamedTuple):
    """Gains of one antenna and feed: hours, amplitudes, phases (deg), and errors (2, n) of both."""

    hours: Array
    amplitude: Array
    amplitude_err: Array
    phase: Array
    phase_err: Array


@takes(likelihood=LIKELIHOOD, posterior=POSTERIOR)
def gains(posterior: Posterior, likelihood: Likelihood, i_partition: int = 0, *, chan: int = 0) -> Figure:
    """Draw amplitudes and phases of the gains of all antennas against time, medians and 68 % ranges.

    Where the gains of the feeds differ, each feed has a colour. Phases are relative to the model's reference
    antenna, and continuous in time: turns of 360 degrees are taken out. Each panel has a scale of its own.

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
    names = feed_names(likelihood.observation.partitions[i_partition])
    hours = (view.time - view.time[0]) / 3600.0
    tracks = {}
    for antenna in np.flatnonzero(weight.sum(axis=0) > 0.0):
        there = weight[:, antenna] > 0.0
        tracks[view.antenna_names[antenna]] = {
            names[feed] if n_feed == 2 else "both feeds": _track(hours[there], found[:, there, antenna, feed])
            for feed in range(n_feed)
        }
    return draw_gains(tracks)


@takes(solved=SOLVED)
def solved_gains(solved: SolvedGains, i_window: int = 0, *, block: int = 0) -> Figure:
    """Draw amplitudes and phases of gains that a solver found against time, with errors of noise.

    Each feed has a colour. Flagged gains are left out, and antennas that have no others. The title names the
    window, and the frequencies of the block, where there are several.

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
    figure = draw_gains(tracks)
    n_window, n_block = len(solved.windows), window.gain.shape[1]
    parts = [f"window {window.name} ({i_window + 1} of {n_window})"] * (n_window > 1)
    parts += [f"block {block + 1} of {n_block}"] * (n_block > 1)
    if parts:
        freq = window.chan_freq[window.block == block]
        range_ = range_text(float(freq.min()), float(freq.max()), FREQUENCIES)
        # Beside the legend, which is at the right.
        text = ", ".join(parts) + f"\n{range_}"
        figure.suptitle(text, fontsize=7, x=0.01, ha="left")
    return figure


def _track(hours: Array, gain: NDArray[np.complex128]) -> GainTrack:
    """Medians and 68 % ranges of draws (n_draw, n_time); of phases about their circular mean."""
    middle = np.angle(np.mean(gain / np.abs(gain), axis=0))
    turned = np.degrees(np.angle(gain * np.exp(-1j * middle)))
    (low, amplitude, high), (below, phase, above) = (
        np.percentile(values, _LEVELS, axis=0) for values in (np.abs(gain), turned)
    )
    spreads = np.array([amplitude - low, high - amplitude]), np.array([phase - below, above - phase])
    return GainTrack(hours, amplitude, spreads[0], phase + np.degrees(middle), spreads[1])


def feed_names(part: Partition) -> tuple[str, str]:
    """Names of the feeds of a partition: R and L, X and Y, or numbers where it has Stokes parameters."""
    letters = "".join(part.corr_type)
    return next((pair for pair in (("R", "L"), ("X", "Y")) if set(pair) & set(letters)), ("1", "2"))


def draw_gains(tracks: dict[str, dict[str, GainTrack]]) -> Figure:
    """A panel of amplitudes and one of phases for each antenna, of all its feeds.

    Parameters
    ----------
    tracks : dict of str to (dict of str to GainTrack)
        By name of the antenna, and of the feed.
    """
    feeds = list(dict.fromkeys(feed for track in tracks.values() for feed in track))
    every = [track.hours for of_feeds in tracks.values() for track in of_feeds.values()]
    times = TimeAxis(np.concatenate(every) if every else np.zeros(0))
    with _panels(list(tracks), f"time [h]{times.remark}") as (figure, panels):
        for axes, of_feeds in zip(panels, tracks.values(), strict=True):
            about: float | None = None
            for feed, track in of_feeds.items():
                phase = continuous(track.phase, about)
                about = float(phase.mean()) if phase.size and about is None else about
                k = feeds.index(feed)
                # Feeds side by side, so that neither hides the other.
                x = times.of(track.hours) + _APART * times.length * (k - 0.5 * (len(feeds) - 1))
                drawn = ((track.amplitude, track.amplitude_err), (phase, track.phase_err))
                for ax, (values, error) in zip(axes, drawn, strict=True):
                    ax.errorbar(x, values, error, fmt=".", ms=2.5, lw=0, elinewidth=0.6, color=colour(k))
        for axes in panels:
            for ax, least in zip(axes, _LEAST_SPAN, strict=True):
                _scale(ax, least)
        times.finish([ax for axes in panels for ax in axes])
        if len(feeds) > 1:
            # The space about an outside legend is that of the layout, which is narrow here.
            marks = [Line2D([], [], marker=".", ls="none", color=colour(k)) for k in range(len(feeds))]
            names = [f"feed {feed}" for feed in feeds]
            figure.legend(marks, names, loc="outside upper right", ncols=len(feeds), borderaxespad=0.0)
    return figure


def continuous(phase: Array, about: float | None = None) -> Array:
    """Phases (deg) without turns of 360 degrees from one to the next.

    Parameters
    ----------
    phase : float64 (n,), deg
        In the order of time.
    about : float, optional
        The mean is within 180 degrees of it; by default of 0.
    """
    if not phase.size:
        return phase
    whole = np.unwrap(phase, period=360.0)
    return np.asarray(whole - 360.0 * np.round((whole.mean() - (about or 0.0)) / 360.0))


@contextmanager
def _panels(names: Sequence[str], label: str) -> Iterator[tuple[Figure, list[tuple[Axes, Axes]]]]:
    """A figure with the two panels of each antenna, one column of a journal wide, or two."""
    n_column = 1 if len(names) <= MOST_IN_COLUMN else 2
    n_row = max(1, math.ceil(len(names) / n_column))
    with new_figure((COLUMN if n_column == 1 else WIDTH, 0.7 + _ROW * n_row)) as figure:
        grid = figure.subplots(n_row, 2 * n_column, sharex=True, squeeze=False)
        figure.set_layout_engine("constrained", hspace=0.0, h_pad=0.01)
        places = [(k % n_row, 2 * (k // n_row)) for k in range(len(names))]
        panels = [(grid[row, column], grid[row, column + 1]) for row, column in places]
        for ax in grid.ravel():
            ax.set_visible(any(ax is used for pair in panels for used in pair))
        yield figure, panels
        figure.supxlabel(label, fontsize=8)
        for k, (name, axes) in enumerate(zip(names, panels, strict=True)):
            text = f"ant {name}" if name.isdigit() else name
            axes[0].set_ylabel(text, rotation=0, ha="right", va="center")
            is_last = k == len(names) - 1 or places[k][0] == n_row - 1
            for ax, title in zip(axes, ("amplitude", "phase [deg]"), strict=True):
                ax.tick_params(labelbottom=is_last)
                if is_last and places[k][0] < n_row - 1:  # labels of a column that is shorter have room
                    for tick in ax.get_xticklabels():
                        tick.set_in_layout(False)
                if places[k][0] == 0:
                    ax.set_title(title)


def _scale(ax: Axes, least: float) -> None:
    """Few ticks in full, and an axis that is not narrower than `least`; ticks keep clear of the frame."""
    low, high = ax.get_ylim()
    if high - low < least:
        low, high = 0.5 * (low + high - least), 0.5 * (low + high + least)
        ax.set_ylim(low, high)
    plain = ScalarFormatter(useOffset=False)
    plain.set_scientific(False)
    ax.yaxis.set_major_formatter(plain)
    ax.yaxis.set_major_locator(FixedLocator(inner_ticks(*ax.get_ylim(), 2)))
