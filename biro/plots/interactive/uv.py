"""Visibilities against uv distance, of which each names its baseline and time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib import colormaps
from matplotlib.colors import to_hex
from numpy.typing import NDArray

from biro.display.arguments import takes_likelihood
from biro.display.formatting import frequency_text
from biro.observation.selection import to_utc
from biro.plots.interactive.plotly import finish, modules
from biro.plots.stokes_i import StokesI, stokes_i, uv_unit

if TYPE_CHECKING:
    from biro.likelihood.likelihood import Likelihood

Index = NDArray[np.int64]
MOST_POINTS = 10_000
"""Visibilities that are drawn: those that the model fits worst, and as many others drawn at random."""
_SEED = 0


@takes_likelihood
def uv(likelihood: Likelihood, theta: NDArray[np.float64]) -> Any:
    """Draw single visibilities and their residuals against uv distance, to be hovered over and zoomed.

    Stokes I: above, amplitudes of the data, and of the model in black; below, |data - model| in units of the
    fitted noise. A label names baseline, time (UTC) and frequency of the visibility below the mouse, its
    amplitude, that of the model, and the residual. Of more than 10 000 visibilities the 5000 with the
    largest residuals and 5000 others at random are shown.

    Parameters
    ----------
    likelihood : Likelihood
    theta : float64 (n_param,)
        Parameters of the model, such as `posterior.best_fit`.

    Returns
    -------
    plotly.graph_objects.Figure

    Raises
    ------
    InputError
        No partition has a parallel hand, or plotly is not installed.
    """
    go, subplots = modules()
    groups = stokes_i(likelihood, theta)
    reach = max(float(group.distance[group.weight > 0].max()) for group in groups)
    unit, unit_name = uv_unit(reach)
    figure = subplots.make_subplots(2, 1, shared_xaxes=True, row_heights=[0.6, 0.4], vertical_spacing=0.04)
    shades = [to_hex(shade) for shade in colormaps["viridis"](np.linspace(0.0, 0.85, len(groups)))]
    chosen = _chosen(groups)
    for group, some, shade in zip(groups, chosen, shades, strict=True):
        x, data, model = group.distance[some] / unit, group.data[some], group.model[some]
        residual = np.abs(data - model) * np.sqrt(group.weight[some])
        label = f"{group.label}, {frequency_text(group.freq)}"
        look = {
            "x": x.astype(np.float32),
            "customdata": np.stack([np.abs(data), np.abs(model), residual], axis=1).astype(np.float32),
            "text": _labels(likelihood, group, some[0]),
            "hovertemplate": "%{text}<br>data %{customdata[0]:.4g} Jy, model %{customdata[1]:.4g} Jy"
            "<br>residual %{customdata[2]:.3g} times the noise<extra></extra>",
            "mode": "markers",
            "marker": {"size": 4, "color": shade},
            "legendgroup": label,
        }
        above, below = np.abs(data).astype(np.float32), residual.astype(np.float32)
        figure.add_trace(go.Scattergl(y=above, name=label, **look), 1, 1)
        figure.add_trace(go.Scattergl(y=below, showlegend=False, **look), 2, 1)
    for group, some in zip(groups, chosen, strict=True):  # above all data
        model_look = {
            "x": (group.distance[some] / unit).astype(np.float32),
            "y": np.abs(group.model[some]).astype(np.float32),
            "mode": "markers",
            "marker": {"size": 6, "color": "black", "symbol": "line-ew-open"},
            "name": "model",
            "legendgroup": "model",
            "showlegend": group is groups[0],
            "hoverinfo": "skip",
        }
        figure.add_trace(go.Scattergl(**model_look), 1, 1)
    figure.update_yaxes(title_text="Stokes I amplitude [Jy]", row=1, col=1)
    figure.update_yaxes(title_text="|data − model| / noise", row=2, col=1)
    figure.update_xaxes(title_text=f"uv distance [{unit_name}]", row=2, col=1)
    finish(figure, 620)
    return figure


def _chosen(groups: Sequence[StokesI]) -> list[tuple[Index, Index]]:
    """Rows and channels of the visibilities that are drawn of each group."""
    used: list[tuple[Index, Index]] = []
    for group in groups:
        row, chan = np.nonzero(group.weight > 0)
        used.append((row, chan))
    n = sum(len(row) for row, _ in used)
    if n <= MOST_POINTS:
        return used
    sizes = np.concatenate(
        [
            np.abs(group.data - group.model)[some] ** 2 * group.weight[some]
            for group, some in zip(groups, used, strict=True)
        ]
    )
    is_drawn = np.zeros(n, bool)
    is_drawn[np.argpartition(sizes, -MOST_POINTS // 2)[-MOST_POINTS // 2 :]] = True
    others = np.flatnonzero(~is_drawn)
    is_drawn[np.random.default_rng(_SEED).choice(others, MOST_POINTS // 2, replace=False)] = True
    ends = np.cumsum([len(row) for row, _ in used])[:-1]
    return [(row[keep], chan[keep]) for (row, chan), keep in zip(used, np.split(is_drawn, ends), strict=True)]


def _labels(likelihood: Likelihood, group: StokesI, row: NDArray[np.int64]) -> list[str]:
    """Baseline and time of each visibility."""
    names = likelihood.observation.antenna_names
    times, index = np.unique(group.time[row], return_inverse=True)
    texts = [to_utc(time, likelihood.observation.utc_offset).replace("T", " ") for time in times]
    pairs = zip(group.antenna1[row], group.antenna2[row], index.ravel(), strict=True)
    return [f"{names[a]}–{names[b]}, {texts[t]} UTC" for a, b, t in pairs]
