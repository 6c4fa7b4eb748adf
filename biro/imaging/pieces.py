"""The visibilities of an image in pieces, which are gridded one after the other and summed."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from biro.choices import Imaged, Weighting
from biro.display.progress import counted
from biro.display.stages import Stages
from biro.distributed.blocks import Blocks, split
from biro.distributed.placement import Placement
from biro.distributed.remote_data import Model
from biro.errors import InputError
from biro.imaging.pixels import CoarsePixels, UvMoments
from biro.imaging.weights import UvDensity, image_weights
from biro.observation.correlations import STOKES_NAMES
from biro.observation.observation import Observation
from biro.observation.partition import Partition
from biro.observation.partition_header import PartitionHeader
from biro.observation.stokes import stokes_planes, stokes_visibilities
from rime_kernels.arrays import Rows
from rime_kernels.choices import Backend, GridderName

if TYPE_CHECKING:
    from rime_kernels.gridding.gridder import Gridder
    from rime_kernels.idg import ImageGrid

Array = NDArray[np.float64]
Vis = NDArray[np.complexfloating]
WEIGHT_BYTES = 16
"""Of each row and channel: the weights by the noise and in the image, which stay in memory."""
_MARGIN = 2.0
"""How many times the sum of moduli a pixel may be at most, by the error of the gridder."""
_MOST_WORK = 1e15
"""More visibilities and seconds than an image has."""


class GriddingOptions(NamedTuple):
    """How visibilities are gridded; see `rime_kernels.make_gridder`.

    With `is_kept`, the gridder is made once for all images; without it, the device has one gridder of many
    pieces at a time.
    """

    grid: ImageGrid
    n_stokes: int
    engine: GridderName
    accuracy: float
    backend: Backend
    memory_limit: int | str | None
    is_kept: bool


class WeightSums(NamedTuple):
    """Sums over the visibilities of a piece, with their weights in the image.

    Attributes
    ----------
    total : float
        Sum of the weights W.
    variance : float
        Sum of W^2 / w, with w the weight by the noise.
    freq : float, Hz/Jy^2
        Sum of W times the frequency.
    n_vis : int
        Those that count.
    """

    total: float
    variance: float
    freq: float
    n_vis: int


class GriddedImage(NamedTuple):
    """An image (n_stokes, N, N) that was gridded, seconds that its transforms took, and its visibilities."""

    image: Array
    transform: float
    n_vis: int

    @property
    def with_work(self) -> tuple[Array, Array]:
        """The image, and the other two as an array, which are summed alike."""
        return self.image, np.array([self.transform, float(self.n_vis)])


class Piece:
    """Visibilities of a partition, or of a block of one, with their weights in an image.

    Parameters
    ----------
    part : Partition
    stokes : str
        As `biro.observation.stokes.stokes_visibilities` takes it.
    noise, natural : float64 (n_row, n_chan), 1/Jy^2, optional
        By the noise of each visibility, and what each counts for with natural weighting. Default: by the
        noise of Stokes visibilities.
    """

    def __init__(
        self, part: Partition, stokes: str, noise: Array | None = None, natural: Array | None = None
    ) -> None:
        self.part, self._stokes = part, stokes
        self.noise = stokes_visibilities(part, part.vis, stokes)[1] if noise is None else noise
        self.natural = self._weight = self.noise if natural is None else natural
        self._used = np.asarray(self.natural.any(axis=1))
        self._how: GriddingOptions | None = None
        self._kept: Gridder | None = None

    def moments(self) -> UvMoments:
        """How baselines are spread."""
        return UvMoments.of(self.part, self.noise)

    def coarse(self, grid: ImageGrid) -> CoarsePixels:
        """For how many visibilities the pixels of a grid are too coarse."""
        if not self._used.any():
            return CoarsePixels(0, 0, np.inf)
        return CoarsePixels.of(self._rows(1), grid)

    def natural_weight(self) -> float:
        """Sum of the natural weights."""
        return float(self.natural.sum())

    def n_gridded(self) -> int:
        """Visibilities of the rows that have a weight."""
        return int(np.count_nonzero(self._used)) * self.part.n_chan

    def weigh(
        self, field: float, weighting: Weighting, robust: float, density: UvDensity | None
    ) -> WeightSums:
        """Give visibilities their weights in the image; see `biro.imaging.weights.image_weights`."""
        (weight,) = image_weights([self.part], [self.natural], field, weighting, robust, density)
        self._weight, used = weight, self.noise > 0.0
        variance = float((weight[used] ** 2 / self.noise[used]).sum())
        n_vis = int(np.count_nonzero(weight))
        freq = float((weight.sum(axis=0) * self.part.chan_freq).sum())
        return WeightSums(float(weight.sum()), variance, freq, n_vis)

    def plan(self, how: GriddingOptions) -> tuple[str, int]:
        """Say how visibilities are gridded: the plan in words, if the gridder is kept, and their number."""
        self._how = how
        if how.is_kept and self._used.any():
            self._kept = self._gridder(how)
        return "" if self._kept is None else str(self._kept.plan), self.n_gridded()

    def power(self, model: Vis | None, what: Imaged) -> float:
        """Sum of weighted moduli of Stokes visibilities: no pixel of an image of them is more."""
        return float(np.abs(self._weighted(model, what)).sum())

    def lobe(self, shape: tuple[int, ...]) -> GriddedImage:
        """The point spread function (1, N, N), not divided by the sum of weights."""
        return self._gridded(self._weight[..., None], shape)

    def image(self, model: Vis | None, what: Imaged, shape: tuple[int, ...]) -> GriddedImage:
        """The image (n_stokes, N, N), not divided by the sum of weights."""
        return self._gridded(self._weighted(model, what), shape)

    def _weighted(self, model: Vis | None, what: Imaged) -> Vis:
        """Stokes visibilities of data, of the model or of data - model, times their weights."""
        if model is None:
            vis: Vis = self.part.vis
        else:
            vis = model if what == "model" else self.part.vis - model
        values, _ = stokes_visibilities(self.part, vis, self._stokes)
        weighted: Vis = values * self._weight[..., None].astype(values.real.dtype)
        return weighted

    def _gridded(self, weighted: Array | Vis, shape: tuple[int, ...]) -> GriddedImage:
        how = self._how
        assert how is not None, "there is a plan"
        if not self._used.any():
            return GriddedImage(np.zeros(shape), 0.0, 0)
        gridder = self._kept or self._gridder(how)
        values = weighted[self._used]
        vis = values.astype(np.result_type(values, np.complex64), copy=False)
        n_lacking = how.n_stokes - vis.shape[2]
        if n_lacking:  # the PSF is made of I alone
            vis = np.concatenate([vis, np.zeros((*vis.shape[:2], n_lacking), vis.dtype)], axis=2)
        before = gridder.transform_seconds
        image = gridder.grid(vis, n_stokes=1 if shape[0] == 1 else 4)[: shape[0]]
        return GriddedImage(image, gridder.transform_seconds - before, vis.shape[0] * vis.shape[1])

    def _gridder(self, how: GriddingOptions) -> Gridder:
        from rime_kernels import make_gridder

        return make_gridder(
            self._rows(how.n_stokes),
            how.grid,
            engine=how.engine,
            accuracy=how.accuracy,
            backend=how.backend,
            memory_limit=how.memory_limit,
        )

    def _rows(self, n_stokes: int) -> Rows:
        """The rows that have a weight, with a correlation for each Stokes parameter."""
        from rime_kernels.physics.brightness import stokes_to_corr

        part, used = self.part, self._used
        return Rows(
            uvw=part.uvw[used],
            antenna1=part.antenna1[used],
            antenna2=part.antenna2[used],
            time_index=part.time_index[used],
            chan_freq=part.chan_freq,
            # One plane for each, whichever they are: the gridder makes I, or all four.
            stokes_to_corr=stokes_to_corr(STOKES_NAMES[:n_stokes]),
            n_antenna=part.n_antenna,
            n_time=len(part.times),
        )


class Pieces:
    """All pieces of an image: partitions in the memory of this process, blocks of those that are elsewhere.

    Sums over blocks are the same to the bit wherever these are: see `Blocks.total`.

    Parameters
    ----------
    pieces : sequence of Blocks
        Each block is a `Piece`.
    stages : Stages
    is_here : bool
        Whether all of them are in the memory of this process.
    is_shown : bool
        Whether there is a bar of what is gridded.
    """

    def __init__(self, pieces: Sequence[Blocks], stages: Stages, *, is_here: bool, is_shown: bool) -> None:
        self._pieces, self._stages = pieces, stages
        self.is_here, self._is_shown = is_here, is_shown

    def each(self, name: str, *arguments: object) -> list[Any]:
        """What a method of `Piece` gives for each, in their order."""
        return [found for blocks in self._pieces for found in blocks.by_block(_call, name, arguments)]

    def density(self, empty: UvDensity) -> UvDensity:
        """The density of all natural weights; `empty` has the grid."""
        natural = sum(self.each("natural_weight"))
        cells = np.zeros_like(empty.cells)
        for blocks in self._pieces:
            cells += blocks.total(_density, empty, most=lambda: [natural])[0]
        return replace(empty, cells=cells, total=natural)

    def lobe(self, shape: tuple[int, ...], most: float) -> Array:
        """Sum of `Piece.lobe`, of which no pixel is more than `most`."""
        return self._sum(_lobe, (shape,), [None] * len(self._pieces), lambda: most)

    def image(self, shape: tuple[int, ...], models: Sequence[Model] | None, what: Imaged) -> Array:
        """Sum of `Piece.image`; models are of partitions."""
        given = [None] * len(self._pieces) if models is None else models

        def most() -> float:
            pairs = zip(self._pieces, given, strict=True)
            return sum(
                sum(blocks.by_block(_power, what, each=split(model, blocks.rows))) for blocks, model in pairs
            )

        return self._sum(_image, (what, shape), given, functools.cache(most))

    def _sum(
        self,
        function: Callable[..., tuple[Array, Array]],
        arguments: tuple[Any, ...],
        models: Sequence[Model | None],
        most: Callable[[], float],
    ) -> Array:
        total = np.zeros(arguments[-1])
        pairs = list(zip(self._pieces, models, strict=True))
        for blocks, model in counted(pairs, "imaging", "partitions", len(pairs), show=self._is_shown):
            began = time.perf_counter()
            image, work = blocks.total(
                function,
                *arguments,
                most=lambda: [_MARGIN * most(), _MOST_WORK],
                each=split(model, blocks.rows),
            )
            total += image
            # Seconds of transforms in several processes are no part of the time that has passed here.
            transform = float(work[0]) if self.is_here else 0.0
            self._stages.add("gridding", time.perf_counter() - began - transform, int(work[1]))
            if transform:
                self._stages.add("transform", transform, image.size, "pixels")
        return total


def pieces_of(observation: Observation, stokes: str, stages: Stages, backend: Backend) -> Pieces:
    """All visibilities of an observation, where they are.

    Raises
    ------
    InputError
        Memory has no room for their weights; or some of the data are in the memory of this process, and some
        elsewhere.
    """
    parts = observation.partitions
    _check_memory(observation, len(stokes_planes(stokes)))
    is_here = not observation.is_distributed
    if not is_here and any(part.distributed is None for part in parts):
        raise InputError(
            "MPI processes hold some of the data sets, and this process the others; read all with comm="
        )
    pieces = []
    for part in parts:
        blocks = part.stored.on_devices(backend)
        headers = [part.header.some_rows(rows) for rows in blocks.rows]
        pieces.append(blocks.made(_make_piece, stokes, each=headers))
    return Pieces(pieces, stages, is_here=is_here, is_shown=is_here)


def _check_memory(observation: Observation, n_stokes: int) -> None:
    """Refuse weights in double precision, and the work on a piece at a time, that memory has no room for."""
    parts = observation.partitions
    placement = Placement.of(parts)
    kept = placement.totals([WEIGHT_BYTES * part.n_chan for part in parts])
    work = placement.largest([(8 * part.n_corr + 40 * n_stokes) * part.n_chan for part in parts])
    placement.check_memory(
        [one + other for one, other in zip(kept, work, strict=True)],
        "an image has weights in double precision, which",
        lambda times, n_machine: (
            f"share the data among MPI processes on {n_machine} machines of this size (mpiexec biro image), "
            f"average {times} times more, or select less"
        ),
    )


def _make_piece(vis: Vis, weight: NDArray[np.floating], header: PartitionHeader, stokes: str) -> tuple[Piece]:
    return (Piece(Partition.of(header, vis=vis, weight=weight), stokes),)


def _call(piece: Piece, name: str, arguments: Sequence[Any]) -> Any:
    return getattr(piece, name)(*arguments)


def _power(piece: Piece, model: Vis | None, what: Imaged) -> float:
    return piece.power(model, what)


def _density(piece: Piece, empty: UvDensity) -> tuple[Array]:
    own = replace(empty, cells=np.zeros_like(empty.cells))
    own.add(piece.part, piece.natural)
    return (own.cells,)


def _lobe(piece: Piece, _: None, shape: tuple[int, ...]) -> tuple[Array, Array]:
    return piece.lobe(shape).with_work


def _image(piece: Piece, model: Vis | None, what: Imaged, shape: tuple[int, ...]) -> tuple[Array, Array]:
    return piece.image(model, what, shape).with_work
