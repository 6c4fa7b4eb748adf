"""The dirty image of what components leave of the data, with and without errors of gains."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from biro.distributed.remote_data import Model
from biro.errors import InputError
from biro.imaging.dirty_image import DirtyImage
from biro.imaging.imager import Imager, ImagingOptions
from biro.models import SkyModel
from biro.observation.observation import Observation
from biro.observation.partition import Partition
from biro.simulation.prediction import predict

log = logging.getLogger(__name__)
Vis = NDArray[np.complex128]
Turn = Callable[[int, Partition], Vis]
"""The relative error of the rows of a partition, complex128 (n_row,), from its number and itself."""

Group = list[tuple[int, Partition]]
"""Partitions with their numbers."""


class ResidualImages:
    """Images of the data minus models.

    Parameters
    ----------
    observation : Observation
    options : dict
        Of the image.

    Attributes
    ----------
    blank : DirtyImage
        Of the data.
    beam_size : float, rad
        FWHM of the beam; five pixels where there is none.
    half : float
        Half of the side of the image.
    n_beam : float
        Beams in it.

    Raises
    ------
    InputError
        Stokes parameters that were asked for; weights that are tapered.
    """

    def __init__(self, observation: Observation, options: ImagingOptions) -> None:
        if "stokes" in options:
            raise InputError("the search works on Stokes I; leave out stokes= (--stokes)")
        if any(part.tapered for part in observation.partitions):
            raise InputError("with tapered weights the errors would be too small; leave out taper= (--taper)")
        self._backend = options.get("backend", "auto")
        self._groups = _with_equal_rows(observation.partitions)
        joined = tuple(_joined([part for _, part in group]) for group in self._groups)
        self._observation = replace(observation, partitions=joined)
        self._imager = Imager(self._observation, **options)
        beam, cell = self._imager.beam, self._imager.cell
        self.beam_size = beam.minor if beam is not None else 5.0 * cell
        self.half = 0.5 * self._imager.n_pixel * cell
        self.n_beam = (2.0 * self.half / self.beam_size) ** 2
        self.blank = self._imager.image()

    def __call__(self, sky: SkyModel, turn: Turn | None = None) -> DirtyImage:
        """The image of data - model.

        Parameters
        ----------
        sky : SkyModel
            Of fixed values.
        turn : function, optional
            Errors of gains that the model has. With natural weights the image is then, but for a factor, the
            derivative of the likelihood with errors of gains by the flux of a source at each pixel.
        """
        return self._imager.image("residual", list(self._models(sky, turn)))

    def warn_of_reach(self, reach: float) -> None:
        """Log a warning where beams are known up to a distance within the image only.

        Parameters
        ----------
        reach : float
            The distance from the phase centre, as a direction cosine.
        """
        if reach < np.sqrt(2.0) * self.half:
            log.warning(
                "the beam ends %.3g deg from the phase centre, but the image reaches %.3g deg. The search "
                "stops at the end of the beam", *np.rad2deg([reach, np.sqrt(2.0) * self.half])
            )  # fmt: skip

    def _models(self, sky: SkyModel, turn: Turn | None) -> Iterator[Model]:
        models = predict(self._observation, sky, backend=self._backend)
        for group, model in zip(self._groups, models, strict=True):
            if turn is not None:
                factors = [np.repeat(turn(i, part)[:, None], part.n_chan, axis=1) for i, part in group]
                model = np.asarray(model) * (1.0 + np.concatenate(factors, axis=1))[:, :, None]
            yield model


def _with_equal_rows(parts: Sequence[Partition]) -> list[Group]:
    """Partitions whose rows are alike, as those of spectral windows often are, with their numbers."""
    groups: list[Group] = []
    for i, part in enumerate(parts):
        for group in groups:
            first = group[0][1]
            names = ("uvw", "time", "antenna1", "antenna2")
            same = all(np.array_equal(getattr(first, name), getattr(part, name)) for name in names)
            if same and first.corr_type == part.corr_type and first.vis.dtype == part.vis.dtype:
                group.append((i, part))
                break
        else:
            groups.append([(i, part)])
    return groups


def _joined(parts: Sequence[Partition]) -> Partition:
    """Partitions of the same rows as one, of the channels of all: one image in place of several."""
    if len(parts) == 1:
        return parts[0]

    def together(name: str, axis: int) -> NDArray[Any]:
        return np.concatenate([getattr(part, name) for part in parts], axis=axis)

    return replace(
        parts[0],
        vis=together("vis", 1),
        weight=together("weight", 1),
        chan_freq=together("chan_freq", 0),
        chan_width=together("chan_width", 0),
        chan_id=None,
    )
