"""Labels of parameters in pictures, and marks of sources on images."""

from __future__ import annotations

import re
from collections.abc import Sequence

import matplotlib.style
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from numpy.typing import NDArray

from biro.errors import InputError
from biro.formatting import ANGLES
from biro.models.components.antenna_terms.gain import is_gain
from biro.models.quantities.parameter import Column
from biro.posterior.posterior import Posterior
from biro.posterior.table import NOISE
from biro.style import FILE, colour

WITH_NOISE = 8
"""Parameters of a model up to which its noise factors are shown without being asked for."""
_SYMBOLS = {"spectral_index": r"\alpha", "ra": r"\mathrm{RA}", "dec": r"\mathrm{Dec}"}
"""Symbols of pictures by the key of a parameter: alpha is the spectral index, so RA is spelled."""
_KEY = re.compile(r"\.(\w+)(\[[^\]]*\])?$")


def parameter_text(column: Column, *, lines: bool = True) -> str:
    """The label of a parameter, with its unit on a line of its own or behind it."""
    name = _symbol(column) if column.latex else column.name
    return f"{name}{chr(10) if lines else ' '}[{column.unit}]" if column.unit else name


def _symbol(column: Column) -> str:
    key = _KEY.search(column.name)
    symbol = _SYMBOLS.get(key[1]) if key else None
    below = column.latex.partition("_")[2]
    return f"${symbol}_{below}" if symbol and below else column.latex


def chosen_columns(posterior: Posterior, names: Sequence[str] | None) -> list[Column]:
    """Columns of a posterior by name, in the order of the names.

    Parameters
    ----------
    posterior : Posterior
    names : sequence of str or None
        "jet.I" is a parameter, "jet" all parameters of that source, "*.I" all that fit when * stands for any
        text. None: all without gains, without noise factors where there are more than eight parameters.

    Raises
    ------
    InputError
        A name that no parameter has.
    """
    if names is None:
        return [column for column in posterior.columns if column.name in default_names(posterior)]
    found: dict[str, Column] = {}
    for name in names:
        fits = re.compile(".*".join(map(re.escape, name.split("*"))) + r"(\..*)?")
        columns = [column for column in posterior.columns if column.name == name]
        columns = columns or [column for column in posterior.columns if fits.fullmatch(column.name)]
        if not columns:
            raise InputError(f"no parameter {name!r}; there are {', '.join(posterior.names)}")
        found |= {column.name: column for column in columns}
    return list(found.values())


def default_names(posterior: Posterior) -> tuple[str, ...]:
    """Names of the parameters that are shown when none are asked for."""
    sky = tuple(name for name in posterior.names if not is_gain(name))
    if 0 < len(sky) < posterior.n_param:
        return sky
    without = tuple(name for name in posterior.names if not name.startswith(NOISE))
    return posterior.names if posterior.n_param <= WITH_NOISE or not without else without


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
