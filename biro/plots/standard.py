"""The pictures that every run gets, each with its caption."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, cast

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from biro.display.arguments import takes_likelihood
from biro.errors import InputError
from biro.imaging.fit_images import before_and_after, draw_fit_images, fit_images
from biro.inference.posterior.posterior import Posterior
from biro.plots.antenna_residuals import antenna_residuals
from biro.plots.baselines import MOST_PANELS, baselines, closure_amplitudes, closure_phases
from biro.plots.corner import MAX_CORNER, corner, traces
from biro.plots.data import residuals, uv
from biro.plots.gains import gains
from biro.plots.labels import chosen_columns
from biro.plots.sky import sky

if TYPE_CHECKING:
    from biro.likelihood.likelihood import Likelihood

MAX_FIELDS = 4
"""Number of fields whose images a report shows."""
_WITH_TRACES = 12
"""Parameters whose traces are shown when none are asked for."""


@takes_likelihood
def standard_pictures(
    posterior: Posterior,
    likelihood: Likelihood,
    names: Sequence[str] | None = None,
    *,
    truth: Mapping[str, float] | None = None,
) -> dict[str, Figure]:
    """The pictures of a run by caption, those alone that have something to show.

    Data against the best fit by uv distance, on baselines and in closure phases; residuals, images, sky,
    corner, and traces of a sampler. The first word of a caption is a name for a file.

    Parameters
    ----------
    posterior : Posterior
    likelihood : Likelihood
    names : sequence of str, optional
        Parameters of corner and traces, as `biro.plots.corner` takes them; by default without noise factors
        where there are more than eight parameters, and as many as can be read.
    truth : mapping of str to float, optional
        True values, to be drawn into the corner.

    Raises
    ------
    InputError
        An unknown name, or more than 24.
    """
    return dict(each_picture(posterior, likelihood, names, truth=truth))


def each_picture(
    posterior: Posterior,
    likelihood: Likelihood,
    names: Sequence[str] | None = None,
    *,
    truth: Mapping[str, float] | None = None,
) -> Iterator[tuple[str, Figure]]:
    """The captions and figures of `standard_pictures`, each when it is asked for."""
    yield from of_posterior(posterior, names, truth=truth)
    yield from of_data(posterior, likelihood)


def of_posterior(
    posterior: Posterior, names: Sequence[str] | None = None, *, truth: Mapping[str, float] | None = None
) -> Iterator[tuple[str, Figure]]:
    """Corner and traces with their captions, which need no data."""
    columns = [column.name for column in chosen_columns(posterior, names)]
    shown = columns if names is not None else columns[:MAX_CORNER]
    yield _caption_of_corner(posterior, shown), corner(posterior, shown, truth=truth)
    if posterior.provenance.sampler != "none":  # whose draws are no run
        traced = shown if names is not None else shown[:_WITH_TRACES]
        yield f"Traces{_left_out(posterior, traced)}", traces(posterior, traced)


def of_data(posterior: Posterior, likelihood: Likelihood) -> Iterator[tuple[str, Figure]]:
    """Pictures of data and residuals with their captions, those alone that have something to show."""
    best = posterior.best_fit
    fitted = cast("Likelihood", _AtBestFit(likelihood, best))
    images = fit_images(fitted, best)
    some = images[:MAX_FIELDS]
    more = f"; {len(some)} of {len(images)} fields" if len(images) > len(some) else ""
    caption = f"Images of data, best fit and residual, sources marked (+): {before_and_after(some)}{more}"
    yield caption, draw_fit_images(some, likelihood, best)
    worst = f"; at most {MOST_PANELS} panels, those that fit worst"
    against_time: list[tuple[str, Callable[[], Figure]]] = [
        ("Amplitude and phase against uv distance, with the best fit", lambda: uv(fitted, best)),
        (
            f"Baselines: visibilities against time, with the best fit (line){worst}",
            lambda: baselines(fitted, best),
        ),
        (
            f"Closure phases against time, with the best fit (line){worst}",
            lambda: closure_phases(fitted, best),
        ),
    ]
    if likelihood.gains != "sample" or likelihood.model.has_fitted_gains:
        caption = f"Log-closure-amplitudes against time, with the best fit (line){worst}"
        against_time.append((caption, lambda: closure_amplitudes(fitted, best)))
    for caption, draw in against_time:
        with suppress(InputError):  # there is no Stokes I, or no triangle
            yield caption, draw()
    if likelihood.model.has_fitted_gains:
        label = likelihood.observation.labels[0]
        of = f" of {label}" if len(likelihood.observation.labels) > 1 else ""
        caption = f"Gains of all antennas against time{of}: medians and 68 % ranges, each on its own scale"
        yield caption, gains(posterior, likelihood)
    yield "Residuals of the best fit", residuals(fitted, best)
    caption = "Antennas: rms of the residuals on the baselines of each antenna, in units of the fitted noise"
    yield caption, antenna_residuals(fitted, best)
    if likelihood.model.source_names:
        caption = "Sky: sources, and the image of the data below them in grey with contours"
        yield caption, sky(likelihood, posterior, image=some[0][0])


class _AtBestFit:
    """A likelihood whose visibilities at the best fit are predicted once for all pictures."""

    def __init__(self, likelihood: Likelihood, theta: NDArray[np.float64]) -> None:
        self._likelihood, self._visibilities = likelihood, likelihood.predict(theta)
        self.observation = likelihood.corrected(theta)

    def __getattr__(self, name: str) -> object:
        return getattr(self._likelihood, name)

    def predict(self, theta: NDArray[np.float64]) -> list[NDArray[np.complexfloating]]:
        """The visibilities at the best fit, for which alone pictures ask."""
        return self._visibilities


def _caption_of_corner(posterior: Posterior, shown: Sequence[str]) -> str:
    return f"Posterior: 68 % and 95 % contours{_left_out(posterior, shown)}"


def _left_out(posterior: Posterior, shown: Sequence[str]) -> str:
    """How many parameters a picture does not show."""
    n = posterior.n_param
    return f"; {len(shown)} of {n} parameters (biro plot --parameters chooses)" if len(shown) < n else ""
