"""Visibilities of the images of a sky model, which are predicted once and then scaled by parameters."""

from __future__ import annotations

import copy
import hashlib
import logging
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, cast

import numpy as np
from numpy.typing import NDArray

from biro.errors import InputError
from biro.imaging.fits import read_image
from biro.imaging.prediction import check_image, predict_image
from biro.imaging.seen_image import rings_of
from biro.models import ImageModel, ImageTerm, ModelError
from biro.models.choices import Interpolation
from biro.models.components.direction import basis
from biro.observation.smearing import BrightnessRings
from rime_kernels.physics.phase import directions
from rime_kernels.smearing.smearing import Smearing

if TYPE_CHECKING:
    from biro.models import BoundModel
    from biro.observation.observation import Observation
    from rime_kernels.arrays import Sources
    from rime_kernels.choices import Backend, GridderName
    from rime_kernels.gradient import Gradient

log = logging.getLogger(__name__)


class Templates:
    """Predicts the visibilities of a model's images in each partition, for factors of 1.

    Parameters
    ----------
    observation : Observation
    bound : BoundModel
    accuracy : float
        Rms error over rms of the visibilities.
    engine : "auto", "idg" or "wprojection"
        What grids: see `rime_kernels.make_gridder`.
    backend, memory_limit
        As `Likelihood`.

    Raises
    ------
    InputError
        An image that cannot be read, or pixels too coarse for the longest baselines.
    ModelError
        A beam that is fitted, channels beyond the planes of a cube.
    """

    def __init__(
        self,
        observation: Observation,
        bound: BoundModel,
        *,
        accuracy: float,
        engine: GridderName,
        backend: Backend,
        memory_limit: int | str | None,
    ) -> None:
        self._observation, self._bound = observation, bound
        self._accuracy, self._engine = accuracy, engine
        self._backend, self._memory_limit = backend, memory_limit
        terms = bound.model.images
        self._names = [term.name for term in terms]
        self._images = [_image(term) for term in terms]
        self._middle = np.array([_middle(image) for image in self._images]).reshape(-1, 3)
        self.shifts = ImageShifts(bound, self._middle)

    def check(self) -> None:
        """Refuse images that cannot be predicted for any partition, before any is predicted.

        Raises
        ------
        InputError, ModelError
            As `biro.imaging.prediction.check_image`, naming the image.
        """
        for name, image in zip(self._names, self._images, strict=True):
            for part in self._observation.partitions:
                try:
                    check_image(part, image)
                except (InputError, ModelError) as error:
                    raise type(error)(f"image {name!r}: {error}") from None

    def of(self, i_partition: int, smearing: Smearing | None = None) -> NDArray[np.complexfloating] | None:
        """Templates of a partition, complex (n_image, n_row, n_chan, n_corr), Jy; None without images.

        Parameters
        ----------
        i_partition : int
        smearing : Smearing, optional
            What visibilities are averages over.
        """
        if not self._images:
            return None
        part, beam = self._observation.partitions[i_partition], self._bound.fixed_beam(i_partition)
        templates = []
        for name, image in zip(self._names, self._images, strict=True):
            try:
                vis = predict_image(
                    part,
                    image,
                    beam=beam,
                    accuracy=self._accuracy,
                    engine=self._engine,
                    backend=self._backend,
                    memory_limit=self._memory_limit,
                    smearing=smearing,
                )
                templates.append(vis)
            except (InputError, ModelError) as error:
                raise type(error)(f"image {name!r}: {error}") from None
            log.info("%s: predicting the image %s", self._observation.labels[i_partition], name)
        return np.stack(templates)

    @property
    def needs_phases(self) -> bool:
        """Whether there is more than images that stand still, which are means already where smeared."""
        return bool(self._bound.model.sources) or self._bound.image_shift() > 0.0

    def rings(self, i_partition: int) -> list[BrightnessRings]:
        """How the brightness of each image lies about a phase centre."""
        centre = self._observation.partitions[i_partition].phase_centre
        return [rings_of(image, centre) for image in self._images]

    def lm(self, i_partition: int) -> NDArray[np.float64] | None:
        """Direction cosines of the middle of each image about a phase centre, float64 (n_image, 2).

        They are 0 below the horizon.
        """
        if not self._images:
            return None
        lmn = self._middle @ basis(self._observation.partitions[i_partition].phase_centre).T
        return np.where(lmn[:, 2:] > 0.0, lmn[:, :2], 0.0)

    def outlines(self) -> list[dict[str, NDArray[np.float64]]]:
        """Corners of the bright part of each image about each phase centre, by name, float64 (4, 2).

        Direction cosines without shifts; NaN below the horizon.
        """
        corners = {
            name: _corners(image) @ basis(image.centre)
            for name, image in zip(self._names, self._images, strict=True)
        }
        return [
            {name: _above_horizon(points, part.phase_centre) for name, points in corners.items()}
            for part in self._observation.partitions
        ]

    def extent(self, i_partition: int) -> float:
        """Largest |l| or |m| of the images in a partition, 1 at most; 0 where theta shifts no image."""
        lm, shift = self.lm(i_partition), self._bound.image_shift()
        if lm is None or not shift:
            return 0.0
        return min(1.0, float(np.abs(lm).max() + np.sqrt(2.0) * shift))  # shifts may be turned

    def digest(self) -> str:
        """Hash of all pixels and of their coordinates; "" without images."""
        digest = hashlib.sha256()
        for image in self._images:
            about = image.cell, image.centre, image.offset, image.interpolation, image.pixels.shape
            digest.update(repr(about).encode())
            digest.update(image.pixels.tobytes())
            if image.chan_freq is not None:
                digest.update(image.chan_freq.tobytes())
        return digest.hexdigest() if self._images else ""


class ImageShifts:
    """Shifts of images in the tangent plane of each partition, from those in the plane of the model's centre.

    Parameters
    ----------
    bound : BoundModel
    middle : float64 (n_image, 3)
        ICRS unit vectors of the middle of each image.

    Attributes
    ----------
    change_any : bool
        Whether any partition sees other shifts than the model has.
    """

    def __init__(self, bound: BoundModel, middle: NDArray[np.float64]) -> None:
        axes = basis(bound.origin)
        self._lm = (middle @ axes.T)[:, :2]
        self._turn = [
            basis(frame.phase_centre) @ axes.T if frame.phase_centre != bound.origin else None
            for frame in bound.partitions
        ]
        self.change_any = len(middle) > 0 and any(turn is not None for turn in self._turn)

    def of(self, i_partition: int, sources: Sources) -> Sources:
        """The sources of a partition with shifts in the tangent plane of its phase centre."""
        shift, turn = sources.template_shift, self._turn[i_partition]
        if shift is None or turn is None:
            return sources
        change = directions(self._lm + shift) - directions(self._lm)
        shifted = copy.copy(sources)  # other partitions may share the sources
        object.__setattr__(shifted, "template_shift", (change @ turn.T)[..., :2])
        return shifted

    def pull_back(self, i_partition: int, sources: Sources, gradient: Gradient) -> Gradient:
        """Derivatives with respect to the shifts of the model; the adjoint of `of`.

        Parameters
        ----------
        i_partition : int
        sources : Sources
            The argument of `of`.
        gradient : Gradient
            With respect to the sources that `of` returned.
        """
        shift, turn, by_shift = sources.template_shift, self._turn[i_partition], gradient.template_shift
        if shift is None or turn is None or by_shift is None:
            return gradient
        l_m_n = directions(self._lm + shift)
        by_change = by_shift @ turn[:2]
        minus_slope = l_m_n[..., :2] / (1.0 + l_m_n[..., 2:])  # -dn/d(l, m)
        return replace(gradient, template_shift=by_change[..., :2] - by_change[..., 2:] * minus_slope)

    def push_forward(self, i_partition: int, sources: Sources, change: Gradient) -> Gradient:
        """Change of what `of` returns, for a change of the sources that it takes."""
        by_shift = change.template_shift
        if by_shift is None or self._turn[i_partition] is None:
            return change
        moved = np.empty(by_shift.shape)
        for k in range(2):  # the derivatives of the east part, then those of the north part
            unit = np.zeros((1, *by_shift.shape[1:]))
            unit[..., k] = 1.0
            row = self.pull_back(i_partition, sources, replace(change, template_shift=unit)).template_shift
            assert row is not None
            moved[..., k] = np.sum(row * by_shift, axis=-1)
        return replace(change, template_shift=moved)

    def of_all(self, sources: Iterable[Sources]) -> list[Sources]:
        """The sources of all partitions, given in their order, with shifts as from `of`."""
        return [self.of(i, of_partition) for i, of_partition in enumerate(sources)]

    def pull_back_all(self, sources: Iterable[Sources], gradients: Sequence[Gradient]) -> Sequence[Gradient]:
        """Derivatives of all partitions, each as from `pull_back`."""
        pairs = zip(sources, gradients, strict=True)
        return [self.pull_back(i, of_partition, gradient) for i, (of_partition, gradient) in enumerate(pairs)]


def _above_horizon(points: NDArray[np.float64], phase_centre: tuple[float, float]) -> NDArray[np.float64]:
    """Direction cosines of ICRS unit vectors about a phase centre, float64 (n, 2); NaN below its horizon."""
    lmn = points @ basis(phase_centre).T
    return np.where(lmn[:, 2:] > 0.0, lmn[:, :2], np.nan)


def _middle(image: ImageModel) -> NDArray[np.float64]:
    """ICRS unit vector of pixel (N/2, N/2)."""
    l, m = image.offset
    return np.asarray(basis(image.centre).T @ np.array([l, m, np.sqrt(1.0 - l * l - m * m)]))


def _corners(image: ImageModel) -> NDArray[np.float64]:
    """Corners of the box around the pixels that are not 0, as unit vectors about the image's centre."""
    nonzero: NDArray[np.bool_] = np.asarray(image.pixels.any(axis=(0, 1)))
    (columns, rows), half = image.axes, 0.5 * image.cell
    l, m = columns[nonzero.any(axis=0)], rows[nonzero.any(axis=1)]
    if not l.size:
        l, m = np.array([image.offset[0]]), np.array([image.offset[1]])
    east, west, south, north = l.max() + half, l.min() - half, m.min() - half, m.max() + half
    lm = np.array([(east, south), (west, south), (west, north), (east, north)])
    return np.column_stack([lm, np.sqrt(np.maximum(0.0, 1.0 - (lm**2).sum(axis=1)))])


def _image(term: ImageTerm) -> ImageModel:
    """The image of a term, read from its file where it has one."""
    if isinstance(term.file, ImageModel):
        return term.file
    try:
        return read_image(term.file, interpolation=cast(Interpolation, term.interpolation))
    except InputError as error:
        raise InputError(f"image {term.name!r}: {error}") from None
