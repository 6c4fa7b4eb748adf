"""Visibilities of an image: turned to its own centre, dimmed by the beam, degridded."""

from __future__ import annotations

import dataclasses
import logging
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from biro.errors import InputError
from biro.frequency_nodes import choose_nodes
from biro.models.direction import basis
from biro.models.image import ImageModel
from biro.observation import Partition
from rime_kernels.arrays import Beam, Rows
from rime_kernels.beam import CODES, voltage
from rime_kernels.device import Backend
from rime_kernels.phase import SPEED_OF_LIGHT

log = logging.getLogger(__name__)

Array = NDArray[np.float64]
NODE_SHARE = 0.3
"""Of the accuracy, for interpolation in frequency."""


def predict_image(
    part: Partition,
    image: ImageModel,
    *,
    beam: Beam | None = None,
    accuracy: float = 1e-5,
    backend: Backend = "auto",
    memory_limit: int | str | None = None,
) -> NDArray[np.complexfloating]:
    """Model visibilities of an image for one partition.

    The image may have any centre: uvw are turned into its axes, u', and

        V = exp(2 pi i (w' - w) nu/c) V'(u', v', w')

    exactly. What changes with frequency, the image's own planes and the beam, is put into images at a few
    frequencies, between whose visibilities polynomials lead; `biro.frequency_nodes` looks whether they do.

    Parameters
    ----------
    part : Partition
    image : ImageModel
    beam : Beam, optional
        Of one sky: `Sources.beam` of a batch of one.
    accuracy : float
        Rms error over rms of the visibilities.
    backend : "auto", "cpu" or "cuda"
    memory_limit : int or str, optional
        Bytes, or text such as "8 GB", that the work may take on the device.

    Returns
    -------
    complex64 or complex128 (n_row, n_chan, n_corr), Jy

    Raises
    ------
    InputError
        Brightness below the horizon of the phase centre, pointing errors, pixels too coarse for the
        longest baselines.
    ModelError
        Channels beyond the planes of a cube.
    """
    from rime_kernels.idg import Idg, ImageGrid

    rows, excess = _turned(part, image)
    seen = _Seen(part, image, beam)
    if seen.is_dark:
        return np.zeros((part.n_row, part.n_chan, part.n_corr), np.complex64)
    grid = ImageGrid(image.n_pixel, image.cell, *image.offset)
    options: dict[str, Any] = {"accuracy": accuracy, "backend": backend, "memory_limit": memory_limit}
    vis: NDArray[Any] = np.zeros((part.n_row, part.n_chan, part.n_corr), np.complex64)
    for channels in image.bands(part.chan_freq):
        for nodes in choose_nodes(seen.at, channels, part.chan_freq, NODE_SHARE * accuracy):
            idg = Idg(dataclasses.replace(rows, chan_freq=part.chan_freq[nodes.channels]), grid, **options)
            log.info("image, %d channels, %d frequencies: %s", len(nodes.channels), len(nodes.freq), idg.plan)
            for freq, coefficient in zip(nodes.freq, nodes.coefficient.T, strict=True):
                found = idg.predict(seen.spread(float(freq)))
                if vis.dtype != found.dtype:
                    vis = vis.astype(found.dtype)
                vis[:, nodes.channels] += coefficient[:, None].astype(found.real.dtype) * found
    return vis if excess is None else _shifted(vis, excess, part.chan_freq)


def _turned(part: Partition, image: ImageModel) -> tuple[Rows, Array | None]:
    """Rows with uvw along the axes of the image's centre, and w' - w (m); None where nothing is turned."""
    if image.centre == part.phase_centre:
        return part.rows, None
    uvw = part.uvw @ (basis(part.phase_centre) @ basis(image.centre).T)
    return dataclasses.replace(part.rows, uvw=uvw), uvw[:, 2] - part.uvw[:, 2]


def _shifted(
    vis: NDArray[np.complexfloating], excess: Array, chan_freq: Array
) -> NDArray[np.complexfloating]:
    """vis times exp(2 pi i (w' - w) nu/c), channel by channel."""
    for c, nu in enumerate(chan_freq):
        turns = excess * (nu / SPEED_OF_LIGHT)
        phasor = np.exp(2j * np.pi * (turns - np.rint(turns)))
        vis[:, c] *= phasor.astype(vis.dtype)[:, None]
    return vis


class _Seen:
    """The pixels of an image that are not 0, as a field sees them."""

    def __init__(self, part: Partition, image: ImageModel, beam: Beam | None) -> None:
        self._image, self._n_stokes = image, 4 if image.pixels[1:].any() else 1
        self._lit = np.flatnonzero(image.pixels.any(axis=(0, 1)))
        self._beam, self._distance = beam, np.zeros(0)
        l, m = self._directions(part)
        if beam is not None:
            self._distance = np.hypot(l, m)
            if beam.pointing is not None and beam.pointing.any():
                raise InputError("pointing errors cannot be applied to an image yet; leave out [pointing]")
        _warn_where_empty(part, image)

    @property
    def is_dark(self) -> bool:
        """Whether there is no such pixel."""
        return not self._lit.size

    def at(self, freq: float) -> Array:
        """Brightness of these pixels times the power beam, float64 (n_stokes, n_lit)."""
        bright = self._image.at(freq, self._lit)[: self._n_stokes]
        if self._beam is None:
            return bright
        code, scale = CODES[self._beam.kind], float(self._beam.scale[0])
        return bright * _power(code, scale * freq, self._distance)

    def spread(self, freq: float) -> Array:
        """The same as an image, float64 (n_stokes, N, N)."""
        n = self._image.n_pixel
        out = np.zeros((self._n_stokes, n * n))
        out[:, self._lit] = self.at(freq)
        return out.reshape(-1, n, n)

    def _directions(self, part: Partition) -> tuple[Array, Array]:
        """Direction cosines of these pixels about the phase centre."""
        columns, rows = self._image.axes
        y, x = np.divmod(self._lit, self._image.n_pixel)
        l, m = columns[x], rows[y]
        if self._image.centre == part.phase_centre:
            return l, m
        n = np.sqrt(1.0 - l * l - m * m)
        turn = basis(part.phase_centre) @ basis(self._image.centre).T
        l, m, n = (a * l + b * m + c * n for a, b, c in turn)
        lost = int(np.count_nonzero(n <= 0.0))
        if lost:
            raise InputError(
                f"{lost} pixels of the image lie 90 degrees or more from the phase centre of field "
                f"{part.field}; give an image of this field, or select fields"
            )
        return l, m


def _warn_where_empty(part: Partition, image: ImageModel) -> None:
    """An image beside the field is exact but hardly meant."""
    l, m, n = basis(image.centre) @ basis(part.phase_centre)[2]
    columns, rows = image.axes
    inside = columns[-1] <= l <= columns[0] and rows[0] <= m <= rows[-1] and n > 0
    if not inside:
        apart = np.rad2deg(np.arccos(np.clip(n, -1.0, 1.0)))
        log.warning(
            "the image does not contain the phase centre of field %s, %.3g deg from its own",
            part.field,
            apart,
        )


@njit(error_model="numpy")
def _power(code: int, scale_nu: float, distance: Array) -> Array:
    """E^2 at distances from where all antennas point; the scalar physics is that of the kernels."""
    out = np.empty_like(distance)
    for i in range(distance.size):
        e = voltage(code, scale_nu * distance[i])
        out[i] = e * e
    return out
