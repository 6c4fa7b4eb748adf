"""Pictures of a spectral cube that was written: moment maps, spectrum, channel maps."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from astropy.io import fits
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from biro.display.formatting import FLUXES, FREQUENCIES, digits_after_point, unit_for
from biro.display.style import WIDTH, figure_of, new_figure, plain_ticks
from biro.files.atomic import write_figure
from biro.imaging.cubes.axis import SpectralAxis
from biro.imaging.cubes.figures import SavedCube
from biro.imaging.dirty_image import image_files
from biro.imaging.pictures import (
    FIRST_LEVEL,
    MAP,
    Panel,
    SkyWindow,
    angle_unit,
    draw_beam,
    draw_panels,
    window_about,
)
from biro.imaging.psf import RestoringBeam

Array = NDArray[np.float64]
MOST_MAPS = 12
"""Planes that channel maps show, equally far apart."""


class CubeMoments(NamedTuple):
    """Moments of a cube's first Stokes parameter, and its spectrum at one pixel.

    Attributes
    ----------
    zeroth : float64 (N, N)
        Sum of what is above 5 times the plane's rms, times the width of a plane, Jy/beam and the axis' unit.
    first : float64 (N, N)
        Mean of the axis, weighted with it; NaN where nothing is above.
    pixel : (int, int)
        Row and column of the pixel that is farthest from zero in any plane.
    spectrum : float64 (n_plane,), Jy/beam
        There; NaN in blank planes.
    """

    zeroth: Array
    first: Array
    pixel: tuple[int, int]
    spectrum: Array


def spectral_values(axis: SpectralAxis) -> tuple[Array, str, float]:
    """Middle of each plane, its label, and the width of a plane: km/s where the axis is one of velocities."""
    if axis.kind == "velocity" and axis.velocity is not None:
        values = 1e-3 * axis.velocity
        return values, f"radio velocity, {axis.frame} [km/s]", float(np.ptp(values)) / max(1, len(values) - 1)
    unit = unit_for([float(axis.freq[0])], FREQUENCIES)
    return axis.freq / unit.size, f"frequency, {axis.frame} [{unit.name}]", axis.width / unit.size


def moments(saved: SavedCube) -> CubeMoments:
    """Moments of the cube, of which each plane is read once; blank planes count as nothing."""
    values, _, width = spectral_values(saved.layout.axis)
    n, pixel = saved.layout.n_pixel, _farthest_pixel(saved)
    total, weighted, spectrum = np.zeros((n, n)), np.zeros((n, n)), np.full(len(values), np.nan)
    for i, pixels in each_plane(saved, range(len(values))):
        above = np.where(pixels > FIRST_LEVEL * saved.planes[i].rms, pixels, 0.0)
        total += above
        weighted += above * values[i]
        spectrum[i] = pixels[pixel]
    first = np.where(total > 0.0, weighted / np.where(total > 0.0, total, 1.0), np.nan)
    return CubeMoments(total * width, first, pixel, spectrum)


def _farthest_pixel(saved: SavedCube) -> tuple[int, int]:
    """Row and column of the farthest of the peaks that planes have; the middle where all are blank."""
    middle = saved.layout.n_pixel // 2
    peaks = [plane.peak for plane in saved.planes if plane.peak is not None]
    if not peaks:
        return middle, middle
    farthest = max(peaks, key=lambda peak: abs(peak.value))
    east, north = (round(at / saved.layout.cell) for at in (farthest.east, farthest.north))
    return middle + north, middle - east


def each_plane(saved: SavedCube, chosen: Iterable[int]) -> Iterator[tuple[int, Array]]:
    """Numbers and pixels (Jy/beam) of planes that are not blank, of the first Stokes parameter."""
    with fits.open(saved.files[0], memmap=True) as file:
        data = file[0].data
        for i in chosen:
            if saved.planes[i].n_vis:
                yield i, np.array(data[i, 0] if data.ndim == 4 else data[i], np.float64)


def draw_cube(saved: SavedCube) -> Figure:
    """Draw the moments of order 0 and 1, and the spectrum at the pixel that is farthest from zero.

    Parameters
    ----------
    saved : SavedCube
    """
    values, label, _ = spectral_values(saved.layout.axis)
    unit = label.partition("[")[2].removesuffix("]")
    found, cell = moments(saved), saved.layout.cell
    flux = unit_for([float(np.nanmax(np.abs(found.spectrum), initial=0.0))], FLUXES)
    name = flux.name.replace("u", "µ")
    beam = next((plane.beam for plane in saved.planes if plane.beam is not None), None)
    panel = Panel(found.zeroth, cell, beam, 0.0, "")
    view = (window_about([panel], np.zeros((0, 2))) or panel.view, cell, beam)
    with new_figure((WIDTH, 4.6)) as figure:
        grid = figure.subplot_mosaic("ab;cc", height_ratios=(3, 2))
        _draw_map(grid["a"], found.zeroth / flux.size, view, f"moment 0 [{name}/beam {unit}]", MAP)
        _draw_map(grid["b"], found.first, view, f"moment 1 [{unit}]", "cividis")
        grid["b"].set_ylabel("")
        grid["c"].step(values, found.spectrum / flux.size, where="mid")
        grid["c"].axhline(0.0, color="0.6", lw=0.6, zorder=0.5)
        plain_ticks(grid["c"])
        north, east = found.pixel[0] - saved.layout.n_pixel // 2, saved.layout.n_pixel // 2 - found.pixel[1]
        scale, angle = angle_unit(view[0].half)
        place = f"{east * cell * scale:.3g} east, {north * cell * scale:.3g} north [{angle}]"
        text = f"spectrum at the peak, {place}".replace("-", "−")
        grid["c"].set(xlabel=label, ylabel=f"{name}/beam", title=text)
    return figure


def _draw_map(
    ax: Axes, image: Array, view: tuple[SkyWindow, float, RestoringBeam | None], label: str, cmap: str
) -> None:
    """A map of moments in a window, with the beam; `view` is the window, the cell (rad) and the beam."""
    (east, north, half), cell, beam = view
    scale, name = angle_unit(half)
    n = len(image)
    # Pixel (N/2, N/2) has its middle at 0.
    low, high = ((edge - n // 2) * cell * scale for edge in (-0.5, n - 0.5))
    drawn = ax.imshow(image, extent=(-low, -high, low, high), cmap=cmap, interpolation="nearest")
    ax.set_xlim((east + half) * scale, (east - half) * scale)
    ax.set_ylim((north - half) * scale, (north + half) * scale)
    if beam is not None:
        draw_beam(ax, beam, scale, "white" if cmap == MAP else "0.2")
    plain_ticks(ax, 4)
    ax.tick_params(color="0.8" if cmap == MAP else "0.2")
    ax.set(xlabel=f"east offset [{name}]", ylabel=f"north offset [{name}]")
    figure_of(ax).colorbar(drawn, ax=ax, label=label)


def draw_channel_maps(saved: SavedCube) -> Figure:
    """Draw up to 12 planes, equally far apart, from the first to the last with emission, on one scale.

    One more on either side is shown; where nothing is above 5 times its plane's rms, all planes count.

    Parameters
    ----------
    saved : SavedCube
    """
    values, label, _ = spectral_values(saved.layout.axis)
    unit = label.partition("[")[2].removesuffix("]")
    digits = digits_after_point(abs(float(values[1] - values[0])) if len(values) > 1 else 0.0)
    panels = []
    for i, pixels in each_plane(saved, _with_emission(saved)):
        plane = saved.planes[i]
        text = f"{values[i]:.{digits}f} {unit}".replace("-", "−")
        panels.append(Panel(pixels, saved.layout.cell, plane.beam, plane.rms, text))
    window = window_about(panels, np.zeros((0, 2)))
    return draw_panels([[replace(panel, window=window) for panel in panels]], n_column=min(4, len(panels)))


def _with_emission(saved: SavedCube) -> list[int]:
    """Numbers of the planes that channel maps show."""
    there = [i for i, plane in enumerate(saved.planes) if plane.n_vis]
    peaks = [saved.planes[i].peak for i in there]
    seen = [
        k
        for k, peak in enumerate(peaks)
        if peak is not None and abs(peak.value) > FIRST_LEVEL * saved.planes[there[k]].rms
    ]
    some = there[max(0, seen[0] - 1) : seen[-1] + 2] if seen else there
    return some[:: -(-len(some) // MOST_MAPS)]


def picture_files(prefix: str | os.PathLike[str]) -> list[Path]:
    """Paths of the pictures of a cube that was written with this prefix."""
    picture = image_files(prefix)[2]
    return [picture, picture.with_name(f"{picture.stem}-channels.png")]


def draw_files(saved: SavedCube) -> list[Path]:
    """Write both pictures of a cube beside it; returns their paths."""
    paths = picture_files(saved.files[0])
    for path, draw in zip(paths, (draw_cube, draw_channel_maps), strict=True):
        write_figure(path, draw(saved), dpi=150)
    return paths
