"""Images of visibilities: what the data look like, or what a fit has left."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from biro.errors import InputError
from biro.formatting import angle_text, check_names
from biro.images.dirty_image import DirtyImage
from biro.images.fits import free_memory
from biro.images.psf import fit_beam
from biro.images.resolution import refuse_coarse
from biro.images.weights import Weighting, image_weights
from biro.observation.averaging import field_of_view
from biro.observation.observation import Observation
from biro.observation.partition import Partition
from biro.observation.selection import to_utc
from biro.observation.stokes import Stokes, stokes_visibilities
from rime_kernels.arrays import Rows
from rime_kernels.device import Backend
from rime_kernels.physics.phase import SPEED_OF_LIGHT

log = logging.getLogger(__name__)

Array = NDArray[np.float64]
Vis = NDArray[np.complexfloating]
What = Literal["data", "model", "residual"]
BEAM_OF_DISC = 0.705
"""FWHM of the PSF of a uniformly filled disc of the uv plane, in 1/radius: 2 J1(x)/x = 1/2 at x = 2.215."""
PIXELS_PER_BEAM = 5.0
FRINGE = 0.45
"""Largest cell, in fringes of the longest baseline; half of one is where they cannot be told apart."""
SIZES = (16, 24, 32, 48, 64, 96, 128, 192, 256, 320, 384, 480, 512, 640, 768, 960, 1024, 1280, 1536, 2048)
"""Pixels along a side, where nobody says how many: 256 or more, but for the widest of fields."""
LARGEST = 16384
"""Pixels with which a field of view may be asked for; that of VLBI takes more, and nobody wants it."""
WIDEST = 1.3
"""Direction cosines across such an image: its corners stay above the horizon."""


@dataclass(frozen=True)
class Imaging:
    """How images are made.

    Attributes
    ----------
    stokes : "I" or "IQUV"
        See `biro.observation.stokes.stokes_visibilities`.
    weighting : "natural", "uniform" or "briggs"
        See `biro.images.weights.image_weights`.
    robust : float or None
        For "briggs" alone: -2 (close to uniform) .. 2 (close to natural); None is 0.
    cell : float (rad), text as "0.2 arcsec", or None
        Direction cosine from a pixel to the next. None: a fifth of the beam, as it is expected from
        the extent of the uv coverage (see `expected_beam`), or 0.45 fringes of the longest baseline,
        whichever is less, in two digits.
    n_pixel : int or None
        Along a side, even. None: twice the field of view lambda / D, within 256 .. 2048 pixels (fewer
        where so many would reach beyond the horizon); 1024 where the size of the dishes is not known.
    accuracy : float
        Of the image, relative: see `rime_kernels.idg.Idg`.
    backend : "auto", "cpu" or "cuda"
    memory_limit : int, str or None
        Bytes, or text such as "8 GB", that the work may take on the device.
    """

    stokes: Stokes = "I"
    weighting: Weighting = "natural"
    robust: float | None = None
    cell: float | str | None = None
    n_pixel: int | None = None
    accuracy: float = 1e-4
    backend: Backend = "auto"
    memory_limit: int | str | None = None


def image(
    observation: Observation, what: What = "data", *, model: Sequence[Vis] | None = None, **options: Any
) -> DirtyImage:
    """A dirty image and its point spread function, all partitions and channels together.

        I_D(l, m) = Re sum w V exp(-2 pi i (u l + v m + w' (n - 1)) nu/c) / sum w       (physics: section 2)

    so that a point source of 1 Jy in the middle of a pixel is a peak of 1 Jy/beam there, anywhere in the
    image.

    Parameters
    ----------
    observation : Observation
        Of one phase centre.
    what : "data", "model" or "residual"
        The last is data - model.
    model : sequence of complex (n_row, n_chan, n_corr), Jy, optional
        Model visibilities of each partition, as `Likelihood.predict` gives them.
    **options
        Any of `Imaging`: stokes, weighting, robust, cell, n_pixel, accuracy, backend, memory_limit.

    Returns
    -------
    DirtyImage

    Raises
    ------
    InputError
        Several phase centres, correlations without these Stokes parameters, a cell too coarse for the
        longest baseline, or an argument that cannot be meant.
    """
    if what not in get_args(What):
        raise InputError(f"what must be data, model or residual, got {what!r}")
    if what != "data" and model is None:
        raise InputError(f"an image of the {what} needs model=, the model visibilities of each partition")
    return Imager(observation, **options).image(what, model)


class Imager:
    """Images of one observation, planned once: the same pixels, weights and PSF for data and residuals.

    Parameters
    ----------
    observation : Observation
    **options
        Any of `Imaging`.

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

    def __init__(self, observation: Observation, **options: Any) -> None:
        check_names(options, [item.name for item in fields(Imaging)], "image")
        chosen = Imaging(**options)
        if chosen.stokes not in get_args(Stokes):
            raise InputError(f"stokes must be I or IQUV, got {chosen.stokes!r}")
        if chosen.robust is not None and chosen.weighting != "briggs":
            raise InputError(f"robust is for weighting briggs, not {chosen.weighting}; leave it out")
        robust = chosen.robust or 0.0
        self.observation, self._stokes = observation, chosen.stokes
        self._centre = _one_centre(observation)
        parts = observation.partitions
        natural = [stokes_visibilities(part, part.vis, chosen.stokes)[1] for part in parts]
        if not any(weight.any() for weight in natural):
            raise InputError(
                f"no visibility has what Stokes {chosen.stokes} needs; is a correlation all flagged?"
            )
        self._used = [np.asarray(weight.any(axis=1)) for weight in natural]
        self.cell = _cell(chosen, observation, natural)
        self.n_pixel = _n_pixel(chosen.n_pixel, observation, self.cell)
        _check_memory(self.n_pixel, len(self._stokes))
        self._idg = [self._plan(part, used, chosen) for part, used in zip(parts, self._used, strict=True)]
        field = self.n_pixel * self.cell
        self._weight = image_weights(parts, natural, field, chosen.weighting, robust)
        self._total = sum(float(weight.sum()) for weight in self._weight)
        self._noise = _expected_noise(natural, self._weight)
        briggs = chosen.weighting == "briggs"
        self._words = f"briggs (robust {robust:g})" if briggs else chosen.weighting
        self.psf = self._dirty([weight[..., None] for weight in self._weight], 1)[0]
        self.beam = fit_beam(self.psf, self.cell)
        if self.beam is None:
            log.warning("no beam: the main lobe of the PSF has no end within the image, or too few pixels")

    def image(self, what: What = "data", model: Sequence[Vis] | None = None) -> DirtyImage:
        """The image of data, model or data - model.

        Raises
        ------
        InputError
            Models of other shapes than the data.
        """
        parts = self.observation.partitions
        model = _checked(model, parts) if what != "data" else None
        weighted = []
        for i, part in enumerate(parts):
            vis = part.vis if model is None else model[i] if what == "model" else part.vis - model[i]
            values, _ = stokes_visibilities(part, vis, self._stokes)
            weighted.append(values * self._weight[i][..., None].astype(values.real.dtype))
        return DirtyImage(
            dirty=self._dirty(weighted, len(self._stokes)),
            psf=self.psf,
            beam=self.beam,
            cell=self.cell,
            centre=self._centre,
            stokes=self._stokes,
            what=what,
            weighting=self._words,
            noise=self._noise,
            n_vis=sum(int(np.count_nonzero(weight)) for weight in self._weight),
            **self._about(),
        )

    def _plan(self, part: Partition, used: NDArray[np.bool_], chosen: Imaging) -> Any:
        """The gridder of the rows that have a weight; None where there are none."""
        from rime_kernels.idg import Idg, ImageGrid
        from rime_kernels.physics.brightness import stokes_to_corr

        if not used.any():
            return None
        rows = Rows(
            uvw=part.uvw[used],
            antenna1=part.antenna1[used],
            antenna2=part.antenna2[used],
            time_index=part.time_index[used],
            chan_freq=part.chan_freq,
            stokes_to_corr=stokes_to_corr(tuple(self._stokes)),
            n_antenna=part.n_antenna,
            n_time=len(part.times),
        )
        grid = ImageGrid(self.n_pixel, self.cell)
        refuse_coarse(rows, grid, "take pixels of at most {} (cell=, --cell), or leave out long baselines")
        idg = Idg(
            rows,
            grid,
            accuracy=chosen.accuracy,
            backend=chosen.backend,
            memory_limit=chosen.memory_limit,
        )
        log.info("image of %s, spw %s: %s", part.field, part.spw, idg.plan)
        return idg

    def _dirty(self, weighted: Sequence[NDArray[Any]], n_stokes: int) -> Array:
        """Sum over partitions of weighted Stokes visibilities, over the sum of weights."""
        total = np.zeros((n_stokes, self.n_pixel, self.n_pixel))
        for idg, values, used in zip(self._idg, weighted, self._used, strict=True):
            if idg is None:
                continue
            vis = values[used].astype(np.result_type(values, np.complex64), copy=False)
            lacking = len(self._stokes) - vis.shape[2]
            if lacking:  # the PSF is made of I alone
                vis = np.concatenate([vis, np.zeros((*vis.shape[:2], lacking), vis.dtype)], axis=2)
            total += idg.grid(vis, n_stokes=n_stokes)
        return total / self._total

    def _about(self) -> dict[str, Any]:
        """Where the data come from, for headers."""
        observation, parts = self.observation, self.observation.partitions
        freq = np.concatenate([part.chan_freq for part in parts])
        weight = np.concatenate([w.sum(axis=0) for w in self._weight])
        low = min(float((part.chan_freq - 0.5 * part.chan_width).min()) for part in parts)
        high = max(float((part.chan_freq + 0.5 * part.chan_width).max()) for part in parts)
        first = min(float(part.times[0]) for part in parts)
        return {
            "freq": float((weight * freq).sum() / weight.sum()),
            "bandwidth": high - low,
            "freq_frame": parts[0].freq_frame,
            "field": parts[0].field,
            "telescope": observation.telescope,
            "date": to_utc(first, observation.utc_offset),
            "origin": f"{observation.source}, {observation.column}, weights from {observation.weight_origin}",
        }


def _one_centre(observation: Observation) -> tuple[float, float]:
    """The phase centre; several of them would be a mosaic."""
    parts = observation.partitions
    first = parts[0].phase_centre
    others = [part.field for part in parts if not np.allclose(part.phase_centre, first, rtol=0.0, atol=1e-12)]
    if others:
        names = ", ".join(dict.fromkeys([parts[0].field, *others]))
        raise InputError(
            f"fields {names} have different phase centres, and an image has one; biro makes no mosaics: "
            "choose a field (fields=, --fields)"
        )
    return first


def _cell(chosen: Imaging, observation: Observation, natural: Sequence[Array]) -> float:
    if chosen.cell is not None:
        cell = _angle(chosen.cell)
        if not 0.0 < cell < 1.0:
            raise InputError(
                f"cell must be an angle above 0, as '0.2 arcsec' or in radians, got {chosen.cell!r}"
            )
        return cell
    parts = observation.partitions
    longest = max(_longest(part, weight) for part, weight in zip(parts, natural, strict=True))
    if not longest > 0.0:
        raise InputError(
            "all baselines have length 0, so nothing says how large pixels should be; give a cell"
        )
    beam = BEAM_OF_DISC / longest
    if chosen.weighting == "natural":
        beam = max(beam, expected_beam(parts, natural))
    return _rounded_down(min(beam / PIXELS_PER_BEAM, FRINGE / longest))


def _angle(given: float | str) -> float:
    """An angle in rad; text needs a unit."""
    from biro.observation.averaging import _number

    if isinstance(given, str) and re.fullmatch(r"[-+.\deE]+", given.strip()):
        raise InputError(f"cell {given!r} has no unit; write '{given.strip()} arcsec'")
    return _number(given, "rad", "cell")


def _longest(part: Partition, weight: Array) -> float:
    """Longest baseline that has a weight, in wavelengths."""
    length = np.hypot(part.uvw[:, 0], part.uvw[:, 1])[weight.any(axis=1)]
    return float(length.max(initial=0.0) * part.chan_freq.max() / SPEED_OF_LIGHT)


def expected_beam(parts: Sequence[Partition], weight: Sequence[Array]) -> float:
    """FWHM, rad, of the Gaussian that curves like the PSF does in its middle, where it curves most.

    About its middle the PSF is 1 - 2 pi^2 l^2 <u^2>, so that FWHM = sqrt(8 ln 2) / (2 pi sigma), with sigma^2
    the larger eigenvalue of the weighted mean of (u, v) (u, v)^T.

    Parameters
    ----------
    parts : sequence of Partition
    weight : sequence of float64 (n_row, n_chan)
    """
    moment, total = np.zeros((2, 2)), 0.0
    for part, w in zip(parts, weight, strict=True):
        waves = w @ (part.chan_freq / SPEED_OF_LIGHT) ** 2
        moment += (part.uvw[:, :2].T * waves) @ part.uvw[:, :2]
        total += float(w.sum())
    sigma = np.sqrt(np.linalg.eigvalsh(moment / total)[-1])
    return float(np.sqrt(8.0 * np.log(2.0)) / (2.0 * np.pi * sigma))


def _rounded_down(angle: float) -> float:
    """An angle with two digits in a unit that people use."""
    arcsec = angle * 180.0 / np.pi * 3600.0
    step = 10.0 ** (np.floor(np.log10(arcsec)) - 1.0)
    return float(np.floor(arcsec / step * (1.0 + 1e-12)) * step / 3600.0 * np.pi / 180.0)


def _n_pixel(given: int | None, observation: Observation, cell: float) -> int:
    if given is not None:
        if not (isinstance(given, int | np.integer) and given >= 16 and given % 2 == 0):
            raise InputError(f"n_pixel must be an even number of 16 or more, got {given!r}")
        return int(given)
    view = max(field_of_view(part, observation.dish_diameter) for part in observation.partitions)
    wanted = max(256.0, 2.0 * view / cell) if view else 1024.0
    fitting = [n for n in SIZES if n * cell <= WIDEST] or [SIZES[0]]
    chosen = next((n for n in fitting if n >= wanted), fitting[-1])
    if chosen * cell < view <= LARGEST * cell:
        wide, field = angle_text(chosen * cell), angle_text(view)
        log.warning(
            "the image, %s wide, is smaller than the field of view, %s; --size takes more", wide, field
        )
    return chosen


def _check_memory(n_pixel: int, n_stokes: int) -> None:
    """Refuse, before work, what cannot be held: images, and a complex grid up to twice as wide."""
    needed = n_pixel**2 * (8 * (2 * n_stokes + 3) + 4 * 8 * n_stokes)
    free = free_memory()
    if needed > free:
        raise InputError(
            f"an image of {n_pixel} x {n_pixel} pixels, {n_stokes} planes, needs {needed / 1e9:.3g} GB "
            f"of memory, {free / 1e9:.3g} GB are free; take fewer or coarser pixels"
        )


def _expected_noise(natural: Sequence[Array], weight: Sequence[Array]) -> float:
    """Rms in the image of noise as the weights state it: sqrt(sum W^2 / w) / sum W."""
    variance = total = 0.0
    for w, W in zip(natural, weight, strict=True):
        used = w > 0.0
        variance += float((W[used] ** 2 / w[used]).sum())
        total += float(W.sum())
    return float(np.sqrt(variance) / total)


def _checked(model: Sequence[Vis] | None, parts: Sequence[Partition]) -> Sequence[Vis]:
    shapes = [np.shape(each) for each in model] if model is not None else []
    wanted = [part.vis.shape for part in parts]
    if shapes != wanted:
        raise InputError(f"model must have visibilities of each partition, of shapes {wanted}, got {shapes}")
    assert model is not None
    return model
