"""Draw planes of images: brightness against offsets from the phase centre, with the beam."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import AsinhNorm
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.patches import Ellipse
from matplotlib.ticker import MaxNLocator, ScalarFormatter
from numpy.typing import NDArray

from biro.images.psf import RestoringBeam

_UNITS = ((1.0, "deg"), (60.0, "arcmin"), (3600.0, "arcsec"), (3.6e6, "mas"), (3.6e9, "µas"))
MAP = "inferno"


class Window(NamedTuple):
    """A square part of the sky: offsets of its middle from the phase centre and half its width, rad."""

    east: float
    north: float
    half: float


@dataclass(frozen=True, eq=False)
class Panel:
    """What one panel shows.

    Attributes
    ----------
    plane : float64 (N, N), Jy/beam
        Pixel (x, y) of `plane[y, x]` lies at l = -(x - N/2) cell, m = (y - N/2) cell.
    cell : float, rad
    beam : RestoringBeam or None
        Drawn in the lower left corner.
    rms : float, Jy/beam
        The colours are linear in brightness up to five times this, and logarithmic above.
    title : str
    window : Window or None
        The part that is shown; None is the whole plane.
    """

    plane: NDArray[np.float64]
    cell: float
    beam: RestoringBeam | None
    rms: float
    title: str
    window: Window | None = None


def draw_panels(rows: Sequence[Sequence[Panel]], size: tuple[float, float]) -> Figure:
    """A figure of panels in rows of equal length.

    Parameters
    ----------
    rows : sequence of sequence of Panel
    size : (float, float)
        Width and height of a panel with its labels, inches.
    """
    n_row, n_column = len(rows), len(rows[0])
    figure = Figure(figsize=(size[0] * n_column, size[1] * n_row), layout="constrained")
    axes = figure.subplots(n_row, n_column, squeeze=False)
    for axes_row, row in zip(axes, rows, strict=True):
        for ax, panel in zip(axes_row, row, strict=True):
            _draw(ax, panel)
            ax.set_title(panel.title, fontsize=9)
    return figure


def plain_ticks(ax: Axes) -> None:
    """Few ticks with their values in full: neither "+3e4" nor "1e7" beside the axes."""
    for axis in (ax.xaxis, ax.yaxis):
        plain = ScalarFormatter(useOffset=False)
        plain.set_scientific(False)
        axis.set_major_formatter(plain)
        axis.set_major_locator(MaxNLocator(5))


def _draw(ax: Axes, panel: Panel) -> None:
    n = len(panel.plane)
    window = panel.window or Window(0.0, 0.0, 0.5 * n * panel.cell)
    scale, unit = _unit(window.half)
    # Pixel edges: pixel (N/2, N/2) has its middle at 0.
    edge = panel.cell * (np.array([-0.5, n - 0.5]) - n // 2) * scale
    drawn = ax.imshow(
        panel.plane,
        origin="lower",
        extent=(-edge[0], -edge[1], edge[0], edge[1]),
        cmap=MAP,
        norm=AsinhNorm(linear_width=5.0 * panel.rms or 1.0),
        interpolation="nearest",
    )
    if panel.window is not None:
        east, north, half = window
        ax.set_xlim((east + half) * scale, (east - half) * scale)
        ax.set_ylim((north - half) * scale, (north + half) * scale)
    if panel.beam is not None:
        _draw_beam(ax, panel.beam, window, scale)
    plain_ticks(ax)
    ax.set_xlabel(f"east offset [{unit}]")
    ax.set_ylabel(f"north offset [{unit}]")
    _add_colour_bar(drawn)


def _add_colour_bar(drawn: AxesImage) -> None:
    """The colour bar of a panel, with ticks at both ends, at 0, and where the linear range ends."""
    norm = drawn.norm
    assert isinstance(norm, AsinhNorm)
    low, high, linear = float(norm.vmin or 0.0), float(norm.vmax or 0.0), norm.linear_width
    ticks = {low, 0.0, high} | ({linear, np.sqrt(linear * high)} if high > 4.0 * linear else set())
    figure, ax = drawn.get_figure(), drawn.axes
    assert figure is not None
    # The bar is as high as the panel and no higher, because titles stand above.
    bar = figure.colorbar(
        drawn, cax=ax.inset_axes((1.03, 0.0, 0.05, 1.0)), label="Jy/beam", ticks=sorted(ticks)
    )
    bar.ax.set_yticklabels([f"{tick:.3g}" for tick in sorted(ticks)])
    bar.ax.minorticks_off()


def _draw_beam(ax: Axes, beam: RestoringBeam, window: Window, scale: float) -> None:
    """FWHM of the beam, lower left; its major axis points to (sin pa, cos pa) in (east, north)."""
    middle = (window.east + 0.88 * window.half) * scale, (window.north - 0.88 * window.half) * scale
    size = (beam.major * scale, beam.minor * scale)
    angle = 90.0 - float(np.rad2deg(beam.pa))
    ax.add_patch(Ellipse(middle, *size, angle=angle, fill=False, ec="white", lw=1.0))


def _unit(half: float) -> tuple[float, str]:
    """Factor from radians, and name, of a unit in which the edge is a number of 1 to some hundreds."""
    degrees = 180.0 / np.pi
    for factor, name in _UNITS:
        if half * degrees * factor >= 1.0:
            return degrees * factor, name
    return degrees * _UNITS[-1][0], _UNITS[-1][1]
