"""Marks of the sources of a model on images."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib.style
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from numpy.typing import NDArray

from biro.formatting import ANGLES
from biro.style import FILE, colour

MOST_NAMED = 6
"""Sources up to which each mark has its name."""


def mark_sources(
    figure: Figure, offsets: Sequence[NDArray[np.float64]], names: Sequence[str], n_column: int = 3
) -> None:
    """Draw a cross at each source on every image of a figure, and its name on the images of the data.

    Parameters
    ----------
    figure : Figure
        Rows of images with axes "east offset [unit]", as `biro.images.fit_images.image_rows` draws them.
    offsets : sequence of float64 (n_source, 2), rad
        Direction cosines of the sources of each field. A row that is titled as enlarged belongs to the
        field above it.
    names : sequence of str
        Of the sources.
    n_column : int
        Images in a row.
    """
    axes = [ax for ax in figure.axes if ax.images]
    field = -1
    with matplotlib.style.context(FILE, after_reset=True):
        for start in range(0, len(axes), n_column):
            row = axes[start : start + n_column]
            field += "enlarged" not in row[0].get_title()
            of_row = offsets[min(max(field, 0), len(offsets) - 1)]
            for k, ax in enumerate(row):
                with_names = k == 0 and len(of_row) <= MOST_NAMED
                _mark(ax, of_row * _per_radian(ax), names if with_names else ())


def _per_radian(ax: Axes) -> float:
    """What an offset in rad is multiplied with on axes whose label ends with a unit."""
    unit = ax.get_xlabel().rpartition("[")[2].rstrip("]").replace("µ", "u")
    return next(1.0 / each.size for each in ANGLES if each.name == unit)


def _mark(ax: Axes, places: NDArray[np.float64], names: Sequence[str]) -> None:
    """Crosses, with a dark edge that shows on bright and on dark; only what lies in the view."""
    limits = ax.get_xlim(), ax.get_ylim()
    (left, right), (bottom, top) = (sorted(ends) for ends in limits)
    edge = [withStroke(linewidth=2.2, foreground="black", alpha=0.6)]
    for i, (east, north) in enumerate(places):
        if left <= east <= right and bottom <= north <= top:
            ax.plot(east, north, "+", ms=8, mew=1.1, color=colour(i), path_effects=edge, gid="source")
            if names:
                ax.annotate(
                    names[i],
                    (east, north),
                    (5, 4),
                    textcoords="offset points",
                    fontsize=7,
                    color="white",
                    path_effects=edge,
                )
    ax.set_xlim(limits[0])
    ax.set_ylim(limits[1])
