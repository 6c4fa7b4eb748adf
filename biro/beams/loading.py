"""The beam of a sky model from the files that it names, or sampled at the channels of the data."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from biro.beams.cube_files import read_beam
from biro.beams.dish import ACCURACY, dish_extent, dish_function
from biro.beams.everybeam import everybeam
from biro.beams.sampled import katbeam, sample_antenna_beams, sample_beam
from biro.beams.zernike import read_zernike
from biro.display.formatting import first_few
from biro.models import ModelError, SkyModel
from biro.models.components.beam_cube import AntennaBeams, BeamCube
from biro.models.components.jones_beam import (
    DishBeam,
    EveryBeam,
    FitsBeam,
    FunctionBeam,
    KatBeam,
    ZernikeBeam,
)
from biro.models.components.partition_view import PartitionView
from biro.models.components.source import si_value
from biro.models.quantities.parameter import Fixed
from biro.models.quantities.units import ANGLE, TIME

Array = NDArray[np.float64]


def beam_of(sky: SkyModel, partitions: Sequence[PartitionView]) -> BeamCube | AntennaBeams | None:
    """The beam of a model on a grid, or None where its beam is a formula or it has none.

    Parameters
    ----------
    sky : SkyModel
    partitions : sequence of PartitionView
        At whose channels, antennas and times a beam is sampled that is not read.

    Raises
    ------
    InputError
        As `read_beam`, `katbeam`, `read_zernike`, `everybeam` and `sample_beam`.
    ModelError
        Names of antennas with beams of their own that are in no data, or said twice; beams on other grids.
    """
    beam = sky.beam
    if isinstance(beam, FitsBeam):
        return _of_files(beam, antenna_names(partitions))
    if isinstance(beam, ZernikeBeam):
        return read_zernike(beam.file)
    freq = np.unique(np.concatenate([partition.chan_freq for partition in partitions]))
    if isinstance(beam, KatBeam):
        return katbeam(beam.model, freq, si_value(beam.extent, ANGLE))
    if isinstance(beam, DishBeam):
        extent = dish_extent(beam, float(freq[0]))
        return sample_beam(dish_function(beam), freq, extent, accuracy=ACCURACY[beam.pattern], name="dish")
    if isinstance(beam, EveryBeam):
        return everybeam(beam, partitions, freq, _times(partitions, beam.time_step))
    if isinstance(beam, FunctionBeam):
        return _sampled(beam, partitions, freq)
    return None


def _of_files(beam: FitsBeam, names: tuple[str, ...]) -> BeamCube | AntennaBeams:
    """The beam of all antennas, or the beams of each where some have others."""
    own = beam.antennas or {}
    cubes = [file if isinstance(file, BeamCube) else read_beam(file) for file in (beam.file, *own.values())]
    if not own:
        return cubes[0]
    which = [_place_of(name, tuple(own)) for name in names]
    idle = [pattern for place, pattern in enumerate(own, start=1) if place not in which]
    if idle:
        raise ModelError(
            f"beam: antennas: the pattern {idle[0]!r} matches no antenna; the data have {first_few(names)}"
        )
    return AntennaBeams(tuple(cubes), names, np.zeros(1), np.array([which], np.int32))


def _place_of(name: str, patterns: Sequence[str]) -> int:
    """Which pattern an antenna's name fits, from 1 on; 0 where it fits none."""
    fitting = [place for place, pattern in enumerate(patterns, start=1) if fnmatchcase(name, pattern)]
    if len(fitting) > 1:
        first, second, *_ = (patterns[place - 1] for place in fitting)
        raise ModelError(
            f"beam: antennas: antenna {name!r} matches two patterns, {first!r} and {second!r}; it may match "
            "only one"
        )
    return fitting[0] if fitting else 0


def _sampled(beam: FunctionBeam, partitions: Sequence[PartitionView], freq: Array) -> BeamCube | AntennaBeams:
    """A function of the user's, at what it takes."""
    extent, name = si_value(beam.extent, ANGLE), "the function of the beam"
    if beam.n_argument == 3:
        return sample_beam(beam.function, freq, extent, name=name)
    names = antenna_names(partitions)
    if beam.n_argument == 4:
        return sample_antenna_beams(partial(_without_time, beam.function), freq, extent, names, name=name)
    times = _times(partitions, beam.time_step)
    return sample_antenna_beams(beam.function, freq, extent, names, times, name=name)


def _without_time(function: Any, x: Array, y: Array, freq: float, antenna: str, time: float) -> Any:
    return function(x, y, freq, antenna)


def antenna_names(partitions: Sequence[PartitionView]) -> tuple[str, ...]:
    """All antennas of the data."""
    return tuple(dict.fromkeys(name for partition in partitions for name in partition.antenna_names))


def _times(partitions: Sequence[PartitionView], step: Fixed | None) -> Array:
    """Times at which beams are sampled, s: all of the data, or the mean of those within each step."""
    times = np.unique(np.concatenate([partition.time for partition in partitions]))
    if step is None:
        return times
    bins = np.floor((times - times[0]) / si_value(step, TIME) + 1e-9).astype(np.int64)
    return np.array([times[bins == one].mean() for one in np.unique(bins)])
