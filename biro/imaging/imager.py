"""Settings of dirty images, and the imager that makes them of an observation or of a part of it."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import InitVar, dataclass, fields
from typing import TypedDict, Unpack, get_args

import numpy as np
from numpy.typing import NDArray

from biro.choices import Imaged, Weighting
from biro.deprecation import with_new_names
from biro.display.formatting import check_names
from biro.display.stages import Stages
from biro.distributed.blocks import LocalBlocks
from biro.distributed.remote_data import Model, RemoteArray
from biro.errors import InputError
from biro.imaging.dirty_image import DirtyImage
from biro.imaging.pieces import GriddingOptions, Piece, Pieces, WeightSums, pieces_of
from biro.imaging.pixels import (
    UvMoments,
    check_memory,
    check_n_pixel,
    default_cell,
    default_n_pixel,
    parse_cell,
    refuse_coarse,
    single_phase_centre,
)
from biro.imaging.psf import fit_beam
from biro.imaging.weights import UvDensity
from biro.observation.correlations import PARALLEL_HANDS, STOKES_NAMES
from biro.observation.observation import Observation
from biro.observation.partition import Partition
from biro.observation.selection import to_utc
from biro.observation.stokes import PSEUDO_I, stokes_planes
from rime_kernels.choices import Backend, GridderName

log = logging.getLogger(__name__)

Array = NDArray[np.float64]
Vis = NDArray[np.complexfloating]
FINER = "use pixels of at most {} (--cell, cell= in Python), or exclude long baselines"


RENAMED = {"n_pixel": "size"}
"""Earlier names of fields of `Imaging`."""


class _EarlierName(int):
    """A size that was read under its earlier name, as `dataclasses.replace` reads it and gives it back."""


@dataclass(frozen=True)
class Imaging:
    """Settings of a dirty image.

    Attributes
    ----------
    stokes : str or None
        Planes of the image, as `biro.observation.stokes.form_stokes` has them: "I", "IQUV", "QU", ...;
        "pseudoI" is one plane, of I. None: "pseudoI", or the first Stokes parameter of data without I.
    weighting : "natural", "uniform" or "briggs"
        See `biro.imaging.weights.image_weights`.
    robust : float or None
        For "briggs" alone: -2 (close to uniform) .. 2 (close to natural); None is 0.
    cell : float (rad), text as "0.2 arcsec", or None
        Direction cosine from a pixel to the next. None: a fifth of the beam that is expected from the
        uv coverage, or 0.45 fringes of the longest baseline, whichever is less, in two digits (see
        `biro.imaging.pixels.default_cell`).
    size : int or None
        Pixels along a side, even. None: twice the field of view lambda / D, within 256 .. 2048 pixels (fewer
        where so many would reach beyond the horizon); 1024 where the size of the dishes is not known.
    accuracy : float
        Relative error of the image: see `rime_kernels.make_gridder`.
    engine : "auto", "idg" or "wprojection"
        What grids: the one that is estimated to be faster, or image-domain gridding, or W-projection.
    backend : "auto", "cpu" or "cuda"
    memory_limit : int, str or None
        Bytes, or text such as "8 GB", that gridding may take on the device.
    n_pixel : int, optional
        The earlier name of size, with a `DeprecationWarning`.
    """

    stokes: str | None = None
    weighting: Weighting = "natural"
    robust: float | None = None
    cell: float | str | None = None
    size: int | None = None
    accuracy: float = 1e-4
    engine: GridderName = "auto"
    backend: Backend = "auto"
    memory_limit: int | str | None = None
    n_pixel: InitVar[int | None] = None

    def __post_init__(self, n_pixel: int | None) -> None:
        if n_pixel is not None and not isinstance(n_pixel, _EarlierName):
            given = {"n_pixel": n_pixel} | ({} if self.size is None else {"size": self.size})
            object.__setattr__(self, "size", with_new_names(given, RENAMED, "Imaging")["size"])
        if self.weighting not in get_args(Weighting):
            raise InputError(f"weighting must be natural, uniform or briggs, got {self.weighting!r}")
        if self.robust is not None and self.weighting != "briggs":
            raise InputError(f"robust is only for weighting briggs, not {self.weighting}; remove it")
        if not -2.0 <= (self.robust or 0.0) <= 2.0:
            raise InputError(f"robust must lie in -2 (uniform) .. 2 (natural), got {self.robust}")

    @property
    def weighting_text(self) -> str:
        """The weighting in words, with its robustness."""
        return f"briggs (robust {self.robust or 0.0:g})" if self.weighting == "briggs" else self.weighting


# After the dataclass is made, as it takes an attribute of this name for the default of the argument.
Imaging.n_pixel = property(  # type: ignore[attr-defined]
    lambda self: None if self.size is None else _EarlierName(self.size), doc="The earlier name of size."
)


class ImagingOptions(TypedDict, total=False):
    """The fields of `Imaging` as keyword arguments; n_pixel is the earlier name of size."""

    stokes: str | None
    weighting: Weighting
    robust: float | None
    cell: float | str | None
    size: int | None
    n_pixel: int | None
    accuracy: float
    engine: GridderName
    backend: Backend
    memory_limit: int | str | None


@dataclass(frozen=True, eq=False)
class ImagedVisibilities:
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


class Imager:
    """Makes images of one observation, with the same pixels, weights and PSF for data, model and residuals.

    Parameters
    ----------
    observation : Observation
    samples : ImagedVisibilities, optional
        A part of its visibilities, such as the plane of a cube; by default all.
    density : UvDensity, optional
        Of the weights, where it is not that of the samples.
    **options
        Fields of `Imaging`.

    Attributes
    ----------
    cell : float, rad
    n_pixel : int
    centre : (float, float), rad
        ICRS right ascension and declination of the phase centre.
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
        samples: ImagedVisibilities | None = None,
        density: UvDensity | None = None,
        **options: Unpack[ImagingOptions],
    ) -> None:
        given = with_new_names(options, RENAMED, "image")
        check_names(given, [item.name for item in fields(Imaging)], "image")
        imaging = Imaging(**given)  # type: ignore[arg-type]
        self.observation, self._imaging, self._stages = observation, imaging, Stages()
        self._wanted = imaging.stokes or default_stokes(observation.partitions)
        self._stokes = stokes_planes(self._wanted)
        self.centre = single_phase_centre(observation)
        self._is_plane = samples is not None
        self._parts = observation.partitions if samples is None else samples.parts
        self._pieces = self._pieces_of(samples)
        moments = self._pieces.each("moments")
        if not any(each.total for each in moments):
            raise no_visibility(self._wanted)
        self.cell, self.n_pixel = choose_pixels(observation, moments, imaging)
        check_memory(self.n_pixel, len(self._stokes))
        self._plan()
        field, robust = self.n_pixel * self.cell, imaging.robust or 0.0
        if imaging.weighting != "natural" and density is None:
            density = self._pieces.density(UvDensity.empty(self._parts, field))
        self._weighted: list[WeightSums] = self._pieces.each(
            "weigh", field, imaging.weighting, robust, density
        )
        self._total = sum(each.total for each in self._weighted)
        self._noise = float(np.sqrt(sum(each.variance for each in self._weighted)) / self._total)
        lobe = self._pieces.lobe((1, self.n_pixel, self.n_pixel), self._total)
        self.psf = lobe[0] / self._total
        self.beam = fit_beam(self.psf, self.cell)
        if self.beam is None and not self._is_plane:
            log.warning(
                "no beam could be fitted: the main lobe of the PSF is larger than the image (use --size, "
                "size= in Python), or undersampled (use --cell, cell=)"
            )

    def image(self, what: Imaged = "data", model: Sequence[Model] | None = None) -> DirtyImage:
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
        models = checked_model(model, parts) if what != "data" else None
        shape = len(self._stokes), self.n_pixel, self.n_pixel
        dirty = self._pieces.image(shape, models, what) / self._total
        freq, bandwidth = self._frequencies()
        return DirtyImage(
            dirty=dirty,
            psf=self.psf,
            beam=self.beam,
            cell=self.cell,
            centre=self.centre,
            stokes=self._stokes,
            what=what,
            weighting=self._imaging.weighting_text,
            noise=self._noise,
            n_vis=sum(each.n_vis for each in self._weighted),
            freq=freq,
            bandwidth=bandwidth,
            freq_frame=parts[0].freq_frame,
            field=parts[0].field,
            telescope=observation.telescope,
            date=first_date(observation),
            origin=origin_of(observation),
            stages=self._stages,
        )

    def _pieces_of(self, samples: ImagedVisibilities | None) -> Pieces:
        """The visibilities where they are."""
        if samples is None:
            return pieces_of(self.observation, self._wanted, self._stages, self._imaging.backend)
        triples = zip(samples.parts, samples.noise, samples.natural, strict=True)
        pieces = [LocalBlocks((Piece(part, self._wanted, *weights),)) for part, *weights in triples]
        return Pieces(pieces, self._stages, is_here=True, is_shown=False)  # a cube has a bar of its own

    def _plan(self) -> None:
        """Have gridders made, of pixels that are fine enough."""
        from rime_kernels.idg import ImageGrid

        grid, imaging = ImageGrid(self.n_pixel, self.cell), self._imaging
        refuse_coarse(self._pieces.each("coarse", grid), grid, FINER)
        how = GriddingOptions(
            grid,
            len(self._stokes),
            imaging.engine,
            imaging.accuracy,
            imaging.backend,
            imaging.memory_limit,
            is_kept=self._pieces.is_here,
        )
        began = time.perf_counter()
        plans: list[tuple[str, int]] = self._pieces.each("plan", how)
        self._stages.add("sorting", time.perf_counter() - began, sum(n_vis for _, n_vis in plans))
        for plan in dict.fromkeys(plan for plan, _ in plans if plan):
            log.info("image of %s: %s", self._parts[0].field, plan)

    def _frequencies(self) -> tuple[float, float]:
        """Weighted mean of the channels, and the width from the lowest to the highest channel edge, Hz."""
        parts = self._parts
        low = min(float((part.chan_freq - 0.5 * part.chan_width).min()) for part in parts)
        high = max(float((part.chan_freq + 0.5 * part.chan_width).max()) for part in parts)
        return sum(each.freq for each in self._weighted) / self._total, high - low


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
    observation: Observation, moments: Sequence[UvMoments], imaging: Imaging
) -> tuple[float, int]:
    """Size of the pixels, rad, and their number along a side: those that are stated, or the defaults.

    Parameters
    ----------
    observation : Observation
    moments : sequence of UvMoments
        Of all visibilities, with the weights of their noise.
    imaging : Imaging

    Raises
    ------
    InputError
        Pixels that cannot be meant.
    """
    is_natural = imaging.weighting == "natural"
    cell = default_cell(moments, is_natural) if imaging.cell is None else parse_cell(imaging.cell)
    n_pixel = default_n_pixel(observation, cell) if imaging.size is None else check_n_pixel(imaging.size)
    return cell, n_pixel


def no_visibility(stokes: str) -> InputError:
    """The error of data of which none has all correlations that Stokes parameters need."""
    return InputError(
        f"no visibility has all correlations that Stokes {stokes} needs; is one hand entirely flagged?"
    )


def checked_model(model: Sequence[Model] | None, parts: Sequence[Partition]) -> Sequence[Model]:
    """Models whose shapes are those of the partitions.

    Raises
    ------
    InputError
    """
    if not isinstance(model, Sequence | None):  # an array is none
        raise InputError(
            "model must be a list with an array of visibilities for each partition, as "
            f"likelihood.predict(theta) gives, got {type(model).__name__}"
        )
    shapes = [vis.shape if isinstance(vis, RemoteArray) else np.shape(vis) for vis in model or ()]
    expected = [part.vis.shape for part in parts]
    if model is None or shapes != expected:
        raise InputError(
            f"model must have visibilities of each partition, of shapes {expected}, got {shapes}"
        )
    return model
