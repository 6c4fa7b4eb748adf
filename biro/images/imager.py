"""Settings of dirty images, and the imager that makes them of an observation or of a part of it."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Literal, TypedDict, Unpack, get_args

import numpy as np
from numpy.typing import NDArray

from biro.errors import InputError
from biro.formatting import check_names
from biro.images.dirty_image import DirtyImage
from biro.images.pixels import (
    check_memory,
    check_n_pixel,
    default_cell,
    default_n_pixel,
    parse_cell,
    refuse_coarse,
    single_phase_centre,
)
from biro.images.psf import fit_beam
from biro.images.weights import UvDensity, Weighting, image_weights
from biro.observation.observation import Observation
from biro.observation.partition import PARALLEL_HANDS, STOKES_NAMES, Partition
from biro.observation.selection import to_utc
from biro.observation.stokes import PSEUDO_I, stokes_planes, stokes_visibilities
from biro.progress import counted
from biro.stages import Stages
from rime_kernels.arrays import Rows
from rime_kernels.device import Backend
from rime_kernels.gridder_choice import GridderName

if TYPE_CHECKING:
    from rime_kernels.gridding.gridder import Gridder

log = logging.getLogger(__name__)

Array = NDArray[np.float64]
Vis = NDArray[np.complexfloating]
What = Literal["data", "model", "residual"]
_FINER = "take pixels of at most {} (cell=, --cell), or leave out long baselines"


@dataclass(frozen=True)
class Imaging:
    """Settings of a dirty image.

    Attributes
    ----------
    stokes : str or None
        Planes of the image, as `biro.observation.stokes.form_stokes` has them: "I", "IQUV", "QU", ...;
        "pseudoI" is one plane, of I. None: "pseudoI", or the first Stokes parameter of data without I.
    weighting : "natural", "uniform" or "briggs"
        See `biro.images.weights.image_weights`.
    robust : float or None
        For "briggs" alone: -2 (close to uniform) .. 2 (close to natural); None is 0.
    cell : float (rad), text as "0.2 arcsec", or None
        Direction cosine from a pixel to the next. None: a fifth of the beam that is expected from the
        uv coverage, or 0.45 fringes of the longest baseline, whichever is less, in two digits (see
        `biro.images.pixels.default_cell`).
    n_pixel : int or None
        Along a side, even. None: twice the field of view lambda / D, within 256 .. 2048 pixels (fewer
        where so many would reach beyond the horizon); 1024 where the size of the dishes is not known.
    accuracy : float
        Relative error of the image: see `rime_kernels.make_gridder`.
    engine : "auto", "idg" or "wprojection"
        What grids: the one that is estimated to be faster, or image-domain gridding, or W-projection.
    backend : "auto", "cpu" or "cuda"
    memory_limit : int, str or None
        Bytes, or text such as "8 GB", that gridding may take on the device.
    """

    stokes: str | None = None
    weighting: Weighting = "natural"
    robust: float | None = None
    cell: float | str | None = None
    n_pixel: int | None = None
    accuracy: float = 1e-4
    engine: GridderName = "auto"
    backend: Backend = "auto"
    memory_limit: int | str | None = None

    def __post_init__(self) -> None:
        if self.weighting not in get_args(Weighting):
            raise InputError(f"weighting must be natural, uniform or briggs, got {self.weighting!r}")
        if self.robust is not None and self.weighting != "briggs":
            raise InputError(f"robust is for weighting briggs, not {self.weighting}; leave it out")
        if not -2.0 <= (self.robust or 0.0) <= 2.0:
            raise InputError(f"robust must lie in -2 (uniform) .. 2 (natural), got {self.robust}")

    @property
    def weighting_text(self) -> str:
        """The weighting in words, with its robustness."""
        return f"briggs (robust {self.robust or 0.0:g})" if self.weighting == "briggs" else self.weighting


class ImagingOptions(TypedDict, total=False):
    """The fields of `Imaging` as keyword arguments."""

    stokes: str | None
    weighting: Weighting
    robust: float | None
    cell: float | str | None
    n_pixel: int | None
    accuracy: float
    engine: GridderName
    backend: Backend
    memory_limit: int | str | None


@dataclass(frozen=True, eq=False)
class Samples:
    """The visibilities that an image is made of, with the weights of their Stokes visibilities.

    Attributes
    ----------
    parts : sequence of Partition
    noise : sequence of float64 (n_row, n_chan), 1/Jy^2
        By the noise of each visibility.
    natural : sequence of float64 (n_row, n_chan), 1/Jy^2
        What each counts for with natural weighting: the same, or less where it is interpolated.
    """

    parts: Sequence[Partition]
    noise: Sequence[Array]
    natural: Sequence[Array]

    @classmethod
    def of(cls, parts: Sequence[Partition], stokes: str) -> Samples:
        """All visibilities of some partitions.

        Raises
        ------
        InputError
            None has all correlations that these Stokes parameters need.
        """
        noise = [stokes_visibilities(part, part.vis, stokes)[1] for part in parts]
        if not any(weight.any() for weight in noise):
            raise InputError(f"no visibility has all that Stokes {stokes} needs; is one hand all flagged?")
        return cls(parts, noise, noise)


class Imager:
    """Makes images of one observation, with the same pixels, weights and PSF for data, model and residuals.

    Parameters
    ----------
    observation : Observation
    samples : Samples, optional
        A part of its visibilities, such as the plane of a cube; by default all.
    density : UvDensity, optional
        Of the weights, where it is not that of the samples.
    **options
        Fields of `Imaging`.

    Attributes
    ----------
    cell : float, rad
    n_pixel : int
    psf : float64 (N, N)
        1 in the middle.
    beam : RestoringBeam or None
        Fitted to the main lobe.

    Raises
    ------
    InputError
        As `image`.
    """

    def __init__(
        self,
        observation: Observation,
        *,
        samples: Samples | None = None,
        density: UvDensity | None = None,
        **options: Unpack[ImagingOptions],
    ) -> None:
        check_names(options, [item.name for item in fields(Imaging)], "image")
        imaging = Imaging(**options)
        self.observation, self._imaging, self._stages = observation, imaging, Stages()
        self._wanted = imaging.stokes or default_stokes(observation.partitions)
        self._stokes = stokes_planes(self._wanted)
        self._centre = single_phase_centre(observation)
        self._is_plane = samples is not None
        samples = samples or Samples.of(observation.partitions, self._wanted)
        self._parts = parts = samples.parts
        self._used = [np.asarray(weight.any(axis=1)) for weight in samples.natural]
        self.cell, self.n_pixel = choose_pixels(observation, samples.noise, imaging)
        check_memory(self.n_pixel, len(self._stokes))
        self._gridders = [self._gridder(part, used) for part, used in zip(parts, self._used, strict=True)]
        field, robust = self.n_pixel * self.cell, imaging.robust or 0.0
        self._weight = image_weights(parts, samples.natural, field, imaging.weighting, robust, density)
        self._total = sum(float(weight.sum()) for weight in self._weight)
        self._noise = _expected_noise(samples.noise, self._weight)
        self.psf = self._dirty([weight[..., None] for weight in self._weight], 1)[0]
        self.beam = fit_beam(self.psf, self.cell)
        if self.beam is None and not self._is_plane:
            log.warning("no beam: the main lobe of the PSF has no end within the image, or too few pixels")

    def image(self, what: What = "data", model: Sequence[Vis] | None = None) -> DirtyImage:
        """The image of data, model or data - model.

        Parameters
        ----------
        what : "data", "model" or "residual"
        model : sequence of complex (n_row, n_chan, n_corr), Jy, optional
            Model visibilities of each partition; not needed for the data.

        Raises
        ------
        InputError
            Models of other shapes than the data.
        """
        observation, parts = self.observation, self._parts
        model = checked_model(model, parts) if what != "data" else None
        weighted = []
        for i, part in enumerate(parts):
            vis = part.vis if model is None else model[i] if what == "model" else part.vis - model[i]
            values, _ = stokes_visibilities(part, vis, self._wanted)
            weighted.append(values * self._weight[i][..., None].astype(values.real.dtype))
        freq, bandwidth = self._frequencies()
        return DirtyImage(
            dirty=self._dirty(weighted, len(self._stokes)),
            psf=self.psf,
            beam=self.beam,
            cell=self.cell,
            centre=self._centre,
            stokes=self._stokes,
            what=what,
            weighting=self._imaging.weighting_text,
            noise=self._noise,
            n_vis=sum(int(np.count_nonzero(weight)) for weight in self._weight),
            freq=freq,
            bandwidth=bandwidth,
            freq_frame=parts[0].freq_frame,
            field=parts[0].field,
            telescope=observation.telescope,
            date=first_date(observation),
            origin=origin_of(observation),
            stages=self._stages,
        )

    def _gridder(self, part: Partition, used: NDArray[np.bool_]) -> Gridder | None:
        """The gridder of the rows that have a weight; None where there are none."""
        from rime_kernels import make_gridder
        from rime_kernels.idg import ImageGrid

        if not used.any():
            return None
        rows, grid = _rows(part, used, len(self._stokes)), ImageGrid(self.n_pixel, self.cell)
        refuse_coarse(rows, grid, _FINER)
        with self._stages.timed("sorting", rows.n_row * rows.n_chan):
            gridder = make_gridder(
                rows,
                grid,
                engine=self._imaging.engine,
                accuracy=self._imaging.accuracy,
                backend=self._imaging.backend,
                memory_limit=self._imaging.memory_limit,
            )
            log.info("image of %s, spw %s: %s", part.field, part.spw, gridder.plan)
        return gridder

    def _dirty(self, weighted: Sequence[Array] | Sequence[Vis], n_stokes: int) -> Array:
        """Image of weighted Stokes visibilities of all partitions, divided by the sum of weights."""
        total = np.zeros((n_stokes, self.n_pixel, self.n_pixel))
        parts = zip(self._gridders, weighted, self._used, strict=True)
        is_shown = not self._is_plane  # planes of a cube have a bar of their own
        for gridder, values, used in counted(
            parts, "imaging", "partitions", len(self._gridders), show=is_shown
        ):
            if gridder is None:
                continue
            vis = values[used].astype(np.result_type(values, np.complex64), copy=False)
            n_lacking = len(self._stokes) - vis.shape[2]
            if n_lacking:  # the PSF is made of I alone
                vis = np.concatenate([vis, np.zeros((*vis.shape[:2], n_lacking), vis.dtype)], axis=2)
            total += self._gridded(gridder, vis, 1 if n_stokes == 1 else 4)[:n_stokes]
        return total / self._total

    def _gridded(self, gridder: Gridder, vis: Vis, n_stokes: int) -> Array:
        """What a gridder gives, timed."""
        began, transform_before = time.perf_counter(), gridder.transform_seconds
        image = gridder.grid(vis, n_stokes=n_stokes)
        transform = gridder.transform_seconds - transform_before
        n_vis = vis.shape[0] * vis.shape[1]
        self._stages.add("gridding", time.perf_counter() - began - transform, n_vis)
        if transform:
            self._stages.add("transform", transform, image.size, "pixels")
        return image

    def _frequencies(self) -> tuple[float, float]:
        """Weighted mean of the channels, and the width from the lowest to the highest channel edge, Hz."""
        parts = self._parts
        freq = np.concatenate([part.chan_freq for part in parts])
        weight = np.concatenate([w.sum(axis=0) for w in self._weight])
        low = min(float((part.chan_freq - 0.5 * part.chan_width).min()) for part in parts)
        high = max(float((part.chan_freq + 0.5 * part.chan_width).max()) for part in parts)
        return float((weight * freq).sum() / weight.sum()), high - low


def refuse_coarse_rows(samples: Samples, cell: float, n_pixel: int) -> None:
    """Refuse pixels that are too coarse for some visibilities, before any image is made.

    Raises
    ------
    InputError
    """
    from rime_kernels.idg import ImageGrid

    for part, weight in zip(samples.parts, samples.noise, strict=True):
        used = np.asarray(weight.any(axis=1))
        if used.any():
            refuse_coarse(_rows(part, used, 1), ImageGrid(n_pixel, cell), _FINER)


def _rows(part: Partition, used: NDArray[np.bool_], n_stokes: int) -> Rows:
    """Rows of a partition, with a correlation for each Stokes parameter."""
    from rime_kernels.physics.brightness import stokes_to_corr

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


def first_date(observation: Observation) -> str:
    """UTC of the first sample."""
    first = min(float(part.times[0]) for part in observation.partitions)
    return to_utc(first, observation.utc_offset)


def origin_of(observation: Observation) -> str:
    """Where the data and their weights come from, for the history of a file."""
    return f"{observation.source}, {observation.column}, weights from {observation.weight_origin}"


def default_stokes(parts: Sequence[Partition]) -> str:
    """Stokes I, or the first Stokes parameter that is stored where no I is to be had."""
    names = [name for part in parts for name in part.corr_type]
    stored = [name for name in STOKES_NAMES if name in names]
    return PSEUDO_I if not stored or {"I", *PARALLEL_HANDS} & set(names) else stored[0]


def choose_pixels(
    observation: Observation, noise_weight: Sequence[Array], imaging: Imaging
) -> tuple[float, int]:
    """Size of the pixels, rad, and their number along a side: those that are stated, or the defaults.

    Parameters
    ----------
    observation : Observation
    noise_weight : sequence of float64 (n_row, n_chan)
        Weight of each visibility of each partition by its noise.
    imaging : Imaging

    Raises
    ------
    InputError
        Pixels that cannot be meant.
    """
    is_natural = imaging.weighting == "natural"
    cell = (
        default_cell(observation, noise_weight, is_natural)
        if imaging.cell is None
        else parse_cell(imaging.cell)
    )
    n_pixel = (
        default_n_pixel(observation, cell) if imaging.n_pixel is None else check_n_pixel(imaging.n_pixel)
    )
    return cell, n_pixel


def _expected_noise(noise_weight: Sequence[Array], image_weight: Sequence[Array]) -> float:
    """Rms in the image of noise as the weights state it: sqrt(sum W^2 / w) / sum W."""
    variance = total = 0.0
    for w, W in zip(noise_weight, image_weight, strict=True):
        used = w > 0.0
        variance += float((W[used] ** 2 / w[used]).sum())
        total += float(W.sum())
    return float(np.sqrt(variance) / total)


def checked_model(model: Sequence[Vis] | None, parts: Sequence[Partition]) -> Sequence[Vis]:
    shapes = [np.shape(vis) for vis in model] if model is not None else []
    expected = [part.vis.shape for part in parts]
    if model is None or shapes != expected:
        raise InputError(
            f"model must have visibilities of each partition, of shapes {expected}, got {shapes}"
        )
    return model
