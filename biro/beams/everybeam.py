"""Beams of LOFAR, SKA-low, MWA and other telescopes, from the package everybeam."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from biro.beams.sampled import sample_antenna_beams
from biro.errors import InputError
from biro.models.components.beam_cube import AntennaBeams
from biro.models.components.direction import Centre
from biro.models.components.jones_beam import EveryBeam
from biro.models.components.partition_view import PartitionView
from biro.models.components.source import si_value
from biro.models.quantities.units import ANGLE

Array = NDArray[np.float64]
ACCURACY = 1e-4
"""Of the grid: beams of everybeam are float32, and models of stations are no better."""


class EveryBeamTelescope(Protocol):
    """What is used of a telescope of everybeam."""

    nr_stations: int

    def gridded_response(self, grid: Any, time: float, freq: float, station: int) -> Any:
        """Jones matrices (height, width, 2, 2) of a station."""
        ...


def everybeam(beam: EveryBeam, partitions: Sequence[PartitionView], freq: Array, time: Array) -> AntennaBeams:
    """Sample the beams of all stations with everybeam.

    `gridded_response(grid, time, freq, station)` gives Jones matrices on an image of everybeam's: l falls
    along its rows and m grows from row to row, with 0 at pixel (width / 2, height / 2).

    Parameters
    ----------
    beam : EveryBeam
    partitions : sequence of PartitionView
        Of one phase centre, about which l and m are.
    freq : float64 (n_freq,), Hz
    time : float64 (n_time,), s
        MJD.

    Raises
    ------
    InputError
        everybeam cannot be imported, or cannot open the Measurement Set; several phase centres; another
        number of stations than the data have antennas.
    """
    centres = {partition.phase_centre for partition in partitions}
    names = partitions[0].antenna_names
    if len(centres) > 1 or any(partition.antenna_names != names for partition in partitions):
        raise InputError(
            "an everybeam beam needs a single field of a single array; select a field (--fields)"
        )
    module = _module()
    try:
        telescope: EveryBeamTelescope = module.load_telescope(
            beam.measurement_set,
            use_differential_beam=beam.differential,
            element_response_model=beam.element_response_model,
            coeff_path=beam.coeff_path,
        )
    except (RuntimeError, ValueError, TypeError) as error:
        raise InputError(f"everybeam cannot open {beam.measurement_set}: {error}") from None
    if telescope.nr_stations != len(names):
        raise InputError(
            f"{beam.measurement_set} has {telescope.nr_stations} stations, the data have {len(names)} "
            "antennas; give the Measurement Set of the data"
        )
    (centre,), station = centres, {name: i for i, name in enumerate(names)}

    def jones(x: Array, y: Array, hertz: float, antenna: str, moment: float) -> NDArray[np.complex128]:
        grid = _grid(module, x, centre)
        found = np.asarray(telescope.gridded_response(grid, moment, hertz, station[antenna]))
        # Beyond the first row and column, from the largest l to the smallest.
        return np.asarray(found[1:, :0:-1], dtype=np.complex128)

    extent = si_value(beam.extent, ANGLE)
    return sample_antenna_beams(
        jones, freq, math.sin(extent), names, time, accuracy=ACCURACY, name="everybeam"
    )


def _module() -> Any:
    try:
        import everybeam as module
    except ImportError:
        raise InputError(
            "a beam needs the package everybeam; in the checkout of biro: pip install '.[everybeam]'"
        ) from None
    return module


def _grid(module: Any, x: Array, centre: Centre) -> Any:
    """everybeam's grid with the nodes of a square mesh: one more row and column, to have 0 at a pixel."""
    grid = module.GridSettings()
    grid.width = grid.height = len(x) + 1
    grid.ra, grid.dec = centre
    grid.dl = grid.dm = float(x[0, 1] - x[0, 0])
    grid.l_shift = grid.m_shift = 0.0
    return grid
