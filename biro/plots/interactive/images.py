"""Images of data, best fit and residual side by side, with the sources and their parameters."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib import colormaps
from matplotlib.colors import to_hex
from numpy.typing import NDArray

from biro.display.arguments import takes_likelihood
from biro.display.formatting import FLUXES, Unit, unit_for
from biro.imaging.fit_images import fit_images, fitted_offsets
from biro.imaging.pictures import (
    DIVERGING,
    FIRST_LEVEL,
    MAP,
    Panel,
    angle_unit,
    thinned,
    window_about,
)
from biro.inference.posterior.posterior import Posterior
from biro.plots.interactive.plotly import finish, modules

if TYPE_CHECKING:
    from biro.likelihood.likelihood import Likelihood

MOST_PIXELS = 256
"""Along a side of an image: each is a number in the page."""
_MARK = "#009e73"


@takes_likelihood
def images(likelihood: Likelihood, posterior: Posterior, i_field: int = 0, **options: Any) -> Any:
    """Draw images of data, best fit and residual of a field, which zoom together, with the sources marked.

    A label tells offset and brightness below the mouse; at a source (+), its parameters with their errors,
    as the table of the posterior has them. The part that is shown first is that of `plot_residual_image`.
    Colours of data and model are linear up to 5 times the rms, and logarithmic above.

    Parameters
    ----------
    likelihood : Likelihood
    posterior : Posterior
    i_field : int
        Which phase centre.
    **options
        Any of `biro.imaging.imager.Imaging`: weighting, robust, cell, size, stokes, ...

    Returns
    -------
    plotly.graph_objects.Figure

    Raises
    ------
    InputError
        As `biro.image`, or plotly is not installed.
    """
    go, subplots = modules()
    best = posterior.best_fit
    row = fit_images(likelihood, best, **options)[i_field]
    offsets = fitted_offsets(likelihood, best, i_field + 1)[i_field]
    panels = [image.panel() for image in row]
    window = window_about(panels, offsets)
    panels = [dataclasses.replace(panel, window=window) for panel in panels]
    unit = unit_for([1.5 * abs(row[0].peak.value)], FLUXES)
    scale, angle = angle_unit(panels[0].view.half)
    titles = [panel.title.replace("\n", "<br>") for panel in panels]
    figure = subplots.make_subplots(1, 3, subplot_titles=titles, horizontal_spacing=0.05)
    figure.update_annotations(font_size=11)
    high = max(float(np.abs(panel.shown).max()) for panel in panels[:2])
    for k, panel in enumerate(panels):
        figure.add_trace(_heatmap(go, panel, (scale, angle), unit, high), 1, k + 1)
        figure.add_trace(_marks(go, likelihood, posterior, offsets * scale), 1, k + 1)
    east, north, half = panels[0].view
    figure.update_xaxes(
        range=[(east + half) * scale, (east - half) * scale], title_text=f"east offset [{angle}]", matches="x"
    )
    figure.update_yaxes(range=[(north - half) * scale, (north + half) * scale], matches="y")
    figure.update_yaxes(title_text=f"north offset [{angle}]", row=1, col=1)
    for k, axis in enumerate(("x", "x2", "x3")):
        figure.update_yaxes(scaleanchor=axis, scaleratio=1, constrain="domain", row=1, col=k + 1)
        figure.update_xaxes(constrain="domain", row=1, col=k + 1)
    finish(figure, 440)
    figure.update_layout(margin_t=80)  # titles below the tools
    return figure


def _heatmap(go: Any, panel: Panel, angle: tuple[float, str], unit: Unit, high: float) -> Any:
    """One image; its colours are of asinh(value / 5 rms), or linear and symmetric about 0 of a residual."""
    shown, (east, north) = panel.shown, panel.offsets()
    step = math.ceil(max(shown.shape) / MOST_PIXELS)
    middle = 0.5 * (step - 1) * panel.cell
    shown = thinned(shown, step)
    name = unit.name.replace("u", "µ")
    if panel.is_residual:
        half = float(np.abs(shown).max()) or 1.0
        value, look = shown, {"zmin": -half, "zmax": half, "colorscale": _scale(DIVERGING)}
    else:
        width = FIRST_LEVEL * panel.rms or high or 1.0
        value = np.arcsinh(shown / width)
        look = {"zmax": float(np.arcsinh(high / width)), "colorscale": _scale(MAP)}
        look["zmin"] = float(min(value.min(), 0.0))
    return go.Heatmap(
        x=(east[::step] - middle) * angle[0],
        y=(north[::step] + middle) * angle[0],
        z=value.astype(np.float32),
        customdata=(shown / unit.size).astype(np.float32),
        hovertemplate=f"east %{{x:.4g}}, north %{{y:.4g}} {angle[1]}<br>%{{customdata:.4g}} {name}/beam"
        "<extra></extra>",
        showscale=False,
        **look,
    )


def _scale(name: str) -> list[list[object]]:
    """A colour map of Matplotlib, as plotly takes it."""
    return [[float(at), to_hex(colormaps[name](at))] for at in np.linspace(0.0, 1.0, 32)]


def _marks(go: Any, likelihood: Likelihood, posterior: Posterior, places: NDArray[np.float64]) -> Any:
    """Crosses at the sources; a label has the rows of the table that belong to the source."""
    cells = posterior.summary().cells()[1:]
    texts = []
    for name in likelihood.model.source_names if len(places) else ():
        own = [row for row in cells if row[0].startswith(f"{name.partition(':')[0]}.")]
        lines = [f"{row[0].partition('.')[2]} {row[2]} {row[3]} {row[4]} {row[1]}" for row in own]
        texts.append("<br>".join([f"<b>{name}</b>", *(lines or ["nothing is fitted"])]))
    return go.Scatter(
        x=places[:, 0],
        y=places[:, 1],
        mode="markers",
        marker={"symbol": "cross-thin-open", "size": 10, "color": _MARK, "line": {"width": 2}},
        text=texts,
        hovertemplate="%{text}<extra></extra>",
        showlegend=False,
    )
