"""What flagging did: amplitudes before and after, and shares that are flagged, by frequency and time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from biro.style import WIDTH, colour, new_figure, plain_ticks

if TYPE_CHECKING:
    from biro.flagging.report import FlagReport, PartitionFlags

Array = NDArray[np.float64]
_BANDS = ("#c6d7e8", "#5b8db8")
"""Colours from the 5th to the 95th percentile, and from the 25th to the 75th."""
BRIGHTEST = 99.0
"""The colours of a waterfall end at this percentile of the amplitudes after flagging."""


def waterfall(part: PartitionFlags) -> Figure:
    """Mean amplitudes of all baselines against frequency and time, before and after; white: none left.

    Parameters
    ----------
    part : PartitionFlags
        Of a `FlagReport`.
    """
    before = _mean(part.sum_before, part.total - part.before)
    after = _mean(part.sum_after, part.total - part.after)
    shown = after if np.isfinite(after).any() else before
    known = shown[np.isfinite(shown)]
    top = float(np.percentile(known, BRIGHTEST)) if known.size else 1.0
    with new_figure((WIDTH, 3.4)) as figure:
        axes = figure.subplots(1, 2, sharex=True, sharey=True)
        for ax, image, title in zip(axes, (before, after), ("before", "after"), strict=True):
            drawn = ax.imshow(image, aspect="auto", origin="lower", extent=_extent(part), vmin=0.0, vmax=top)
            ax.set(title=title, xlabel="frequency [MHz]")
            plain_ticks(ax)
        axes[0].set_ylabel("integration")
        figure.colorbar(drawn, ax=axes, label="mean amplitude [Jy]", extend="max")
        figure.suptitle(part.label)
    return figure


def occupancy(report: FlagReport) -> Figure:
    """Draw the share of visibilities that are flagged, before and after, by frequency and by time.

    Parameters
    ----------
    report : FlagReport
    """
    start = min((float(part.time[0]) for part in report.partitions if part.time.size), default=0.0)
    with new_figure((WIDTH, 2.8)) as figure:
        by_channel, by_time = figure.subplots(1, 2, sharey=True)
        for part in report.partitions:
            hours = (part.time - start) / 3600.0
            for ax, x, axis in ((by_channel, 1e-6 * part.chan_freq, 0), (by_time, hours, 1)):
                now, was = (_share(flagged, part.total, axis) for flagged in (part.after, part.before))
                ax.plot(x, 100 * was, "x", ms=3, mew=0.7, color=colour(1), label="before")
                ax.plot(x, 100 * now, ".", ms=4, color=colour(0), label="after")
        plain_ticks(by_channel)
        by_channel.set(xlabel="frequency [MHz]", ylabel="flagged [%]", ylim=(0, None))
        by_time.set(xlabel="time [h]")
        labels = [part.label for part in report.partitions]
        handles = by_time.get_legend_handles_labels()[0][:2]
        title = labels[0] if len(labels) == 1 else f"{len(labels)} windows, {labels[0]} to {labels[-1]}"
        figure.legend(handles, ["before", "after"], title=title, loc="outside upper center", ncols=2)
    return figure


def percentiles(part: PartitionFlags) -> Figure:
    """Amplitudes of each channel against frequency, before and after flagging.

    The median, and bands from the 25th to the 75th and from the 5th to the 95th percentile; a channel without
    unflagged visibilities is left out.

    Parameters
    ----------
    part : PartitionFlags
        Of a `FlagReport`.
    """
    freq = 1e-6 * part.chan_freq
    with new_figure((WIDTH, 2.8)) as figure:
        axes = figure.subplots(1, 2, sharex=True, sharey=True)
        both = (part.percentiles_before, "before"), (part.percentiles_after, "after")
        for ax, (found, title) in zip(axes, both, strict=True):
            lowest, low, median, high, highest = found.T
            ax.fill_between(freq, lowest, highest, lw=0, color=_BANDS[0], label="5 to 95 %")
            ax.fill_between(freq, low, high, lw=0, color=_BANDS[1], label="25 to 75 %")
            ax.plot(freq, median, ".-", ms=2, lw=0.8, color="black", label="median")
            ax.set(title=title, xlabel="frequency [MHz]")
            plain_ticks(ax)
        if max(np.nanmax(found, initial=0.0) for found, _ in both) > 0.0:
            axes[0].set_yscale("log")
        axes[0].set_ylabel("amplitude [Jy]")
        handles, labels = axes[1].get_legend_handles_labels()
        figure.legend(handles, labels, title=part.label, loc="outside upper center", ncols=3)
    return figure


def _mean(sums: Array, number: NDArray[np.int64]) -> Array:
    return np.where(number > 0, sums / np.maximum(1, number), np.nan)


def _share(flagged: NDArray[np.int64], total: NDArray[np.int64], axis: int) -> Array:
    return np.asarray(flagged.sum(axis=axis) / np.maximum(1, total.sum(axis=axis)))


def _extent(part: PartitionFlags) -> tuple[float, float, float, float]:
    """Edges of the picture: the middle of the first and last channels, and integrations from 0."""
    low, high = 1e-6 * part.chan_freq[0], 1e-6 * part.chan_freq[-1]
    if low == high:
        low, high = low - 0.5, high + 0.5
    return float(low), float(high), 0.0, float(len(part.time))
