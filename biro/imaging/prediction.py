"""Predict the visibilities of an image through the beam of a partition, by a gridder."""

from __future__ import annotations

import dataclasses
import functools
import logging
import operator
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from biro.errors import InputError
from biro.imaging.frequency_nodes import FrequencyNodes, choose_nodes
from biro.imaging.phase_centre import phasor, turned_uvw
from biro.imaging.pixels import CoarsePixels, refuse_coarse
from biro.imaging.seen_image import SeenImage, warn_where_empty
from biro.models.bound.jones_beams import PartitionBeam
from biro.models.components.image import ImageModel
from biro.observation.partition import Partition
from rime_kernels.arrays import Beam, Rows, Sources
from rime_kernels.choices import Backend
from rime_kernels.rime import Rime
from rime_kernels.smearing.average import average_of, largest_loss
from rime_kernels.smearing.smearing import Smearing

if TYPE_CHECKING:
    from rime_kernels.choices import GridderName
    from rime_kernels.gridding.gridder import Gridder
    from rime_kernels.idg import Idg, ImageGrid

log = logging.getLogger(__name__)

Array = NDArray[np.float64]
Vis = NDArray[np.complexfloating]
REMEDY = "give an image with pixels of at most {}"
NODE_SHARE = 0.3
"""Share of the accuracy that interpolation in frequency may use."""
ATERM_CELLS = (2.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0, 32.0)
"""Supports of the A-terms on the uv grid, in cells, tried one after the other."""
SAMPLE_PIXELS, SAMPLE_ROWS = 8, 200
"""Numbers of pixels (the brightest, and as many farthest out) and of rows on which a support is tried."""


def predict_image(
    part: Partition,
    image: ImageModel,
    *,
    beam: Beam | PartitionBeam | None = None,
    accuracy: float = 1e-5,
    engine: GridderName = "auto",
    backend: Backend = "auto",
    memory_limit: int | str | None = None,
    smearing: Smearing | None = None,
    rows: NDArray[np.int64] | None = None,
) -> Vis:
    """Model visibilities of an image for one partition, or for some of its rows.

    The image may have any centre: uvw are turned into its axes, u', and

        V = exp(2 pi i (w' - w) nu/c) V'(u', v', w')

    exactly. The image and the beam change with frequency: they are multiplied into images at a few
    frequencies, and visibilities at the others are interpolated by polynomials, whose error
    `biro.imaging.frequency_nodes` measures. Where antennas differ in where they point, their beams are
    A-terms; their support on the uv grid is the smallest with which a sample of pixels agrees with a sum over
    point sources.

    Smeared visibilities are means of those at Gauss-Legendre nodes of time and frequency, as those of
    components are; uvw turn in between. There are as many nodes as the accuracy asks for at the farthest
    pixel.

    Parameters
    ----------
    part : Partition
    image : ImageModel
    beam : Beam or PartitionBeam, optional
        That of one parameter vector: `BoundModel.fixed_beam`.
    accuracy : float
        Rms error over rms of the visibilities.
    engine : "auto", "idg" or "wprojection"
        What grids: see `rime_kernels.make_gridder`.
    backend : "auto", "cpu" or "cuda"
    memory_limit : int or str, optional
        Bytes, or text such as "8 GB", that the work may take on the device.
    smearing : Smearing, optional
        What visibilities are averages over.
    rows : int64 (n_wanted,), optional
        Rows that are wanted, by default all. Their visibilities are the same to the bit as among those of all
        rows, from which everything is planned.

    Returns
    -------
    complex64 or complex128 (n_row, n_chan, n_corr), Jy

    Raises
    ------
    InputError
        Brightness below the horizon of the phase centre, pixels too coarse for the longest baselines, beams
        that differ too much from antenna to antenna for this accuracy, or differ at all for W-projection.
    ModelError
        Channels beyond the planes of a cube.
    """
    warn_where_empty(part, image)
    seen = SeenImage(part, image, beam)
    n_row = part.n_row if rows is None else rows.size
    vis: Vis = np.zeros((n_row, part.n_chan, part.n_corr), np.complex64)
    if not seen.nonzero.size:
        return vis
    bands = image.bands(part.chan_freq)
    for weight, at in _samples(part, seen, smearing, accuracy):
        gridder = _Gridder(
            at, image, seen, accuracy=accuracy, engine=engine, backend=backend, memory_limit=memory_limit
        )
        for channels in bands:
            for nodes in choose_nodes(
                seen.apparent_brightness, channels, at.chan_freq, NODE_SHARE * accuracy
            ):
                band = gridder.predict(nodes, beam, rows)
                vis = vis.astype(np.result_type(vis, band), copy=False)
                vis[:, nodes.channels] += band.real.dtype.type(weight) * band
    return vis


def _samples(
    part: Partition, seen: SeenImage, smearing: Smearing | None, accuracy: float
) -> Iterator[tuple[float, Partition]]:
    """Weight, and the partition with its uvw and frequencies, of each node of the mean."""
    if smearing is None:
        yield 1.0, part
        return
    extent = float(np.hypot(*seen.lm.T).max()) / np.sqrt(2.0)
    loss = largest_loss(smearing, part.rows, extent)
    # More than the image is good for is not asked of the mean.
    error = max(smearing.error, min(0.5, NODE_SHARE * accuracy / max(loss, 1e-300)))
    average = average_of(dataclasses.replace(smearing, error=error), part.rows, extent)
    log.info("image %s", average)
    for weight, rows, _ in average.samples(part.rows, None):
        yield weight, dataclasses.replace(part, uvw=rows.uvw, chan_freq=rows.chan_freq)


def check_image(part: Partition, image: ImageModel) -> None:
    """Refuse an image that cannot be predicted, as far as this is known without predicting it.

    `predict_image` makes the same checks, and checks the A-terms too.

    Raises
    ------
    InputError
        Brightness below the horizon of the phase centre, pixels too coarse for the longest baselines.
    ModelError
        Channels beyond the planes of a cube.
    """
    image.bands(part.chan_freq)
    if SeenImage(part, image, None).nonzero.size:
        grid = _grid(image)
        refuse_coarse([CoarsePixels.of(_turned(part, image)[0], grid)], grid, REMEDY)


class _Gridder:
    """Predicts the visibilities of an image at the rows of a partition."""

    def __init__(
        self,
        part: Partition,
        image: ImageModel,
        seen: SeenImage,
        *,
        accuracy: float,
        engine: GridderName,
        backend: Backend,
        memory_limit: int | str | None,
    ) -> None:
        self._part, self._seen, self._accuracy = part, seen, accuracy
        self._engine, self._backend, self._memory_limit = engine, backend, memory_limit
        if engine == "wprojection" and seen.has_aterms:
            raise InputError(
                "the antennas have different beams, which W-projection does not support; use engine idg"
            )
        self._rows, self._excess = _turned(part, image)
        self._grid = _grid(image)
        refuse_coarse([CoarsePixels.of(self._rows, self._grid)], self._grid, REMEDY)

    def predict(
        self, nodes: FrequencyNodes, beam: Beam | PartitionBeam | None, wanted: NDArray[np.int64] | None
    ) -> Vis:
        """Visibilities of wanted rows and the channels of some nodes, complex (n_row, n_chan, n_corr)."""
        seen, chan_freq = self._seen, self._part.chan_freq[nodes.channels]
        rows = dataclasses.replace(self._rows, chan_freq=chan_freq)
        gridder: Gridder
        if seen.has_aterms and beam:
            gridder = self._idg(rows, self._aterm_support(float(chan_freq.max()), beam))
        else:
            gridder = self._without_aterms(rows)
        log.info("image, %d channels, %d frequencies: %s", len(chan_freq), len(nodes.freq), gridder.plan)
        if wanted is not None:
            gridder = gridder.of_rows(wanted)
        terms = (
            self._node_term(gridder, freq, coefficient)
            for freq, coefficient in zip(nodes.freq.tolist(), nodes.coefficient.T, strict=True)
        )
        vis = functools.reduce(operator.add, terms)
        return self._shifted(vis, chan_freq, slice(None) if wanted is None else wanted)

    def _node_term(self, gridder: Gridder, freq: float, coefficient: Array) -> Vis:
        """Visibilities of the image at the frequency of a node, times the node's coefficient by channel."""
        seen = self._seen
        screens = (lambda l, m: seen.aterms((l, m), freq)) if seen.has_aterms else None
        vis: Vis = gridder.predict(seen.planes(freq), screens)
        vis *= coefficient[:, None].astype(vis.real.dtype)
        return vis

    def _without_aterms(self, rows: Rows) -> Gridder:
        from rime_kernels import make_gridder

        return make_gridder(
            rows,
            self._grid,
            engine=self._engine,
            accuracy=self._accuracy,
            backend=self._backend,
            memory_limit=self._memory_limit,
        )

    def _idg(self, rows: Rows, support: float) -> Idg:
        from rime_kernels.idg import Idg

        return Idg(
            rows,
            self._grid,
            accuracy=self._accuracy,
            aterm_slot=self._seen.aterm_slot,
            aterm_support=support,
            backend=self._backend,
            memory_limit=self._memory_limit,
        )

    def _shifted(self, vis: Vis, chan_freq: Array, rows: NDArray[np.int64] | slice) -> Vis:
        """Visibilities of some rows, times exp(2 pi i (w' - w) nu/c), in place."""
        if self._excess is None:
            return vis
        for c, nu in enumerate(chan_freq):
            vis[:, c] *= phasor(self._excess[rows], nu).astype(vis.dtype)[:, None]
        return vis

    def _aterm_support(self, freq: float, beam: Beam | PartitionBeam) -> float:
        """The smallest support of A-terms, in cells, with which a sample of pixels and rows is exact enough.

        Raises
        ------
        InputError
            No support of `ATERM_CELLS` is enough.
        """
        seen = self._seen
        rows = np.unique(np.linspace(0, self._part.n_row - 1, SAMPLE_ROWS).astype(np.int64))
        bright, distance2 = np.abs(seen.brightness(freq)).sum(axis=0), (seen.lm**2).sum(axis=1)
        pixels = np.unique([np.argsort(-bright)[:SAMPLE_PIXELS], np.argsort(-distance2)[:SAMPLE_PIXELS]])
        expected = self._as_points(freq, beam, rows, pixels)
        for support in ATERM_CELLS:
            try:
                idg = self._idg(_sample_of(self._rows, rows, freq), support)
            except InputError:
                break
            vis = idg.predict(seen.planes(freq, pixels), seen.aterms(idg.lm, freq))
            error = np.linalg.norm(self._shifted(vis, np.array([freq]), rows) - expected)
            if error <= 0.5 * self._accuracy * np.linalg.norm(expected):
                return support
        raise InputError(
            f"the antenna beams differ too much or are too narrow for accuracy {self._accuracy:g}; ask for "
            "less"
        )

    def _as_points(
        self, freq: float, beam: Beam | PartitionBeam, rows: NDArray[np.int64], pixels: NDArray[np.int64]
    ) -> Vis:
        """Visibilities of some pixels at some rows as a sum over point sources."""
        n, stokes = len(pixels), np.zeros((1, 1, len(pixels), 4))
        stokes[0, 0, :, : self._seen.n_stokes] = self._seen.brightness(freq, pixels).T
        points = Sources(
            lm=self._seen.lm[None, pixels],
            stokes=stokes,
            ref_freq=np.full(n, freq),
            spectral_terms=np.zeros((1, n, 4, 0)),
            log_spectrum=np.ones(n, dtype=np.bool_),
            shape=np.zeros((1, 0, 3)),
            beam=beam.at(np.array([freq])) if isinstance(beam, PartitionBeam) else beam,
        )
        rime = Rime(_sample_of(self._part.rows, rows, freq), extent=1.0, form="row", backend="cpu")
        vis: Vis = rime.predict(points)[0]
        return vis


def _grid(image: ImageModel) -> ImageGrid:
    from rime_kernels.idg import ImageGrid

    return ImageGrid(image.n_pixel, image.cell, *image.offset)


def _turned(part: Partition, image: ImageModel) -> tuple[Rows, Array | None]:
    """Rows with uvw along the axes of the image's centre, and w' - w, m; None where the centres agree."""
    if image.centre == part.phase_centre:
        return part.rows, None
    uvw, excess = turned_uvw(part, image.centre)
    return dataclasses.replace(part.rows, uvw=uvw), excess


def _sample_of(rows: Rows, index: NDArray[np.int64], freq: float) -> Rows:
    """Some rows at one frequency."""
    return dataclasses.replace(
        rows,
        uvw=rows.uvw[index],
        antenna1=rows.antenna1[index],
        antenna2=rows.antenna2[index],
        time_index=rows.time_index[index],
        chan_freq=np.array([freq]),
    )
