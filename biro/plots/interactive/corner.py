"""All pairs of parameters of a posterior, in which samples can be selected."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from biro.display.style import COLOUR
from biro.errors import InputError
from biro.inference.posterior.posterior import Posterior
from biro.inference.posterior.statistics import continuous
from biro.plots.interactive.plotly import finish, modules
from biro.plots.labels import chosen_columns, parameter_text

MOST_PARAMETERS = 12
"""Parameters whose pairs can be read on a screen."""
N_DRAW = 1000
"""Samples of equal weight that are drawn."""


def corner(posterior: Posterior, names: Sequence[str] | None = None) -> Any:
    """Draw samples of all pairs of parameters, in which a frame or lasso selects samples in all panels.

    A label has the two values below the mouse. Medians and 68 % errors stand beside the panels.

    Parameters
    ----------
    posterior : Posterior
    names : sequence of str, optional
        As for `biro.plots.corner`; by default the first 12.

    Returns
    -------
    plotly.graph_objects.Figure

    Raises
    ------
    InputError
        An unknown name, more than 12 parameters that are asked for, or plotly is not installed.
    """
    go, _ = modules()
    columns = chosen_columns(posterior, names)
    if names is not None and len(columns) > MOST_PARAMETERS:
        raise InputError(
            f"an interactive corner of {len(columns)} parameters cannot be read; "
            f"give up to {MOST_PARAMETERS} names"
        )
    columns = columns[:MOST_PARAMETERS]
    draws = posterior.equal_weight(N_DRAW)
    values = {column.name: draws[column.name] for column in columns}
    alike = np.ones(len(draws.samples))
    for column in columns:
        if column.period is not None:
            values[column.name] = continuous(values[column.name], alike, column.period)
    cells = {row[0]: row for row in posterior.summary().cells()[1:]}
    lines = [
        f"{row[0]} = {row[2]} ({row[3]}, {row[4]}) {row[1]}".rstrip()
        for row in (cells[column.name] for column in columns if column.name in cells)
    ]
    figure = go.Figure(
        go.Splom(
            dimensions=[
                {"label": parameter_text(column).replace("\n", "<br>"), "values": values[column.name]}
                for column in columns
            ],
            diagonal_visible=False,
            showupperhalf=False,
            marker={"size": 3, "color": COLOUR, "opacity": 0.4},
            hovertemplate="%{xaxis.title.text}: %{x:.6g}<br>%{yaxis.title.text}: %{y:.6g}<extra></extra>",
        )
    )
    finish(figure, 120 + 95 * max(len(columns), 3))
    figure.update_layout(dragmode="select")
    look = {"xref": "paper", "yref": "paper", "x": 1.0, "y": 1.0, "xanchor": "right", "yanchor": "top"}
    figure.add_annotation(text="<br>".join(lines), align="right", showarrow=False, **look)
    return figure
