"""The style of all pictures: one Matplotlib style file, and figures that are drawn with it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import matplotlib.style
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, NullLocator, ScalarFormatter

FILE = Path(__file__).parents[1] / "plots" / "biro.mplstyle"
COLOUR = "#1f4e79"
"""Of a posterior, and of models."""
TRUTH = "#c8553d"
"""Of true values, and of what the tests doubt."""
MODEL = "black"
"""Colour of models that are drawn over data."""
COLUMN = 3.5
"""Width of a figure in one column of a journal, inches."""
WIDTH = 7.1
"""Width of a figure across two columns of a journal, inches."""


@contextmanager
def new_figure(size: tuple[float, float], layout: str | None = "constrained") -> Iterator[Figure]:
    """A figure to be drawn within `with`, in biro's style whatever a matplotlibrc says.

    Parameters
    ----------
    size : (float, float)
        Width and height, inches.
    layout : str or None
        Layout engine of Matplotlib: "compressed" for axes of a fixed shape.
    """
    with matplotlib.style.context(FILE, after_reset=True):
        figure = Figure(figsize=size, layout=layout)  # type: ignore[arg-type]  # one of Matplotlib's names
        if layout == "compressed":
            # Labels of axes of a fixed shape are measured before these have their size.
            figure.set_layout_engine("compressed", w_pad=0.06)
        yield figure
        _make_ticks(figure)


@contextmanager
def drawing_on(ax: Axes | None, size: tuple[float, float], layout: str = "constrained") -> Iterator[Axes]:
    """The axes that were given, which keep their style, or those of a new figure in biro's style.

    Parameters
    ----------
    ax : Axes or None
    size : (float, float)
        Width and height of a new figure, inches.
    layout : str
        As for `new_figure`.
    """
    if ax is not None:
        yield ax
        return
    with new_figure(size, layout) as figure:
        yield figure.subplots()


def colour(i: int) -> str:
    """The i-th colour of the cycle now: Matplotlib would look "C0" up only when the figure is saved."""
    colours = matplotlib.rcParams["axes.prop_cycle"].by_key().get("color", ["black"])
    return to_hex(colours[i % len(colours)])


def figure_of(ax: Axes) -> Figure:
    """The figure that axes belong to, the whole of it where they lie in a part."""
    figure = ax.get_figure(root=True)
    assert figure is not None
    return figure


def plain_ticks(ax: Axes, most: int = 5) -> None:
    """Few ticks with their values in full: neither "+3e4" nor "1e7" beside the axes."""
    for axis in (ax.xaxis, ax.yaxis):
        plain = ScalarFormatter(useOffset=False)
        plain.set_scientific(False)
        axis.set_major_formatter(plain)
        axis.set_major_locator(MaxNLocator(most))


def inner_ticks(low: float, high: float, most: int) -> list[float]:
    """Two ticks of an axis at least, since one alone is no scale, and `most` or one more at most.

    They are away from the ends, where labels of neighbouring panels would meet.
    """
    for n in range(most, most + 4):
        ticks = np.asarray(MaxNLocator(n).tick_values(low, high))
        inside = ticks[np.abs(ticks - 0.5 * (low + high)) < 0.43 * (high - low)]
        if len(inside) > 1:
            break
    return [float(tick) for tick in (inside if len(inside) <= most + 1 else inside[[0, -1]])]


def _make_ticks(figure: Figure) -> None:
    """Make the first tick of every axis now: Matplotlib makes ticks late, in the style of that time."""
    for ax in figure.axes:
        for each in (ax, *(child for child in ax.child_axes if isinstance(child, Axes))):
            for axis in (each.xaxis, each.yaxis):
                axis.get_major_ticks(1)
                if not isinstance(axis.get_minor_locator(), NullLocator):
                    axis.get_minor_ticks(1)
