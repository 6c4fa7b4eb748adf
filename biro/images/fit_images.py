"""Dirty images of the data, the model and the residuals of a fit, side by side."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, Unpack

import numpy as np
from numpy.typing import NDArray

from biro.images.dirty_image import DirtyImage
from biro.images.imager import Imager, ImagingOptions
from biro.observation.observation import Observation

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from biro.images.pictures import Window

ZOOM = 10.0
"""Half the width of a window about a peak, in major axes of the beam."""
_PANEL_SIZE = (4.6, 4.4)
"""Width and height, inches."""


class PredictsVisibilities(Protocol):
    """What is needed of a likelihood: its data, and model visibilities for parameters."""

    @property
    def observation(self) -> Observation:
        """The data."""

    def predict(self, theta: NDArray[np.float64]) -> Sequence[NDArray[np.complexfloating]]:
        """Model visibilities of each partition, complex (n_row, n_chan, n_corr), Jy."""


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
        Fields of `biro.images.imager.Imaging`.

    Raises
    ------
    InputError
        As `biro.image`.
    """
    observation = likelihood.observation
    models = likelihood.predict(theta)
    fields: dict[tuple[float, float], list[int]] = {}
    for i, part in enumerate(observation.partitions):
        if (
            part.hands != "cross"
        ):  # where noise is that of hands, the parallel ones are a partition of their own
            fields.setdefault(part.phase_centre, []).append(i)
    rows = []
    for members in fields.values():
        partitions = tuple(observation.partitions[i] for i in members)
        imager = Imager(dataclasses.replace(observation, partitions=partitions), **options)
        model = [models[i] for i in members]
        rows.append((imager.image("data"), imager.image("model", model), imager.image("residual", model)))
    return rows


def image_rows(rows: Sequence[Sequence[DirtyImage]]) -> Figure:
    """Images side by side, a row for each field, with peak and rms above each.

    Where the field is much wider than ten beams on either side of the first image's peak, a second row shows
    these.

    Parameters
    ----------
    rows : sequence of sequence of DirtyImage
        Such as data, model and residual of a field.
    """
    from biro.images.pictures import draw_panels

    panels = []
    for images in rows:
        panels.append([image.panel() for image in images])
        window = _window_about_peak(images[0])
        if window is not None:
            about = f"about the peak of the {images[0].what}"
            panels.append([image.panel(window, f"{image.what}, {about}") for image in images])
    return draw_panels(panels, _PANEL_SIZE)


def before_and_after(rows: Sequence[Sequence[DirtyImage]]) -> str:
    """Peak and rms of the data and of the residuals of each field, as text."""
    several = len(rows) > 1
    return "; ".join(
        (f"{data.field}: " if several else "")
        + f"peak {data.peak.value:.4g} before, {residual.peak.value:.4g} after; "
        + f"rms {data.rms:.3g} before, {residual.rms:.3g} after (Jy/beam)"
        for data, *_, residual in rows
    )


def _window_about_peak(image: DirtyImage) -> Window | None:
    """Ten beams on either side of the peak; None where that is half of the image's width or more."""
    from biro.images.pictures import Window

    half = ZOOM * image.beam.major if image.beam is not None else np.inf
    if half > 0.25 * image.n_pixel * image.cell:
        return None
    reach = 0.5 * image.n_pixel * image.cell - half  # the window stays within the image
    east, north = np.clip((image.peak.east, image.peak.north), -reach, reach).tolist()
    return Window(east, north, half)
