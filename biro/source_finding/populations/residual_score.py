"""Where the residuals of a state suggest one more source: their dirty image."""

from __future__ import annotations

import logging

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from biro.errors import InputError
from biro.imaging.imager import Imager
from biro.models.components.direction import Centre, lm_to_radec, radec_to_lm
from biro.models.quantities.units import convert
from biro.source_finding.populations.likelihoods import PopulationLikelihood
from biro.source_finding.populations.scales import Scales

Array = NDArray[np.float64]
_MOST_PIXELS, _LEAST_PIXELS = 4096, 64
"""Along a side of the image."""
_TAIL = 1e-4
"""Part of the prior of a coordinate that the image leaves out at either end."""
_CELL = 0.7
"""Size of a pixel, in beams (standard deviations of the main lobe)."""
_MOST_PLACES = 256
"""Places that are suggested at most."""


class ResidualScore:
    """Finds places at which a point would raise ln L: peaks of the dirty image of natural weights.

    A point of flux I raises ln L by D I - I^2 / 2 times the information of a flux, at most by D^2 / 2 times
    it, where D is the image of the residuals in Jy/beam. It is exact for thermal noise without a beam, and a
    suggestion otherwise.

    Parameters
    ----------
    likelihood : PopulationLikelihood
    scales : Scales
    origin : (float, float), rad
        Right ascension and declination from which east and north are offsets.
    """

    def __init__(self, likelihood: PopulationLikelihood, scales: Scales, origin: Centre) -> None:
        self._likelihood = likelihood
        space = likelihood.space
        self._units = np.array([convert(1.0, space.quantities[i].unit, "rad") for i in space.place])
        self._flux_unit = convert(1.0, space.quantities[space.flux].unit, "Jy")
        lengths = np.linalg.svd(np.diag(self._units) @ np.linalg.inv(scales.whitening), compute_uv=False)
        cell = _CELL * float(lengths.min())
        ends = [space.quantities[i].prior.quantile_range(_TAIL) for i in space.place]
        self._low, self._high = np.array(ends).T
        reach = float(np.abs(np.array(ends).T * self._units).max())
        n_pixel = int(np.clip(2 * np.ceil(reach / cell) + 4, _LEAST_PIXELS, _MOST_PIXELS))
        observation = likelihood.sized(1).likelihood.observation
        logger = logging.getLogger("biro.imaging.imager")
        was_disabled, logger.disabled = logger.disabled, True  # that no beam is fitted does not matter
        self._imager: Imager | None = None
        try:
            self._imager = Imager(observation, cell=cell, size=n_pixel + n_pixel % 2)
        except InputError:  # several phase centres, or no Stokes I
            return
        finally:
            logger.disabled = was_disabled
        centre, self._shift = self._imager.centre, np.zeros(2)
        if centre != origin:
            self._shift = np.array(radec_to_lm(*lm_to_radec(0.0, 0.0, centre), origin))

    def __call__(self, row: Array) -> tuple[Array, Array]:
        """Places in the units of the priors (n, 2), and peaks there in the unit of fluxes (n,), above 0.

        There are none where no image can be made.

        Parameters
        ----------
        row : float64 (n_row,)
            The state that a source is added to.
        """
        if self._imager is None:
            return np.zeros((0, 2)), np.zeros(0)
        likelihood, number = self._likelihood, self._likelihood.space.number(row[None])
        of = likelihood.sized(likelihood.size_of(int(number[0])))
        model = of.likelihood.predict(likelihood.theta(row[None], of)[0])
        dirty = self._imager.image("residual", model).dirty[0]
        y, x = np.nonzero((dirty == ndimage.maximum_filter(dirty, 3)) & (dirty > 0.0))
        # Pixel (x, y) lies at l = -(x - N / 2) cell, m = (y - N / 2) cell.
        half, cell = self._imager.n_pixel // 2, self._imager.cell
        places = (np.stack([half - x, y - half], axis=1) * cell + self._shift) / self._units
        peak = dirty[y, x] / self._flux_unit
        inside = ((places >= self._low) & (places <= self._high)).all(axis=1)
        places, peak = places[inside], peak[inside]
        best = np.argsort(-peak)[:_MOST_PLACES]
        return places[best], peak[best]
