"""Where the residuals of a state suggest one more source: their dirty image."""

from __future__ import annotations

import logging

import numpy as np
from numpy.typing import NDArray

from biro.errors import InputError
from biro.imaging.imager import Imager
from biro.models.components.direction import Centre, lm_to_radec, radec_to_lm
from biro.models.quantities.units import convert
from biro.populations.likelihoods import PopulationLikelihood
from biro.populations.places import PlaceGrid
from biro.populations.scales import CELL, Scales

Array = NDArray[np.float64]
Index = NDArray[np.int64]
_MOST_PIXELS, _LEAST_PIXELS = 4096, 64
"""Along a side of the image."""
_MOST_PLACES = 4096
"""Places that are suggested at most."""


class ResidualScore:
    """Finds places at which a point would raise ln L, by the dirty image of natural weights.

    A point of flux I raises ln L by D I - I^2 / 2 times the information of a flux, at most by D^2 / 2 times
    it, where D is the image of the residuals in Jy/beam. It is exact for thermal noise without a beam, and a
    suggestion otherwise.

    Parameters
    ----------
    likelihood : PopulationLikelihood
    scales : Scales
    grid : PlaceGrid
        Cells of the places.
    origin : (float, float), rad
        Right ascension and declination from which east and north are offsets.
    """

    def __init__(
        self, likelihood: PopulationLikelihood, scales: Scales, grid: PlaceGrid, origin: Centre
    ) -> None:
        self._likelihood, self._grid = likelihood, grid
        space = likelihood.space
        units = [convert(1.0, space.quantities[i].unit, "rad") for i in space.place]
        of_flux = convert(1.0, space.quantities[space.flux].unit, "Jy")
        self._information = scales.information / of_flux**2
        lengths = np.linalg.svd(np.diag(units) @ np.linalg.inv(scales.whitening), compute_uv=False)
        cell = CELL * float(lengths.min())
        ends = np.array([grid.low, grid.low + grid.shape * grid.width]) * units
        reach = float(np.abs(ends).max())
        n_pixel = int(np.clip(2 * np.ceil(reach / cell) + 4, _LEAST_PIXELS, _MOST_PIXELS))
        observation = likelihood.sized(1).likelihood.observation
        logger = logging.getLogger("biro.imaging.imager")
        was_disabled, logger.disabled = logger.disabled, True  # that no beam is fitted does not matter
        try:
            self._imager: Imager | None = Imager(observation, cell=cell, size=n_pixel + n_pixel % 2)
        except InputError:  # several phase centres, or no Stokes I
            self._imager = None
        finally:
            logger.disabled = was_disabled
        if self._imager is not None:
            self._find_cells(units, origin)

    def _find_cells(self, units: list[float], origin: Centre) -> None:
        """The cell of each pixel, -1 outside."""
        assert self._imager is not None
        n, cell = self._imager.n_pixel, self._imager.cell
        steps = (np.arange(n) - n // 2) * cell
        centre = self._imager.centre
        north, east = np.meshgrid(steps, -steps, indexing="ij")
        if centre != origin:
            moved = radec_to_lm(*lm_to_radec(0.0, 0.0, centre), origin)
            east, north = east + moved[0], north + moved[1]
        places = np.stack([east.ravel() / units[0], north.ravel() / units[1]], axis=1)
        self._cells = self._grid.cells(places)

    def __call__(self, row: Array) -> tuple[Index, Array]:
        """Cells, and the rise of ln L by a point there; none where no image can be made.

        Parameters
        ----------
        row : float64 (n_row,)
            The state that it is added to.
        """
        if self._imager is None:
            return np.zeros(0, np.int64), np.zeros(0)
        likelihood, number = self._likelihood, self._likelihood.space.number(row[None])
        of = likelihood.sized(likelihood.size_of(int(number[0])))
        model = of.likelihood.predict(likelihood.theta(row[None], of)[0])
        dirty = self._imager.image("residual", model).dirty[0].ravel()
        gain = np.where(self._cells >= 0, 0.5 * self._information * np.maximum(dirty, 0.0) ** 2, 0.0)
        n = min(_MOST_PLACES, int((gain > 0.0).sum()))
        best = np.argpartition(gain, len(gain) - n)[len(gain) - n :] if n else np.zeros(0, np.int64)
        cells, index = np.unique(self._cells[best], return_inverse=True)
        highest = np.zeros(len(cells))
        np.maximum.at(highest, index, gain[best])
        return cells, highest
