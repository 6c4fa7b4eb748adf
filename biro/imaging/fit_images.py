"""Dirty images of the data, the model and the residuals of a fit, side by side."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, Unpack

import numpy as np
from numpy.typing import NDArray

from biro.display.arguments import takes_likelihood
from biro.imaging.dirty_image import DirtyImage
from biro.imaging.imager import Imager, ImagingOptions
from biro.observation.observation import Observation

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MARGIN = 4.0
"""Major axes of the beam about the outermost source of an image that is made larger."""
_MOST_MARKS = 50
"""Sources up to which crosses mark them: more would hide the image."""
_MOST_PIXELS = 4096
"""Along a side of an image that is made larger so that it holds all sources."""


class PredictsVisibilities(Protocol):
    """What is needed of a likelihood: its data, and model visibilities for parameters."""

    @property
    def observation(self) -> Observation:
        """The data."""

    def predict(self, theta: NDArray[np.float64]) -> Sequence[NDArray[np.complexfloating]]:
        """Model visibilities of each partition, complex (n_row, n_chan, n_corr), Jy."""


@takes_likelihood
def fit_images(
    likelihood: PredictsVisibilities, theta: NDArray[np.float64], **options: Unpack[ImagingOptions]
) -> list[tuple[DirtyImage, DirtyImage, DirtyImage]]:
    """Images of data, model and residual of each phase centre.

    Parameters
    ----------
    likelihood : Likelihood
    theta : float64 (n_param,)
        Parameters of the model, such as `posterior.best_fit`.
    **options
        Fields of `biro.imaging.imager.Imaging`.

    Raises
    ------
    InputError
        As `biro.image`.
    """
    observation = likelihood.observation
    models = likelihood.predict(theta)
    rows = []
    for members in _fields(observation):
        partitions = tuple(observation.partitions[i] for i in members)
        of_field = dataclasses.replace(observation, partitions=partitions)
        imager = _imager(of_field, source_offsets(likelihood, theta, members[0]), options.copy())
        model = [models[i] for i in members]
        rows.append((imager.image("data"), imager.image("model", model), imager.image("residual", model)))
    return rows


def draw_fit_images(
    rows: Sequence[Sequence[DirtyImage]], likelihood: PredictsVisibilities, theta: NDArray[np.float64]
) -> Figure:
    """`image_rows` of what `fit_images` gives, or of the first of them, with the sources in view."""
    return image_rows(rows, fitted_offsets(likelihood, theta, len(rows)))


def fitted_offsets(
    likelihood: PredictsVisibilities, theta: NDArray[np.float64], n_field: int
) -> list[NDArray[np.float64]]:
    """Direction cosines (n_source, 2) of a model's sources in each of the first fields."""
    fields = _fields(likelihood.observation)[:n_field]
    return [source_offsets(likelihood, theta, members[0]) for members in fields]


def _fields(observation: Observation) -> list[list[int]]:
    """Numbers of the partitions of each phase centre."""
    fields: dict[tuple[float, float], list[int]] = {}
    for i, part in enumerate(observation.partitions):
        # Where noise is that of hands, the parallel ones are a partition of their own.
        if not part.is_cross:
            fields.setdefault(part.phase_centre, []).append(i)
    return list(fields.values())


def _imager(observation: Observation, offsets: NDArray[np.float64], options: ImagingOptions) -> Imager:
    """An imager whose image holds all sources, as far as that takes 4096 pixels along a side at most."""
    imager = Imager(observation, **options)
    if {"size", "n_pixel"} & options.keys() or not len(offsets):
        return imager
    beam = imager.beam.major if imager.beam is not None else 5.0 * imager.cell
    wanted = 2 * int(np.ceil((float(np.abs(offsets).max()) + _MARGIN * beam) / imager.cell))
    if imager.n_pixel < wanted <= _MOST_PIXELS:
        options["size"] = wanted + wanted % 4
        return Imager(observation, **options)
    return imager


def source_offsets(
    likelihood: PredictsVisibilities, theta: NDArray[np.float64], i_partition: int
) -> NDArray[np.float64]:
    """Direction cosines (n_source, 2) of a model's sources; none where it has none."""
    model = getattr(likelihood, "model", None)
    if model is None or not getattr(model, "source_names", ()):
        return np.zeros((0, 2))
    return np.asarray(model.sources(np.asarray(theta)[None], i_partition).lm, np.float64).reshape(-1, 2)


def image_rows(
    rows: Sequence[Sequence[DirtyImage]], offsets: Sequence[NDArray[np.float64]] | None = None
) -> Figure:
    """Images side by side, a row for each field, with peak and rms above each and crosses at the sources.

    Images of a row have one scale of colours, residuals one that is symmetric about 0. Where the
    sources, and what is above 5 rms and above sidelobes in any image of a row, fill less than half of the
    field, that part is shown (`window_about`), else the whole field.

    Parameters
    ----------
    rows : sequence of sequence of DirtyImage
        Such as data, model and residual of a field.
    offsets : sequence of float64 (n, 2), optional
        Direction cosines of the sources of each field.
    """
    from biro.imaging.pictures import draw_panels, window_about

    panels = []
    for images, sources in zip(rows, offsets or [np.zeros((0, 2))] * len(rows), strict=True):
        window = window_about([image.panel() for image in images], sources)
        marks = tuple(map(tuple, sources.tolist())) if len(sources) <= _MOST_MARKS else ()
        panels.append([dataclasses.replace(image.panel(window), sources=marks) for image in images])
    return draw_panels(panels)


def before_and_after(rows: Sequence[Sequence[DirtyImage]]) -> str:
    """Peak and rms of the data and of the residuals of each field, as text."""
    several = len(rows) > 1
    return "; ".join(
        (f"{data.field}: " if several else "")
        + f"peak {data.peak.value:.4g} before, {residual.peak.value:.4g} after; "
        + f"rms {data.rms:.3g} before, {residual.rms:.3g} after (Jy/beam)"
        for data, *_, residual in rows
    )
