"""Visibilities of an image: turned to its own centre, dimmed by the beam, degridded."""

from __future__ import annotations

import dataclasses
import logging
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from biro.errors import InputError
from biro.images.frequency_nodes import Nodes, choose_nodes
from biro.images.pixels import refuse_coarse
from biro.images.seen_image import SeenImage, warn_where_empty
from biro.models.components.direction import basis
from biro.models.components.image import ImageModel
from biro.observation.partition import Partition
from rime_kernels.arrays import Beam, Rows, Sources
from rime_kernels.device import Backend
from rime_kernels.physics.phase import SPEED_OF_LIGHT

if TYPE_CHECKING:
    from rime_kernels.idg import ImageGrid

log = logging.getLogger(__name__)

Array = NDArray[np.float64]
REMEDY = "give an image with pixels of at most {}"
NODE_SHARE = 0.3
"""Of the accuracy, for interpolation in frequency."""
ATERM_CELLS = (2.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0, 32.0)
"""Cells of the uv grid that A-terms are given, tried one after the other."""
SAMPLE_PIXELS, SAMPLE_ROWS = 8, 200
"""Pixels (the brightest, and as many farthest out) and rows that tell how many it takes."""


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
    frequencies, between whose visibilities polynomials lead; `biro.images.frequency_nodes` looks whether
    they do. Where antennas differ in where they point, their beams are A-terms, with as much room on the
    uv grid as
    a sample of pixels, summed up as point sources, shows to be needed.

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
        Brightness below the horizon of the phase centre, pixels too coarse for the longest baselines, beams
        that differ too much from antenna to antenna for this accuracy.
    ModelError
        Channels beyond the planes of a cube.
    """
    warn_where_empty(part, image)
    seen = SeenImage(part, image, beam)
    if not seen.lit.size:
        return np.zeros((part.n_row, part.n_chan, part.n_corr), np.complex64)
    gridder = _Gridder(part, image, seen, accuracy, {"backend": backend, "memory_limit": memory_limit})
    vis: NDArray[Any] = np.zeros((part.n_row, part.n_chan, part.n_corr), np.complex64)
    for channels in image.bands(part.chan_freq):
        for nodes in choose_nodes(seen.at, channels, part.chan_freq, NODE_SHARE * accuracy):
            found = gridder.predict(nodes, beam)
            vis = vis.astype(np.result_type(vis, found), copy=False)
            vis[:, nodes.channels] = found
    return vis


def check_image(part: Partition, image: ImageModel) -> None:
    """What can be said against an image without predicting it; `predict_image` says the same and more.

    Raises
    ------
    InputError
        Brightness below the horizon of the phase centre, pixels too coarse for the longest baselines.
    ModelError
        Channels beyond the planes of a cube.
    """
    image.bands(part.chan_freq)
    if SeenImage(part, image, None).lit.size:
        refuse_coarse(_turned(part, image)[0], _grid(image), REMEDY)


class _Gridder:
    """Predicts what is seen of an image at the rows of a partition."""

    def __init__(
        self, part: Partition, image: ImageModel, seen: SeenImage, accuracy: float, options: dict[str, Any]
    ) -> None:
        self._part, self._seen, self._accuracy, self._options = part, seen, accuracy, options
        self._rows, self._excess = _turned(part, image)
        self._grid = _grid(image)
        refuse_coarse(self._rows, self._grid, REMEDY)

    def predict(self, nodes: Nodes, beam: Beam | None) -> NDArray[np.complexfloating]:
        """Visibilities of some channels, complex (n_row, n_chan of these, n_corr)."""
        seen, chan_freq = self._seen, self._part.chan_freq[nodes.channels]
        cells = self._aterm_cells(float(chan_freq.max()), beam) if seen.has_aterms and beam else 0.0
        idg = self._idg(dataclasses.replace(self._rows, chan_freq=chan_freq), cells)
        log.info("image, %d channels, %d frequencies: %s", len(chan_freq), len(nodes.freq), idg.plan)
        total: Any = None
        for freq, coefficient in zip(nodes.freq.tolist(), nodes.coefficient.T, strict=True):
            found = idg.predict(seen.spread(freq), lambda l, m, freq=freq: seen.screens((l, m), freq))
            found *= coefficient[:, None].astype(found.real.dtype)
            total = found if total is None else total + found
        return self._shifted(total, chan_freq, slice(None))

    def _idg(self, rows: Rows, cells: float) -> Any:
        from rime_kernels.idg import Idg

        return Idg(
            rows,
            self._grid,
            accuracy=self._accuracy,
            aterm_slot=self._seen.aterm_slot,
            aterm_support=cells,
            **self._options,
        )

    def _shifted(self, vis: NDArray[Any], chan_freq: Array, index: Any) -> NDArray[Any]:
        """vis times exp(2 pi i (w' - w) nu/c), channel by channel."""
        if self._excess is None:
            return vis
        for c, nu in enumerate(chan_freq):
            turns = self._excess[index] * (nu / SPEED_OF_LIGHT)
            phasor = np.exp(2j * np.pi * (turns - np.rint(turns)))
            vis[:, c] *= phasor.astype(vis.dtype)[:, None]
        return vis

    def _aterm_cells(self, freq: float, beam: Beam) -> float:
        """The fewest cells for A-terms with which a sample of pixels and rows comes out well.

        Raises
        ------
        InputError
            No number is enough.
        """
        seen = self._seen
        at = np.unique(np.linspace(0, self._part.n_row - 1, SAMPLE_ROWS).astype(np.int64))
        bright, far = np.abs(seen.bright(freq)).sum(axis=0), (seen.lm**2).sum(axis=1)
        some = np.unique([np.argsort(-bright)[:SAMPLE_PIXELS], np.argsort(-far)[:SAMPLE_PIXELS]])
        expected = self._as_points(freq, beam, at, some)
        for cells in ATERM_CELLS:
            try:
                idg = self._idg(_some(self._rows, at, freq), cells)
            except InputError:
                break
            found = idg.predict(seen.spread(freq, some), seen.screens(idg.lm, freq))
            error = np.linalg.norm(self._shifted(found, np.array([freq]), at) - expected)
            if error <= 0.5 * self._accuracy * np.linalg.norm(expected):
                return cells
        raise InputError(
            f"the beams of the antennas differ too much, or are too sharp, for an image at accuracy "
            f"{self._accuracy:g}; ask for less"
        )

    def _as_points(
        self, freq: float, beam: Beam, at: NDArray[np.int64], some: NDArray[np.int64]
    ) -> NDArray[np.complexfloating]:
        """Some pixels at some rows as point sources."""
        from rime_kernels.rime import Rime

        n, stokes = len(some), np.zeros((1, 1, len(some), 4))
        stokes[0, 0, :, : self._seen.n_stokes] = self._seen.bright(freq, some).T
        points = Sources(
            lm=self._seen.lm[None, some],
            stokes=stokes,
            ref_freq=np.full(n, freq),
            spectral_terms=np.zeros((1, n, 4, 0)),
            log_spectrum=np.ones(n, dtype=np.bool_),
            shape=np.zeros((1, 0, 3)),
            beam=beam,
        )
        rime = Rime(_some(self._part.rows, at, freq), extent=1.0, form="row", backend="cpu")
        return rime.predict(points)[0]


def _grid(image: ImageModel) -> ImageGrid:
    from rime_kernels.idg import ImageGrid

    return ImageGrid(image.n_pixel, image.cell, *image.offset)


def _turned(part: Partition, image: ImageModel) -> tuple[Rows, Array | None]:
    """Rows with uvw along the axes of the image's centre, and w' - w (m); None where nothing is turned."""
    if image.centre == part.phase_centre:
        return part.rows, None
    uvw = part.uvw @ (basis(part.phase_centre) @ basis(image.centre).T)
    return dataclasses.replace(part.rows, uvw=uvw), uvw[:, 2] - part.uvw[:, 2]


def _some(rows: Rows, at: NDArray[np.int64], freq: float) -> Rows:
    """Some rows at one frequency."""
    return dataclasses.replace(
        rows,
        uvw=rows.uvw[at],
        antenna1=rows.antenna1[at],
        antenna2=rows.antenna2[at],
        time_index=rows.time_index[at],
        chan_freq=np.array([freq]),
    )
