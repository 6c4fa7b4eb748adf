"""The beam of a sky model from the files that it names, or sampled at the channels of the data."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from biro.beams.cube_files import read_beam
from biro.beams.sampled import katbeam
from biro.models import SkyModel
from biro.models.components.beam_cube import BeamCube
from biro.models.components.jones_beam import FitsBeam, KatBeam
from biro.models.components.partition_view import PartitionView
from biro.models.components.source import si_value
from biro.models.quantities.units import ANGLE


def beam_of(sky: SkyModel, partitions: Sequence[PartitionView]) -> BeamCube | None:
    """The beam of a model on a grid, or None where its beam is a formula or it has none.

    Parameters
    ----------
    sky : SkyModel
    partitions : sequence of PartitionView
        At whose channels a beam is sampled that another package computes.

    Raises
    ------
    InputError
        As `read_beam` and `katbeam`.
    """
    beam = sky.beam
    if isinstance(beam, FitsBeam):
        return beam.file if isinstance(beam.file, BeamCube) else read_beam(beam.file)
    if isinstance(beam, KatBeam):
        freq = np.unique(np.concatenate([partition.chan_freq for partition in partitions]))
        return katbeam(beam.model, freq, si_value(beam.extent, ANGLE))
    return None
