"""Where the sources of a population may be, if the model leaves that to the data: the field of an image."""

from __future__ import annotations

import logging
from dataclasses import replace

from biro.display.formatting import ANGLES, angle_text, unit_for
from biro.display.stages import Stages
from biro.imaging.imager import Imaging, choose_pixels, default_stokes
from biro.imaging.pieces import pieces_of
from biro.imaging.pixels import single_phase_centre
from biro.models import SkyModel, Uniform
from biro.models.components.direction import radec_to_lm
from biro.models.components.population import FIELD
from biro.observation.observation import Observation
from biro.run.log_file import NOTICE

log = logging.getLogger(__name__)


def with_places(sky: SkyModel, observation: Observation) -> SkyModel:
    """The model with priors of the places that `place = "field"` leaves to the data.

    East and north offsets are uniform within a square about the phase centre that is as wide as the images
    that `biro.image` and `biro.find_sources` make by default.

    Parameters
    ----------
    sky : SkyModel
    observation : Observation
        Of one phase centre.

    Raises
    ------
    InputError
        Several phase centres, or no visibility has a weight.
    ModelError
        The phase centre is 90 deg or more from the centre of the model.
    """
    if not any(population.place == FIELD for population in sky.populations):
        return sky
    centre, width = single_phase_centre(observation), field_width(observation)
    origin = sky.origin(observation.partition_views)
    offsets = (0.0, 0.0) if origin == centre else radec_to_lm(*centre, origin)
    unit = unit_for([width], ANGLES)
    east, north = (
        Uniform((offset - 0.5 * width) / unit.size, (offset + 0.5 * width) / unit.size, unit=unit.name)
        for offset in offsets
    )
    log.log(NOTICE, "sources of populations lie in the field of the image, %s wide", angle_text(width))
    return replace(sky, populations=[each.with_place(east, north) for each in sky.populations])


def field_width(observation: Observation) -> float:
    """Direction cosines across the image that `biro.image` makes by default.

    Raises
    ------
    InputError
        No visibility has a weight.
    """
    pieces = pieces_of(observation, default_stokes(observation.partitions), Stages(), "auto")
    cell, n_pixel = choose_pixels(observation, pieces.each("moments"), Imaging())
    return cell * n_pixel
