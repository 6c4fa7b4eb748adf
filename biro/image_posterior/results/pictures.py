"""Pictures of a fitted image: the image with its errors and residual, its power spectrum, and its frames."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import numpy as np
from matplotlib import rc_context
from matplotlib.figure import Figure
from numpy.typing import NDArray

from biro.display.style import COLOUR, COLUMN, new_figure
from biro.files.atomic import write_atomic, write_figure
from biro.image_posterior.results.polarisation import draw_ticks
from biro.image_posterior.results.samples import ImageSamples
from biro.imaging.pictures import Panel, draw_panels

Array = NDArray[np.float64]
_FAINT = 100.0
"""Colours are linear in brightness up to five times the peak over this."""


def _each_picture(image: ImageSamples) -> Iterator[tuple[str, Figure]]:
    """Each picture of a result when it is drawn, with the name of its file."""
    yield "image", draw_image(image)
    if "power_spectrum" in image.arrays:
        yield "power_spectrum", draw_power_spectrum(image)
    if "frames" in image.arrays:
        yield "movie", image.movie.plot()
        yield "light_curve", image.movie.flux.plot()


def write_pictures(image: ImageSamples, folder: Path, form: Literal["png", "pdf"] = "png") -> Iterator[Path]:
    """Write each picture of a result into a folder, and movie.gif of one with frames; yields their paths.

    Parameters
    ----------
    image : ImageSamples
    folder : Path
    form : "png" or "pdf"
        The latter has no movie.gif.
    """
    for name, figure in _each_picture(image):
        path = folder / f"{name}.{form}"
        if form == "pdf":
            buffer = io.BytesIO()
            with rc_context({"pdf.fonttype": 42}):  # letters stay text
                figure.savefig(buffer, format="pdf")
            write_atomic(path, buffer.getvalue())
        else:
            write_figure(path, figure, dpi=150)
        yield path
    if "frames" in image.arrays and form == "png":
        from biro.image_posterior.results.movie_pictures import write_animation

        write_animation(image.movie, folder / "movie.gif")
        yield folder / "movie.gif"


def draw_image(image: ImageSamples) -> Figure:
    """The image of Stokes I, its standard deviation where there are samples, and the residual image.

    With samples, contours of the mean are at 3, 6, 12, ... times the standard deviation of the same pixel:
    they state where the image is significant. Without samples they are at 5, 10, 20, ... % of the peak.
    """
    field, beam, mean = image.field, image.beam, image.mean[0]

    def panel(plane: Array, title: str, significance: Array | None = None) -> Panel:
        rms = (float(np.abs(plane).max()) or 1.0) / _FAINT
        return Panel(plane, field.cell, beam, rms, title, per="pixel", contoured=significance)

    if image.is_map:
        row = [panel(mean, "most probable image")]
    else:
        sd = image.sd[0]
        ratio = np.divide(mean, sd, out=np.zeros_like(mean), where=sd > 0.0)
        row = [panel(mean, "mean (contours: 3, 6, 12, ... sd)", ratio)]
        row.append(panel(sd, "standard deviation", np.zeros_like(sd)))
    residual = image.residual[0]
    row.append(Panel(residual, field.cell, beam, float(residual.std()), "residual", is_residual=True))
    figure = draw_panels([row])
    if image.is_polarised:
        draw_ticks(figure.axes[0], image.samples, field)
    return figure


def draw_power_spectrum(image: ImageSamples) -> Figure:
    """Power spectrum of ln I: median, 68 % band and samples."""
    k, spectra = image.arrays["wavenumber"], image.arrays["power_spectrum"]
    with new_figure((COLUMN, 0.8 * COLUMN)) as figure:
        ax = figure.subplots()
        if not image.is_map:
            ax.loglog(k, spectra.T, color="0.7", lw=0.4, zorder=1)
            low, high = np.percentile(spectra, (16.0, 84.0), axis=0)
            ax.fill_between(k, low, high, color=COLOUR, alpha=0.3, lw=0, zorder=2, label="68 %")
        label = "most probable" if image.is_map else "median"
        ax.loglog(k, np.median(spectra, axis=0), color=COLOUR, lw=1.4, zorder=3, label=label)
        ax.set_xlabel("wavenumber [cycles per width of the image]")
        ax.set_ylabel("power of ln I")
        ax.legend(frameon=False, fontsize=7)
    return figure
