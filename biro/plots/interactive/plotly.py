"""The one module that imports plotly, which is an extra, when a picture is asked for."""

from __future__ import annotations

from typing import Any

from biro.errors import InputError

FONT = 12
"""Height of letters, pixels."""


def modules() -> tuple[Any, Any]:
    """The modules `plotly.graph_objects` and `plotly.subplots`.

    Raises
    ------
    InputError
        plotly is not installed.
    """
    try:
        from plotly import graph_objects, subplots
    except ImportError as error:
        raise InputError(
            f"interactive pictures need the package plotly ({error}); in the checkout of biro: "
            "pip install '.[interactive]'"
        ) from None
    return graph_objects, subplots


def finish(figure: Any, height: int) -> None:
    """The look of all figures: white, ticks inside, a height in pixels, as wide as the page."""
    figure.update_layout(
        template="simple_white", height=height, font_size=FONT, margin={"l": 70, "r": 20, "t": 50, "b": 50}
    )
    figure.update_xaxes(mirror=True, ticks="inside")
    figure.update_yaxes(mirror=True, ticks="inside")
