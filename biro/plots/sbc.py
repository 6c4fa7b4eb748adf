"""Pictures of simulation-based calibration: rank histograms, coverage curves, reduced chi-squared."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from biro.display.style import COLOUR, TRUTH, drawing_on, figure_of, new_figure
from biro.errors import InputError
from biro.sbc.result import SBCResult
from biro.sbc.statistics import BANDS

MAX_PANELS = 24
"""Number of quantities in one picture: those with the smallest p-values."""
_BANDS = (("#dbe6f0", BANDS[1]), ("#b9cfe3", BANDS[0]))


def rank_histograms(result: SBCResult) -> Figure:
    """Draw a histogram of the ranks of the truth for each quantity; shaded are 68 % and 95 % of chance."""
    ranks = result.ranks
    with _panels(result) as (figure, panels):
        edges = np.linspace(0.0, 1.0, ranks.n_bin + 1)
        for i, ax in panels.items():
            for colour, level in _BANDS:
                ax.axhspan(*ranks.count_band(level), color=colour, lw=0)
            ax.axhline(ranks.n / ranks.n_bin, color=COLOUR, lw=0.7)
            ax.stairs(ranks.counts[i], edges, color=TRUTH if _is_suspect(result, i) else COLOUR, lw=1.4)
            ax.set_xlim(0.0, 1.0)
            ax.set_ylim(0.0, None)
            ax.yaxis.set_major_locator(MaxNLocator(4, integer=True))
        figure.supxlabel(f"rank of the truth among {ranks.n_draw} draws, as a fraction", fontsize=9)
        figure.supylabel("replicates", fontsize=9)
        return figure


def coverage_curves(result: SBCResult) -> Figure:
    """Draw, for each quantity, how often central intervals hold the truth minus how often they should.

    Shaded are 68 % and 95 % of chance at each probability. A whole curve stays within the dashed lines with a
    probability of 95 %.
    """
    ranks = result.ranks
    with _panels(result) as (figure, panels):
        level = np.linspace(0.0, 1.0, 101)[1:-1]
        bands = [(colour, ranks.coverage_band(level, band)) for colour, band in _BANDS]
        whole = ranks.whole_curve(BANDS[1])
        for i, ax in panels.items():
            for colour, (low, high) in bands:
                ax.fill_between(level, low - level, high - level, color=colour, lw=0, step="mid")
            ax.axhline(0.0, color=COLOUR, lw=0.7)
            for edge in (-whole, whole):
                ax.axhline(edge, color=COLOUR, lw=0.8, ls="--")
            held = (ranks.centrality[:, i, None] <= level).mean(axis=0)
            ax.plot(level, held - level, color=TRUTH if _is_suspect(result, i) else COLOUR, lw=1.4)
            ax.set_xlim(0.0, 1.0)
            reach = max(1.3 * whole, 1.1 * float(np.abs(held - level).max()))
            ax.set_ylim(-reach, reach)
            ax.yaxis.set_major_locator(MaxNLocator(5))
        figure.supxlabel("probability of the interval", fontsize=9)
        figure.supylabel("coverage minus that probability", fontsize=9)
        return figure


def reduced_chi2(result: SBCResult, *, ax: Axes | None = None) -> Figure:
    """Draw the reduced chi-squared of one draw of each replicate, and its expected distribution.

    Parameters
    ----------
    result : SBCResult
    ax : Axes, optional
        By default those of a new figure.

    Raises
    ------
    InputError
        The noise is not Gaussian, so that there is no expected distribution.
    """
    if result.reduced_chi2 is None:
        raise InputError("this SBC result has no reduced chi-squared: its noise is not Gaussian")
    values, n = result.reduced_chi2[:, 1], 2.0 * result.n_vis
    scatter = 1.0 / math.sqrt(result.n_vis)
    low, high = min(values.min(), 1.0 - 4.0 * scatter), max(values.max(), 1.0 + 4.0 * scatter)
    x = np.linspace(low, high, 400)
    edges = np.linspace(low, high, 1 + int(np.clip((high - low) / (0.5 * scatter), 8, 60)))
    from scipy import stats  # which takes a third of a second to import

    expected = stats.chi2.pdf(x * n, n) * n * len(values) * (edges[1] - edges[0])
    with drawing_on(ax, (5.0, 3.2)) as drawn:
        counts = np.histogram(values, edges)[0]
        drawn.stairs(counts, edges, color=COLOUR, lw=1.4, label="one draw of each replicate")
        drawn.plot(x, expected, color=TRUTH, lw=1.2, label="expected")
        drawn.set_xlabel("reduced chi-squared")
        drawn.set_ylabel("replicates")
        # Above what is drawn, so that the legend covers nothing.
        drawn.set_ylim(0.0, 1.35 * max(float(counts.max()), float(expected.max())))
        drawn.legend(loc="upper right")
        return figure_of(drawn)


@contextmanager
def _panels(result: SBCResult) -> Iterator[tuple[Figure, dict[int, Axes]]]:
    """A figure, and its axes by index of the quantity."""
    names = result.ranks.names
    tests = result.ranks.tests()
    smallest = [min(test.p_value for test in tests if test.quantity == name) for name in names]
    shown = sorted(np.argsort(smallest, kind="stable")[:MAX_PANELS].tolist())
    n_column = min(4, len(shown))
    n_row = math.ceil(len(shown) / n_column)
    with new_figure((1.0 + 2.0 * n_column, 0.8 + 1.5 * n_row)) as figure:
        axes = figure.subplots(n_row, n_column, sharex=True, squeeze=False).ravel()
        for ax in axes[len(shown) :]:
            ax.set_axis_off()
        for ax in axes[max(0, len(shown) - n_column) : len(shown)]:
            ax.tick_params(labelbottom=True)  # also above a place that is empty
        panels = dict(zip(shown, axes, strict=False))
        for i, ax in panels.items():
            ax.set_title(names[i], fontsize=8)
            ax.tick_params(labelsize=7)
            ax.xaxis.set_major_locator(MaxNLocator(4))
        yield figure, panels


def _is_suspect(result: SBCResult, i: int) -> bool:
    """Whether the tests doubt a quantity."""
    return result.ranks.names[i] in result.suspects()
