"""Pictures of a posterior: corner plot and traces, each a matplotlib Figure without pyplot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, MaxNLocator, ScalarFormatter
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter

from biro.display.arguments import NAME, POSTERIOR, takes
from biro.display.formatting import digits_after_point
from biro.display.style import COLOUR, TRUTH, drawing_on, figure_of, inner_ticks, new_figure
from biro.errors import InputError
from biro.inference.posterior.posterior import Posterior
from biro.inference.posterior.statistics import continuous, quantiles
from biro.inference.posterior.table import LEVELS
from biro.models.quantities.parameter import Column
from biro.plots.labels import chosen_columns, parameter_text

_SHADES = LinearSegmentedColormap.from_list("biro", ["#ffffff", "#c6d7e8", COLOUR])
_FILLS = ("#dbe6f0", "#94b4d1")
"""Within the contours of 95 % and of 68 %."""
_MANY = 6
"""Parameters up to which an axis of a corner plot has three ticks."""
_LEAST_PANEL = 1.05
"""Width of a panel of a corner plot, inches, at least: that of a median with its errors."""
_LONG = 18
"""Letters of a name that fit above a panel."""
MAX_CORNER = 24
"""Parameters of the largest corner plot."""


@takes(posterior=POSTERIOR)
def corner(
    posterior: Posterior, names: Sequence[str] | None = None, truth: Mapping[str, float] | None = None
) -> Figure:
    """Draw marginal histograms and all pairs of parameters, with contours that enclose 68 % and 95 %.

    Contours end where the prior does. Above each histogram stand name, median and 68 % interval, with
    question marks where the prior of a noise factor cuts it off, so that no interval can be trusted.

    Parameters
    ----------
    posterior : Posterior
    names : sequence of str, optional
        Parameters that are shown: "jet.I" is one, "jet" all of that source, "*.I" all that fit. By default
        all, without noise factors where there are more than eight parameters.
    truth : mapping name -> value, optional
        True values, marked by lines.

    Raises
    ------
    InputError
        An unknown name, or more than 24 parameters.
    """
    columns = chosen_columns(posterior, names)
    n = len(columns)
    if n > MAX_CORNER:
        raise InputError(f"a corner plot of {n} parameters cannot be read; give up to {MAX_CORNER} names")
    values = [_continuous(posterior, column) for column in columns]
    edges = [_edges(*each, posterior.weight) for each in zip(columns, values, strict=True)]
    mark = "?" * posterior.summary().noise_is_cut_off
    size = 1.4 + max(_LEAST_PANEL, 1.6 - 0.07 * n) * n
    marks = [_moved_truth(posterior, column, (truth or {}).get(column.name)) for column in columns]
    with new_figure((size, size), layout=None) as figure:
        grid = figure.add_gridspec(n, n, wspace=0.06, hspace=0.06)
        for i in range(n):
            for j in range(i + 1):
                ax = figure.add_subplot(grid[i, j])
                if i == j:
                    _marginal(ax, values[i], edges[i], posterior.weight, (marks[i], mark))
                    median, errors = ax.get_title().split("\n")
                    unit = f" {columns[i].unit}" * (columns[i].unit != "")
                    ax.set_title(f"{_broken(columns[i].name)}\n{median}{unit}\n{errors}", fontsize=7)
                else:
                    limits = [_limits(columns[k], edges[k]) for k in (j, i)]
                    _pair(ax, (values[j], values[i]), (edges[j], edges[i]), posterior.weight, limits)
                    _truth_lines(ax, marks[j], marks[i])
                _label_corner(ax, (i, j, n), columns[j], columns[i])
        figure.subplots_adjust(left=1.0 / size, bottom=1.0 / size, right=1 - 0.2 / size, top=1 - 0.7 / size)
        # This aligns the labels without measuring the ticks of all axes, which takes seconds for 16 of them.
        distance = -0.62 / (figure.axes[0].get_position().width * size)  # 0.62 inch
        for ax in figure.axes:
            ax.yaxis.set_label_coords(distance, 0.5)
            ax.xaxis.set_label_coords(0.5, distance)
        return figure


@takes(posterior=POSTERIOR, name=NAME)
def marginal(
    posterior: Posterior, name: str, truth: float | None = None, *, ax: Axes | None = None
) -> Figure:
    """Draw the histogram of one parameter, with its median and its 68 % interval.

    Parameters
    ----------
    posterior : Posterior
    name : str
    truth : float, optional
        The true value, marked by a line.
    ax : Axes, optional
        By default those of a new figure.

    Raises
    ------
    InputError
        No such parameter, or several.
    """
    columns = chosen_columns(posterior, [name])
    if len(columns) > 1:
        raise InputError(f"{name!r} are {len(columns)} parameters; give one of them")
    mark = "?" * posterior.summary().noise_is_cut_off
    with drawing_on(ax, (3.5, 2.8)) as drawn:
        values = _continuous(posterior, columns[0])
        edges = _edges(columns[0], values, posterior.weight)
        true = _moved_truth(posterior, columns[0], truth)
        _marginal(drawn, values, edges, posterior.weight, (true, mark))
        drawn.set_xlabel(parameter_text(columns[0], lines=False))
        box = drawn.get_position()
        width = box.width * figure_of(drawn).get_size_inches()[0]
        drawn.xaxis.set_major_locator(MaxNLocator(int(np.clip(width / 0.8, 1, 4)), prune="both"))
        _offset_into_label(drawn.xaxis)
        return figure_of(drawn)


@takes(posterior=POSTERIOR)
def traces(posterior: Posterior, names: Sequence[str] | None = None) -> Figure:
    """Draw each parameter along the run: walkers by step, or nested samples by log-likelihood.

    Parameters
    ----------
    posterior : Posterior
    names : sequence of str, optional
        As for `corner`.

    Raises
    ------
    InputError
        An unknown name.
    """
    columns = chosen_columns(posterior, names)
    with new_figure((7.1, 0.6 + 0.95 * len(columns))) as figure:
        axes = figure.subplots(len(columns), 1, sharex=True, squeeze=False)[:, 0]
        for ax, column in zip(axes, columns, strict=True):
            _trace(ax, posterior, _continuous(posterior, column))
            ax.set_ylabel(parameter_text(column), fontsize=8)
            ax.yaxis.set_major_locator(MaxNLocator(4))
            ax.tick_params(labelsize=7)
            _offset_into_label(ax.yaxis)
        steps = "step (after burn-in and thinning)"
        axes[-1].set_xlabel(steps if posterior.n_walker > 1 else "log-likelihood")
        figure.align_ylabels(axes)
        return figure


def _trace(ax: Axes, posterior: Posterior, values: NDArray[np.float64]) -> None:
    if posterior.n_walker > 1:
        chains = values.reshape(-1, posterior.n_walker)
        ax.plot(chains, color=COLOUR, alpha=0.25, lw=0.5, rasterized=True)
        ax.set_xlim(0, max(len(chains) - 1, 1))
        return
    order = np.argsort(posterior.weight)
    # Samples of less weight would be drawn in white.
    order = order[posterior.weight[order] > 1e-3 * posterior.weight.max()]
    dots: dict[str, Any] = {"s": 3, "cmap": _SHADES, "lw": 0, "rasterized": True}
    ax.scatter(posterior.log_likelihood[order], values[order], c=posterior.weight[order], **dots)


def _continuous(posterior: Posterior, column: Column) -> NDArray[np.float64]:
    """Samples of one parameter; those of a parameter that wraps are moved to the median of the table."""
    values, weight = posterior.weighted_draws(column.name)
    return values if column.period is None else continuous(values, weight, column.period)


def _moved_truth(posterior: Posterior, column: Column, value: float | None) -> float | None:
    """A true value; that of a parameter that wraps is moved by whole periods to near the samples."""
    if value is None or column.period is None:
        return value
    (median,) = quantiles(_continuous(posterior, column), posterior.weight, (0.5,))
    return value - column.period * round((value - median) / column.period)


def _marginal(
    ax: Axes,
    values: NDArray[np.float64],
    edges: NDArray[np.float64],
    weight: NDArray[np.float64],
    marks: tuple[float | None, str],
) -> None:
    """Histogram of a parameter with its median and its 68 % interval; the truth, and a mark behind errors."""
    truth, mark = marks
    density = np.histogram(values, edges, weights=weight)[0]
    ax.stairs(density, edges, fill=True, fc="#c6d7e8", ec=COLOUR)
    _, low, median, high, _ = quantiles(values, weight, LEVELS)
    for value, style in ((low, ":"), (median, "-"), (high, ":")):
        ax.axvline(value, color=COLOUR, lw=0.9, ls=style)
    if truth is not None:
        ax.axvline(truth, color=TRUTH, lw=1.2)
    digits = digits_after_point(0.5 * (high - low))
    errors = f"$-${median - low:.{digits}f}{mark} $+${high - median:.{digits}f}{mark}"
    ax.set_title(f"{median:.{digits}f}".replace("-", "−") + f"\n{errors}", fontsize=7)
    ax.set_yticks([])
    ax.set_xlim(edges[0], edges[-1])
    ax.set_ylim(0.0, 1.08 * density.max())


def _edges(column: Column, values: NDArray[np.float64], weight: NDArray[np.float64]) -> NDArray[np.float64]:
    """Edges of bins within the prior, of which there are more for a larger effective number of samples."""
    n = int(np.clip(1.5 * np.sum(weight**2) ** (-1 / 3), 12, 40))
    low, high = quantiles(values, weight, (0.001, 0.999))
    pad = 0.08 * (high - low) or 1e-12 + 1e-9 * abs(high)
    low, high = low - pad, high + pad
    if column.period is None:  # whose ends are none
        low = low if column.low is None else max(low, column.low)
        high = high if column.high is None else min(high, column.high)
    return np.linspace(low, high, n + 1)


def _pair(
    ax: Axes,
    values: tuple[NDArray[np.float64], NDArray[np.float64]],
    edges: tuple[NDArray[np.float64], NDArray[np.float64]],
    weight: NDArray[np.float64],
    limits: Sequence[tuple[bool, bool]],
) -> None:
    """Density of two parameters, with contours."""
    # Twice as many bins as in the histograms, and smoothed over two of them.
    (x, y), (x_edges, y_edges) = values, (np.linspace(e[0], e[-1], 2 * len(e) - 1) for e in edges)
    density = np.histogram2d(x, y, bins=(x_edges, y_edges), weights=weight)[0]
    density = _smooth(density, limits)
    x_mid, y_mid = 0.5 * (x_edges[1:] + x_edges[:-1]), 0.5 * (y_edges[1:] + y_edges[:-1])
    levels = _levels(density, (0.9545, 0.6827))
    if len(levels) == 2:
        ax.contourf(x_mid, y_mid, density.T, levels=[*levels, 1.001 * density.max()], colors=_FILLS)
        ax.contour(x_mid, y_mid, density.T, levels=levels, colors=COLOUR, linewidths=0.7)
    else:
        ax.pcolormesh(x_edges, y_edges, density.T, cmap=_SHADES, rasterized=True)
    ax.set_xlim(edges[0][0], edges[0][-1])
    ax.set_ylim(edges[1][0], edges[1][-1])


def _smooth(density: NDArray[np.float64], limits: Sequence[tuple[bool, bool]]) -> NDArray[np.float64]:
    """A density smoothed over two bins: mirrored where a prior cuts it off, zero beyond other edges."""
    reach = 8
    for axis, ends in enumerate(limits):
        for end, is_cut in enumerate(ends):
            width = [(0, 0), (0, 0)]
            width[axis] = (reach, 0) if end == 0 else (0, reach)
            density = np.pad(density, width, mode="symmetric" if is_cut else "constant")
    return np.asarray(gaussian_filter(density, 2.0, mode="constant")[reach:-reach, reach:-reach])


def _limits(column: Column, edges: NDArray[np.float64]) -> tuple[bool, bool]:
    """Whether the prior of a parameter ends at the first and at the last edge."""
    return column.period is None and edges[0] == column.low, column.period is None and edges[
        -1
    ] == column.high


def _levels(density: NDArray[np.float64], fractions: Sequence[float]) -> list[float]:
    """Densities whose contours enclose these fractions (highest density regions), ascending."""
    ordered = np.sort(density.ravel())[::-1]
    enclosed = np.cumsum(ordered) / ordered.sum()
    return sorted({float(ordered[np.searchsorted(enclosed, fraction)]) for fraction in fractions})


def _truth_lines(ax: Axes, x: float | None, y: float | None) -> None:
    if x is not None:
        ax.axvline(x, color=TRUTH, lw=0.9)
    if y is not None:
        ax.axhline(y, color=TRUTH, lw=0.9)


def _label_corner(ax: Axes, place: tuple[int, int, int], x: Column, y: Column) -> None:
    i, j, n = place
    ax.tick_params(labelsize=6.5, length=2.5)
    most = 3 if n <= _MANY else 2
    for axis in (ax.xaxis, ax.yaxis) if i != j else (ax.xaxis,):
        low, high = sorted(axis.get_view_interval())
        axis.set_major_locator(FixedLocator(inner_ticks(low, high, most)))
    if i == n - 1:
        ax.set_xlabel(parameter_text(x), fontsize=8 if n <= _MANY else 7)
        _offset_into_label(ax.xaxis)
        for text in ax.get_xticklabels():
            text.set(rotation=40, rotation_mode="anchor", ha="right", va="top")
    else:
        ax.set_xticklabels([])
    if j == 0 and i > 0:
        ax.set_ylabel(parameter_text(y), fontsize=8 if n <= _MANY else 7)
        _offset_into_label(ax.yaxis)
    else:
        ax.set_yticklabels([])


def _broken(name: str) -> str:
    """A name on two lines where it is long, so that it is no wider than its panel."""
    return name if len(name) <= _LONG else name.replace("[", "\n[", 1)


def _offset_into_label(axis: Axis) -> None:
    """Write what all ticks share, an offset or a power of ten, behind the label and not beside the axes."""
    plain = ScalarFormatter(useOffset=True, useMathText=True)
    axis.set_major_formatter(plain)
    plain.set_locs(axis.get_majorticklocs().tolist())
    shared = plain.get_offset()
    axis.get_offset_text().set_visible(False)
    if shared:
        power = shared.replace(r"\mathdefault", "").strip("$")
        sign = "" if power.startswith(("+", "-", r"{+", r"{-")) else r"\times"
        axis.set_label_text(f"{axis.get_label_text()} ${sign}{power}$")
