"""Images of a sky model as visibilities: worked out once, scaled by parameters ever after."""

from __future__ import annotations

import hashlib
import logging
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from biro.errors import InputError
from biro.image_prediction import predict_image
from biro.models import ImageModel, ModelError
from biro.models.direction import basis

if TYPE_CHECKING:
    from biro.models import BoundModel
    from biro.observation import Observation
    from rime_kernels.device import Backend

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
        axes = basis(self._observation.partitions[i_frame].phase_centre)
        found = np.zeros((len(self._images), 2))
        for i, image in enumerate(self._images):
            l, m = image.offset
            lmn = axes @ basis(image.centre).T @ np.array([l, m, np.sqrt(1.0 - l * l - m * m)])
            if lmn[2] > 0.0:
                found[i] = lmn[:2]
        return found

    def extent(self, i_frame: int) -> float:
        """Largest |l| or |m| that an image takes, 1 at most; 0 where none moves and phases are settled."""
        lm, shift = self.lm(i_frame), self._bound.image_shift()
        return 0.0 if lm is None or not shift else min(1.0, float(np.abs(lm).max()) + shift)

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


def _image(term: Any) -> ImageModel:
    if isinstance(term.file, ImageModel):
        return term.file
    from biro.image_file import read_image  # FITS takes a while to import

    try:
        return read_image(term.file, interpolation=term.interpolation)
    except InputError as error:
        raise InputError(f"image {term.name!r}: {error}") from None
