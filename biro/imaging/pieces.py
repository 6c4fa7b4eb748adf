"""The visibilities of an image in pieces: partitions of this process, or shards that ranks hold."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from biro.display.progress import counted
from biro.display.stages import Stages
from biro.distributed.capacity import check_memory
from biro.distributed.distributed_data import DataOnRanks, on_own_device
from biro.errors import InputError
from biro.imaging.pixels import CoarsePixels, UvMoments
from biro.imaging.weights import UvDensity, Weighting, image_weights
from biro.io.data_set.rank_reading import of_ranks
from biro.io.data_set.writable_models import Model, gathered
from biro.observation.distributed_data import DistributedData, RemoteArray
from biro.observation.observation import Observation
from biro.observation.partition import STOKES_NAMES, Partition
from biro.observation.stokes import stokes_planes, stokes_visibilities
from rime_kernels.arrays import Rows
from rime_kernels.device import Backend
from rime_kernels.engine.sharded import DataOf
from rime_kernels.gridder_choice import GridderName

if TYPE_CHECKING:
    from rime_kernels.gridding.gridder import Gridder
    from rime_kernels.idg import ImageGrid

Array = NDArray[np.float64]
Vis = NDArray[np.complexfloating]
What = Literal["data", "model", "residual"]
WEIGHT_BYTES = 16
"""Of each row and channel: the weights by the noise and in the image, which stay in memory."""
_MARGIN = 2.0
"""How many times the sum of moduli a pixel may be at most, by the error of the gridder."""


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


class Piece:
    """Visibilities of a partition, or of a shard of one, with their weights in an image.

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

    def power(self, model: Vis | None, what: What) -> float:
        """Sum of weighted moduli of Stokes visibilities: no pixel of an image of them is more."""
        return float(np.abs(self._weighted(model, what)).sum())

    def lobe(self, shape: tuple[int, ...]) -> GriddedImage:
        """The point spread function (1, N, N), not divided by the sum of weights."""
        return self._gridded(self._weight[..., None], shape)

    def image(self, model: Vis | None, what: What, shape: tuple[int, ...]) -> GriddedImage:
        """The image (n_stokes, N, N), not divided by the sum of weights."""
        return self._gridded(self._weighted(model, what), shape)

    def _weighted(self, model: Vis | None, what: What) -> Vis:
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


class Pieces(Protocol):
    """All pieces of an image."""

    def each(self, name: str, *arguments: object) -> list[Any]:
        """What a method of `Piece` gives for each, in their order."""
        ...

    def density(self, empty: UvDensity) -> UvDensity:
        """The density of all natural weights; `empty` has the grid."""
        ...

    def lobe(self, shape: tuple[int, ...], most: float) -> Array:
        """Sum of `Piece.lobe`, of which no pixel is more than `most`."""
        ...

    def image(self, shape: tuple[int, ...], models: Sequence[Model] | None, what: What) -> Array:
        """Sum of `Piece.image`; models are of partitions."""
        ...


class LocalPieces:
    """Pieces of this process, one for each partition; see `Pieces`.

    Parameters
    ----------
    pieces : sequence of Piece
    stages : Stages
    is_shown : bool
        Whether there is a bar of what is gridded.
    """

    def __init__(self, pieces: Sequence[Piece], stages: Stages, is_shown: bool) -> None:
        self._pieces, self._stages, self._is_shown = pieces, stages, is_shown

    def each(self, name: str, *arguments: object) -> list[Any]:
        """See `Pieces`."""
        return [getattr(piece, name)(*arguments) for piece in self._pieces]

    def density(self, empty: UvDensity) -> UvDensity:
        """See `Pieces`."""
        for piece in self._pieces:
            empty.add(piece.part, piece.natural)
        return replace(empty, total=sum(float(piece.natural.sum()) for piece in self._pieces))

    def lobe(self, shape: tuple[int, ...], most: float) -> Array:
        """See `Pieces`."""
        return self._sum(shape, [functools.partial(piece.lobe, shape) for piece in self._pieces])

    def image(self, shape: tuple[int, ...], models: Sequence[Model] | None, what: What) -> Array:
        """See `Pieces`."""
        parts = [piece.part for piece in self._pieces]
        own = [None] * len(parts) if models is None else list(map(gathered, parts, models))
        pairs = zip(self._pieces, own, strict=True)
        return self._sum(
            shape, [functools.partial(piece.image, model, what, shape) for piece, model in pairs]
        )

    def _sum(self, shape: tuple[int, ...], parts: Sequence[Callable[[], GriddedImage]]) -> Array:
        total = np.zeros(shape)
        for part in counted(parts, "imaging", "partitions", len(parts), show=self._is_shown):
            began = time.perf_counter()
            image, transform, n_vis = part()
            total += image
            self._stages.add("gridding", time.perf_counter() - began - transform, n_vis)
            if transform:
                self._stages.add("transform", transform, image.size, "pixels")
        return total


class RemotePieces:
    """Pieces that ranks hold, one for each shard of each partition; see `Pieces`.

    Sums do not depend, to the bit, on the number of ranks: see `DistributedData.total`.

    Parameters
    ----------
    observation : Observation
        Whose data ranks hold.
    stokes : str
    stages : Stages
    backend : "auto", "cpu" or "cuda"
    """

    def __init__(self, observation: Observation, stokes: str, stages: Stages, backend: Backend) -> None:
        self._stages, self._backend, self._parts = stages, backend, observation.partitions
        self._distributed: list[DistributedData] = []
        for part in self._parts:
            if part.distributed is None:
                raise InputError(
                    "MPI processes hold some of the data sets, and this process the others; read all with "
                    "comm="
                )
            part.distributed.ranks.check_alike(backend)
            like = [replace(part, **part.row_arrays(rows), distributed=None) for rows in part.shards]
            self._distributed.append(part.distributed.made(_make_piece, stokes, each=like))

    def each(self, name: str, *arguments: object) -> list[Any]:
        """See `Pieces`."""
        return [
            found
            for distributed in self._distributed
            for found in distributed.by_shard(_call, name, self._backend, arguments)
        ]

    def density(self, empty: UvDensity) -> UvDensity:
        """See `Pieces`."""
        natural = sum(self.each("natural_weight"))
        cells = np.zeros_like(empty.cells)
        for distributed in self._distributed:
            cells += distributed.total(_density, empty, most=[natural])[0]
        return replace(empty, cells=cells, total=natural)

    def lobe(self, shape: tuple[int, ...], most: float) -> Array:
        """See `Pieces`."""
        given = [_by_shard(part, None) for part in self._parts]
        return self._sum("lobe", (shape,), given, most)

    def image(self, shape: tuple[int, ...], models: Sequence[Model] | None, what: What) -> Array:
        """See `Pieces`."""
        given = [_by_shard(part, None if models is None else models[i]) for i, part in enumerate(self._parts)]
        most = sum(
            sum(distributed.by_shard(_with_model, "power", self._backend, (what,), each=each))
            for distributed, each in zip(self._distributed, given, strict=True)
        )
        return self._sum("image", (what, shape), given, most)

    def _sum(
        self, name: str, arguments: tuple[Any, ...], given: Sequence[Sequence[OfShard]], most: float
    ) -> Array:
        began, total = time.perf_counter(), np.zeros(arguments[-1])
        for distributed, each in zip(self._distributed, given, strict=True):
            total += distributed.total(
                _image, name, self._backend, arguments, most=[_MARGIN * most], each=each
            )[0]
        self._stages.add("gridding", time.perf_counter() - began, sum(self.each("n_gridded")))
        return total


def pieces_of(observation: Observation, stokes: str, stages: Stages, backend: Backend) -> Pieces:
    """All visibilities of an observation, where they are.

    Raises
    ------
    InputError
        Memory has no room for their weights, or ranks hold some of the data alone.
    """
    _check_memory(observation, len(stokes_planes(stokes)))
    if observation.is_distributed:
        return RemotePieces(observation, stokes, stages, backend)
    return LocalPieces([Piece(part, stokes) for part in observation.partitions], stages, is_shown=True)


def _check_memory(observation: Observation, n_stokes: int) -> None:
    """Refuse weights in double precision, and the work on a piece at a time, that memory has no room for."""
    parts = observation.partitions
    distributed = [part.distributed for part in parts if isinstance(part.distributed, DataOnRanks)]
    if len(distributed) == len(parts):
        ranks, shares = distributed[0].ranks, [each.shares for each in distributed]
        rows = [[own.size for own in part.shards] for part in parts]
    else:
        ranks, shares, rows = None, [[[0]] for _ in parts], [[part.n_row] for part in parts]
    kept = [[WEIGHT_BYTES * part.n_chan * n for n in each] for part, each in zip(parts, rows, strict=True)]
    work = [
        [(8 * part.n_corr + 40 * n_stokes) * part.n_chan * n for n in each]
        for part, each in zip(parts, rows, strict=True)
    ]
    pairs = zip(of_ranks(kept, shares, sum), of_ranks(work, shares, max), strict=True)
    check_memory(
        ranks,
        [one + other for one, other in pairs],
        "an image has weights in double precision, which",
        lambda times, n_machine: (
            f"share the data among MPI processes on {n_machine} machines of this size (mpiexec biro image), "
            f"average {times} times more, or select less"
        ),
    )


OfShard = DataOf | NDArray[np.complexfloating] | None
"""The model of a shard, or what gives it in the process that holds it."""


def _by_shard(part: Partition, model: Model | None) -> list[OfShard]:
    """The model of each shard."""
    if model is None:
        return [None] * len(part.shards)
    if isinstance(model, RemoteArray):
        assert model.distributed is not None, "models say who holds them"
        return [model.distributed.of(shard) for shard in range(len(part.shards))]
    return [model[rows] for rows in part.shards]


def _make_piece(vis: Vis, weight: NDArray[np.floating], like: Partition, stokes: str) -> tuple[Piece]:
    return (Piece(replace(like, vis=vis, weight=weight), stokes),)


def _call(piece: Piece, name: str, backend: Backend, arguments: Sequence[Any]) -> Any:
    return on_own_device(backend, functools.partial(getattr(piece, name), *arguments))


def _with_model(piece: Piece, model: OfShard, name: str, backend: Backend, arguments: Sequence[Any]) -> Any:
    values = model()[0] if callable(model) else model
    return _call(piece, name, backend, (values, *arguments))


def _density(piece: Piece, empty: UvDensity) -> tuple[Array]:
    own = replace(empty, cells=np.zeros_like(empty.cells))
    own.add(piece.part, piece.natural)
    return (own.cells,)


def _image(
    piece: Piece, model: OfShard, name: str, backend: Backend, arguments: Sequence[Any]
) -> tuple[Array]:
    if name == "lobe":
        return (_call(piece, name, backend, arguments)[0],)
    return (_with_model(piece, model, name, backend, arguments)[0],)
