"""The pixels of an image about the phase centre of a partition, and their brightness through the beam."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable

import numpy as np
from numba import njit
from numpy.typing import NDArray

from biro.errors import InputError
from biro.models.bound.jones_beams import PartitionBeam
from biro.models.components.direction import basis
from biro.models.components.image import ImageModel
from biro.observation.partition import Partition
from biro.observation.smearing import BrightnessRings
from rime_kernels.arrays import Beam
from rime_kernels.physics.beam import CODES, voltage

log = logging.getLogger(__name__)

Array = NDArray[np.float64]
MAX_ATERM_BYTES = 2 << 30
"""Memory that A-terms may take at a time."""
_N_RING = 20


class SeenImage:
    """The nonzero pixels of an image, seen through the beam of a partition.

    A scalar beam that is the same for all antennas and times multiplies the image. Beams that differ in where
    they point, and beams of Jones matrices, are A-terms.

    Parameters
    ----------
    part : Partition
    image : ImageModel
    beam : Beam, PartitionBeam or None
        Of one parameter vector.

    Attributes
    ----------
    n_stokes : int
        1 where Q, U and V are 0 everywhere, else 4.
    nonzero : int64 (n,)
        Indices y N + x of the pixels that are not 0.
    lm : float64 (n, 2)
        Their direction cosines about the phase centre.
    has_aterms : bool
        Whether antennas or times differ in where they point, or beams are Jones matrices.

    Raises
    ------
    InputError
        The image is not 0 at 90 degrees or more from the phase centre.
    """

    def __init__(self, part: Partition, image: ImageModel, beam: Beam | PartitionBeam | None) -> None:
        self._image, self.n_stokes = image, 4 if image.pixels[1:].any() else 1
        self.nonzero: NDArray[np.int64] = np.flatnonzero(image.pixels.any(axis=(0, 1)))
        same = image.centre == part.phase_centre
        self._turn = None if same else basis(part.phase_centre) @ basis(image.centre).T
        columns, rows = image.axes
        y, x = np.divmod(self.nonzero, image.n_pixel)
        self.lm = self._about_phase_centre(columns[x], rows[y])
        n_beyond = int(np.count_nonzero(np.isnan(self.lm[:, 0])))
        if n_beyond:
            raise InputError(
                f"{n_beyond} pixels of the image lie 90 degrees or more from the phase centre of field "
                f"{part.field}; use an image of this field, or select other fields"
            )
        self._matrix = beam if isinstance(beam, PartitionBeam) else None
        self._beam = None if isinstance(beam, PartitionBeam) else beam
        self._pointing = _pointing(self._beam)
        self.has_aterms = self._matrix is not None or bool(np.ptp(self._pointing, axis=(0, 1)).any())

    @property
    def aterm_slot(self) -> NDArray[np.int32] | None:
        """Index of the A-terms of each time, int32 (n_time,); None where all times share them."""
        n_time = len(self._pointing) if self._matrix is None else self._matrix.n_slot
        return np.arange(n_time, dtype=np.int32) if self.has_aterms and n_time > 1 else None

    def brightness(self, freq: float, index: NDArray[np.int64] | None = None) -> Array:
        """Brightness of the nonzero pixels, or of some of them, without the beam, float64 (n_stokes, n)."""
        pixels = self.nonzero if index is None else self.nonzero[index]
        return np.asarray(self._image.at(freq, pixels)[: self.n_stokes])

    def apparent_brightness(self, freq: float) -> Array:
        """Brightness times E^2, float64 (..., n), whose change with frequency is to be interpolated.

        With A-terms, E is that of an antenna that points to the phase centre, and that of the antenna and
        time with the largest pointing error. Of Jones matrices, products of all pairs of elements, at
        `PartitionBeam.samples`.
        """
        bright = self.brightness(freq)
        if self._matrix is not None:
            l, m = self.lm.T
            each = [self._matrix.jones(l, m, freq, *at).reshape(-1, 4) for at in self._matrix.samples]
            pairs = [(e[:, i] * e[:, j].conj()) for e in each for i in range(4) for j in range(i, 4)]
            return np.concatenate([bright * part for pair in pairs for part in (pair.real, pair.imag)])
        if not self.has_aterms:
            return bright * self._power(freq, self._pointing[0, 0])
        flat = self._pointing.reshape(-1, 2)
        farthest = flat[np.argmax((flat**2).sum(axis=1))]
        return np.concatenate([bright * self._power(freq, offset) for offset in (np.zeros(2), farthest)])

    def planes(self, freq: float, index: NDArray[np.int64] | None = None) -> Array:
        """The image for the gridder, of all or of some nonzero pixels, float64 (n_stokes, N, N).

        It holds brightness times E^2, or brightness alone where the beams are A-terms.
        """
        index = np.arange(len(self.nonzero)) if index is None else index
        values = self.brightness(freq, index)
        if not self.has_aterms:
            values = values * self._power(freq, self._pointing[0, 0])[index]
        n = self._image.n_pixel
        out = np.zeros((self.n_stokes, n * n))
        out[:, self.nonzero[index]] = values
        return out.reshape(-1, n, n)

    def aterms(self, lm: tuple[Array, Array], freq: float) -> NDArray[np.inexact] | None:
        """A-terms E at directions about the image's centre, float64 (n_slot, n_antenna, S, S), or None.

        Of Jones matrices E P, complex128 (n_slot, n_antenna, S, S, 2, 2).

        Raises
        ------
        InputError
            They would take more memory than `MAX_ATERM_BYTES`.
        """
        if self._matrix is not None:
            return self._matrix_aterms(self._matrix, lm, freq)
        if not self.has_aterms or self._beam is None:
            return None
        n_slot, n_antenna = self._pointing.shape[:2]
        _check_size(n_slot, n_antenna, 16 * lm[0].size)
        l, m = np.moveaxis(self._about_phase_centre(lm[0], lm[1]), -1, 0)
        out = np.empty((n_slot, n_antenna, *lm[0].shape))
        for t in range(n_slot):
            for a in range(n_antenna):
                dl, dm = self._pointing[t, a]
                # Beyond the horizon of the phase centre, where E is NaN, all pixels are 0.
                out[t, a] = np.nan_to_num(self._voltage(freq, np.hypot(l - dl, m - dm)))
        return out

    def _matrix_aterms(
        self, beam: PartitionBeam, lm: tuple[Array, Array], freq: float
    ) -> NDArray[np.complex128]:
        n_slot, n_antenna = beam.n_slot, beam.angle.shape[1]
        _check_size(n_slot, n_antenna, 64 * lm[0].size)
        # Beyond the horizon of the phase centre all pixels are 0, whatever the beam.
        l, m = np.nan_to_num(np.moveaxis(self._about_phase_centre(lm[0], lm[1]), -1, 0))
        out = np.empty((n_slot, n_antenna, *lm[0].shape, 2, 2), complex)
        for slot in range(n_slot):
            for antenna in range(n_antenna):
                out[slot, antenna] = beam.jones(l, m, freq, slot, antenna)
        return out

    def _about_phase_centre(self, l: Array, m: Array) -> Array:
        """Direction cosines about the phase centre, float64 (..., 2), of those about the image's centre.

        They are NaN 90 degrees or more from the phase centre.
        """
        if self._turn is None:
            return np.stack([l, m], axis=-1)
        n = np.sqrt(1.0 - l * l - m * m)
        l, m, n = (a * l + b * m + c * n for a, b, c in self._turn)
        return np.asarray(np.where((n > 0.0)[..., None], np.stack([l, m], axis=-1), np.nan))

    def _power(self, freq: float, offset: Array) -> Array:
        """E^2 at the nonzero pixels of antennas that point to `offset`; 1 without a beam."""
        if self._beam is None:
            return np.ones(len(self.nonzero))
        return np.asarray(self._voltage(freq, np.hypot(*(self.lm - offset).T)) ** 2)

    def _voltage(self, freq: float, distance: Array) -> Array:
        """E at a frequency (Hz) and at distances (direction cosines) from where an antenna points."""
        assert self._beam is not None
        scale = float(self._beam.scale[0]) * freq
        flat = np.ascontiguousarray(distance).ravel()
        return np.asarray(_voltages(CODES[self._beam.kind], scale, flat)).reshape(distance.shape)


def _check_size(n_slot: int, n_antenna: int, n_byte: int) -> None:
    """Refuse A-terms, of so many bytes each, that would take more memory than `MAX_ATERM_BYTES`."""
    size = n_slot * n_antenna * n_byte
    if size > MAX_ATERM_BYTES:
        raise InputError(
            f"beams of {n_slot} times and {n_antenna} antennas make {size / 1e9:.3g} GB of A-terms; "
            "average in time, use constant pointing errors, or fix the beam centre ([beam] centre = "
            '"phase")'
        )


def _pointing(beam: Beam | None) -> Array:
    """Pointing errors, float64 (n_time or 1, n_antenna or 1, 2), rad."""
    if beam is None or beam.pointing is None:
        return np.zeros((1, 1, 2))
    return np.asarray(beam.pointing[0])


def rings_of(image: ImageModel, phase_centre: tuple[float, float]) -> BrightnessRings:
    """The brightness of an image in rings about a phase centre, by the |I| of its first plane."""
    flux = np.abs(image.pixels[0, 0])
    y, x = np.nonzero(flux)
    columns, rows = image.axes
    l, m = columns[x], rows[y]
    about = np.stack([l, m, np.sqrt(np.maximum(0.0, 1.0 - l * l - m * m))], axis=-1)
    along_centre = about @ (basis(image.centre) @ basis(phase_centre).T)
    distance = np.arctan2(np.hypot(along_centre[:, 0], along_centre[:, 1]), along_centre[:, 2])
    farthest = float(distance.max(initial=0.0))
    ring = np.minimum(_N_RING * distance / (farthest or 1.0), _N_RING - 1).astype(np.int64)
    outermost = np.zeros(_N_RING)
    np.maximum.at(outermost, ring, distance)
    return BrightnessRings(outermost, np.bincount(ring, flux[y, x], _N_RING).astype(np.float64, copy=False))


def warn_where_empty(part: Partition, image: ImageModel) -> None:
    """Warn of an image that does not contain the phase centre, which is valid but probably a mistake."""
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


def _voltage_loop(code: int, scale_nu: float, distance: Array) -> Array:
    """E at distances from where an antenna points, by the scalar function that the kernels use."""
    out = np.empty_like(distance)
    for i in range(distance.size):
        out[i] = voltage(code, scale_nu * distance[i])
    return out


_voltages: Callable[[int, float, Array], Array] = njit(error_model="numpy")(_voltage_loop)
