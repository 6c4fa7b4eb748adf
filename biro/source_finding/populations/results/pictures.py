"""Pictures of a population: the number of sources, the field with draws and entries, counts, completeness."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.patches import Ellipse
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from biro.display.formatting import FLUXES, unit_for
from biro.display.style import COLOUR, COLUMN, TRUTH, WIDTH, drawing_on, figure_of, new_figure, plain_ticks
from biro.errors import InputError
from biro.imaging.pictures import angle_unit, draw_beam
from biro.imaging.psf import RestoringBeam
from biro.source_finding.populations.results.catalogue import Catalogue, Entry
from biro.source_finding.populations.results.completeness import Completeness, Shares
from biro.source_finding.populations.results.counts import SourceCounts
from biro.source_finding.populations.results.draws import SourceDraws
from biro.source_finding.populations.results.number import NumberProbability

Array = NDArray[np.float64]
MOST_DOTS = 5000
"""Sources of draws that a picture shows: those of as many draws, evenly spaced."""
MOST_LABELS = 40
"""Entries with a label; of more, those with the highest probability."""
_BAND = "#b9cfe3"
_MARGIN = 2.0
"""Beams beyond the outermost source."""


def draw_number(number: NumberProbability, *, ax: Axes | None = None) -> Figure:
    """Bars of the probability of each number of sources, with Monte Carlo errors and the 68 % interval."""
    shown = np.flatnonzero(number.probability >= 1e-3)
    n = np.arange(shown[0], shown[-1] + 1)
    with drawing_on(ax, (COLUMN, 0.75 * COLUMN)) as drawn:
        low, high = number.interval_68
        drawn.axvspan(low - 0.5, high + 0.5, color="#dbe6f0", lw=0, label=f"68 %: {low} to {high}")
        drawn.bar(n, number.probability[n], width=0.8, color=COLOUR, lw=0)
        drawn.errorbar(n, number.probability[n], number.error[n], fmt="none", ecolor="black", lw=0.8)
        drawn.set_xlim(n[0] - 1, n[-1] + 1)
        drawn.set_ylim(0.0, None)
        drawn.xaxis.set_major_locator(MaxNLocator(10, integer=True))
        drawn.set_xlabel("number of sources")
        drawn.set_ylabel("probability")
        drawn.legend(loc="upper right")
        return figure_of(drawn)


def draw_field(
    draws: SourceDraws,
    catalogue: Catalogue,
    beam: RestoringBeam,
    background: Array | None = None,
    extent: tuple[float, float, float, float] | None = None,
    *,
    ax: Axes | None = None,
) -> Figure:
    """The field, east to the left: sources of draws as dots coloured by flux, and entries with P.

    Circles are entries, at least as wide as the beam; outlines of entries that exist with less than 50 % are
    dashed. Where there are more than 40 entries the most probable have labels.

    Parameters
    ----------
    draws : SourceDraws
    catalogue : Catalogue
    beam : RestoringBeam
    background : float64 (n_y, n_x), optional
        An image, drawn in grey.
    extent : (float, float, float, float), rad
        Of the background: east of its left and right edge, north of its lower and upper edge.
    ax : Axes, optional
        By default those of a new figure.

    Raises
    ------
    InputError
        A background without extent.
    """
    if background is not None and extent is None:
        raise InputError(
            "background: give its extent, too: (east left, east right, north below, north above)"
        )
    # As many draws as have so many sources.
    n_shown = max(1, min(draws.n_draw, int(MOST_DOTS / max(draws.number.mean(), 1e-9))))
    chosen = np.zeros(draws.n_draw, bool)
    chosen[np.linspace(0, draws.n_draw - 1, n_shown).astype(np.int64)] = True
    i = np.flatnonzero(chosen[draws.draw])
    i = i[np.argsort(draws.flux[i], kind="stable")]  # the bright ones on top
    places = np.stack([draws.east, draws.north], axis=1)
    middle, half = _view(places, extent, beam)
    scale, unit = angle_unit(half)
    with drawing_on(ax, (WIDTH * 0.7, WIDTH * 0.6), "compressed") as drawn:
        if background is not None and extent is not None:
            edges = tuple(edge * scale for edge in extent)
            drawn.imshow(background, extent=edges, cmap="Greys", alpha=0.6, zorder=0, aspect="auto")  # type: ignore[arg-type]
        if len(i):
            _draw_dots(drawn, places[i] * scale, draws.flux[i], n_shown)
        _draw_entries(drawn, catalogue, beam, scale)
        drawn.set_aspect("equal")
        drawn.set_xlim((middle[0] + half) * scale, (middle[0] - half) * scale)
        drawn.set_ylim((middle[1] - half) * scale, (middle[1] + half) * scale)
        draw_beam(drawn, beam, scale, "0.3")
        plain_ticks(drawn)
        drawn.set_xlabel(f"east offset [{unit}]")
        drawn.set_ylabel(f"north offset [{unit}]")
        return figure_of(drawn)


def _view(
    places: Array, extent: tuple[float, float, float, float] | None, beam: RestoringBeam
) -> tuple[Array, float]:
    """Middle and half width of the view, rad: all sources with a margin, and the whole background."""
    corners = places if extent is None else np.vstack([places, np.reshape(extent, (2, 2)).T])
    if not len(corners):
        return np.zeros(2), 5.0 * beam.major
    low, high = corners.min(axis=0), corners.max(axis=0)
    margin = _MARGIN * beam.major if extent is None else 0.0
    return 0.5 * (low + high), max(0.5 * float((high - low).max()) + margin, 2.0 * beam.major)


def _draw_dots(ax: Axes, places: Array, flux: Array, n_draw: int) -> None:
    """Sources of draws; the more draws, the fainter the dots."""
    unit = unit_for([float(np.median(flux))], FLUXES)
    shown = flux / unit.size
    norm = LogNorm(shown.min(), shown.max()) if shown.min() > 0.0 and np.ptp(shown) > 0.0 else None
    alpha = float(np.clip(30.0 / n_draw, 0.08, 0.8))
    dots = ax.scatter(
        places[:, 0], places[:, 1], c=shown, s=4.0, norm=norm, cmap="viridis", alpha=alpha, lw=0, zorder=2
    )
    bar = figure_of(ax).colorbar(dots, ax=ax, shrink=0.8, pad=0.02)
    bar.set_label(f"flux density [{unit.name}]")
    bar.solids.set_alpha(1.0)  # type: ignore[union-attr]  # always there for a scatter


def _draw_entries(ax: Axes, catalogue: Catalogue, beam: RestoringBeam, scale: float) -> None:
    ranked = sorted(catalogue.entries, key=lambda entry: -entry.probability)
    for i, entry in enumerate(ranked):
        east, north = entry.east.median * scale, entry.north.median * scale
        size = np.array([beam.major, beam.minor]), beam.pa
        if entry.is_extended:
            wide = np.array([entry.typical["emaj"], entry.typical["emin"]])
            size = np.hypot(wide, np.sqrt(beam.major * beam.minor)), entry.typical["pa"]
        axes, angle = size[0] * scale, 90.0 - float(np.rad2deg(size[1]))
        style = "-" if entry.probability > 0.5 else "--"
        outline = Ellipse((east, north), *axes, angle=angle, fill=False, ec=TRUTH, lw=0.9, ls=style, zorder=3)
        ax.add_patch(outline)
        if i < MOST_LABELS:
            ax.annotate(
                f"{entry.name}  {entry.probability:.2f}",
                (east, north),
                xytext=(7.0 * side, 0.0) if (side := _free_side(entry, ranked, beam)) else (0.0, 8.0),
                textcoords="offset points",
                ha={-1: "right", 0: "center", 1: "left"}[side],
                va="center" if side else "baseline",
                fontsize=6.5,
                zorder=4,
            )


def _free_side(entry: Entry, entries: Sequence[Entry], beam: RestoringBeam) -> int:
    """Where a label finds room: 0 above, or -1 and 1 for left and right if a neighbour is close."""
    here = entry.east.median, entry.north.median
    others = [(each.east.median, each.north.median) for each in entries if each is not entry]
    nearest = min(others, key=lambda place: math.dist(here, place), default=None)
    if nearest is None or math.dist(here, nearest) > 3.0 * beam.major:
        return 0
    return 1 if nearest[0] > here[0] else -1  # east is to the left


def draw_counts(counts: SourceCounts) -> Figure:
    """Integral source counts with the band that holds 68 % of the draws, and differential ones with their sd.

    Raises
    ------
    InputError
        No draw has a source with a flux above 0.
    """
    if not len(counts.number):
        raise InputError("no source has a flux above 0, so that there are no counts to draw")
    with new_figure((WIDTH, 0.42 * WIDTH)) as figure:
        left, right = figure.subplots(1, 2)
        edges = counts.edges
        low, high = np.nan_to_num(counts.number_low), np.nan_to_num(counts.number_high)
        left.fill_between(edges[:-1], low, high, color=_BAND, lw=0, label="68 %")
        left.plot(edges[:-1], counts.number, "o-", color=COLOUR, label="mean of the draws")
        left.set_xlabel("flux density S [Jy]")
        left.set_ylabel("N(> S)")
        left.set_ylim(0.0, None)
        left.legend()
        middle = np.sqrt(edges[:-1] * edges[1:])
        has = counts.per_flux > 0.0
        sd = np.nan_to_num(counts.per_flux_sd[has])
        slope = counts.per_flux[has]
        below = np.minimum(sd, 0.999 * slope)  # an axis of logarithms has no 0
        right.errorbar(middle[has], slope, [below, sd], fmt="o", color=COLOUR, lw=0.9)
        right.set_xlabel("flux density S [Jy]")
        right.set_ylabel("dN/dS [1/Jy]")
        if has.any():
            right.set_yscale("log")
            right.set_ylim(0.3 * float(slope.min()), None)
        for ax in (left, right):
            ax.set_xscale("log")
        return figure


def draw_completeness(result: Completeness) -> Figure:
    """Completeness against flux, and reliability against the probability of entries, with 68 % intervals."""
    with new_figure((WIDTH, 0.42 * WIDTH)) as figure:
        left, right = figure.subplots(1, 2)
        edges = result.completeness.edges
        is_log = bool(edges[0] > 0.0)
        middle = np.sqrt(edges[:-1] * edges[1:]) if is_log else 0.5 * (edges[:-1] + edges[1:])
        _draw_shares(left, middle, result.completeness)
        left.set_xscale("log" if is_log else "linear")
        left.set_xlabel("flux density [Jy]")
        left.set_ylabel(f"completeness (P > {result.least:g})")
        _draw_shares(right, result.reliability.expected, result.reliability)
        right.plot([0.0, 1.0], [0.0, 1.0], color=TRUTH, lw=1.0, ls="--", label="if P is right")
        right.set_xlabel("mean probability P of entries")
        right.set_ylabel("part that is true")
        right.set_xlim(-0.03, 1.03)
        right.legend(loc="upper left")
        return figure


def _draw_shares(ax: Axes, x: Array, part: Shares) -> None:
    has = part.n > 0
    share = part.share[has]
    error = np.stack([share - part.low[has], part.high[has] - share])
    ax.errorbar(x[has], share, np.maximum(error, 0.0), fmt="o", color=COLOUR, lw=0.9)
    ax.set_ylim(-0.03, 1.05)
