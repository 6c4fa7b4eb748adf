"""The sky of a fit: sources with the uncertainty of their positions, over an image of the data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Ellipse
from numpy.typing import NDArray

from biro.display.arguments import LIKELIHOOD, POSTERIOR, takes
from biro.display.formatting import ANGLES, unit_for
from biro.display.style import COLUMN, colour, drawing_on, figure_of, plain_ticks
from biro.errors import InputError
from biro.imaging.pictures import SkyWindow, draw_backdrop
from biro.inference.posterior.posterior import Posterior

if TYPE_CHECKING:
    from biro.imaging.dirty_image import DirtyImage
    from biro.likelihood.likelihood import Likelihood
    from rime_kernels.arrays import Sources

_DEGREE = 180.0 / np.pi
MOST_IN_LEGEND = 12
"""Sources that a legend names."""
_LINE = 0.15
"""Height of a line of the legend, inches."""
_BEAMS = 4.0
"""Beams on either side of the middle that a view with an image shows at least."""
_FLUXES = ((1.0, "Jy"), (1e3, "mJy"), (1e6, "µJy"))
_ARCSEC = 1.0 / (3600.0 * _DEGREE)
_ANGLES = tuple(
    (_DEGREE * factor, unit)
    for factor, unit in ((1.0, "deg"), (60.0, "arcmin"), (3600.0, "arcsec"), (3.6e6, "mas"), (3.6e9, "µas"))
)


@takes(likelihood=LIKELIHOOD, posterior=POSTERIOR)
def sky(
    likelihood: Likelihood,
    posterior: Posterior,
    i_partition: int = 0,
    n_draw: int = 200,
    *,
    image: DirtyImage | None = None,
    ax: Axes | None = None,
) -> Figure:
    """Draw the sources about the phase centre of one partition, east to the left.

    Crosses and filled ellipses are mean positions and their 1 and 2 sigma, which the legend states, too: the
    larger axis. Outlines are the FWHM of Gaussians, one for each of a few draws from the posterior. Dashed
    boxes are the nonzero parts of the model's images; the view is that of the sources, and the legend tells
    where an image reaches beyond it.

    Parameters
    ----------
    likelihood : Likelihood
    posterior : Posterior
    i_partition : int
        Index of the partition whose phase centre is the origin.
    n_draw : int
        Number of draws from the posterior.
    image : DirtyImage, optional
        Drawn below, in grey with contours (5, 10, 20, ... times its rms) and its beam; the view is then four
        beams wide at least on either side. Its phase centre is that of the partition.
    ax : Axes, optional
        By default those of a new figure.

    Raises
    ------
    InputError
        The model has images alone, and no sources.
    """
    if not likelihood.model.source_names:
        raise InputError("the model has no sources to be shown, only images")
    draws = posterior.equal_weight(n_draw).samples
    sources = likelihood.model.sources(draws, i_partition)
    beam = 0.0 if image is None or image.beam is None else image.beam.major
    extent = _sky_extent(sources, _BEAMS * beam)
    scale, unit = _angle_unit(extent)
    lm = np.asarray(sources.lm) * scale
    mark = "?" * posterior.summary().noise_is_cut_off
    shown = [i for i, name in enumerate(likelihood.model.source_names) if _is_shown(name)]
    n_line = min(len(shown), MOST_IN_LEGEND + 1) + len(likelihood.image_outlines[i_partition])
    with drawing_on(ax, (COLUMN, COLUMN + _LINE * n_line)) as drawn:
        for i, text in zip(shown, _source_texts(likelihood, sources, shown, mark), strict=True):
            shade = colour(i)
            gaussian = i - sources.n_point
            if gaussian >= 0:
                _outlines(drawn, lm[:24, i], np.asarray(sources.shape)[:24, gaussian], scale, shade)
            _position(drawn, lm[:, i], shade, text)
        drawn.set_box_aspect(1.0)  # with ranges of the same length on both axes
        _sky_limits(drawn, lm, extent * scale)
        for i, (name, corners) in enumerate(likelihood.image_outlines[i_partition].items()):
            _image_box(drawn, corners * scale, name, colour(lm.shape[1] + i))
        if image is not None:
            draw_backdrop(drawn, image.panel(_view(drawn, scale)), scale)
        plain_ticks(drawn)
        drawn.set_xlabel(f"east offset [{unit}]")
        drawn.set_ylabel(f"north offset [{unit}]")
        _legend(drawn, is_own=ax is None)
        return figure_of(drawn)


def _legend(ax: Axes, *, is_own: bool) -> None:
    """The legend: below the axes, where the figure is ours to lay out."""
    if is_own:
        figure_of(ax).legend(loc="outside lower center")
    else:
        ax.legend()


def _is_shown(name: str) -> bool:
    """Whether a part of a source is drawn by itself: "ring:Q", for example, lies where "ring" does."""
    return ":" not in name or name.endswith((":core", ":halo"))


def _source_texts(likelihood: Likelihood, sources: Sources, shown: Sequence[int], mark: str) -> list[str]:
    """What the legend says of each source; nothing of those beyond the first ten or so."""
    flux = np.asarray(sources.stokes)[:, :, :, 0].mean(axis=(0, 1))
    lm = np.asarray(sources.lm)
    texts = []
    for i in shown:
        sigma = float(np.sqrt(max(np.linalg.eigvalsh(np.cov(lm[:, i].T))[-1], 0.0)))  # of the longer axis
        # Below that a position is fixed, but for rounding.
        unit = unit_for([sigma], ANGLES)
        text = f", ±{unit.text(sigma)}{mark} {unit.name.replace('uas', 'µas')}"
        known = text if sigma > 1e-12 * np.abs(lm).max() else ""
        texts.append(f"{likelihood.model.source_names[i]}  {_flux_text(flux[i])}{known}")
    if len(texts) > MOST_IN_LEGEND + 1:
        more = len(texts) - MOST_IN_LEGEND
        rest = ["_"] * (more - 1)  # Matplotlib leaves out what begins with an underscore
        texts = [*texts[:MOST_IN_LEGEND], f"and {more} more", *rest]
    return texts


def _view(ax: Axes, scale: float) -> SkyWindow:
    """The part of the sky that axes show."""
    (left, right), (bottom, top) = ax.get_xlim(), ax.get_ylim()
    return SkyWindow(
        0.5 * (left + right) / scale, 0.5 * (bottom + top) / scale, 0.5 * abs(top - bottom) / scale
    )


def _angle_unit(extent: float) -> tuple[float, str]:
    """Factor from radians, and name, of the unit that makes `extent` a number of 1 to 1000 or so."""
    for scale, unit in _ANGLES:
        if extent * scale >= 1.0:
            return scale, unit
    return _ANGLES[-1]


def _flux_text(flux: float) -> str:
    scale, unit = next((item for item in _FLUXES if abs(flux) * item[0] >= 1.0), (1.0, "Jy"))
    return f"{flux * scale:.4g} {unit}"


def _sky_extent(sources: Sources, beams: float) -> float:
    """Half width (rad) that shows all sources with their shapes, and a margin; `beams` at least."""
    lm = np.asarray(sources.lm)
    reach = 0.5 * np.ptp(lm.reshape(-1, 2), axis=0).max()
    shape = np.asarray(sources.shape)
    if shape.size:
        reach = max(reach + 0.5 * float(np.median(shape[..., 0], axis=0).max()), 1e-12)
    sigma = float(lm.std(axis=0).max())
    # Where there is only one source, at a fixed position, the view reaches to the phase centre.
    has_size = sigma > 1e-15 or shape.size or beams
    least = 1e-12 if has_size else max(float(np.abs(lm).max()), _ARCSEC)
    return float(max(1.15 * max(reach, 4.0 * sigma, least), beams))


def _outlines(
    ax: Axes, centres: NDArray[np.float64], shapes: NDArray[np.float64], scale: float, shade: str
) -> None:
    """Ellipses as wide as the sizes; the major axis points to (sin pa, cos pa) in (east, north)."""
    for centre, (emaj, emin, pa) in zip(centres, shapes, strict=True):
        angle = 90.0 - np.degrees(pa)
        size = (emaj * scale, emin * scale)
        ax.add_patch(Ellipse(centre, *size, angle=angle, fill=False, ec=shade, alpha=0.35, lw=0.7))


def _image_box(ax: Axes, corners: NDArray[np.float64], name: str, shade: str) -> None:
    """The outline of an image; the legend tells where it does not lie within the view."""
    view = np.sort([ax.get_xlim(), ax.get_ylim()], axis=1)
    low, high = np.nanmin(corners, axis=0), np.nanmax(corners, axis=0)
    if (high < view[:, 0]).any() or (low > view[:, 1]).any():
        note = ", outside"
    else:
        note = "" if (low >= view[:, 0]).all() and (high <= view[:, 1]).all() else ", wider than the view"
    closed = corners[[0, 1, 2, 3, 0]]
    ax.plot(*closed.T, ls="--", lw=1.0, color=shade, label=f"{name} (image{note})")
    ax.set_xlim(view[0, 1], view[0, 0])
    ax.set_ylim(view[1, 0], view[1, 1])


def _position(ax: Axes, points: NDArray[np.float64], shade: str, label: str) -> None:
    """Mean of positions (n_draw, 2), with ellipses of 1 and 2 sigma."""
    mean = points.mean(axis=0)
    values, vectors = np.linalg.eigh(np.cov(points.T))
    sigma = np.sqrt(np.maximum(values, 0.0))
    angle = np.degrees(np.arctan2(vectors[1, 1], vectors[0, 1]))
    for n_sigma, alpha in ((2, 0.2), (1, 0.35)):
        size = 2 * n_sigma * sigma[::-1]
        ax.add_patch(Ellipse(mean, *size, angle=angle, fc=shade, ec="none", alpha=alpha))
    ax.plot(*mean, marker="+", ms=9, mew=1.2, ls="none", color=shade, label=label)


def _sky_limits(ax: Axes, lm: NDArray[np.float64], half: float) -> None:
    """Limits of the axes about the middle of all positions, east to the left."""
    low, high = lm.reshape(-1, 2).min(axis=0), lm.reshape(-1, 2).max(axis=0)
    east, north = 0.5 * (low + high)
    ax.set_xlim(east + half, east - half)
    ax.set_ylim(north - half, north + half)
