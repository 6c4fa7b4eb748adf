"""Pictures of a posterior: corner plot, traces and the sky, each a matplotlib Figure without pyplot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.patches import Ellipse
from matplotlib.ticker import MaxNLocator, ScalarFormatter
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter

from biro.errors import InputError
from biro.formatting import digits_after_point
from biro.images.pictures import plain_ticks
from biro.models.quantities.parameter import Column
from biro.posterior.posterior import Posterior
from biro.posterior.statistics import quantiles, unwrap
from biro.posterior.table import LEVELS

if TYPE_CHECKING:
    from biro.likelihood.likelihood import Likelihood
    from rime_kernels.arrays import Sources

COLOUR = "#1f4e79"
TRUTH = "#c8553d"
_SHADES = LinearSegmentedColormap.from_list("biro", ["#ffffff", "#c6d7e8", COLOUR])
MAX_CORNER = 24
"""Parameters of the largest corner plot."""
_DEGREE = 180.0 / np.pi
_FLUXES = ((1.0, "Jy"), (1e3, "mJy"), (1e6, "µJy"))
_ARCSEC = 1.0 / (3600.0 * _DEGREE)
_ANGLES = tuple(
    (_DEGREE * factor, unit)
    for factor, unit in ((1.0, "deg"), (60.0, "arcmin"), (3600.0, "arcsec"), (3.6e6, "mas"), (3.6e9, "µas"))
)


def corner(
    posterior: Posterior, names: Sequence[str] | None = None, truth: Mapping[str, float] | None = None
) -> Figure:
    """Draw marginal histograms and all pairs of parameters, with contours that enclose 68 % and 95 %.

    Parameters
    ----------
    posterior : Posterior
    names : sequence of str, optional
        Parameters that are shown; by default all.
    truth : mapping name -> value, optional
        True values, marked by lines.

    Raises
    ------
    InputError
        An unknown name, or more than 24 parameters.
    """
    columns = _columns(posterior, names)
    n = len(columns)
    if n > MAX_CORNER:
        raise InputError(f"a corner plot of {n} parameters cannot be read; give up to {MAX_CORNER} names")
    values = [_continuous(posterior, column) for column in columns]
    size = 1.0 + max(1.35, 2.1 - 0.06 * n) * n
    figure = Figure(figsize=(size, size))
    grid = figure.add_gridspec(n, n, wspace=0.06, hspace=0.06)
    marks = [_moved_truth(posterior, column, (truth or {}).get(column.name)) for column in columns]
    for i in range(n):
        for j in range(i + 1):
            ax = figure.add_subplot(grid[i, j])
            if i == j:
                _marginal(ax, values[i], posterior.weight, marks[i])
            else:
                _pair(ax, values[j], values[i], posterior.weight)
                _truth_lines(ax, marks[j], marks[i])
            _label_corner(ax, (i, j, n), columns[j], columns[i])
    figure.subplots_adjust(left=1.0 / size, bottom=1.0 / size, right=0.99, top=1 - 0.5 / size)
    # This aligns the labels without measuring the ticks of all axes, which takes seconds for 16 parameters.
    distance = -0.6 / (figure.axes[0].get_position().width * size)  # 0.6 inch
    for ax in figure.axes:
        ax.yaxis.set_label_coords(distance, 0.5)
        ax.xaxis.set_label_coords(0.5, distance)
    return figure


def traces(posterior: Posterior, names: Sequence[str] | None = None) -> Figure:
    """Draw each parameter along the run: walkers by step, or nested samples by log-likelihood.

    Parameters
    ----------
    posterior : Posterior
    names : sequence of str, optional
        Parameters that are shown; by default all.
    """
    columns = _columns(posterior, names)
    figure = Figure(figsize=(9.0, 0.6 + 1.25 * len(columns)), layout="constrained")
    axes = figure.subplots(len(columns), 1, sharex=True, squeeze=False)[:, 0]
    for ax, column in zip(axes, columns, strict=True):
        values = _continuous(posterior, column)
        if posterior.n_walker > 1:
            ax.plot(values.reshape(-1, posterior.n_walker), color=COLOUR, alpha=0.25, lw=0.5)
            ax.set_xlim(0, len(values) // posterior.n_walker - 1)
        else:
            order = np.argsort(posterior.weight)
            # Samples of less weight would be drawn in white.
            order = order[posterior.weight[order] > 1e-3 * posterior.weight.max()]
            ax.scatter(
                posterior.log_likelihood[order],
                values[order],
                c=posterior.weight[order],
                s=3,
                cmap=_SHADES,
                lw=0,
            )
        ax.set_ylabel(_text(column, short=True), fontsize=8)
        ax.yaxis.set_major_locator(MaxNLocator(4))
        _shrink_offset_text(ax)
    axes[-1].set_xlabel("step (after burn-in and thinning)" if posterior.n_walker > 1 else "log-likelihood")
    return figure


def sky(likelihood: Likelihood, posterior: Posterior, i_partition: int = 0, n_draw: int = 200) -> Figure:
    """Draw the sources about the phase centre of one partition, east to the left.

    Crosses and filled ellipses are mean positions and their 1 and 2 sigma. Outlines are the FWHM of
    Gaussians, one for each of a few draws from the posterior. Dashed boxes are the nonzero parts of the
    model's images; the view is that of the sources, and the legend tells where an image reaches beyond it.

    Parameters
    ----------
    likelihood : Likelihood
    posterior : Posterior
    i_partition : int
        Index of the partition whose phase centre is the origin.
    n_draw : int
        Number of draws from the posterior.

    Raises
    ------
    InputError
        The model has images alone, and no sources.
    """
    if not likelihood.model.source_names:
        raise InputError("the model has no points and no Gaussians to be shown, only images")
    draws = posterior.equal_weight(n_draw).samples
    sources = likelihood.model.sources(draws, i_partition)
    extent = _sky_extent(sources)
    scale, unit = _angle_unit(extent)
    lm = np.asarray(sources.lm) * scale
    flux = np.asarray(sources.stokes)[:, :, :, 0].mean(axis=(0, 1))
    figure = Figure(figsize=(6.4, 6.0), layout=ConstrainedLayoutEngine(w_pad=0.12))
    ax = figure.subplots()
    for i in range(lm.shape[1]):
        colour = f"C{i % 10}"
        gaussian = i - sources.n_point
        if gaussian >= 0:
            _outlines(ax, lm[:24, i], np.asarray(sources.shape)[:24, gaussian], scale, colour)
        _position(ax, lm[:, i], colour, f"{likelihood.model.source_names[i]}  {_flux_text(flux[i])}")
    ax.set_box_aspect(1.0)  # with ranges of the same length on both axes
    _sky_limits(ax, lm, extent * scale)
    for i, (name, corners) in enumerate(likelihood.image_outlines[i_partition].items()):
        _image_box(ax, corners * scale, name, f"C{(lm.shape[1] + i) % 10}")
    plain_ticks(ax)
    ax.set_xlabel(f"east offset [{unit}]")
    ax.set_ylabel(f"north offset [{unit}]")
    ax.grid(alpha=0.25, lw=0.5)
    ax.legend(loc="upper right", fontsize=8, framealpha=0.9)
    return figure


def _columns(posterior: Posterior, names: Sequence[str] | None) -> list[Column]:
    """The named columns of a posterior, in the order of the names; all of them where no names are given."""
    if names is None:
        return list(posterior.columns)
    known = {column.name: column for column in posterior.columns}
    for name in names:
        if name not in known:
            raise InputError(f"no parameter {name!r}; there are {', '.join(known)}")
    return [known[name] for name in names]


def _continuous(posterior: Posterior, column: Column) -> NDArray[np.float64]:
    """Samples of one parameter; those of a parameter that wraps are moved to about their circular mean."""
    values = posterior[column.name]
    return values if column.period is None else unwrap(values, posterior.weight, column.period)


def _moved_truth(posterior: Posterior, column: Column, value: float | None) -> float | None:
    """A true value; that of a parameter that wraps is moved by whole periods to near the samples."""
    if value is None or column.period is None:
        return value
    (median,) = quantiles(_continuous(posterior, column), posterior.weight, (0.5,))
    return value - column.period * round((value - median) / column.period)


def _text(column: Column, *, short: bool = False) -> str:
    """The label of a parameter, with its unit."""
    name = column.latex or column.name
    if short and not column.latex:
        name = name.replace(".", "\n", 1)
    return f"{name}\n[{column.unit}]" if column.unit else name


def _marginal(
    ax: Axes, values: NDArray[np.float64], weight: NDArray[np.float64], truth: float | None
) -> None:
    """Histogram of a parameter, with its median and its 68 % interval."""
    edges = _edges(values, weight)
    density = np.histogram(values, edges, weights=weight)[0]
    ax.stairs(density, edges, fill=True, fc="#c6d7e8", ec=COLOUR)
    _, low, median, high, _ = quantiles(values, weight, LEVELS)
    for value, style in ((low, ":"), (median, "-"), (high, ":")):
        ax.axvline(value, color=COLOUR, lw=0.9, ls=style)
    if truth is not None:
        ax.axvline(truth, color=TRUTH, lw=1.2)
    digits = digits_after_point(0.5 * (high - low))
    errors = f"$-${median - low:.{digits}f} $+${high - median:.{digits}f}"
    ax.set_title(f"{median:.{digits}f}\n{errors}", fontsize=7.5)
    ax.set_yticks([])
    ax.set_xlim(edges[0], edges[-1])
    ax.set_ylim(0.0, 1.08 * density.max())


def _edges(values: NDArray[np.float64], weight: NDArray[np.float64]) -> NDArray[np.float64]:
    """Edges of bins, of which there are more for a larger effective number of samples."""
    n = int(np.clip(1.5 * np.sum(weight**2) ** (-1 / 3), 12, 40))
    low, high = quantiles(values, weight, (0.001, 0.999))
    pad = 0.08 * (high - low) or 1e-12 + 1e-9 * abs(high)
    return np.linspace(low - pad, high + pad, n + 1)


def _pair(ax: Axes, x: NDArray[np.float64], y: NDArray[np.float64], weight: NDArray[np.float64]) -> None:
    """Density of two parameters, with contours."""
    x_edges, y_edges = _edges(x, weight), _edges(y, weight)
    density = np.histogram2d(x, y, bins=(x_edges, y_edges), weights=weight)[0]
    density = gaussian_filter(density, 1.0, mode="constant")
    x_mid, y_mid = 0.5 * (x_edges[1:] + x_edges[:-1]), 0.5 * (y_edges[1:] + y_edges[:-1])
    ax.pcolormesh(x_edges, y_edges, density.T, cmap=_SHADES, rasterized=True)
    levels = _levels(density, (0.9545, 0.6827))
    if len(levels) == 2:
        ax.contour(x_mid, y_mid, density.T, levels=levels, colors=COLOUR, linewidths=(0.7, 1.1))


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
    ax.xaxis.set_major_locator(MaxNLocator(3, prune="both"))
    if i != j:
        ax.yaxis.set_major_locator(MaxNLocator(3, prune="both"))
    _shrink_offset_text(ax)
    if i == n - 1:
        ax.set_xlabel(_text(x), fontsize=8)
        ax.tick_params(axis="x", labelrotation=40)
    else:
        ax.set_xticklabels([])
    if j == 0 and i > 0:
        ax.set_ylabel(_text(y), fontsize=8)
    else:
        ax.set_yticklabels([])


def _shrink_offset_text(ax: Axes) -> None:
    """Write the common offset or power of ten of the ticks in small letters."""
    for axis in (ax.xaxis, ax.yaxis):
        if isinstance(axis.get_major_formatter(), ScalarFormatter):
            axis.set_major_formatter(ScalarFormatter(useOffset=True, useMathText=True))
            axis.get_offset_text().set_fontsize(6.5)


def _angle_unit(extent: float) -> tuple[float, str]:
    """Factor from radians, and name, of the unit that makes `extent` a number of 1 to 1000 or so."""
    for scale, unit in _ANGLES:
        if extent * scale >= 1.0:
            return scale, unit
    return _ANGLES[-1]


def _flux_text(flux: float) -> str:
    scale, unit = next((item for item in _FLUXES if abs(flux) * item[0] >= 1.0), (1.0, "Jy"))
    return f"{flux * scale:.4g} {unit}"


def _sky_extent(sources: Sources) -> float:
    """Half width (rad) that shows all sources with their shapes, and a margin."""
    lm = np.asarray(sources.lm)
    reach = 0.5 * np.ptp(lm.reshape(-1, 2), axis=0).max()
    shape = np.asarray(sources.shape)
    if shape.size:
        reach = max(reach + 0.5 * float(np.median(shape[..., 0], axis=0).max()), 1e-12)
    sigma = float(lm.std(axis=0).max())
    # Where there is only one source, at a fixed position, the view reaches to the phase centre.
    least = 1e-12 if sigma > 1e-15 else max(float(np.abs(lm).max()), _ARCSEC)
    return float(1.15 * max(reach, 4.0 * sigma, least))


def _outlines(
    ax: Axes, centres: NDArray[np.float64], shapes: NDArray[np.float64], scale: float, colour: str
) -> None:
    """FWHM ellipses; the major axis points to (sin pa, cos pa) in (east, north)."""
    for centre, (emaj, emin, pa) in zip(centres, shapes, strict=True):
        angle = 90.0 - np.degrees(pa)
        size = (emaj * scale, emin * scale)
        ax.add_patch(Ellipse(centre, *size, angle=angle, fill=False, ec=colour, alpha=0.35, lw=0.7))


def _image_box(ax: Axes, corners: NDArray[np.float64], name: str, colour: str) -> None:
    """The outline of an image; the legend tells where it does not lie within the view."""
    view = np.sort([ax.get_xlim(), ax.get_ylim()], axis=1)
    low, high = np.nanmin(corners, axis=0), np.nanmax(corners, axis=0)
    if (high < view[:, 0]).any() or (low > view[:, 1]).any():
        note = ", outside"
    else:
        note = "" if (low >= view[:, 0]).all() and (high <= view[:, 1]).all() else ", wider than the view"
    closed = corners[[0, 1, 2, 3, 0]]
    ax.plot(*closed.T, ls="--", lw=1.0, color=colour, label=f"{name} (image{note})")
    ax.set_xlim(view[0, 1], view[0, 0])
    ax.set_ylim(view[1, 0], view[1, 1])


def _position(ax: Axes, points: NDArray[np.float64], colour: str, label: str) -> None:
    """Mean of positions (n_draw, 2), with ellipses of 1 and 2 sigma."""
    mean = points.mean(axis=0)
    values, vectors = np.linalg.eigh(np.cov(points.T))
    sigma = np.sqrt(np.maximum(values, 0.0))
    angle = np.degrees(np.arctan2(vectors[1, 1], vectors[0, 1]))
    for n_sigma, alpha in ((2, 0.2), (1, 0.35)):
        size = 2 * n_sigma * sigma[::-1]
        ax.add_patch(Ellipse(mean, *size, angle=angle, fc=colour, ec="none", alpha=alpha))
    ax.plot(*mean, marker="+", ms=9, mew=1.2, ls="none", color=colour, label=label)


def _sky_limits(ax: Axes, lm: NDArray[np.float64], half: float) -> None:
    """Limits of the axes about the middle of all positions, east to the left."""
    low, high = lm.reshape(-1, 2).min(axis=0), lm.reshape(-1, 2).max(axis=0)
    east, north = 0.5 * (low + high)
    ax.set_xlim(east + half, east - half)
    ax.set_ylim(north - half, north + half)
