"""What flagging did: amplitudes before and after, and shares that are flagged, by frequency and time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from biro.display.style import WIDTH, colour, new_figure, plain_ticks

if TYPE_CHECKING:
    from biro.flagging.report import FlagReport, PartitionFlags

Array = NDArray[np.float64]
_BANDS = ("#c6d7e8", "#5b8db8")
"""Colours from the 5th to the 95th percentile, and from the 25th to the 75th."""
_SHOWN = (1.0, 99.0)
"""The colours of a waterfall begin and end at these percentiles of the amplitudes after flagging."""


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
    bottom, top = np.percentile(known, _SHOWN) if known.size else (0.0, 1.0)
    edges = _edges(1e-6 * part.chan_freq)
    ascending = np.argsort(part.chan_freq)
    with new_figure((WIDTH, 3.4)) as figure:
        axes = figure.subplots(1, 2, sharex=True, sharey=True)
        for ax, image, title in zip(axes, (before, after), ("before", "after"), strict=True):
            drawn = ax.imshow(
                image[:, ascending],
                aspect="auto",
                origin="lower",
                extent=(edges[0], edges[-1], 0.0, len(part.time)),
                vmin=bottom,
                vmax=top if top > bottom else bottom + 1.0,
                interpolation="nearest",
            )
            ax.set(title=title, xlabel="frequency [MHz]")
            plain_ticks(ax)
        axes[0].set_ylabel("integration")
        figure.colorbar(drawn, ax=axes, label="mean amplitude [Jy]", extend="both")
        figure.suptitle(f"{part.label} (white: all flagged)", fontsize=8)
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
                # Open marks, which are seen about the filled ones where both agree.
                ax.plot(x, 100 * was, "s", ms=4.5, mew=0.7, mfc="none", color=colour(1), label="before")
                ax.plot(x, 100 * now, ".", ms=3.5, color=colour(0), label="after")
        every = [_edges(1e-6 * part.chan_freq) for part in report.partitions]
        if every:
            low, high = min(float(e[0]) for e in every), max(float(e[-1]) for e in every)
            by_channel.set_xlim(low - 0.02 * (high - low), high + 0.02 * (high - low))
        plain_ticks(by_channel)
        by_channel.set(xlabel="frequency [MHz]", ylabel="flagged [%]")
        # Room below 0, so that marks there are whole.
        highest = max(1.0, by_channel.get_ylim()[1])
        by_channel.set_ylim(-0.04 * highest, highest)
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
    edges, ascending = _edges(1e-6 * part.chan_freq), np.argsort(part.chan_freq)
    with new_figure((WIDTH, 2.8)) as figure:
        axes = figure.subplots(1, 2, sharex=True, sharey=True)
        both = (part.percentiles_before, "before"), (part.percentiles_after, "after")
        for ax, (found, title) in zip(axes, both, strict=True):
            lowest, low, median, high, highest = found[ascending].T
            for bottom, top, shade, label in (
                (lowest, highest, _BANDS[0], "5 to 95 %"),
                (low, high, _BANDS[1], "25 to 75 %"),
            ):
                ax.stairs(top, edges, baseline=bottom, fill=True, lw=0, color=shade, label=label)
            ax.stairs(median, edges, baseline=None, lw=1.0, color="black", label="median")
            ax.set(title=title, xlabel="frequency [MHz]", xlim=(edges[0], edges[-1]))
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


def _edges(freq: Array) -> Array:
    """Edges of channels (n_chan + 1,), ascending: halfway between neighbours; one alone is 1 MHz wide."""
    freq = np.sort(freq)
    if len(freq) < 2:
        return np.array([freq[0] - 0.5, freq[0] + 0.5])
    middle = 0.5 * (freq[1:] + freq[:-1])
    return np.concatenate([[2.0 * freq[0] - middle[0]], middle, [2.0 * freq[-1] - middle[-1]]])
