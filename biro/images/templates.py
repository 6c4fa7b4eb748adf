"""Images of a sky model as visibilities: worked out once, scaled by parameters ever after."""

from __future__ import annotations

import copy
import hashlib
import logging
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from biro.errors import InputError
from biro.images.prediction import check_image, predict_image
from biro.models import ImageModel, ModelError
from biro.models.components.direction import basis
from rime_kernels.physics.phase import directions

if TYPE_CHECKING:
    from biro.models import BoundModel
    from biro.observation.observation import Observation
    from rime_kernels.arrays import Sources
    from rime_kernels.device import Backend
    from rime_kernels.gradient import Gradient

log = logging.getLogger(__name__)


class Templates:
    """Visibilities of a model's images in each partition, for factors of 1.

    Parameters
    ----------
    observation : Observation
    bound : BoundModel
    accuracy : float
        Rms error over rms of the visibilities.
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
        backend: Backend,
        memory_limit: int | str | None,
    ) -> None:
        self._observation, self._bound = observation, bound
        self._options: dict[str, Any] = {
            "accuracy": accuracy,
            "backend": backend,
            "memory_limit": memory_limit,
        }
        terms = bound.model.images
        self._names = [term.name for term in terms]
        self._images = [_image(term) for term in terms]
        self._middle = np.array([_middle(image) for image in self._images]).reshape(-1, 3)
        self.shifts = Shifts(bound, self._middle)

    def check(self) -> None:
        """Refuse images that cannot be predicted before any is, for all partitions."""
        for name, image in zip(self._names, self._images, strict=True):
            for part in self._observation.partitions:
                try:
                    check_image(part, image)
                except (InputError, ModelError) as error:
                    raise type(error)(f"image {name!r}: {error}") from None

    def of(self, i_frame: int) -> NDArray[np.complexfloating] | None:
        """Complex (n_image, n_row, n_chan, n_corr), Jy, of a partition; None without images."""
        if not self._images:
            return None
        part, beam = self._observation.partitions[i_frame], self._bound.fixed_beam(i_frame)
        found = []
        for name, image in zip(self._names, self._images, strict=True):
            try:
                found.append(predict_image(part, image, beam=beam, **self._options))
            except (InputError, ModelError) as error:
                raise type(error)(f"image {name!r}: {error}") from None
            log.info("%s: image %s is predicted", self._observation.labels[i_frame], name)
        return np.stack(found)

    def lm(self, i_frame: int) -> NDArray[np.float64] | None:
        """Direction cosines of the middle of each image about a phase centre, float64 (n_image, 2)."""
        if not self._images:
            return None
        lmn = self._middle @ basis(self._observation.partitions[i_frame].phase_centre).T
        return np.where(lmn[:, 2:] > 0.0, lmn[:, :2], 0.0)

    def outlines(self) -> list[dict[str, NDArray[np.float64]]]:
        """Corners of the bright part of each image about each phase centre, by name, float64 (4, 2).

        Direction cosines without shifts; NaN below the horizon.
        """
        corners = {
            name: _corners(image) @ basis(image.centre)
            for name, image in zip(self._names, self._images, strict=True)
        }
        found = []
        for part in self._observation.partitions:
            axes = basis(part.phase_centre)
            lmn = {name: each @ axes.T for name, each in corners.items()}
            found.append(
                {name: np.where(each[:, 2:] > 0.0, each[:, :2], np.nan) for name, each in lmn.items()}
            )
        return found

    def extent(self, i_frame: int) -> float:
        """Largest |l| or |m| that an image takes, 1 at most; 0 where none moves and phases are settled."""
        lm, shift = self.lm(i_frame), self._bound.image_shift()
        if lm is None or not shift:
            return 0.0
        return min(1.0, float(np.abs(lm).max() + np.sqrt(2.0) * shift))  # shifts may be turned

    def digest(self) -> str:
        """Hash of all pixels and of where they are; of nothing without images."""
        made = hashlib.sha256()
        for image in self._images:
            about = image.cell, image.centre, image.offset, image.interpolation, image.pixels.shape
            made.update(repr(about).encode())
            made.update(image.pixels.tobytes())
            if image.chan_freq is not None:
                made.update(image.chan_freq.tobytes())
        return made.hexdigest() if self._images else ""


class Shifts:
    """How images move in the plane of each phase centre, from how the model says in that of its own centre.

    Parameters
    ----------
    bound : BoundModel
    middle : float64 (n_image, 3)
        ICRS unit vectors of the middle of each image.
    """

    def __init__(self, bound: BoundModel, middle: NDArray[np.float64]) -> None:
        axes = basis(bound.origin)
        self._lm = (middle @ axes.T)[:, :2]
        self._turn = [
            basis(frame.phase_centre) @ axes.T if frame.phase_centre != bound.origin else None
            for frame in bound.partitions
        ]

    def of(self, i_frame: int, sources: Sources) -> Sources:
        """The sources of a partition with the shifts that its phase centre sees."""
        shift, turn = sources.template_shift, self._turn[i_frame]
        if shift is None or turn is None:
            return sources
        change = directions(self._lm + shift) - directions(self._lm)
        made = copy.copy(sources)  # which other partitions may have too
        object.__setattr__(made, "template_shift", (change @ turn.T)[..., :2])
        return made

    def pull_back(self, i_frame: int, sources: Sources, gradient: Gradient) -> Gradient:
        """Derivatives with respect to shifts as the model has them: the adjoint of `of`.

        Parameters
        ----------
        i_frame : int
        sources : Sources
            What `of` was given.
        gradient : Gradient
            With respect to what it returned.
        """
        shift, turn, by_shift = sources.template_shift, self._turn[i_frame], gradient.template_shift
        if shift is None or turn is None or by_shift is None:
            return gradient
        l_m_n = directions(self._lm + shift)
        by_change = by_shift @ turn[:2]
        falls = l_m_n[..., :2] / (1.0 + l_m_n[..., 2:])  # of n with l and m
        return replace(gradient, template_shift=by_change[..., :2] - by_change[..., 2:] * falls)

    def of_all(self, sources: Iterable[Sources]) -> Iterator[Sources]:
        """The same for one partition after the other."""
        return (self.of(i, each) for i, each in enumerate(sources))


def _middle(image: ImageModel) -> NDArray[np.float64]:
    """ICRS unit vector of pixel (N/2, N/2)."""
    l, m = image.offset
    return np.asarray(basis(image.centre).T @ np.array([l, m, np.sqrt(1.0 - l * l - m * m)]))


def _corners(image: ImageModel) -> NDArray[np.float64]:
    """Unit vectors, about its own centre, of the corners of the box of pixels that are not 0."""
    lit: NDArray[np.bool_] = np.asarray(image.pixels.any(axis=(0, 1)))
    (columns, rows), half = image.axes, 0.5 * image.cell
    l, m = columns[lit.any(axis=0)], rows[lit.any(axis=1)]
    if not l.size:
        l, m = np.array([image.offset[0]]), np.array([image.offset[1]])
    east, west, south, north = l.max() + half, l.min() - half, m.min() - half, m.max() + half
    lm = np.array([(east, south), (west, south), (west, north), (east, north)])
    return np.column_stack([lm, np.sqrt(np.maximum(0.0, 1.0 - (lm**2).sum(axis=1)))])


def _image(term: Any) -> ImageModel:
    if isinstance(term.file, ImageModel):
        return term.file
    from biro.images.fits import read_image  # FITS takes a while to import

    try:
        return read_image(term.file, interpolation=term.interpolation)
    except InputError as error:
        raise InputError(f"image {term.name!r}: {error}") from None
