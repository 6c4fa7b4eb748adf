"""An image as the antennas of a field see it: where its pixels are, and what the beam leaves of them."""

from __future__ import annotations

import logging
import math
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from biro.errors import InputError
from biro.models.components.direction import basis
from biro.models.components.image import ImageModel
from biro.observation.partition import Partition
from rime_kernels.arrays import Beam
from rime_kernels.physics.beam import CODES, voltage

log = logging.getLogger(__name__)

Array = NDArray[np.float64]
MOST_BYTES = 2 << 30
"""Of A-terms at a time."""


class SeenImage:
    """The pixels of an image that are not 0, through the beam of a field.

    A beam that is the same for all antennas and times dims the image; one with pointing errors of their own
    comes as A-terms.

    Parameters
    ----------
    part : Partition
    image : ImageModel
    beam : Beam or None
        Of one sky.

    Attributes
    ----------
    lit : int64 (n,)
        These pixels, as y N + x.
    lm : float64 (n, 2)
        Their direction cosines about the phase centre.
    has_aterms : bool
        Whether antennas or times differ in where they point.

    Raises
    ------
    InputError
        Brightness 90 degrees or more from the phase centre.
    """

    def __init__(self, part: Partition, image: ImageModel, beam: Beam | None) -> None:
        self._image, self.n_stokes = image, 4 if image.pixels[1:].any() else 1
        self.lit: NDArray[np.int64] = np.flatnonzero(image.pixels.any(axis=(0, 1)))
        same = image.centre == part.phase_centre
        self._turn = None if same else basis(part.phase_centre) @ basis(image.centre).T
        columns, rows = image.axes
        y, x = np.divmod(self.lit, image.n_pixel)
        self.lm = self._of_field(columns[x], rows[y])
        lost = int(np.count_nonzero(np.isnan(self.lm[:, 0])))
        if lost:
            raise InputError(
                f"{lost} pixels of the image lie 90 degrees or more from the phase centre of field "
                f"{part.field}; give an image of this field, or select fields"
            )
        self._beam, self._pointing = beam, _pointing(beam)
        self.has_aterms = beam is not None and bool(np.ptp(self._pointing, axis=(0, 1)).any())

    @property
    def aterm_slot(self) -> NDArray[np.int32] | None:
        """Slot of A-terms of each time; None for one slot."""
        n_time = len(self._pointing)
        return np.arange(n_time, dtype=np.int32) if self.has_aterms and n_time > 1 else None

    def bright(self, freq: float, index: NDArray[np.int64] | None = None) -> Array:
        """Brightness of these pixels (or some of them), without beam, float64 (n_stokes, n)."""
        where = self.lit if index is None else self.lit[index]
        return self._image.at(freq, where)[: self.n_stokes]

    def at(self, freq: float) -> Array:
        """What must be followed in frequency: brightness times E^2, float64 (..., n).

        With A-terms, of an antenna that points to the phase centre and of one that points farthest from it.
        """
        bright = self.bright(freq)
        if not self.has_aterms:
            return bright * self._power(freq, self._pointing[0, 0])
        flat = self._pointing.reshape(-1, 2)
        farthest = flat[np.argmax((flat**2).sum(axis=1))]
        return np.concatenate([bright * self._power(freq, offset) for offset in (np.zeros(2), farthest)])

    def spread(self, freq: float, index: NDArray[np.int64] | None = None) -> Array:
        """The image (or some of its pixels) that the gridder is given, float64 (n_stokes, N, N)."""
        chosen = np.arange(len(self.lit)) if index is None else index
        values = self.bright(freq, chosen)
        if not self.has_aterms:
            values = values * self._power(freq, self._pointing[0, 0])[chosen]
        n = self._image.n_pixel
        out = np.zeros((self.n_stokes, n * n))
        out[:, self.lit[chosen]] = values
        return out.reshape(-1, n, n)

    def screens(self, lm: tuple[Array, Array], freq: float) -> Array | None:
        """A-terms E at directions about the image's centre, float64 (n_slot, n_antenna, S, S); None without.

        Raises
        ------
        InputError
            More of them than memory should take.
        """
        if not self.has_aterms or self._beam is None:
            return None
        n_slot, n_antenna = self._pointing.shape[:2]
        size = 16 * n_slot * n_antenna * lm[0].size
        if size > MOST_BYTES:
            raise InputError(
                f"pointing errors of {n_slot} times and {n_antenna} antennas make {size / 1e9:.3g} GB of "
                "A-terms for an image; average in time, or give pointing errors that are constant"
            )
        l, m = np.moveaxis(self._of_field(lm[0], lm[1]), -1, 0)
        out = np.empty((n_slot, n_antenna, *lm[0].shape))
        for t in range(n_slot):
            for a in range(n_antenna):
                dl, dm = self._pointing[t, a]
                # Beyond the horizon of the phase centre nothing is lit.
                out[t, a] = np.nan_to_num(self._voltage(freq, np.hypot(l - dl, m - dm)))
        return out

    def _of_field(self, l: Array, m: Array) -> Array:
        """Direction cosines about the phase centre, (..., 2); NaN 90 degrees or more from it."""
        if self._turn is None:
            return np.stack([l, m], axis=-1)
        n = np.sqrt(1.0 - l * l - m * m)
        l, m, n = (a * l + b * m + c * n for a, b, c in self._turn)
        return np.where((n > 0.0)[..., None], np.stack([l, m], axis=-1), np.nan)

    def _power(self, freq: float, offset: Array) -> Any:
        """E^2 at these pixels for antennas that point to `offset`; 1 without a beam."""
        if self._beam is None:
            return np.ones(len(self.lit))
        return self._voltage(freq, np.hypot(*(self.lm - offset).T)) ** 2

    def _voltage(self, freq: float, distance: Array) -> Array:
        assert self._beam is not None
        scale = float(self._beam.scale[0]) * freq
        flat = np.ascontiguousarray(distance).ravel()
        return np.asarray(_voltages(CODES[self._beam.kind], scale, flat)).reshape(distance.shape)


def _pointing(beam: Beam | None) -> Array:
    """Pointing errors (n_time or 1, n_antenna or 1, 2), rad."""
    if beam is None or beam.pointing is None:
        return np.zeros((1, 1, 2))
    return beam.pointing[0]


def warn_where_empty(part: Partition, image: ImageModel) -> None:
    """An image beside the field is exact but hardly meant."""
    l, m, n = basis(image.centre) @ basis(part.phase_centre)[2]
    columns, rows = image.axes
    inside = columns[-1] <= l <= columns[0] and rows[0] <= m <= rows[-1] and n > 0
    if not inside:
        apart = math.degrees(math.acos(min(1.0, max(-1.0, n))))
        log.warning(
            "the image does not contain the phase centre of field %s, %.3g deg from its own",
            part.field,
            apart,
        )


@njit(error_model="numpy")
def _voltages(code: int, scale_nu: float, distance: Array) -> Array:
    """E at distances from where an antenna points; the scalar physics is that of the kernels."""
    out = np.empty_like(distance)
    for i in range(distance.size):
        out[i] = voltage(code, scale_nu * distance[i])
    return out
