"""Draw planes of images: brightness against offsets from the phase centre, with contours and the beam."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import AsinhNorm, Normalize
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.patches import Ellipse
from matplotlib.ticker import MaxNLocator, NullLocator
from numpy.typing import NDArray

from biro.display.formatting import FLUXES, Unit, unit_for
from biro.display.style import COLUMN, WIDTH, drawing_on, figure_of, new_figure, plain_ticks
from biro.imaging.psf import RestoringBeam

_UNITS = ((1.0, "deg"), (60.0, "arcmin"), (3600.0, "arcsec"), (3.6e6, "mas"), (3.6e9, "µas"))
MAP, DIVERGING = "inferno", "RdBu_r"
"""Colour maps that people with any colour vision can read."""
_MARKS = {MAP: "#8cffd2", DIVERGING: "#00664a"}
"""Colour of the crosses at sources by colour map: pale green on dark, dark green on white."""
FIRST_LEVEL = 5.0
"""The lowest contour, in rms; each is twice the one before, and as many are below zero, dashed."""
SIGNIFICANT = 3.0
"""The lowest contour of a significance, in standard deviations."""
MARGIN = 6.0
"""Major axes of the beam about what a window shows."""
_MOST_LEVELS = 10
_MOST_PIXELS = 600
"""Along a side: of a wider view contours could not be told from each other."""
_EDGE = 0.03
"""Space between the beam and the frame, in widths of the view."""


class SkyWindow(NamedTuple):
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
    window : SkyWindow or None
        The part that is shown; None is the whole plane.
    is_residual : bool
        Colours are then symmetric about 0.
    per : str
        What brightness is per, in the label of the colour bar.
    contoured : float64 (N, N) or None
        What contours are drawn of in place of the brightness, at 3, 6, 12, ...: a significance.
    """

    plane: NDArray[np.float64]
    cell: float
    beam: RestoringBeam | None
    rms: float
    title: str
    window: SkyWindow | None = None
    is_residual: bool = False
    sources: Sequence[tuple[float, float]] = ()
    sidelobe: float = 0.0
    per: str = "beam"
    contoured: NDArray[np.float64] | None = None

    @property
    def view(self) -> SkyWindow:
        """The part that is shown."""
        return self.window or SkyWindow(0.5 * self.cell, -0.5 * self.cell, 0.5 * len(self.plane) * self.cell)

    @property
    def shown(self) -> NDArray[np.float64]:
        """The pixels that are shown."""
        return self.plane[self._slices()]

    def offsets(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Offsets of the columns and rows of `shown` from the phase centre, east and north, rad."""
        rows, columns = self._slices()
        steps = (np.arange(len(self.plane)) - len(self.plane) // 2) * self.cell
        return np.asarray(-steps[columns], np.float64), np.asarray(steps[rows], np.float64)

    def _slices(self) -> tuple[slice, slice]:
        """Rows and columns of what is shown."""
        n, (east, north, half) = len(self.plane), self.view
        x, y = n // 2 - east / self.cell, n // 2 + north / self.cell
        reach = max(half / self.cell, 0.5)
        first_x, first_y = (int(np.clip(np.ceil(at - reach), 0, n - 1)) for at in (x, y))
        last_x, last_y = (int(np.clip(np.floor(at + reach), 0, n - 1)) for at in (x, y))
        return slice(first_y, last_y + 1), slice(first_x, last_x + 1)


def window_about(panels: Sequence[Panel], offsets: NDArray[np.float64]) -> SkyWindow | None:
    """The part with all that is above 5 rms and above sidelobes of the peak in any plane, and all sources.

    Parameters
    ----------
    panels : sequence of Panel
        Of one grid.
    offsets : float64 (n, 2)
        Direction cosines of sources.

    Returns
    -------
    SkyWindow or None
        Its middle is that of the sources, or of what is seen where there is no source; with `MARGIN` major
        axes of the beam beyond all. None where it is half of the width or more, or where nothing is above a
        contour and there is no source.
    """
    first = panels[0]
    if first.beam is None:
        return None
    n, whole, beam = len(first.plane), 0.5 * len(first.plane) * first.cell, first.beam.major
    seen = np.any([_is_seen(panel) for panel in panels], axis=0)
    y, x = np.nonzero(seen)
    inside = offsets[(np.abs(offsets) < whole).all(axis=1)]
    points = np.concatenate([np.stack([n // 2 - x, y - n // 2], axis=1) * first.cell, inside])
    if not len(points):
        return None
    about = inside if len(inside) else points
    middle = 0.5 * (about.min(axis=0) + about.max(axis=0))
    half = float(np.abs(points - middle).max()) + MARGIN * beam
    if half > 0.5 * whole:
        return None
    reach = whole - half  # the window stays within the image
    east, north = np.clip(middle, -reach, reach).tolist()
    return SkyWindow(east, north, half)


def _is_seen(panel: Panel) -> NDArray[np.bool_]:
    """Pixels that neither noise nor a sidelobe of the peak explains.

    Of a residual it is the peak alone, because sidelobes of all that the model lacks add up.
    """
    size = np.abs(panel.plane)
    share = 1.0 if panel.is_residual else panel.sidelobe
    return np.asarray((size > FIRST_LEVEL * panel.rms) & (size >= share * float(size.max())))


def draw_panels(rows: Sequence[Sequence[Panel]], width: float = WIDTH, n_column: int | None = None) -> Figure:
    """A figure of panels in rows of equal length.

    The panels of a row have one scale of colours, but for the residual, whose scale is symmetric about 0; a
    colour bar stands beside the last panel of a scale. Panels that show one part of the sky have labels at
    the left and at the bottom alone. Contours are at 5, 10, 20, ... times the rms, above and below zero: of
    the residual its own, of others the largest of the row.

    Parameters
    ----------
    rows : sequence of sequence of Panel
    width : float
        Width of the figure, inches. It is as high as its panels need.
    n_column : int, optional
        Panels side by side, where a row is to be broken; by default all.
    """
    n_column = n_column or len(rows[0])
    n_line = -(-len(rows[0]) // n_column)
    # Higher than needed: `_trim` takes what is blank away.
    with new_figure((width, (width / n_column + 0.6) * n_line * len(rows)), "compressed") as figure:
        axes = figure.subplots(n_line * len(rows), n_column, squeeze=False)
        for axes_row, row in zip(axes.reshape(len(rows), -1), rows, strict=True):
            norm, unit, rms = _scale(row)
            for ax in axes_row[len(row) :]:
                ax.set_visible(False)
            for i, (ax, panel) in enumerate(zip(axes_row, row, strict=False)):
                ends_line = i == len(row) - 1 or i % n_column == n_column - 1
                has_bar = ends_line or panel.is_residual or row[i + 1].is_residual
                look = _residual_norm(panel) if panel.is_residual else norm
                _draw(ax, panel, look, unit, rms, has_bar=has_bar)
                ax.set_title(panel.title, fontsize=7)
                _label_outer(ax, i, n_column, row)
        _trim(figure)
        return figure


def _label_outer(ax: Axes, i: int, n_column: int, row: Sequence[Panel]) -> None:
    """Leave labels that the panels to the left or below have, too, to those."""
    are_alike = all(panel.view == row[0].view for panel in row)
    if i % n_column:
        ax.set_ylabel("")
        ax.tick_params(labelleft=not are_alike)
    if are_alike and i + n_column < len(row):
        ax.set_xlabel("")
        ax.tick_params(labelbottom=False)


def _trim(figure: Figure) -> None:
    """Make a figure as high as what is drawn in it: panels of a fixed shape leave blank bands."""
    engine = figure.get_layout_engine()
    assert engine is not None
    engine.execute(figure)
    width = float(figure.get_size_inches()[0])
    figure.set_size_inches(width, figure.get_tightbbox().height + 0.1)


def draw_panel(panel: Panel, *, ax: Axes | None = None) -> Figure:
    """One panel, on the axes that are given or on those of a new figure."""
    norm, unit, rms = _scale([panel])
    with drawing_on(ax, (COLUMN, 0.88 * COLUMN), "compressed") as drawn:
        _draw(drawn, panel, _residual_norm(panel) if panel.is_residual else norm, unit, rms)
        drawn.set_title(panel.title, fontsize=7.5)
        return figure_of(drawn)


def draw_backdrop(ax: Axes, panel: Panel, scale: float) -> None:
    """An image below something else: in pale grey, with contours and the beam; limits of the axes stay.

    Parameters
    ----------
    ax : Axes
        Offsets from the phase centre, east to the left.
    panel : Panel
    scale : float
        What offsets in rad are multiplied with.
    """
    limits = ax.get_xlim(), ax.get_ylim()
    norm, _, rms = _scale([panel])
    plane, extent = _for_display(panel, scale)
    ax.imshow(plane, extent=extent, cmap="Greys", norm=norm, alpha=0.35, zorder=0, interpolation="bilinear")
    _draw_contours(ax, panel, rms, scale, "0.45")
    ax.set_xlim(limits[0])
    ax.set_ylim(limits[1])
    if panel.beam is not None:
        draw_beam(ax, panel.beam, scale, "0.25")


def _scale(row: Sequence[Panel]) -> tuple[Normalize, Unit, float]:
    """The scale of colours of a row, the unit of its colour bars, and the rms of its contours."""
    panels = [panel for panel in row if not panel.is_residual] or row
    low = min(0.0, *(float(panel.shown.min()) for panel in panels))
    high = max(0.0, *(float(panel.shown.max()) for panel in panels))
    # What is a rounding of zero is zero.
    low, high = (0.0 if abs(end) < 1e-6 * (high - low) else end for end in (low, high))
    rms = max(panel.rms for panel in panels)
    linear = 5.0 * rms if rms > 1e-6 * max(abs(low), abs(high)) else 0.1 * max(abs(low), abs(high)) or 1.0
    if not low < high:
        high = linear
    unit = unit_for([1.5 * max(abs(low), abs(high))], _FLUX_UNITS)
    return AsinhNorm(linear_width=linear, vmin=low, vmax=high), unit, rms


_FLUX_UNITS = tuple(Unit(unit.name.replace("u", "µ"), unit.size) for unit in FLUXES)


def _residual_norm(panel: Panel) -> Normalize:
    """Symmetric about 0, up to the largest residual that is shown."""
    half = float(np.abs(panel.shown).max()) or 1.0
    return Normalize(-half, half)


def _draw(ax: Axes, panel: Panel, norm: Normalize, unit: Unit, rms: float, *, has_bar: bool = True) -> None:
    east, north, half = panel.view
    scale, name = angle_unit(half)
    if panel.is_residual:
        unit = unit_for([1.5 * float(norm.vmax or 0.0)], _FLUX_UNITS)
    plane, extent = _for_display(panel, scale)
    cmap = DIVERGING if panel.is_residual else MAP
    drawn = ax.imshow(plane, extent=extent, cmap=cmap, norm=norm, interpolation="nearest")
    ax.set_xlim((east + half) * scale, (east - half) * scale)
    ax.set_ylim((north - half) * scale, (north + half) * scale)
    dark = "0.2" if panel.is_residual else "white"
    _draw_contours(ax, panel, panel.rms if panel.is_residual else rms, scale, dark)
    if panel.beam is not None:
        draw_beam(ax, panel.beam, scale, dark)
    for at in panel.sources:
        if max(abs(at[0] - east), abs(at[1] - north)) <= half:
            ax.plot(at[0] * scale, at[1] * scale, "+", ms=6, mew=0.9, color=_MARKS[cmap])
    plain_ticks(ax, 4)
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(MaxNLocator(4, prune="both"))
    ax.tick_params(color="0.8" if not panel.is_residual else "0.2")
    ax.set_xlabel(f"east offset [{name}]")
    ax.set_ylabel(f"north offset [{name}]")
    if has_bar:
        _add_colour_bar(drawn, unit, panel.per)


def _for_display(panel: Panel, scale: float) -> tuple[NDArray[np.float64], tuple[float, float, float, float]]:
    """The plane with no more pixels than a picture has, and its edges, east to the left."""
    n = len(panel.plane)
    step = 1 if len(panel.shown) <= _MOST_PIXELS else math.ceil(n / _MOST_PIXELS)
    plane = thinned(panel.plane, step)
    n_block = len(plane)
    # Pixel (N/2, N/2) has its middle at 0.
    low, high = (panel.cell * (edge - n // 2) * scale for edge in (-0.5, n_block * step - 0.5))
    return plane, (-low, -high, low, high)


def thinned(plane: NDArray[np.float64], step: int) -> NDArray[np.float64]:
    """Pixels of a plane, of which `step` by `step` become one.

    The farthest of them from zero is taken: an average would hide what is as small as the beam, and one of
    them taken at will might miss it.
    """
    n_y, n_x = (math.ceil(n / step) for n in plane.shape)
    padded = np.pad(plane, ((0, n_y * step - plane.shape[0]), (0, n_x * step - plane.shape[1])))
    blocks = padded.reshape(n_y, step, n_x, step).swapaxes(1, 2).reshape(n_y, n_x, -1)
    farthest = np.abs(blocks).argmax(axis=2)[..., None]
    return np.asarray(np.take_along_axis(blocks, farthest, axis=2)[..., 0])


def _draw_contours(ax: Axes, panel: Panel, rms: float, scale: float, colour: str) -> None:
    """Contours of what is shown, of which there are none where all is below the first level."""
    plane = panel.plane if panel.contoured is None else panel.contoured
    first = FIRST_LEVEL * rms if panel.contoured is None else SIGNIFICANT
    peak = float(np.abs(plane[panel._slices()]).max())
    if not 0.0 < first < peak or not 4 <= max(panel.shown.shape) <= _MOST_PIXELS:
        return
    levels = first * 2.0 ** np.arange(_MOST_LEVELS)
    while levels[-1] * 2.0 < peak:  # of a high dynamic range the highest
        levels = 2.0 * levels
    levels = levels[levels < peak]
    n = len(panel.plane)
    offset = (np.arange(n) - n // 2) * panel.cell
    east, north, half = panel.view
    x = np.flatnonzero(np.abs(-offset - east) <= half + panel.cell)
    y = np.flatnonzero(np.abs(offset - north) <= half + panel.cell)
    part = plane[y[0] : y[-1] + 1, x[0] : x[-1] + 1]
    for sign, style in ((1.0, "-"), (-1.0, "--")):
        inside = levels[(sign * part).max() > levels]
        if inside.size:
            lines: dict[str, Any] = {"colors": colour, "linewidths": 0.5, "linestyles": style, "alpha": 0.8}
            ax.contour(-offset[x] * scale, offset[y] * scale, sign * part, levels=inside, **lines)


def _add_colour_bar(drawn: AxesImage, unit: Unit, per: str) -> None:
    """The colour bar of a panel, with ticks at both ends, at 0, and where the linear range ends."""
    norm, ax = drawn.norm, drawn.axes
    assert isinstance(norm, Normalize)
    low, high = norm.vmin or 0.0, norm.vmax or 0.0
    ticks = {low, 0.0, high}
    if isinstance(norm, AsinhNorm) and high > 4.0 * norm.linear_width:
        ticks |= {norm.linear_width, float(np.sqrt(norm.linear_width * high))}
    elif not isinstance(norm, AsinhNorm):
        ticks |= {0.5 * low, 0.5 * high}
    # Labels that lie closer than a line of text are left out, ends and 0 last.
    kept = _apart(sorted(ticks, key=lambda tick: (tick not in (low, high), tick != 0.0)), norm)
    # The bar is as high as the panel and no higher, because titles stand above.
    bar = figure_of(ax).colorbar(drawn, cax=ax.inset_axes((1.03, 0.0, 0.045, 1.0)), ticks=kept)
    bar.ax.set_yticklabels([f"{tick / unit.size:.3g}".replace("-", "−") for tick in kept])
    bar.ax.set_ylabel(f"{unit.name}/{per}", labelpad=2)
    bar.ax.yaxis.set_minor_locator(NullLocator())
    bar.ax.tick_params(labelsize=7, direction="out", right=True, left=False, labelright=True)


def _apart(ticks: Sequence[float], norm: Normalize) -> list[float]:
    """Ticks, in ascending order, of which none is nearer than a twelfth of the bar to one before it."""
    kept: list[float] = []
    for tick in ticks:
        if all(abs(float(norm(tick)) - float(norm(other))) > 1.0 / 12.0 for other in kept):
            kept.append(tick)
    return sorted(kept)


def draw_beam(ax: Axes, beam: RestoringBeam, scale: float, colour: str) -> None:
    """FWHM of the beam, lower left inside the frame, where it is not as wide as half of that.

    Its major axis points to (sin pa, cos pa) in (east, north).
    """
    (left, right), (bottom, top) = ax.get_xlim(), ax.get_ylim()
    width = min(abs(right - left), abs(top - bottom))
    major, minor = beam.major * scale, beam.minor * scale
    sin, cos = np.sin(beam.pa), np.cos(beam.pa)
    half_east = 0.5 * float(np.hypot(major * sin, minor * cos))
    half_north = 0.5 * float(np.hypot(major * cos, minor * sin))
    if max(half_east, half_north) > 0.25 * width:
        return
    east = left + np.sign(right - left) * (half_east + _EDGE * width)
    north = bottom + np.sign(top - bottom) * (half_north + _EDGE * width)
    angle = 90.0 - float(np.rad2deg(beam.pa))
    for fill in (True, False):
        look = {"fc": colour, "ec": "none", "alpha": 0.35} if fill else {"fill": False, "ec": colour}
        ax.add_patch(Ellipse((east, north), major, minor, angle=angle, lw=1.0, zorder=4, **look))


def angle_unit(half: float) -> tuple[float, str]:
    """Factor from radians, and name, of a unit in which the edge is a number of 1 to some hundreds."""
    degrees = 180.0 / np.pi
    for factor, name in _UNITS:
        if half * degrees * factor >= 1.0:
            return degrees * factor, name
    return degrees * _UNITS[-1][0], _UNITS[-1][1]
